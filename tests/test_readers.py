import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packing import packed
from safetensors.numpy import save_file
from safetensors.torch import save_file as torch_file

from confrank import evaluate
from confrank.active.pool import open_pool
from confrank.metrics import inputs
from confrank.predictions import Predictions, doubts, load_predictions, read, save_predictions
from confrank.predictions.joining import LONGEST_KEY
from confrank.predictions.tables import KINDS

PROBABILITIES = np.array([[0.75, 0.25, 0.0], [0.25, 0.25, 0.5], [0.125, 0.75, 0.125]])
LABEL = np.array([0, 1, 1])
METRICS = evaluate(probabilities=PROBABILITIES, label=LABEL).metrics
CONFIDENCE, CORRECT = PROBABILITIES.max(axis=1), PROBABILITIES.argmax(axis=1) == LABEL


def written(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return load_predictions(folder / name)


def rows(header, *columns):
    lines = [",".join(map(str, row)) for row in zip(*columns, strict=True)]
    return "\n".join([header, *lines, ""])


@pytest.mark.parametrize(
    ("header", "label", "names"),
    [
        ("label,probability_0,probability_1,probability_2", [0, 1, 1], None),
        ("label,probability_cat,probability_dog,probability_rat", ["cat", "dog", "dog"], ["cat", "dog", "rat"]),
        ("Target,Prob_cat,Prob_dog,Prob_rat", [0, 1, 1], ["cat", "dog", "rat"]),
        ("y_true,p_1,p_2,p_3", [1, 2, 2], ["1", "2", "3"]),
        ("label,cat,dog,rat", ["cat", "dog", "dog"], ["cat", "dog", "rat"]),
        ("label,p_0,p_1,p_2", ["0.0", "1.0", "1.0"], None),
    ],
)
def test_tables_of_classes(tmp_path, header, label, names):
    loaded = written(tmp_path, "p.csv", rows(header, label, *PROBABILITIES.T))
    assert loaded.class_names == names
    assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS
    note = ", labels read as names of classes, not as their numbers" if names == ["1", "2", "3"] else ""
    assert loaded.describe() == f"3 predictions, 3 classes, probabilities{note}"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["7", "007", "10"], [b"7", b"007", b"10"]),
        (["a/é.png", "b/é.png", ""], ["a/é.png".encode(), "b/é.png".encode(), b""]),
        (["a", "b", "a"], None),
    ],
)
def test_file_names_and_ids_are_kept_where_they_are_distinct(tmp_path, keys, expected):
    loaded = written(tmp_path, "p.csv", rows("ID,File,p_0,p_1,p_2,label", range(3), keys, *PROBABILITIES.T, LABEL))
    assert loaded.keys["id"].tolist() == [b"0", b"1", b"2"]
    if expected is None:
        assert loaded.key_name == "id"
        assert loaded.describe().endswith("identified by id (ignored: file (not unique))")
    else:
        assert loaded.key.tolist() == expected
        assert loaded.describe().endswith("identified by file and id")
    save_predictions(tmp_path / "p.safetensors", loaded)
    again = load_predictions(tmp_path / "p.safetensors").keys
    assert {name: keys.tolist() for name, keys in again.items()} == {
        name: keys.tolist() for name, keys in loaded.keys.items()
    }


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (["1.0", "20.0", ""], [b"1", b"20", b""]),
        ([" 1", "2 ", "3"], [b"1", b"2", b"3"]),
        (["1.0", "1.1", "1.2"], [b"1.0", b"1.1", b"1.2"]),
        (["v1.0", "v2.0", "v3.0"], [b"v1.0", b"v2.0", b"v3.0"]),
        (["1.0.0", "1.1.0", "1.2.0"], [b"1.0.0", b"1.1.0", b"1.2.0"]),
    ],
)
def test_ids_are_the_same_however_they_are_written(tmp_path, keys, expected):
    assert (
        written(tmp_path, "p.csv", rows("id,p_0,p_1,p_2,label", keys, *PROBABILITIES.T, LABEL)).key.tolist()
        == expected
    )


def test_keys_that_need_too_much_room_are_ignored(tmp_path):
    names = ["x" * LONGEST_KEY, "b", "c"]
    loaded = written(tmp_path, "a.csv", rows("id,confidence,correct", names, CONFIDENCE, [1, 0, 1]))
    assert loaded.key.tolist() == [name.encode() for name in names]
    names[1] = "y" * (LONGEST_KEY + 1)
    np.savez(tmp_path / "p.npz", confidence=CONFIDENCE, correct=CORRECT, path=names)
    found = [written(tmp_path, "p.csv", rows("path,confidence,correct", names, CONFIDENCE, [1, 0, 1]))]
    found.append(load_predictions(tmp_path / "p.npz"))
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"confidence": CONFIDENCE, "correct": CORRECT, "path": names})
    parquet.write_table(table, tmp_path / "p.parquet")
    found.append(load_predictions(tmp_path / "p.parquet"))
    for loaded in found:
        expected = "3 predictions, confidence and correct (ignored: path (longer than 4,096 bytes))"
        assert loaded.describe() == expected


@pytest.mark.parametrize(
    "keys",
    [np.array([3, 1, 2]), np.array([3.0, 1, 2]), np.array(["3", "1", "2"]), np.array([b"3", b"1", b"2"])],
)
def test_keys_are_the_same_in_every_format(tmp_path, keys):
    from pyarrow import parquet, table

    np.savez(tmp_path / "p.npz", confidence=CONFIDENCE, correct=CORRECT, id=keys)
    columns = {
        "confidence": CONFIDENCE,
        "correct": CORRECT,
        "id": keys.astype(str) if keys.dtype.kind == "S" else keys,
    }
    parquet.write_table(table({name: values.tolist() for name, values in columns.items()}), tmp_path / "p.parquet")
    lists = {"probabilities": PROBABILITIES.tolist(), "label": LABEL, "id": columns["id"].tolist()}
    parquet.write_table(table(lists), tmp_path / "l.parquet")
    save_predictions(
        tmp_path / "p.safetensors", Predictions(confidence=CONFIDENCE, correct=CORRECT, key=keys.astype(int))
    )
    for name in ("p.npz", "p.parquet", "l.parquet", "p.safetensors"):
        loaded = load_predictions(tmp_path / name)
        assert loaded.key.tolist() == [b"3", b"1", b"2"]
        assert loaded.describe().endswith(", identified by id")


def test_what_does_not_identify_samples_is_ignored(tmp_path):
    from pyarrow import parquet, table

    for place, odd in enumerate((np.array("resnet"), np.array(["a", "b"]), np.array(["a", 1, None]), np.eye(3))):
        path = tmp_path / f"{place}.npz"
        np.savez(path, confidence=CONFIDENCE, correct=CORRECT, path=odd)
        assert load_predictions(path).describe() == "3 predictions, confidence and correct (ignored: path)"
    path = tmp_path / "a.parquet"
    parquet.write_table(table({"confidence": CONFIDENCE, "correct": CORRECT, "file": [0.5, 1.5, 2.5]}), path)
    assert load_predictions(path).describe() == "3 predictions, confidence and correct (ignored: file)"
    parquet.write_table(table({"confidence": CONFIDENCE, "correct": CORRECT, "file": ["a", None, None]}), path)
    assert load_predictions(path).describe().endswith("(ignored: file (not unique))")
    misnamed = Predictions(confidence=CONFIDENCE, correct=CORRECT, key=np.arange(3), metadata={"key": "label"})
    with pytest.raises(ValueError, match="expected keys to be named one of key, path, .*, but got 'label'"):
        save_predictions(tmp_path / "m.safetensors", misnamed)


def test_bare_columns_are_probabilities_or_logits_by_their_values(tmp_path):
    logits = np.array([[3.0, -1.0, 0.5], [0.0, 2.0, 1.0]])
    loaded = written(tmp_path, "l.csv", rows("label,a,b,c", "abc", *np.vstack([logits, logits[:1]]).T))
    assert loaded.logits[:2].tolist() == logits.tolist()
    with pytest.raises(ValueError, match="no label names a, b, c, .* use `probabilities` or `logits` if all of them"):
        written(tmp_path, "n.csv", rows("label,a,b,c", [0, 1], *logits.T))
    assert read(tmp_path / "n.csv", logits=True).logits.tolist() == logits.tolist()
    mixture = "label,a,b\na,0.5,0.5\na,0.25,0.75\nb,0.5,1.5\n"
    with pytest.raises(ValueError, match=r"mixture: see row 2; name the columns"):
        written(tmp_path, "m.csv", mixture)
    with pytest.raises(ValueError, match="got both; choose `logits` or `probabilities`"):
        read(tmp_path / "n.csv", logits=True, probabilities=True)


@pytest.mark.parametrize(
    ("header", "label", "others", "doubtful"),
    [
        ("cat,dog,rat,loss", ["cat", "dog", "rat"], [[0.3], [1.4], [2.1]], "no label names loss, "),
        ("cat,dog,rat,loss", [0, 1, 2], [[0.3], [1.4], [2.1]], "no label names cat, dog, rat, loss, "),
        (
            "cat,dog,rat,loss",
            ["cat", "dog", "rat"],
            [[0.003], [0.002], [0.001]],
            "no label names loss, ",
        ),  # a sum within rounding
        (
            "cat,dog,rat,age,loss",
            ["cat", "dog", "dog"],
            [[31, 0.3], [65, 1.4], [52, 2.1]],
            "no label names rat, age, loss, ",
        ),
        ("cat,dog,rat,flag", ["cat", "dog", "rat"], [[0], [0], [1]], "no label names flag, "),
    ],
)
def test_other_columns_next_to_probabilities_are_no_classes(tmp_path, header, label, others, doubtful):
    table = np.concatenate([PROBABILITIES, others], axis=1)
    with pytest.raises(
        ValueError,
        match=f"but {doubtful}.* probability_NAME or logit_NAME, so that others are ignored",
    ):
        written(tmp_path, "p.csv", rows(f"label,{header}", label, *table.T))
    named = "label," + ",".join(f"p_{name}" for name in header.split(",")[:3]) + header[len("cat,dog,rat") :]
    loaded = written(tmp_path, "q.csv", rows(named, label, *table.T))
    assert np.array_equal(loaded.probabilities, PROBABILITIES)


def test_bare_classes_that_never_occur(tmp_path):
    table = np.array([[0.5, 0.25, 0.125, 0.125], [0.0, 0.995, 0.005, 0.0], [0.25, 0.75, 0.0, 0.0]])
    loaded = written(tmp_path, "p.csv", rows("label,a,b,c,d", ["a", "b", "b"], *table.T))
    assert loaded.describe() == "3 predictions, 4 classes, probabilities"
    with pytest.raises(ValueError, match="no label names c, d, and the rows of all columns do not sum to 1"):
        written(tmp_path, "l.csv", rows("label,a,b,c,d", ["a", "b", "b"], *(10 * table - 3).T))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "correct,confidence\n1,0.5\n\n1,\n",
            r"a value of 'confidence' in each row, but 1 of 2 have none: rows 1; drop such rows with `skip_missing`",
        ),
        ("correct,confidence\n1,0.5\n1,\u0663\n", "but got '\u0663' in row 1"),
        ("correct,confidence\n1,0.5\n1,1_0\n", r"but got '1_0' in row 1"),
        (
            "correct,confidence\nmaybe,0.5\n",
            "right or wrong, correct or incorrect, or 1 or 0 in correct, but got 'maybe' in row 0",
        ),
        ("label,p_a,p_b\na,0.5,0.5\nc,0.5,0.5\n", "class index in label, but got 'c' in row 1; the classes are a, b"),
        ("label,Probability_Cat,Probability_Dog\ncat,0.5,0.5\n", "'cat' in row 0; the classes are Cat, Dog"),
        (
            "label,p_0,p_1\ncat,0.5,0.5\n",
            "a class index in label, but got 'cat' in row 0; for names, write a column probability_NAME",
        ),
        ("label,prediction,confidence\na,1,0.5\n", "names in both label and prediction"),
        ("label,p_a,p_a\n0,1,0\n", "distinct columns, but got 'p_a' twice, as columns 2 and 3; rename"),
        (
            "confidence,conf,correct\n1,1,0\n",
            "one column of the role confidence, but got 'confidence', 'conf'; choose with `columns`, as in",
        ),
        ("label;confidence\n1;2\n", "but got the columns label, confidence"),
        ("correct;confidence\n1;0,5\n0;0.5\n", "numbers in column 'confidence', but got '0,5' in row 0"),
        ("correct;confidence\n1;1,500\n0;2,500\n", "a decimal point, but got '1,500', which may be a decimal comma"),
        ("\n\n\n", "a header line, but there are only empty lines"),
    ],
)
def test_mistakes_in_csv(tmp_path, text, message):
    with pytest.raises(ValueError, match=message) as caught:
        written(tmp_path, "wrong.csv", text)
    assert "wrong.csv" in str(caught.value)


def test_all_formats_hold_the_same(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = ["cat", "dog", "rat"]
    words = np.array(names)[LABEL]
    np.savez(tmp_path / "a.npz", probs=PROBABILITIES, y_true=words, class_names=names)
    save_file({"probabilities": PROBABILITIES, "label": LABEL}, tmp_path / "a.safetensors",
              metadata={"class_names": json.dumps(names)})  # fmt: skip
    columns = {f"probability_{name}": column for name, column in zip(names, PROBABILITIES.T, strict=True)}
    parquet.write_table(pa.table({"label": words, **columns}), tmp_path / "a.parquet")
    lists = {"label": words, "class": names, "probabilities": PROBABILITIES.tolist()}
    parquet.write_table(pa.table(lists), tmp_path / "l.parquet")
    np.savez(tmp_path / "l.npz", probs=PROBABILITIES, y_true=words)
    for name in ("l.parquet", "l.npz"):
        with pytest.raises(ValueError, match="class index in label, but got 'cat' in row 0; .* an array class_names"):
            load_predictions(tmp_path / name)
    parquet.write_table(pa.table({**lists, "label": LABEL}), tmp_path / "l.parquet")
    written(tmp_path, "a.csv", rows("label,cat,dog,rat", words, *PROBABILITIES.T))
    for name in ("a.npz", "a.safetensors", "a.parquet", "a.csv", "l.parquet"):
        loaded = load_predictions(tmp_path / name)
        assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS
        assert loaded.class_names == (None if name == "l.parquet" else names)


@pytest.mark.parametrize("kind", ["list_", "large_list", "fixed"])
def test_parquet_lists_of_any_kind(tmp_path, kind):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = pa.list_(pa.float64(), 3) if kind == "fixed" else getattr(pa, kind)(pa.float64())
    column = pa.array(list(PROBABILITIES), lists)
    parquet.write_table(pa.table({"label": LABEL, "probabilities": column}), tmp_path / "lists.parquet")
    loaded = load_predictions(tmp_path / "lists.parquet")
    assert np.array_equal(loaded.probabilities, PROBABILITIES) and np.array_equal(loaded.label, LABEL)


def test_parquet_words_are_numbered_alike_in_all_batches(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    label = np.repeat([2, 1, 0, 2], 35_000)  # more than two batches, the last of which begins with other words
    words = pa.DictionaryArray.from_arrays(label, ["cat", "dog", "rat", "never seen"])
    for column in (words, words.dictionary_decode()):
        table = {"label": column, "prediction": column, "confidence": np.linspace(0, 1, len(label))}
        parquet.write_table(pa.table(table), tmp_path / "words.parquet")
        loaded = load_predictions(tmp_path / "words.parquet")
        assert loaded.class_names == ["cat", "dog", "rat"]
        assert np.array_equal(loaded.label, label) and np.array_equal(loaded.prediction, label)


def test_parquet_mistakes(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    for table, message in (
        (
            {"label": [0, 1], "probabilities": [[0.5, 0.5], [1.0]]},
            r"lists of one length .*, but got lengths \[1, 2\]",
        ),
        ({"label": [0, 1], "probabilities": [[0.5, None], [1.0, 0.0]]}, "'probabilities', but some are missing"),
        ({"correct": [1], "confidence": [[0.5]]}, "numbers in column 'confidence', but got list"),
    ):
        parquet.write_table(pa.table(table), tmp_path / "p.parquet")
        with pytest.raises(ValueError, match=message):
            load_predictions(tmp_path / "p.parquet")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_npy_of_two_columns(tmp_path, kind, order):
    both = np.array(np.stack([CONFIDENCE, CORRECT], axis=1), dtype=kind, order=order)
    np.save(tmp_path / "two.npy", both)
    loaded = load_predictions(tmp_path / "two.npy")
    assert loaded.confidence.dtype == kind
    assert loaded.correct.dtype == bool
    assert evaluate(**loaded.evaluation_inputs()).metrics["aurc"] == METRICS["aurc"]


@pytest.mark.parametrize("name", ["predictions", "y_pred", "y_score", "outputs", "pred_probs", "Softmax"])
def test_arrays_of_all_classes_under_the_names_that_frameworks_give_them(tmp_path, name):
    np.savez(tmp_path / "a.npz", **{name: PROBABILITIES, "label_ids": LABEL})
    loaded = load_predictions(tmp_path / "a.npz")
    assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS
    logits = 3 * np.log(PROBABILITIES + 0.1)
    np.savez(tmp_path / "b.npz", **{name: logits, "y_test": LABEL})
    np.testing.assert_array_equal(load_predictions(tmp_path / "b.npz").logits, logits)
    (tmp_path / "c.json").write_text(json.dumps({name: logits.tolist(), "label": LABEL.tolist()}))
    np.testing.assert_array_equal(load_predictions(tmp_path / "c.json").logits, logits)


def test_outputs_next_to_other_scores_stay_out(tmp_path):
    columns = {"label": LABEL, "prediction": LABEL, "confidence": CONFIDENCE, "scores": PROBABILITIES}
    np.savez(tmp_path / "a.npz", **columns)
    assert load_predictions(tmp_path / "a.npz").describe().endswith("confidence (ignored: scores)")
    columns = {"label": LABEL, "probabilities": PROBABILITIES, "outputs": PROBABILITIES * 2}
    np.savez(tmp_path / "b.npz", **columns)
    assert load_predictions(tmp_path / "b.npz").describe().endswith("probabilities (ignored: outputs)")


def test_labels_as_keras_has_them(tmp_path):
    """One-hot rows, and columns [n, 1]."""
    np.savez(tmp_path / "a.npz", y_pred=PROBABILITIES, y_true=np.eye(3, dtype="f4")[LABEL])
    np.savez(tmp_path / "b.npz", y_pred=PROBABILITIES, y_true=LABEL[:, None])
    for name in "ab":
        loaded = load_predictions(tmp_path / f"{name}.npz")
        assert loaded.label.tolist() == LABEL.tolist()
        assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS
        assert ("labels one-hot" in loaded.describe()) == (name == "a")
    np.save(tmp_path / "table.npy", PROBABILITIES)
    for label in (np.eye(3)[LABEL], LABEL[:, None], LABEL.astype("f4")):
        np.save(tmp_path / "label.npy", label)
        loaded = read(tmp_path / "table.npy", truth=tmp_path / "label.npy")
        assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
def test_a_single_logit_is_that_of_class_1(tmp_path, shape):
    """As of binary cross-entropy with logits, or the margins of boosted trees."""
    logit, label = np.array([2.0, -1.0, 0.5, -3.0]), np.array([1, 0, 0, 1])
    np.save(tmp_path / "margin.npy", logit.reshape(shape))
    np.save(tmp_path / "label.npy", label)
    np.savez(tmp_path / "a.npz", logits=logit.reshape(shape), label=label)
    (tmp_path / "a.csv").write_text(rows("label,y_prob", label, logit))
    found = [
        read(tmp_path / "margin.npy", truth=tmp_path / "label.npy"),
        read(tmp_path / "a.npz"),
        read(tmp_path / "a.csv", logits=True),
    ]
    second = 1 / (1 + np.exp(-logit))
    expected = evaluate(probabilities=np.stack([1 - second, second], axis=1), label=label).metrics
    for loaded in found:
        assert evaluate(**loaded.evaluation_inputs()).metrics == pytest.approx(expected)
        assert "a single column read as the logit of class 1" in loaded.describe()


@pytest.mark.parametrize("values", [[0.25, 1.0000001, 0.5], [-1e-9, 1.0, 0.5], [20.0, 100.0, 70.0]])
def test_an_array_that_is_never_clearly_negative_has_no_logits(tmp_path, values):
    """Rounded probabilities and percentages: as logits, nearly all of them would predict class 1."""
    np.save(tmp_path / "score.npy", values)
    np.save(tmp_path / "label.npy", [0, 1, 1])
    loaded = read(tmp_path / "score.npy", truth=tmp_path / "label.npy")
    assert "read as the probability of class 1" in loaded.describe()
    with pytest.raises(ValueError, match=r"probabilities within \[0, 1\]"):
        evaluate(**loaded.evaluation_inputs())


def test_npy_with_fields(tmp_path):
    fields = np.zeros(3, dtype=[("confidence", "f4"), ("id", "i4"), ("correct", "?")])
    fields["confidence"], fields["correct"] = CONFIDENCE, CORRECT
    np.save(tmp_path / "f.npy", fields)
    loaded = load_predictions(tmp_path / "f.npy")
    assert evaluate(**loaded.evaluation_inputs()).metrics["aurc"] == METRICS["aurc"]
    assert loaded.describe() == (
        "3 predictions, confidence and correct, id repeats, so rows may depend on each other"
        " (ignored: id (not unique))"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros((4, 3, 2)), r"an array of numbers, but got shape \(4, 3, 2\) of float64"),
        (np.zeros((0, 2)), "rows of predictions, but there are none"),
        (np.array([["a", "b"]]), "but got shape"),
    ],
)
def test_npy_mistakes(tmp_path, values, message):
    np.save(tmp_path / "wrong.npy", values)
    with pytest.raises(ValueError, match=message):
        load_predictions(tmp_path / "wrong.npy")


@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_a_table_and_its_labels_in_two_npy_files(tmp_path, kind):
    """As numpy.save writes what a training loop has collected."""
    logits, label = np.array([[2.0, 0.0, -1.0], [0.5, 1.0, 0.0], [0.0, 0.2, 3.0]]), np.array([0, 2, 2])
    table = logits if kind == "logits" else np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    np.save(tmp_path / "table.npy", table)
    np.save(tmp_path / "label.npy", label)
    loaded = read(tmp_path / "table.npy", truth=tmp_path / "label.npy")
    np.testing.assert_array_equal(getattr(loaded, kind), table)
    np.testing.assert_array_equal(loaded.label, label)
    assert loaded.notes == ("labels joined by row",)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.ods", "save the sheet as CSV UTF-8"),
        ("a.pkl", "DataFrame.to_csv"),
        ("a.mat", "read it with scipy.io.loadmat, and write its arrays with np.savez"),
        ("a.h5", "read it with h5py, and write its arrays with np.savez"),
        ("a.RDS", "write.csv"),
        ("a.sqlite", "sqlite3 -header -csv FILE"),
        ("a.csv.tar.gz", "unpack it"),
        ("a.zip", "unpack it, or pack it with gzip"),
    ],
)
def test_files_of_other_kinds_say_what_to_do(tmp_path, name, remedy):
    (tmp_path / name).write_bytes(b"PK")
    with pytest.raises(ValueError, match=f"but got one ending in {Path(name).suffix}; .*{remedy}"):
        read(tmp_path / name)


@pytest.mark.parametrize("ending", ["gz", "bz2", "zst"])
def test_packed_text(tmp_path, ending):
    path = tmp_path / f"a.jsonl.{ending}"
    path.write_bytes(packed(path.name, b'{"confidence": 0.5, "correct": true}\n' * 3))
    assert len(load_predictions(path)) == 3
    for damaged in (path.read_bytes()[:-7], path.read_bytes()[:42] + b"???" + path.read_bytes()[45:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="expected"):
            load_predictions(path)


def arrow_file(path, table, **options):
    """As pandas and Polars write it; with `stream`, as `datasets` does."""
    stream = options.pop("stream", False)
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(
        path, table.schema, options=pa.ipc.IpcWriteOptions(**options)
    ) as file:
        file.write_table(table, max_chunksize=2)


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"compression": "zstd"}, {"stream": True}], ids=str)
@pytest.mark.parametrize("kind", ["string", "large_string", "string_view", "dictionary"])
def test_arrow_files(tmp_path, options, kind):
    words = pa.array(np.array(["cat", "dog", "rat"])[LABEL])
    label = words.dictionary_encode() if kind == "dictionary" else words.cast(getattr(pa, kind)())
    columns = {f"probability_{name}": PROBABILITIES[:, k] for k, name in enumerate(["cat", "dog", "rat"])}
    arrow_file(tmp_path / "a.arrow", pa.table({"text": ["x"] * 3, "label": label, **columns}), **options)
    loaded = load_predictions(tmp_path / "a.arrow")
    assert evaluate(**loaded.evaluation_inputs()).metrics == METRICS
    assert loaded.describe() == "3 predictions, 3 classes, probabilities (ignored: text)"
    lists = pa.array(list(PROBABILITIES), pa.list_(pa.float32(), 3))
    arrow_file(tmp_path / "a.feather", pa.table({"label": LABEL, "probabilities": lists}), **options)
    assert np.array_equal(load_predictions(tmp_path / "a.feather").probabilities, PROBABILITIES)


def test_scores_by_class_name_in_json(tmp_path):
    rows = [("dog", {"cat": 0.2, "dog": 0.8}), ("cat", {"dog": 0.4, "cat": 0.6})]
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"label": one, "probs": two}) for one, two in rows))
    loaded = read(tmp_path / "a.jsonl")
    assert loaded.probabilities.tolist() == [[0.2, 0.8], [0.6, 0.4]] and loaded.label.tolist() == [1, 0]


def test_names_of_columns_as_people_write_them(tmp_path):
    (tmp_path / "a.csv").write_text("True label,Predicted-Class,Confidence\ncat,cat,0.9\ndog,cat,0.6\n")
    loaded = read(tmp_path / "a.csv")
    assert (loaded.label == loaded.prediction).tolist() == [True, False]


def test_npy_that_claims_more_than_it_holds(tmp_path):
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**15, 2)})
    (tmp_path / "claim.npy").write_bytes(stream.getvalue())
    with pytest.raises(ValueError, match="bytes for shape .1000000000000000, 2. of float64; save the file again"):
        load_predictions(tmp_path / "claim.npy")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"label": LABEL, "probabilities": PROBABILITIES[:2]}, "2 in probabilities, 3 in label"),
        (
            {"labels": LABEL, "target": LABEL, "logits": PROBABILITIES},
            "one column of the role label, but got 'labels', 'target'; choose",
        ),
        ({"label": LABEL, "weights": LABEL}, "but got the columns label, weights; say what they are with"),
        (
            {"label": np.eye(3)[LABEL] * 0.5, "logits": PROBABILITIES},
            r"rows \[n, K\] with a single 1 among zeros, but",
        ),
        ({"label": np.ones((3, 3)), "logits": PROBABILITIES}, r"rows \[n, K\] with a single 1 among zeros, but"),
        (
            {"label": LABEL, "outputs": PROBABILITIES, "scores": PROBABILITIES},
            "one array of the outputs of all classes",
        ),
        ({"label": LABEL, "features": PROBABILITIES}, "but got the columns label, features"),
        (
            {"label": ["a", "b", "a"], "probabilities": PROBABILITIES, "class_names": ["a", "b", "a"]},
            "expected a distinct name for each class of label, but got a more than once; give class numbers",
        ),
        (
            {"label": LABEL, "probabilities": PROBABILITIES, "class_names": ["a", "b"]},
            "expected 3 class names, as many as classes, but got 2",
        ),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, arrays, message):
    np.savez(tmp_path / "wrong.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        load_predictions(tmp_path / "wrong.npz")


def test_an_array_that_is_there_twice_is_refused(tmp_path):
    np.savez(tmp_path / "twice.npz", label=LABEL, probabilities=PROBABILITIES)
    with zipfile.ZipFile(tmp_path / "twice.npz", "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr("label.npy", archive.read("label.npy"))
    with pytest.raises(ValueError, match="each array once, but got 'label' twice; save the file again"):
        load_predictions(tmp_path / "twice.npz")


CELL = st.one_of(
    st.floats(0, 1).map(repr),
    st.integers(-2, 12).map(str),
    st.sampled_from(
        ["", " ", "nan", "inf", "-0.0", "1e999", "0x10", "1_0", "٣", "½", "True", "cat", '"a', "a\x00b", "é" * 50]
    ),
    st.text(max_size=5),
)
NAME = st.sampled_from(
    ["label", "Label", "prediction", "confidence", "correct", "index", "p_0", "p_1", "logit_0", "logit_a", "a", "b",
     "", "id", "probability_</script>", "\ufefflabel"]
)  # fmt: skip


@st.composite
def csv_bytes(draw):
    header = draw(st.lists(NAME, max_size=6))
    body = draw(st.lists(st.lists(CELL, max_size=6) if draw(st.booleans())
                         else st.lists(CELL, min_size=len(header), max_size=len(header)), max_size=6))  # fmt: skip
    end = draw(st.sampled_from(["\n", "\r\n", "\r", "\n\n"]))
    text = end.join(",".join(row) for row in [header, *body])
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf", b"\xff\xfe"])) + text.encode("utf-8", "surrogatepass")


def reads_or_explains(path, content):
    """Only documented errors: a ValueError that says what was expected."""
    path.write_bytes(content)
    message = None
    try:
        loaded = load_predictions(path)
        assert len(loaded) > 0
        evaluate(**loaded.evaluation_inputs())
    except ValueError as error:
        message = str(error)
    assert message is None or "expected" in message
    return message


FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@FUZZ
@given(content=csv_bytes())
def test_any_csv_is_read_or_explained(tmp_path, content):
    reads_or_explains(tmp_path / "fuzz.csv", content)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("suffix", KINDS)
@given(content=st.binary(min_size=1, max_size=300))
def test_random_bytes(tmp_path, suffix, content):
    assert reads_or_explains(tmp_path / f"fuzz{suffix}", content)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("suffix", [".npy", ".npz", ".safetensors", ".parquet"])
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.integers(0, 200))
def test_damaged_files(tmp_path, suffix, place, byte, cut):
    """One byte changed and the end cut off: an explanation, or other numbers, but never a stack trace."""
    path = tmp_path / f"good{suffix}"
    if not path.exists():
        if suffix == ".npy":
            np.save(path, np.stack([CONFIDENCE, CORRECT], axis=1))
        elif suffix == ".npz":
            np.savez(path, confidence=CONFIDENCE, correct=CORRECT)
        elif suffix == ".safetensors":
            save_file({"confidence": CONFIDENCE, "correct": CORRECT}, path)
        else:
            pa = pytest.importorskip("pyarrow")
            table = pa.table({"confidence": CONFIDENCE, "correct": CORRECT})
            pytest.importorskip("pyarrow.parquet").write_table(table, path)
    content = bytearray(path.read_bytes())
    content[place % len(content)] = byte
    reads_or_explains(tmp_path / f"damaged{suffix}", bytes(content[: len(content) - cut]) or b"x")


def test_a_damaged_parquet_file_does_not_end_the_process(tmp_path):
    """pyarrow aborts when it is asked for a column whose histograms have the wrong size."""
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "good.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"confidence": CONFIDENCE, "correct": CORRECT}), path)
    content = path.read_bytes()
    for place in range(len(content) // 5, len(content), 7):
        for byte in (0, 19, 35, 64):
            damaged = content[:place] + bytes([byte]) + content[place + 1 :]
            reads_or_explains(tmp_path / "damaged.parquet", damaged)


def test_classes_called_by_numbers_keep_their_indices(tmp_path):
    names = sorted(str(number) for number in range(12))  # 0, 1, 10, 11, 2, ...
    label = np.arange(12)
    saved = Predictions(logits=np.eye(12), label=label, metadata={"class_names": json.dumps(names)})
    save_predictions(tmp_path / "a.safetensors", saved)
    np.savez(tmp_path / "a.npz", logits=np.eye(12), label=label, class_names=names)
    for name in ("a.safetensors", "a.npz"):
        assert load_predictions(tmp_path / name).label.tolist() == label.tolist()
    np.savez(tmp_path / "b.npz", logits=np.eye(12), label=np.array(names), class_names=names)
    assert load_predictions(tmp_path / "b.npz").label.tolist() == label.tolist()


@pytest.mark.parametrize(
    ("header", "label", "expected"),
    [
        ("logit_01,logit_02,logit_03", ["01", "02"], [0, 1]),  # 01 is not 1
        ("logit_01,logit_02,logit_03", ["01", "03"], [0, 2]),
        ("logit_1,logit_2,logit_other", ["1", "2"], [0, 1]),  # no word among the labels that occur
        ("logit_1,logit_2,logit_other", ["other", "2"], [2, 1]),
        ("logit_1,logit_2,logit_3", ["0", "2"], [0, 2]),  # 0 is no name, so they are numbers
        ("logit_1,logit_2,logit_3", ["3", "2"], [2, 1]),
        ("logit_a,logit_b,logit_c", ["1", "2.0"], [1, 2]),
    ],
)
def test_labels_of_named_classes(tmp_path, header, label, expected):
    text = f"label,{header}\n" + "".join(f"{one},1,2,3\n" for one in label)
    assert written(tmp_path, "p.csv", text).label.tolist() == expected


def test_label_and_prediction_are_read_in_one_way(tmp_path):
    table = rows("label,prediction,logit_1,logit_2,logit_3", [1, 2], [0, 2], [5, 0], [1, 0], [0, 5])
    loaded = written(tmp_path, "p.csv", table)  # a prediction 0 tells that both columns hold numbers
    assert loaded.label.tolist() == [1, 2]
    words = written(tmp_path, "q.csv", rows("label,prediction,confidence", ["1", "other"], [1, 2], [0.5, 0.6]))
    assert (words.label == words.prediction).tolist() == [True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,prediction,age,weight\n0,0,30,71\n1,1,20,83\n", "no label names age, weight"),
        ("label,y_prob\n0,0.1\n2,0.9\n", "labels 0 and 1 with a single column of prob.*, but got 2 in row 1; give"),
        ("label,logits\n0,0.1\n2,0.9\n", "labels 0 and 1 with a single column of logits, .*but got 2 in row 1; give"),
        ("label,prediction,probs\n0,0,0.9\n", "row 0 predicts class 0 where class 1 is largest"),
    ],
)
def test_tables_that_are_none(tmp_path, text, message):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_predictions(tmp_path / "a.csv")


@pytest.mark.parametrize("stray", ["p_value", "classes", "logits", "class_names"])
def test_columns_that_only_sound_like_classes_are_ignored(tmp_path, stray):
    (tmp_path / "a.csv").write_text(f"label,prediction,confidence,{stray}\n0,0,0.7,0.1\n1,0,0.6,0.2\n")
    loaded = load_predictions(tmp_path / "a.csv")
    assert loaded.describe() == f"2 predictions, label, prediction and confidence (ignored: {stray})"


def test_files_take_whatever_rounding_evaluation_takes():
    """Neither layer may import the other."""
    assert inputs.rounding_of(np.zeros((1, 1000))) == doubts.MOST_ROUNDING
    assert inputs.ROUNDING < doubts.MOST_ROUNDING


def test_a_column_next_to_many_rounded_probabilities_is_no_class(tmp_path):
    rng = np.random.default_rng(0)
    table = rng.dirichlet(np.ones(40), 200).round(2)
    assert np.abs(table.sum(axis=1) - 1).max() > inputs.ROUNDING
    names = ",".join(f"c{place}" for place in range(40))
    label, doubt = np.arange(200) % 40, rng.choice([0, 0.01, 0.02, 0.03], 200)
    named = [f"c{number}" for number in label]
    assert written(tmp_path, "a.csv", rows(f"label,{names}", named, *table.T)).probabilities.shape == (200, 40)
    with pytest.raises(ValueError, match="no label names uncertainty, and the rows of all columns do not sum to 1"):
        written(tmp_path, "b.csv", rows(f"label,{names},uncertainty", named, *table.T, doubt))


def test_bfloat16_is_read_as_float32(tmp_path):
    logits = torch.tensor([[1.5, -0.25, 3.0], [0.0, 2.0, -1.0]])
    torch_file({"logits": logits.bfloat16(), "label": torch.tensor([2, 0])}, tmp_path / "a.safetensors")
    found = load_predictions(tmp_path / "a.safetensors")
    assert found.logits.dtype == np.float32
    assert found.logits.tolist() == logits.tolist()
    assert open_pool(tmp_path / "a.safetensors").arrays["logits"].tolist() == logits.tolist()


@pytest.mark.parametrize("name", ["y_prob", "Y_proba", "probabilities"])
def test_a_single_probability_is_that_of_class_1(tmp_path, name):
    single, label = np.array([0.1, 0.75, 0.5]), np.array([0, 1, 0])
    expected = np.stack([1 - single, single], axis=1)
    found = [written(tmp_path, "a.csv", rows(f"y_true,{name}", label, single))]
    found.append(written(tmp_path, "b.csv", rows(f"id,y_true,y_pred,{name}", [7, 8, 9], label, [0, 1, 0], single)))
    np.savez(tmp_path / "a.npz", **{"y_true": label, name: single})
    np.savez(tmp_path / "b.npz", **{"y_true": label, name: single[:, None]})
    found += [load_predictions(tmp_path / "a.npz"), load_predictions(tmp_path / "b.npz")]
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"y_true": label, name: single}), tmp_path / "a.parquet")
    found.append(load_predictions(tmp_path / "a.parquet"))
    for loaded in found:
        assert np.array_equal(loaded.probabilities, expected)
        assert loaded.describe().startswith(
            "3 predictions, 2 classes, probabilities, a single column read as the probability of class 1"
        )
    beside = rows(f"label,prediction,confidence,{name}", label + 1, label, single, single)
    np.savez(tmp_path / "d.npz", **{"label": label + 1, "prediction": label, "confidence": single, name: single})
    for loaded in (written(tmp_path, "d.csv", beside), load_predictions(tmp_path / "d.npz")):
        assert loaded.describe() == f"3 predictions, label, prediction and confidence (ignored: {name})"
    save_predictions(tmp_path / "c.safetensors", found[0])
    assert np.array_equal(load_predictions(tmp_path / "c.safetensors").probabilities, expected)


@pytest.mark.parametrize("single", [[0.9, 0.8, 0.6], [1, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6]]])
def test_columns_of_all_classes_come_before_any_other(tmp_path, single):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"label": [0, 1, 1], "prob_0": [0.9, 0.2, 0.4], "prob_1": [0.1, 0.8, 0.6], "y_prob": single}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    loaded = load_predictions(tmp_path / "a.parquet")
    assert evaluate(**loaded.evaluation_inputs()).metrics["acc"] == 1
    assert loaded.describe() == "3 predictions, 2 classes, probabilities (ignored: y_prob)"


def test_classes_next_to_a_single_probability_are_an_error(tmp_path):
    message = "a column of probabilities for each class, named probability_NAME, .* got the single column 'y_prob'"
    with pytest.raises(ValueError, match=message):
        written(tmp_path, "a.csv", "label,cat,dog,y_prob\n0,.9,.1,.9\n1,.3,.7,.7\n")
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = {"label": [0, 1], "cat": [0.9, 0.3], "dog": [0.1, 0.7], "y_prob": [0.9, 0.7]}
    parquet.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=message):
        load_predictions(tmp_path / "a.parquet")
    assert written(tmp_path, "b.csv", "label,age,y_prob\n0,30,.1\n1,40,.7\n").describe().endswith("(ignored: age)")


def test_labels_of_a_single_probability_may_be_true_or_false(tmp_path):
    assert written(tmp_path, "a.csv", "label,y_prob\nTrue,0.9\nFalse,0.2\n").label.tolist() == [1, 0]
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"label": [True, False], "y_prob": [1, 0]}), tmp_path / "a.parquet")
    loaded = load_predictions(tmp_path / "a.parquet")
    assert (loaded.label.tolist(), loaded.probabilities.tolist()) == ([1, 0], [[0, 1], [1, 0]])


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_headers_longer_than_a_field_may_be(tmp_path, mark):
    names = [f"probability_{'x' * 1000}{place}" for place in range(200)]
    cells = ["0", "1", *["0"] * 199]
    text = mark.join(["label", *names]) + "\n" + mark.join(cells) + "\n"
    assert written(tmp_path, "a.csv", text).probabilities.shape == (1, 200)


@pytest.mark.parametrize(
    ("name", "header", "mark"),
    [
        ("a.csv", '"label";"probability_hat, red";"probability_b"', ";"),
        ("a.tsv", "label\tprobability_hat, red, with, many, commas\tprobability_b", "\t"),
        ("b.csv", '"label","probability_hat; red","probability_b"', ","),
        ("b.tsv", "label,probability_hat; red,probability_b", ","),
    ],
)
def test_marks_within_names_of_classes_separate_nothing(tmp_path, name, header, mark):
    loaded = written(tmp_path, name, "\n".join([header, mark.join(["0", "0.75", "0.25"]), ""]))
    assert loaded.class_names[0].startswith("hat") and loaded.class_names[1] == "b"
    assert loaded.probabilities.tolist() == [[0.75, 0.25]]


def test_a_folder_of_runs_points_to_one(tmp_path):
    (tmp_path / "runs" / "first").mkdir(parents=True)
    with pytest.raises(ValueError, match="but it is a folder; give one file, or a folder that"):
        read(tmp_path / "runs")
    (tmp_path / "runs" / "first" / "config.yaml").write_text("epochs: 1")
    with pytest.raises(ValueError, match="but it is a folder; give a run folder in it, such as .*first$"):
        read(tmp_path / "runs")


@pytest.mark.parametrize("name", ["label", "class_names"])
def test_characters_that_are_none_are_an_error(tmp_path, name):
    """A damaged npz may hold them; Python fails as soon as it looks into such a text."""
    damaged = np.array([97, 0x110000, 98], dtype=np.uint32).view("<U1")
    arrays = {"label": np.arange(3), "probabilities": np.eye(3)} | {name: damaged}
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=f"expected text in {name}, but got characters that are none; save the file"):
        read(tmp_path / "a.npz")
