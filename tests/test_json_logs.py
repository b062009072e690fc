"""JSON as language models and services log it: nested objects, and rows by name."""

import json

import numpy as np
import pytest

from confrank import evaluate
from confrank.predictions import read

NAMES = ["cat", "dog", "owl"]
CONFIDENCE, CORRECT = [0.9, 0.6, 0.7, 0.2], [True, False, True, False]


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_columns_of_objects_have_names_with_points(tmp_path):
    """As judges of long answers are logged."""
    rows = [
        {"id": k, "judge": {"correct": "yes" if right else "no", "by": {"confidence": 100 * sure}}, "text": "..."}
        for k, (sure, right) in enumerate(zip(CONFIDENCE, CORRECT, strict=True))
    ]
    path = written(tmp_path / "a.jsonl", rows)
    with pytest.raises(ValueError, match="got the columns id, judge.correct, judge.by.confidence, text; say what"):
        read(path)
    columns = {"confidence": "judge.by.confidence", "correct": "judge.correct"}
    loaded = read(path, columns=columns, scale=100)
    assert loaded.confidence.tolist() == pytest.approx(CONFIDENCE) and loaded.correct.tolist() == CORRECT
    assert loaded.describe().endswith("(ignored: text)")


def test_columns_of_objects_are_never_classes(tmp_path):
    rows = [{"label": k % 2, "meta": {"width": 0.25, "height": 0.75}} for k in range(4)]
    with pytest.raises(ValueError, match="got the columns label, meta.width, meta.height"):
        read(written(tmp_path / "a.jsonl", rows))
    columns = {"probability:0": "meta.width", "probability:1": "meta.height"}
    assert read(tmp_path / "a.jsonl", columns=columns).probabilities.tolist() == [[0.25, 0.75]] * 4


def test_large_and_deep_objects_stay_as_they_are(tmp_path):
    rows = [{"confidence": 0.5, "correct": k % 2, "tokens": {f"t{k}": -0.1}, "a": {"b": {"c": {"d": {"e": k}}}}}
            for k in range(60)]  # fmt: skip
    assert read(written(tmp_path / "a.jsonl", rows)).describe().endswith("(ignored: tokens, a.b.c.d)")


def test_rows_by_name(tmp_path):
    pairs = enumerate(zip(CONFIDENCE, CORRECT, strict=True))
    rows = {f"{k}.png": {"confidence": sure, "correct": right} for k, (sure, right) in pairs}
    (tmp_path / "a.json").write_text(json.dumps(rows))
    loaded = read(tmp_path / "a.json")
    assert loaded.keys["key"].tolist() == [b"0.png", b"1.png", b"2.png", b"3.png"]
    assert loaded.confidence.tolist() == CONFIDENCE and loaded.correct.tolist() == CORRECT
    (tmp_path / "c.json").write_text(json.dumps({name: {"judge": row} for name, row in rows.items()}))
    columns = {"confidence": "judge.confidence", "correct": "judge.correct"}
    assert read(tmp_path / "c.json", columns=columns).correct.tolist() == CORRECT
    # pandas, orient="index": numbers of rows identify nothing.
    (tmp_path / "b.json").write_text(json.dumps({str(k): row for k, row in enumerate(rows.values())}))
    assert read(tmp_path / "b.json").keys == {} and read(tmp_path / "b.json").correct.tolist() == CORRECT


def test_scores_as_bigquery_writes_them(tmp_path):
    shares = np.array([[0.5, 0.25, 0.25], [0.125, 0.75, 0.125], [0.1, 0.2, 0.7]])
    rows = [
        {
            "predicted_label": NAMES[row.argmax()],
            "predicted_label_probs": [{"label": NAMES[k], "prob": row[k]} for k in np.argsort(-row)],
            "label": NAMES[right],
        }
        for row, right in zip(shares, (0, 1, 0), strict=True)
    ]
    loaded = read(written(tmp_path / "a.jsonl", rows))
    expected = evaluate(probabilities=shares, label=[0, 1, 0]).metrics
    assert evaluate(**loaded.evaluation_inputs()).metrics == pytest.approx(expected)


def test_columns_by_row_are_matched_by_the_names_of_rows(tmp_path):
    columns = {
        "label": {"7": "cat", "8": "dog"},
        "prediction": {"8": "dog", "7": "cat"},
        "confidence": {"7": 0.9, "8": 0.6},
    }
    path = tmp_path / "a.json"
    path.write_text(json.dumps(columns))
    loaded = read(path)
    assert loaded.label.tolist() == loaded.prediction.tolist() == [0, 1] and loaded.confidence.tolist() == [0.9, 0.6]
    path.write_text(json.dumps(columns | {"confidence": {"7": 0.9, "9": 0.6}}))
    with pytest.raises(ValueError, match="the same rows in each column, but 'confidence' lacks '8'"):
        read(path)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"confidence": "95%", "correct": 1}, {"confidence": "0.5", "correct": 0}], "got '95%' in row 0; write"),
        ([{"confidence": 0.5, "correct": 1}, {"confidence": 0.5, "correct": 0.5}],
         "only 0 and 1 in correct, but got 0.5 in row 1; decide from which grade on an answer counts as right"),
        ([{"label": "a", "input": "?", "x": "b"}], "in column 'input', but got .*; name all class columns"),
    ],
)  # fmt: skip
def test_answers_of_language_models_that_are_refused_with_a_remedy(tmp_path, rows, message):
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path / "a.jsonl", rows))


def test_a_column_named_like_a_part_of_an_object_is_refused(tmp_path):
    for row in ({"judge.correct": 1, "judge": {"correct": 0}}, {"judge": {"correct": 0}, "judge.correct": 1}):
        path = written(tmp_path / "a.jsonl", [{"confidence": 0.9, **row}] * 3)
        with pytest.raises(ValueError, match=r"distinct columns, but 'judge.correct' is also in the object 'judge'"):
            read(path, columns={"correct": "judge.correct"})
