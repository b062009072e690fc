import numpy as np
import pytest
import torch

from confrank.metrics import sample_values
from confrank.predictions import Predictions, load_predictions, save_predictions


def example():
    return Predictions(
        logits=np.array([[2.0, 0.0], [0.0, 1.0]], dtype=np.float32),
        label=np.array([0, 0]),
        confidence=np.array([0.9, 0.7]),
        index=np.array([4, 2]),
        metadata={"class_names": '["cat", "dog"]', "method": "baseline"},
    )


def test_a_csv_file_has_the_same_numbers(tmp_path):
    answers = {"label": np.array([1, 0]), "prediction": np.array([1, 1]), "confidence": np.array([0.75, 2 / 3])}
    names = {"class_names": '["cat", "=dog"]'}
    graded = Predictions(confidence=np.array([0.7, 0.1]), correct=np.array([True, False]), key=np.array(["é", "=b"]))
    for given in (example(), Predictions(**answers, metadata=names), graded):
        save_predictions(tmp_path / "p.csv", given)
        loaded = load_predictions(tmp_path / "p.csv")
        assert {*loaded.arrays()} == {*given.arrays()}
        assert sorted(loaded.class_names or ()) == sorted(given.class_names or ())
        for name, values in given.arrays().items():
            found = loaded.arrays()[name]
            if name in ("label", "prediction"):  # the classes of answers alone may have another order
                found, values = (
                    [one.class_names[k] for k in each] for one, each in ((loaded, found), (given, values))
                )
            assert np.array_equal(found, values), name


def test_survive_the_file(tmp_path):
    save_predictions(tmp_path / "deep" / "test.safetensors", example())
    loaded = load_predictions(tmp_path / "deep" / "test.safetensors")
    assert set(loaded.arrays()) == {"logits", "label", "confidence", "index"}
    for name, values in example().arrays().items():
        assert np.array_equal(loaded.arrays()[name], values)
        assert loaded.arrays()[name].dtype == values.dtype
    assert loaded.class_names == ["cat", "dog"]
    assert loaded.describe() == "2 predictions, 2 classes, logits, confidence"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["test.safetensors"]


def test_the_files_own_confidence_ranks():
    samples = sample_values(**example().evaluation_inputs())
    assert (samples.confidence.tolist(), samples.correct.tolist()) == ([0.9, 0.7], [True, False])
    scores = Predictions(confidence=np.array([3.0]), correct=np.array([True]))
    assert sample_values(**scores.evaluation_inputs()).confidence.tolist() == [3.0]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "does not exist"),
        ("broken.safetensors", b"nonsense" * 4, "expected a safetensors file"),
        ("table.tab", b"x", "ending in .safetensors, .npz, .npy, .pt, .pth, .csv, .tsv, .parquet, "),
        ("binary.csv", b"\xff\xfe\x00", "text in UTF-8, .* binary file"),
        ("other.csv", b"a,b\n1,2\n", "or confidence and correct, but got the columns a, b"),
        (
            "text.csv",
            b"correct,confidence\n1,high\n",
            "'confidence', but got 'high' in row 0; write numbers, higher",
        ),
        ("header.csv", b"label,confidence\n", "under the header"),
        ("ragged.csv", b"correct,confidence\n1,0.5\n1\n", "2 values in each row.* but got 1 in line 3"),
        ("half.csv", b"label,logit_0,logit_1\n1.5,0.5,1\n", "whole numbers in label, but got 1.5 in row 0"),
    ],
)
def test_wrong_files(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        load_predictions(tmp_path / name)
    assert name in str(caught.value)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "expected arrays among logits, .* but got none"),
        ({"label": np.arange(4), "prediction": np.array([1])}, "4 in label, 1 in prediction"),
        (
            {"logits": torch.eye(2), "label": np.arange(2)},
            "logits to be a numpy array, but got torch.Tensor; convert it",
        ),
        ({"logits": np.eye(2)[0], "label": np.arange(2)}, "array of 2 dimensions"),
        ({"label": np.array(["a"])}, "label to be an array of 1 dimension of numbers"),
        ({"label": np.arange(2), "metadata": {"epoch": 3}}, "metadata to be strings, but got 3 for epoch"),
    ],
)
def test_what_are_no_predictions_is_said_at_once(arrays, message):
    with pytest.raises(ValueError, match=message):
        Predictions(**arrays)


@pytest.mark.parametrize(
    ("name", "predictions", "message"),
    [
        ("p.npz", example(), r"ending in .safetensors or .csv to write, but got .*p\.npz"),
        ("p.safetensors", Predictions(logits=np.eye(2)), "expected label with .* but got the columns logits"),
        (
            "p.safetensors",
            Predictions(logits=np.eye(2), label=np.arange(2), prediction=np.array([0, 0])),
            "row 1 predicts class 0",
        ),
    ],
)
def test_nothing_is_written_that_cannot_be_read(tmp_path, name, predictions, message):
    with pytest.raises(ValueError, match=message):
        save_predictions(tmp_path / name, predictions)
    assert not [*tmp_path.iterdir()]


def test_paths_may_be_strings(tmp_path):
    save_predictions(f"{tmp_path}/p.safetensors", example())
    assert load_predictions(f"{tmp_path}/p.safetensors").describe() == example().describe()
