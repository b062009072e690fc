"""Data frames in place of files of predictions: the same columns, roles and doubts."""

import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from confrank import compare, evaluate
from confrank.predictions import read
from confrank.predictions.predictions import ARRAYS

NAMES = ["cat", "dog", "elk"]


def flowing(size=60):
    random = np.random.default_rng(0)
    logits = random.normal(0, 1, (size, 3)) + 2 * (random.integers(0, 3, size)[:, None] == np.arange(3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = np.array(NAMES)[(logits + random.normal(0, 1, logits.shape)).argmax(axis=1)]
    frame = pd.DataFrame(probabilities, columns=[f"probability_{name}" for name in NAMES])
    return frame.assign(label=label, site=random.choice(["north", "south"], size), age=random.integers(20, 70, size))


def answers(size=60):
    frame = flowing(size)
    table = frame.filter(like="probability_").set_axis(NAMES, axis=1)
    return pd.DataFrame({"label": frame.label, "prediction": table.idxmax(axis=1), "confidence": table.max(axis=1)})


def same(one, other):
    for name in ARRAYS:
        mine, theirs = getattr(one, name), getattr(other, name)
        assert (mine is None) == (theirs is None), name
        assert mine is None or np.array_equal(mine, theirs), name
    assert one.class_names == other.class_names
    assert one.extra.keys() == other.extra.keys()
    for name, values in one.extra.items():
        assert values.astype(str).tolist() == other.extra[name].astype(str).tolist(), name
    assert one.roles == other.roles


FORMS = {
    "class columns": (flowing(), {}),
    "plain class columns": (flowing()[["label"]].join(flowing().iloc[:, :3].set_axis(NAMES, axis=1)), {}),
    "answers": (answers(), {}),
    "categories": (answers().astype({"label": "category", "prediction": "category"}), {}),
    "nullable": (answers().convert_dtypes(), {}),
    "arrow": (answers().convert_dtypes(dtype_backend="pyarrow"), {}),
    "correct": (answers().assign(correct=lambda one: one.label == one.prediction)[["confidence", "correct"]], {}),
    "columns": (
        answers().rename(columns={"label": "a", "confidence": "b"}),
        {"columns": {"label": "a", "confidence": "b"}},
    ),
    "positive": (
        pd.DataFrame({"label": [1, 0, 1, 0], "score": [0.9, 0.2, 0.4, 0.6], "prediction": [1, 0, 0, 1]}),
        {"positive": "1"},
    ),
    "scale": (answers().assign(confidence=lambda one: 100 * one.confidence), {"scale": 100}),
    "keep": (flowing(), {"keep": ["site", "age"]}),
    "missing": (answers().where(pd.Series(np.arange(60) % 7 > 0)), {"skip_missing": True}),
    "id": (answers().assign(id=lambda one: [f"row {number}" for number in range(len(one))]), {}),
    "numbered id": (answers().assign(id=lambda one: range(100, 100 + len(one))), {}),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_data_frame_is_read_as_its_csv_file(form, tmp_path):
    frame, options = FORMS[form]
    frame.to_csv(tmp_path / "a.csv", index=False)
    expected = read(tmp_path / "a.csv", **options)
    same(read(frame, **options), expected)
    same(read(pd.read_csv(tmp_path / "a.csv"), **options), expected)
    same(read(pa.Table.from_pandas(frame, preserve_index=False), **options), expected)


def test_lists_of_probabilities_are_a_table():
    frame = flowing()
    table = frame.filter(like="probability_").to_numpy()
    numbers = [NAMES.index(name) for name in frame.label]
    for lists in ([*table], table.tolist()):
        found = read(pd.DataFrame({"probabilities": lists, "label": numbers}))
        assert np.array_equal(found.probabilities, table) and found.label.tolist() == numbers
    arrow = pa.table({"probabilities": table.tolist(), "label": numbers})
    assert np.array_equal(read(arrow).probabilities, table)


def test_truth_values_name_classes_in_any_order():
    label = np.array([True, False, True, True])
    share = np.array([0.75, 0.25, 0.5, 0.125])
    for names in (["False", "True"], ["True", "False"]):
        columns = {f"probability_{name}": share if name == "True" else 1 - share for name in names}
        found = read(pd.DataFrame(columns | {"label": label}))
        expected = evaluate(probabilities=np.stack([1 - share, share], axis=1), label=label.astype(int))
        assert evaluate(**found.evaluation_inputs()).metrics["nll"] == expected.metrics["nll"]


def test_labels_come_from_another_data_frame():
    frame = answers().assign(id=range(60))
    truth = frame[["id", "label"]].sample(frac=1, random_state=0)
    found = read(frame.drop(columns="label"), truth=truth)
    same(
        found.__class__(**found.arrays(), metadata=found.metadata),
        read(frame).__class__(**read(frame).arrays(), metadata=read(frame).metadata),
    )
    assert "labels of the data frame of labels joined by id" in found.describe()
    by_index = read(frame.drop(columns=["label", "id"]).rename_axis("id"), truth=frame.set_index("id")[["label"]])
    assert np.array_equal(by_index.label, found.label)


def test_labels_come_from_a_series():
    frame = answers().set_axis(np.arange(100, 160))
    truth = frame.label.sample(frac=1, random_state=0)
    found = read(frame.drop(columns="label"), truth=truth)
    assert [found.class_names[number] for number in found.label] == frame.label.tolist()


def test_the_index_identifies_rows():
    """Rows of one split in two orders are paired by the index that the split gave them."""
    frame = answers(200).iloc[100:]
    shuffled = frame.sample(frac=1, random_state=0)
    result = compare(read(frame), read(shuffled), resamples=100)
    assert result.pairings == ("matched by index",)
    assert all(gap is None or gap.value == 0 for gap in result.differences[0].values())
    named = read(frame.rename_axis("sample_id"))
    assert named.key_name == "sample_id" and named.key[0] == b"100"
    kept = read(frame.rename_axis("patient"), keep=["patient"])
    assert kept.extra["patient"].tolist() == frame.index.tolist()
    for plain in (frame.rename_axis("patient"), frame.reset_index(drop=True), frame.set_index(np.zeros(100, int))):
        assert read(plain).index is None and not read(plain).keys


def test_classes_name_their_columns_among_others():
    frame = FORMS["plain class columns"][0]
    found = read(frame.assign(site="north", age=30), classes=np.array(NAMES))
    assert found.class_names == NAMES
    assert np.array_equal(found.probabilities, read(frame).probabilities)


def test_an_index_is_never_a_class():
    frame = FORMS["plain class columns"][0]
    assert read(frame.rename_axis("day")).class_names == NAMES
    assert read(frame.set_axis(np.arange(7, 67))).class_names == NAMES


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (answers().drop(columns="confidence"), "the data frame: expected .*`columns`, as in confidence=COLUMN"),
        (answers().iloc[:0], "rows of predictions, but there are none"),
        (pd.concat([answers(), answers()], axis=1), "expected distinct columns, but got 'label' twice"),
        (np.eye(3), "expected the path of a file or a data frame, but got ndarray"),
        (None, "expected the path of a file or a data frame, but got NoneType"),
    ],
)
def test_doubts_about_a_data_frame(frame, message):
    with pytest.raises(ValueError, match=message):
        read(frame)


def test_numbers_of_a_data_frame_are_not_rounded():
    frame = answers()
    assert np.array_equal(read(frame).confidence, frame.confidence.to_numpy())
    assert read(frame.astype({"confidence": "float32"})).confidence.dtype == np.float32


def test_columns_of_other_types_do_not_matter():
    frame = answers().assign(
        day=pd.date_range("2026-01-01", periods=60), bin=pd.cut(flowing().age, 3), other=[{}] * 60
    )
    text = frame.to_csv(index=False)
    found, expected = read(frame, keep=["day", "bin"]), pd.read_csv(io.StringIO(text))
    assert found.extra["bin"].tolist() == expected["bin"].tolist()
    assert found.extra["day"][0].startswith("2026-01-01")


@pytest.mark.parametrize("library", ["pandas", "arrow"])
def test_evaluate_and_compare_take_a_frame(library):
    """As the command takes its file: roles follow from the names of the columns."""
    random = np.random.default_rng(0)
    table, label = random.dirichlet(np.ones(3), 200), random.integers(0, 3, 200)
    columns = {"label": label, "site": np.arange(200) % 2} | {f"probability_{k}": table[:, k] for k in range(3)}
    frame = pd.DataFrame(columns) if library == "pandas" else pa.table(columns)
    expected = evaluate(label, table)
    assert evaluate(frame).metrics == evaluate(read(frame)).metrics == expected.metrics
    result = compare(frame, frame, by="site", resamples=100)
    assert result.metrics == (expected.metrics,) * 2 and result.pairings == ("identical",)
    assert [group.evaluation.num_samples for group in result.groups[1]["site"].groups] == [100, 100]
    weighted = compare(frame, sample_weight="site")
    assert weighted.metrics[0]["acc"] == np.average(table.argmax(1) == label, weights=np.arange(200) % 2)
