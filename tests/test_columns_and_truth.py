"""What a user says about a file: extra columns, roles of columns, a second file with the truth."""

import gzip
import itertools
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confrank import evaluate
from confrank.cli import main
from confrank.errors import InputError
from confrank.predictions import read
from confrank.predictions.joining import match

TEXT = "site,weight,label,prediction,confidence\na,0.5,cat,cat,0.9\nb,1,dog,cat,0.6\na,2,dog,dog,0.8\n"


def test_columns_are_kept_as_they_are_in_every_format(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "a.tsv").write_text(TEXT.replace(",", "\t"))
    columns = {
        "site": ["a", "b", "a"],
        "weight": [0.5, 1, 2],
        "label": ["cat", "dog", "dog"],
        "prediction": ["cat", "cat", "dog"],
        "confidence": [0.9, 0.6, 0.8],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **columns)
    for name in ("a.csv", "a.tsv", "a.parquet", "a.npz"):
        loaded = read(tmp_path / name, keep=["site", "weight"])
        assert loaded.extra["site"].tolist() == ["a", "b", "a"]
        assert loaded.extra["weight"].astype(float).tolist() == [0.5, 1, 2]
        assert loaded.label.tolist() == [0, 1, 1]
        assert loaded.describe() == "3 predictions, label, prediction and confidence"


def test_a_column_may_be_kept_and_have_a_role(tmp_path):
    (tmp_path / "a.csv").write_text("id,label,prediction,confidence\n7,1,1,0.9\n8,0,1,0.6\n")
    loaded = read(tmp_path / "a.csv", keep=["label", "id"])
    assert loaded.extra["label"].tolist() == ["1", "0"] and loaded.extra["id"].tolist() == ["7", "8"]
    assert loaded.label.tolist() == [1, 0] and loaded.key.tolist() == [b"7", b"8"]
    with pytest.raises(ValueError, match="expected a column 'region', but got the columns id, label"):
        read(tmp_path / "a.csv", keep=["region"])


def test_a_kept_column_is_no_class(tmp_path):
    (tmp_path / "a.csv").write_text("label,cat,dog,age\ncat,0.9,0.1,31\ndog,0.2,0.8,44\n")
    loaded = read(tmp_path / "a.csv", keep=["age"])
    assert loaded.probabilities.tolist() == [[0.9, 0.1], [0.2, 0.8]]
    assert loaded.extra["age"].tolist() == ["31", "44"]


def written(folder, name, text, encoding="utf-8"):
    content = text.encode(encoding)
    (folder / name).write_bytes(gzip.compress(content) if name.lower().endswith(".gz") else content)
    return folder / name


def metrics_of(predictions):
    return evaluate(**predictions.evaluation_inputs()).metrics


ANSWERS = [("cat", "cat", 0.9), ("dog", "cat", 0.6), ("dog", "dog", 0.8), ("cat", "dog", 0.7)]
CONFIDENCE, CORRECT = np.array([0.9, 0.6, 0.8, 0.7]), np.array([True, False, True, False])
EXPECTED = evaluate(confidence=CONFIDENCE, correct=CORRECT).metrics
NAMES = ("label", "prediction", "confidence")
LINES = [dict(zip(NAMES, answer, strict=True)) for answer in ANSWERS]
CSV = "\n".join([",".join(NAMES), *(",".join(map(str, answer)) for answer in ANSWERS), ""])
COLUMNS = {name: [line[name] for line in LINES] for name in NAMES}
WRAPPED = {"model": "resnet", "predictions": LINES}
JSONL = "".join(json.dumps(line) + "\n\n" for line in LINES)


@pytest.mark.parametrize(
    ("name", "text", "encoding"),
    [
        ("a.json", json.dumps(COLUMNS, indent=1), "utf-8-sig"),
        ("a.json", json.dumps(WRAPPED), "utf-16"),
        ("a.ndjson", JSONL, "utf-16"),
        ("a.json", JSONL, "utf-8"),
        ("a.tsv", CSV.replace(",", "\t"), "utf-16"),
        ("a.csv", re.sub(r"0\.(.)", r"\g<1>0 %", CSV).replace(",", " , "), "utf-8"),
        ("a.CSV.GZ", CSV, "utf-16"),
        ("a.json.gz", json.dumps(LINES), "utf-8"),
    ],
)
def test_one_content_in_many_formats(tmp_path, name, text, encoding):
    """Those that are not among the files of tests/files."""
    loaded = read(written(tmp_path, name, text, encoding))
    assert loaded.class_names == ["cat", "dog"]
    assert metrics_of(loaded) == pytest.approx(EXPECTED, abs=1e-12)


def test_lists_in_json_are_tables(tmp_path):
    table = [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]
    path = written(tmp_path, "a.json", json.dumps({"label": [0, 1, 1], "probabilities": table}))
    assert metrics_of(read(path)) == evaluate(probabilities=np.array(table), label=[0, 1, 1]).metrics
    rows = [{"gold": "b", "scores": [{"label": "a", "score": 0.75}, {"label": "b", "score": 0.25}]}]
    rows += [{"gold": "b", "scores": [{"label": "b", "score": 0.875}, {"label": "a", "score": 0.125}]}]
    loaded = read(written(tmp_path, "b.json", json.dumps(rows)))
    assert loaded.class_names == ["a", "b"]
    assert loaded.probabilities.tolist() == [[0.75, 0.25], [0.125, 0.875]] and loaded.label.tolist() == [1, 1]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "[1, 2", "expected JSON, but it cannot be parsed"),
        ("a.json", "3", "a list of objects, or an object of columns, but got int"),
        ("a.json", "[]", "expected rows of predictions, but there are none"),
        ("a.json", '{"label": [1, 2], "confidence": [1]}', "2 in label, 1 in confidence"),
        ("a.json", '[{"label": 1, "label": 2}]', "distinct names in each object, but got 'label' twice"),
        ("a.json", '{"columns": ["a"], "data": [3]}', "a list of 1 values in each row, but row 0 is another"),
        (
            "a.json",
            '{"columns": ["label", "conf", "label"], "data": [[1, 0.5, 0]]}',
            "distinct columns, but got 'label' twice, as columns 1 and 3",
        ),
        ("a.jsonl", '{"label": 1}\n{"label": \n', "cannot be parsed in line 2: Expecting value at column 11$"),
        ("a.jsonl", '{"label": 1}\n[2]\n', "an object in each row, but got a list in row 1"),
        (
            "a.json",
            '{"label": [0, 1], "probabilities": [[0.5, 0.5], [1]]}',
            r"one length .*, but got lengths \[1, 2\]",
        ),
        ("a.json", '{"label": [0], "probabilities": [["a", "b"]]}', "lists of numbers in 'probabilities'"),
    ],
)
def test_mistakes_in_json(tmp_path, name, text, message):
    with pytest.raises(ValueError, match=message):
        read(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", gzip.compress(CSV.encode()), "expected text in UTF-8, but line 1 holds byte 0x8b"),
        ("a.npz", CSV.encode(), "expected an npz archive of arrays, but it cannot be read: File is not a zip file"),
        ("a.parquet", CSV.encode(), "expected a .parquet file, but it cannot be read: Parquet magic bytes not found"),
        ("a.csv.gz", CSV.encode(), "expected an intact compressed file, but it cannot be read"),
        ("a.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this looks like a binary file, so give a text file"),
        ("a.json", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this looks like a binary file, so give a text file"),
        ("a.csv", b"label,prediction\n\xe9,\xe8\n", "or run iconv -f WINDOWS-1252 -t UTF-8"),
    ],
    ids=itertools.count(),  # bytes of an archive contain the time
)
def test_files_with_a_wrong_ending_say_what_they_are(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=re.escape(message)):
        read(tmp_path / name)


def test_only_text_may_be_packed(tmp_path):
    (tmp_path / "a.npz.gz").write_bytes(gzip.compress(CSV.encode()))
    with pytest.raises(ValueError, match=r"or \.csv, \.tsv, \.json, \.jsonl, \.ndjson with \.gz, "):
        read(tmp_path / "a.npz.gz")


def test_answers_of_language_models(tmp_path):
    def answers(name, cells):
        lines = [f"q{row},{a},{g},{cells[row]}" for row, (g, a, _) in enumerate(ANSWERS)]
        return written(tmp_path, f"{name}.csv", "\n".join([f"question_id,answer,gold,{name}", *lines, ""]))

    loaded = read(answers("logprob", np.log(CONFIDENCE)))
    assert metrics_of(loaded) == pytest.approx(EXPECTED, abs=1e-12)
    assert loaded.key.tolist() == [b"q0", b"q1", b"q2", b"q3"]
    path = answers("confidence", ["90", "60", "80", "70"])
    with pytest.raises(ValueError, match="'confidence' has values from 60 to 90, .*; use `scale` 100 if they are"):
        read(path)
    assert metrics_of(read(path, scale=1.0))["ece"] is None


def test_the_caller_says_what_is_what(tmp_path):
    lines = [line + ",s,2.5" for line in CSV.splitlines()[1:]]
    path = written(tmp_path, "a.csv", "\n".join(["a,b,c,score,w", *lines, ""]))
    roles = {"label": "a", "prediction": "b", "confidence": "C ", "group": "score", "sample_weight": "w"}
    loaded = read(path, roles)
    assert metrics_of(loaded) == pytest.approx(EXPECTED, abs=1e-12)
    assert loaded.extra["group"].tolist() == ["s"] * 4 and loaded.extra["sample_weight"].tolist() == [2.5] * 4
    with pytest.raises(ValueError, match="expected a column 'z', but got the columns a, b, c"):
        read(path, {"label": "z"})
    with pytest.raises(ValueError, match="expected a role among label, .*, logit:NAME, but got 'truth'"):
        read(path, {"truth": "a"})


def test_class_columns_by_name(tmp_path):
    path = written(tmp_path, "a.csv", "truth,fold,x1,x2\nno,1,0.25,0.75\nyes,2,0.5,0.5\nyes,3,0.875,0.125\n")
    loaded = read(path, {"probability:no": "x2", "probability:yes": "x1"})
    assert loaded.class_names == ["no", "yes"] and loaded.label.tolist() == [0, 1, 1]
    assert loaded.probabilities.tolist() == [[0.75, 0.25], [0.5, 0.5], [0.125, 0.875]]
    assert read(path, {"logit:no": "x2", "logit:yes": "x1"}).logits is not None
    with pytest.raises(ValueError, match="probabilities or of logits, but got both"):
        read(path, {"logit:no": "x2", "probability:yes": "x1"})


def binary(rng, n=400):
    label = rng.integers(0, 2, n)
    return label, np.clip(rng.normal(0.3 + 0.4 * label, 0.2), 0.001, 0.999).round(3)


@pytest.mark.parametrize("threshold", [0.5, 0.3])
@pytest.mark.parametrize("names", [["0", "1"], ["ham", "spam"], ["1", "2"], ["False", "True"]])
def test_the_probability_of_a_class_is_no_confidence(tmp_path, names, threshold):
    label, score = binary(np.random.default_rng(0))
    prediction = (score >= threshold).astype(int)
    lines = [f"{names[a]},{names[b]},{c}" for a, b, c in zip(label, prediction, score, strict=True)]
    path = written(tmp_path, "a.csv", "\n".join(["label,prediction,score", *lines, ""]))
    with pytest.raises(InputError, match="'score' is below 0.5 .* like the probability of that class") as caught:
        read(path)
    assert f"use --positive {names[1]} if it is, or --columns confidence=score" in caught.value.worded("--{}".format)
    confidence = np.where(prediction == 1, score, 1 - score)
    expected = evaluate(confidence=confidence, correct=prediction == label).metrics
    found = metrics_of(read(path, positive=names[1]))
    assert [found[key] for key in ("acc", "aurc", "auroc")] == [expected[key] for key in ("acc", "aurc", "auroc")]
    as_said = evaluate(confidence=score, correct=prediction == label).metrics
    assert metrics_of(read(path, {"confidence": "score"}))["auroc"] == as_said["auroc"]


def test_the_positive_class_may_be_the_first(tmp_path):
    label, score = binary(np.random.default_rng(1), 50)
    lines = [f"{'ab'[a]},{c}" for a, c in zip(label, 1 - score, strict=True)]
    path = written(tmp_path, "a.csv", "\n".join(["label,score", *lines, ""]))
    with pytest.raises(ValueError, match="use `positive` NAME if the score is the probability of the class NAME"):
        read(path)
    expected = evaluate(probabilities=np.stack([1 - score, score], axis=1), label=label).metrics
    assert metrics_of(read(path, positive="a")) == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="a class among a, b, but got 'c'; change `positive`"):
        read(path, positive="c")


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("label,prediction,probability_a,probability_b\nb,b,0.5,0.5\na,a,0.5,0.5\na,b,0.2,0.8\n", {}),
        ("label,prediction,logit_a,logit_b\nb,b,2,2\na,a,2,2\na,b,2,3\n", {}),
        ("label,prediction,y_prob\n1,1,0.5\n0,0,0.5\n0,1,0.8\n", {}),
        ("label,prediction,score\nb,b,0.5\na,a,0.5\na,b,0.8\n", {"positive": "b"}),
    ],
)
def test_the_file_predicts_one_of_several_largest_classes(tmp_path, text, asked):
    loaded = read(written(tmp_path, "a.csv", text), **asked)
    assert loaded.prediction.tolist() == [1, 0, 1] and loaded.label.tolist() == [1, 0, 0]
    assert metrics_of(loaded)["acc"] == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("header", "remedy"),
    [
        ("probability_a,probability_b", "leave out the column of predictions if another rule made them"),
        ("a,b", "name all class columns probability_NAME or logit_NAME"),
        ("y_prob", "use `positive` CLASS if the predictions come from another cut-off than 0.5"),
    ],
)
def test_a_prediction_has_a_largest_value(tmp_path, header, remedy):
    rows = "1,1,0.4\n0,0,0.3\n" if header == "y_prob" else "b,b,0.6,0.4\na,a,0.7,0.3\n"
    with pytest.raises(InputError, match=f"to be the class with the largest of the .* where class 0 .*; {remedy}"):
        read(written(tmp_path, "a.csv", f"label,prediction,{header}\n{rows}"))
    if header == "y_prob":
        assert read(tmp_path / "a.csv", positive="1").confidence.tolist() == [0.4, 0.7]


def test_scaled_probabilities_are_noted(tmp_path):
    path = written(tmp_path, "a.csv", "label,probability_a,probability_b\na,75,25\nb,50,50\n")
    assert read(path, scale=100).notes == ("probabilities divided by 100",)
    path = written(tmp_path, "b.csv", "label,probability_a,probability_b\na,-0.693147,-0.693147\n")
    assert read(path, scale="log").notes == ("probabilities read as logarithms",)


def test_names_of_classes_are_not_numbers_from_one(tmp_path):
    text = "label,probability_a,probability_b\nb,0.2,0.8\nb,0.7,0.3\nb,0.9,0.1\n"
    assert read(written(tmp_path, "a.csv", text)).label.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="which seem to start at 1"):
        read(written(tmp_path, "b.csv", text.replace("\nb", "\n1")))


def test_predictions_by_another_threshold_than_one_half(tmp_path):
    label, score = binary(np.random.default_rng(5))
    score = (score / 2.5).round(4)  # never 0.5: the other class is always the more probable one
    prediction = (score >= 0.1).astype(int)
    lines = [f"{'ab'[a]},{'ab'[b]},{c}" for a, b, c in zip(label, prediction, score, strict=True)]
    path = written(tmp_path, "a.csv", "\n".join(["label,prediction,score", *lines, ""]))
    loaded = read(path, positive="b")
    assert loaded.confidence.tolist() == pytest.approx(np.where(prediction, score, 1 - score).tolist())
    assert metrics_of(loaded)["acc"] == np.mean(prediction == label)
    new = read(path, {"confidence": "score"}, positive="b", labelled=False)
    assert new.label is None and (new.prediction == prediction).all()
    assert (new.confidence == loaded.confidence).all()


@pytest.mark.parametrize("prefix", ["proba_", "probabilities_", "Prob_", "P_"])
@pytest.mark.parametrize("label", ["y", "Y", "label"])
def test_names_that_libraries_write(tmp_path, prefix, label):
    text = f"{label},{prefix}cat,{prefix}dog,site\ncat,0.9,0.1,x\ndog,0.3,0.7,z\n"
    loaded = read(written(tmp_path, "a.csv", text))
    assert loaded.class_names == ["cat", "dog"] and loaded.label.tolist() == [0, 1]
    assert loaded.probabilities.tolist() == [[0.9, 0.1], [0.3, 0.7]]


def test_y_is_a_class_next_to_a_label(tmp_path):
    assert read(written(tmp_path, "a.csv", "label,x,y\nx,0.9,0.1\ny,0.3,0.7\n")).class_names == ["x", "y"]
    path = written(tmp_path, "b.csv", "x,y\n0.9,0.1\n0.3,0.7\n")
    assert read(path, {"probability:x": "x", "probability:y": "y"}, labelled=False).class_names == ["x", "y"]


@pytest.mark.parametrize("header", ["class,y_pred,y_prob", "class,prob_a,prob_b"])
def test_missing_labels_are_named(tmp_path, header):
    with pytest.raises(InputError, match="with `columns`, as in label=COLUMN, or .*with `truth` FILE"):
        read(written(tmp_path, "a.csv", f"{header}\n1,1,0.9\n0,1,0.7\n"))


@pytest.mark.parametrize(
    "words", [("Y", "N"), ("correct", "incorrect"), ("Right", "wrong"), ("correct", "WRONG"), ("yes", "no")]
)
def test_words_for_right_and_wrong(tmp_path, words):
    text = f"confidence,correct\n0.9,{words[0]}\n0.6,{words[1]}\n0.8,{words[0]}\n"
    assert read(written(tmp_path, "a.csv", text)).correct.tolist() == [True, False, True]
    labels = f"label,prediction,confidence\n{words[0]},{words[0]},0.9\n{words[1]},{words[0]},0.6\n"
    assert read(written(tmp_path, "b.csv", labels)).class_names == sorted(words)


def answered_rows(pairs, times=6):
    rows = [f"{label},{prediction},0.{7 + number % 3}" for number, (label, prediction) in enumerate(pairs * times)]
    return "\n".join(["label,prediction,confidence", *rows, ""])


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([(1, 0), (2, 1), (3, 2), (2, 2)], "the labels are 1 to 3 and the predictions 0 to 2; number the classes of"),
        ([(0, 1), (1, 2)], "the labels are 0 to 1 and the predictions 1 to 2; number the classes of both from 0"),
        ([("Cat", "cat"), ("Dog", "cat"), ("Dog", "dog")], "but got 'Cat' and 'cat'; write them with the same upper"),
    ],
)
def test_labels_and_predictions_that_write_classes_in_two_ways(tmp_path, pairs, message):
    with pytest.raises(InputError, match=re.escape(message)):
        read(written(tmp_path, "a.csv", answered_rows(pairs)))


@pytest.mark.parametrize(
    ("pairs", "times", "notes"),
    [
        ([("a", "a"), ("b", "a"), ("a", "c")], 6, ("labels that are never predicted: b",
                                                   "predictions that are never a label: c")),
        ([(0, 0), (1, 0), (2, 0)], 6, ("labels that are never predicted: 1, 2",)),
        ([("a", "a"), ("b", "a"), ("a", "c")], 4, ()),
        ([("Cat", "cat"), ("dog", "dog")], 6, ("labels that are never predicted: Cat",
                                               "predictions that are never a label: cat")),
        ([(1, 0), (2, 1), (1, 1), (2, 0), (2, 0)], 6, ("labels that are never predicted: 2",
                                                       "predictions that are never a label: 0")),
        ([(1, 0)], 9, ("labels that are never predicted: 1", "predictions that are never a label: 0")),
    ],
)  # fmt: skip
def test_classes_on_one_side_alone_are_noted(tmp_path, pairs, times, notes):
    assert read(written(tmp_path, "a.csv", answered_rows(pairs, times))).notes == notes


def test_a_confidence_of_two_classes_is_not_doubted(tmp_path):
    label, score = binary(np.random.default_rng(2))
    prediction, confidence = (score > 0.5).astype(int), np.maximum(score, 1 - score)
    for values in (confidence, np.random.default_rng(3).random(len(label)).round(3)):
        lines = [f"{a},{b},{c}" for a, b, c in zip(label, prediction, values, strict=True)]
        loaded = read(written(tmp_path, "a.csv", "\n".join(["label,prediction,score", *lines, ""])))
        assert (
            metrics_of(loaded)["auroc"] == evaluate(confidence=values, correct=prediction == label).metrics["auroc"]
        )


@pytest.mark.parametrize("word", ["", "None", "nan", "NULL", " "])
@pytest.mark.parametrize("role", ["label", "prediction", "confidence"])
def test_missing_values_are_refused_or_skipped(tmp_path, role, word):
    lines = [",".join(str(line[name]) for name in NAMES) for line in LINES]
    extra = {"label": f"{word},cat,0.5", "prediction": f"cat,{word},0.5", "confidence": f"cat,cat,{word}"}[role]
    path = written(tmp_path, "a.csv", "\n".join([",".join(NAMES), extra, *lines, extra, ""]))
    with pytest.raises(ValueError, match=f"a value of '{role}' in each row, but 2 of 6 have none: rows 0, 5.*; drop"):
        read(path)
    loaded = read(path, skip_missing=True)
    assert metrics_of(loaded) == pytest.approx(EXPECTED, abs=1e-12)
    assert loaded.describe().endswith(f"2 rows without {role} skipped")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,a,b,c\n0,90,5,5\n1,20,70,10\n", "but they sum to 100; use `scale` 100 if they are percentages"),
        ("label,p_a,p_b\n1,0.9,0.1\n2,0.2,0.8\n", "labels are 1 to 2, which seem to start at 1; subtract 1"),
        ("label,p_a,p_b,p_c\n1,0.9,0.1,0\n2,0.2,0.8,0\n", "labels are 1 to 2, which seem to start at 1"),
    ],
)
def test_doubts_are_errors_that_say_what_settles_them(tmp_path, text, message):
    with pytest.raises(InputError, match=message):
        read(written(tmp_path, "a.csv", text))


def test_unsigned_numbers_that_were_negative(tmp_path):
    label = np.array([0, 1, -1]).astype(np.uint64)
    np.savez(tmp_path / "a.npz", label=label, prediction=np.array([0, 1, 1]), confidence=np.ones(3))
    with pytest.raises(ValueError, match=r"below 2\*\*63 in label, but got 18446744073709551615 in row 2"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", label=label[:2], prediction=np.array([0, 0]), confidence=np.ones(2))
    assert metrics_of(read(tmp_path / "b.npz"))["acc"] == 0.5


def test_rows_may_share_what_is_no_key(tmp_path):
    text = "id,label,pred,conf\na,1,1,0.9\nb,1,2,0.8\na,1,3,0.7\n"
    loaded = read(written(tmp_path, "a.csv", text), {"group": "id"})
    assert loaded.extra["group"].tolist() == ["a", "b", "a"] and loaded.key is None


TRUTH = "id,target,site\na,cat,x\nb,dog,y\nc,dog,x\nd,cat,y\n"
SHUFFLED = [3, 1, 0, 2]


def submission(header, *columns):
    lines = [",".join(str(cells[row]) for cells in columns) for row in SHUFFLED]
    return "\n".join([header, *lines, ""])


@pytest.mark.parametrize(
    "text",
    [
        submission("id,prediction,confidence", "abcd", COLUMNS["prediction"], CONFIDENCE),
        submission("id,label,score", "abcd", COLUMNS["prediction"], CONFIDENCE),
        submission("ID,answer,site,prob", "abcd", COLUMNS["prediction"], "----", CONFIDENCE),
    ],
)
def test_labels_of_another_file(tmp_path, text):
    truth = written(tmp_path, "truth.csv", TRUTH)
    loaded = read(written(tmp_path, "a.csv", text), truth=truth, keep=["site"])
    assert metrics_of(loaded) == pytest.approx(EXPECTED, abs=1e-12)
    assert loaded.extra["site"].tolist() == ["y", "y", "x", "x"]
    assert [key.decode() for key in loaded.key] == ["d", "b", "a", "c"]
    assert f"labels of {truth} joined by" in loaded.describe()


GIVEN = {
    "numbers": [17, 4, 42, 8],
    "words": ["x", "y", "z", "w"],
    "zero and one": [0, 1, 1, 0],
    "missing": [17, "", 42, 8],
}


@pytest.mark.parametrize("answers", ["numbers", "words", "zero and one"])
@pytest.mark.parametrize("header", ["id,correct", "id,Graded", "id,site,is_correct", "id,IS CORRECT,site"])
def test_grades_of_another_file(tmp_path, answers, header):
    rows = {"id": "abcd", "site": "uvwx"}
    cells = [rows.get(name, [1, 0, 0, 1]) for name in header.split(",")]
    grades = written(tmp_path, "grades.csv", submission(header, *cells))
    path = written(tmp_path, "a.csv", submission("id,answer,prob", "abcd", GIVEN[answers], CONFIDENCE))
    for truth in (
        grades,
        written(tmp_path, "words.csv", grades.read_text().replace(",1", ",yes").replace(",0", ",no")),
    ):
        loaded = read(path, truth=truth)
        assert loaded.label is None and loaded.correct.tolist() == [True, False, True, False]
        assert metrics_of(loaded) == pytest.approx(
            evaluate(confidence=CONFIDENCE, correct=[1, 0, 0, 1]).metrics, abs=1e-12
        )
        assert f"correct of {truth} joined by id" in loaded.describe()


def test_grades_in_a_column_of_labels_are_refused(tmp_path):
    grades = written(tmp_path, "grades.csv", submission("id,points,label", "abcd", "uvwx", [1, 0, 0, 1]))
    paths = {
        name: written(tmp_path, f"{name[:2]}.csv", submission("id,answer,prob", "abcd", cells, CONFIDENCE))
        for name, cells in GIVEN.items()
    }
    refused = "expected labels that answers can agree with, but 'label' .* has only 0 and 1, and the answers have"
    for name in ("numbers", "words", "missing"):
        with pytest.raises(ValueError, match=f"{refused} .*; if these are grades, use `columns` correct=label"):
            read(paths[name], truth=grades, skip_missing=True)
        if name != "missing":
            loaded = read(paths[name], truth=grades, columns={"correct": "label"})
            assert loaded.correct.tolist() == [True, False, True, False] and loaded.label is None
    assert read(paths["numbers"], truth=grades, columns={"label": "label"}).label.tolist() == [1, 0, 1, 0]
    assert read(paths["zero and one"], truth=grades).label.tolist() == [1, 0, 1, 0]
    both = written(tmp_path, "both.csv", submission("id,correct,label", "abcd", [1, 0, 0, 1], GIVEN["numbers"]))
    assert read(paths["numbers"], truth=both).label.tolist() == [8, 4, 17, 42]


def test_grades_in_a_column_of_labels_next_to_the_answers_are_refused(tmp_path):
    rows = zip("abcd", "1001", GIVEN["numbers"], CONFIDENCE, strict=True)
    path = written(tmp_path, "a.csv", "\n".join(["id,label,answer,prob", *(",".join(map(str, row)) for row in rows)]))
    remedy = "if these are grades, use `columns` correct=label,confidence=prob, otherwise label=label"
    with pytest.raises(ValueError, match=f"'label' has only 0 and 1, .* such as 17; {remedy}"):
        read(path)
    grades = read(path, columns={"correct": "label", "confidence": "prob"})
    assert metrics_of(grades) == evaluate(confidence=CONFIDENCE, correct=[1, 0, 0, 1]).metrics
    assert metrics_of(read(path, columns={"label": "label"}))["acc"] == 0


def test_labels_of_two_among_more_predicted_classes(tmp_path):
    text = "label,prediction,confidence\n1,1,.9\n0,0,.8\n1,2,.7\n0,0,.6\n"
    assert metrics_of(read(written(tmp_path, "few.csv", text)))["acc"] == 0.75


def test_submissions_of_probabilities(tmp_path):
    table = np.array([[0.75, 0.25], [0.875, 0.125], [0.25, 0.75], [0.5, 0.5]])
    expected = evaluate(probabilities=table, label=[0, 1, 1, 0]).metrics
    numbers = written(tmp_path, "n.json", json.dumps({"id": [*"dcba"], "target": [0, 1, 1, 0]}))
    path = written(tmp_path, "b.csv", submission("id,target", "abcd", table[:, 1]))
    assert metrics_of(read(path, truth=numbers)) == pytest.approx(expected, abs=1e-12)
    path = written(tmp_path, "c.csv", submission("id,target", "abcd", [0, 1, 1, 0]))
    with pytest.raises(ValueError, match="'target' holds classes alone; add a column of the confidence"):
        read(path, truth=numbers)


def test_what_cannot_be_joined(tmp_path):
    truth = written(tmp_path, "t.csv", TRUTH)
    path = written(tmp_path, "a.csv", "nr,label,score\na,cat,0.9\nb,cat,0.6\ne,dog,0.8\n")
    with pytest.raises(ValueError, match="identifies the samples in both files, .*; name it with `on`"):
        read(path, truth=truth)
    message = r"1 of 3 predictions are not in .*t.csv \(e\) and 2 of 4 labels have no prediction \(c, d\)"
    with pytest.raises(ValueError, match=message):
        read(path, truth=truth, on="nr=id")
    loaded = read(path, truth=truth, on="nr=id", skip_missing=True)
    assert (loaded.label == loaded.prediction).tolist() == [True, False]
    assert loaded.notes[1:] == ("1 prediction without label skipped", "2 labels without prediction skipped")
    twice = written(tmp_path, "u.csv", TRUTH + "a,dog,x\n")
    with pytest.raises(ValueError, match="each sample once in .*u.csv, but got nr 'a' in rows 0 and 4; remove"):
        read(path, truth=twice, on="nr=id")
    many = written(tmp_path, "m.csv", "nr,u,v\na,1,2\n")
    with pytest.raises(ValueError, match="one column of labels in the truth, but got the columns nr, u, v; name it"):
        read(path, truth=many)
    with pytest.raises(ValueError, match="expected a file of labels to join by 'id', but got none; add `truth`"):
        read(path, on="id")


@given(st.lists(st.binary(max_size=20).map(lambda key: key.strip(b"\0 ")), unique=True, max_size=30), st.randoms())
def test_keys_are_matched_as_a_dictionary_does(keys, random):
    others = random.sample(keys, random.randint(0, len(keys))) + [b"other %d" % number for number in range(3)]
    random.shuffle(others)
    rows, is_there = match(np.array([*keys, b"x" * 21]), np.array(others))
    row_of = {key: row for row, key in enumerate(others)}
    assert [row if there else None for row, there in zip(rows.tolist(), is_there.tolist(), strict=True)] == [
        row_of.get(key) for key in [*keys, b"x" * 21]
    ]


def test_the_flags_are_the_same_in_three_commands(tmp_path, capsys):
    label, score = binary(np.random.default_rng(0))
    lines = [f"{row},{a}" for row, a in enumerate(label)]
    truth = written(tmp_path, "t.csv", "\n".join(["nr,gold", *lines, ""]))
    percentages = [f"{100 * c:.1f}" for c in score]
    score = np.array(percentages).astype(float) / 100
    lines = [f"{row},{c}" for row, c in enumerate(percentages)]
    path = written(tmp_path, "a.csv", "\n".join(["nr,s", *lines[::-1], ""]))
    flags = [
        str(path),
        "--columns",
        "confidence=s,label=gold",
        "--truth",
        str(truth),
        "--on",
        "nr",
        "--positive",
        "1",
    ]
    flags += ["--scale", "100", "--json", str(tmp_path / "out.json")]
    expected = evaluate(probabilities=np.stack([1 - score, score], axis=1), label=label).metrics
    for command in (["evaluate", "--resamples", "0"], ["threshold", "--coverage", "0.5"], ["calibrate"]):
        with pytest.raises(SystemExit) as caught:
            main([command[0], *flags, *command[1:]])
        assert caught.value.code == 0
        assert "labels of" in capsys.readouterr().out
        if command[0] == "evaluate":
            found = json.loads((tmp_path / "out.json").read_text())["metrics"]
            assert found == pytest.approx(expected, abs=1e-9)


def test_what_was_understood_is_shown(tmp_path, capsys):
    path = written(tmp_path, "a.csv", "id,gold,answer,conf,note\n7,cat,dog,0.75,x\n8,dog,dog,0.5,y\n")
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", str(path), "--show"])
    assert caught.value.code == 0
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line] == [
        ["id", "key"], ["gold", "label"], ["answer", "prediction"], ["conf", "confidence"], ["note", "ignored"],
        ["0", "7", "cat", "dog", "0.75", "no"], ["1", "8", "dog", "dog", "0.5", "yes"],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--columns", "label=a,label=b"], "expected each role once in --columns, but got 'label' twice"),
        (["--scale", "big"], "expected a number or log for --scale, but got 'big'"),
        (["--on", "id"], "expected a file of labels to join by 'id', but got none; add --truth"),
        ([], "use --positive 1 if it is, or --columns confidence=score if it is the confidence"),
    ],
)
def test_the_command_line_words_remedies_as_flags(tmp_path, capsys, flags, message):
    path = written(tmp_path, "a.csv", "label,prediction,score\n0,0,0.1\n1,1,0.9\n1,0,0.2\n")
    with pytest.raises(SystemExit) as caught:
        main(["evaluate", str(path), *flags])
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_obs_is_the_label_if_no_other_column_is_one(tmp_path):
    """caret in R calls it so; elsewhere it is the number of an observation."""
    (tmp_path / "a.csv").write_text("pred,obs,confidence\ncat,cat,0.9\ndog,cat,0.6\n")
    loaded = read(tmp_path / "a.csv")
    assert (loaded.label == loaded.prediction).tolist() == [True, False] and "obs read as the label" in loaded.notes
    (tmp_path / "b.csv").write_text("obs,label,prediction,confidence\n1,cat,cat,0.9\n2,cat,dog,0.6\n")
    assert read(tmp_path / "b.csv").describe().endswith("(ignored: obs)")
