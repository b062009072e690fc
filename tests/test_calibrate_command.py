"""`confrank calibrate`: cross-fitted figures, files of a bare confidence, CSV files that are written, policies."""

import csv
import json

import numpy as np
import pytest
from scipy.special import softmax

from confrank import evaluate
from confrank.decisions import calibrate, cross_calibrated, random_folds
from confrank.decisions.calibrators import CALIBRATION_METHODS
from confrank.metrics import adaptive_ece, classwise_ece
from confrank.predictions import load_predictions, read

NAMES = ["cat", "dog", "owl"]


def table(size=240, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, classes, size)
    return 3 * (rng.standard_normal((size, classes)) + 1.3 * (label[:, None] == np.arange(classes))), label


def write(path, header, *columns, mark=","):
    rows = zip(*(column.tolist() if isinstance(column, np.ndarray) else column for column in columns), strict=True)
    path.write_text("\n".join(mark.join(map(str, row)) for row in [header, *rows]) + "\n", encoding="utf-8")
    return path


def cells(path):
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    return {name: [row[number] for row in rows] for number, name in enumerate(header)}


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_the_figures_are_cross_fitted_and_the_result_is_a_fit_to_all_rows(method, tmp_path, capsys, command):
    logits, label = table()
    np.savez(tmp_path / "p.npz", logits=logits, label=label)
    flags = ["--method", method, "--folds", 4, "--seed", 3, "--out", tmp_path / "c.safetensors"]
    command("calibrate", tmp_path / "p.npz", *flags, "--json", tmp_path / "c.json")
    result, out = json.loads((tmp_path / "c.json").read_text()), load_predictions(tmp_path / "c.safetensors")
    confidence, correct = softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == label
    is_table = method == "temperature"
    arrays = {"logits": logits, "label": label} if is_table else {"confidence": confidence, "correct": correct}
    folds, whole = random_folds(240, 4, 3), calibrate(method, **arrays)
    assert (result["method"], result["num_fitted"], result["folds"]) == (method, 240, 4)
    assert np.concatenate([np.ravel(each) for each in result["parameters"].values()]) == (
        pytest.approx(np.concatenate([np.ravel(each) for each in whole.parameters.values()]))
    )
    values = cross_calibrated(method, folds, **arrays)
    if is_table:
        after = evaluate(logits=values, label=label).metrics
        assert result["before"]["metrics"] == evaluate(logits=logits, label=label).metrics
        assert result["calibration"]["after"]["classwise_ece"] == classwise_ece(softmax(values, axis=1), label)
        assert np.array_equal(out.logits, whole.apply(logits=logits))
    else:
        after = evaluate(confidence=values, correct=correct).metrics
        before = evaluate(confidence=confidence, correct=correct).metrics["ece"]
        assert result["before"]["metrics"]["ece"] == pytest.approx(before, rel=1e-12)
        assert result["calibration"]["after"] == pytest.approx({"adaptive_ece": adaptive_ece(values, correct)})
        assert out.confidence == pytest.approx(whole.apply(confidence), rel=1e-9)
        assert np.array_equal(out.prediction, logits.argmax(axis=1))
    assert result["after"]["metrics"] == pytest.approx(after)
    assert ("temperature" in result) == (method == "temperature")
    printed = capsys.readouterr().out
    assert "fitted to 240 rows; the metrics below are cross-fitted: each of 4 folds by a fit to the others" in printed
    assert "adaptive ECE %" in printed and ("classwise ECE %" in printed) == is_table
    command("threshold", tmp_path / "c.safetensors", "--coverage", 0.5)
    assert ("SelectiveClassifier(model" in capsys.readouterr().out) == (method == "temperature")


@pytest.mark.parametrize("form", ["prediction", "correct", "score"])
def test_a_bare_confidence(form, tmp_path, command, capsys):
    logits, label = table()
    confidence, prediction = softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1)
    if form == "score":
        confidence = 8 * confidence - 4
    correct = (prediction == label).astype(int)
    if form == "prediction":
        path = write(tmp_path / "p.csv", ["label", "prediction", "confidence"], label, prediction, confidence)
    else:
        path = write(tmp_path / "p.csv", ["confidence", "correct"], confidence, correct)
    command("calibrate", path, "--method", "isotonic", "--out", tmp_path / "c.csv")
    before, after = cells(path), cells(tmp_path / "c.csv")
    assert {*before} == {*after}
    assert {name: each for name, each in before.items() if name != "confidence"} == {
        name: each for name, each in after.items() if name != "confidence"
    }
    calibrator = calibrate("isotonic", confidence=confidence, correct=correct)
    assert [float(cell) for cell in after["confidence"]] == calibrator.apply(confidence).tolist()
    undefined = "ECE % undefined: confidence is outside [0, 1]"
    assert (f"before: {undefined}" in capsys.readouterr().out) == (form == "score")


def test_temperature_of_a_bare_confidence_names_the_method_that_does(tmp_path, capsys, command):
    write(tmp_path / "p.csv", ["confidence", "correct"], [0.5, 0.75], [1, 0])
    command("calibrate", tmp_path / "p.csv", code=2)
    errors = capsys.readouterr().err
    assert "of all classes to calibrate, but" in errors
    assert "use --method isotonic\n" in errors
    command("calibrate", tmp_path / "p.csv", "--method", "spline", code=2)
    assert "expected --method to be one of temperature, isotonic," in capsys.readouterr().err
    command("calibrate", tmp_path / "p.csv", "--method", "isotonic", "--split", 0.5, "--folds", 3, code=2)
    assert "expected --split or --folds, but got both" in capsys.readouterr().err
    write(tmp_path / "one.csv", ["confidence", "correct"], [0.5], [1])
    command("calibrate", tmp_path / "one.csv", "--method", "isotonic", code=2)
    assert "expected at least 2 predictions, to fit and to measure, but got 1" in capsys.readouterr().err
    command("calibrate", tmp_path / "p.csv", "--method", "isotonic", "--folds", 1, code=2)
    assert "expected --folds to be at least 2, but got 1" in capsys.readouterr().err


def test_a_csv_file_has_columns_that_read_knows_and_the_numbers_of_a_safetensors_file(tmp_path, command):
    logits, label = table(classes=2)
    logits = np.round(logits, 3)
    p = softmax(logits, axis=1)
    names = ["no", "yes"]
    words, answers = [names[k] for k in label], [names[k] for k in p.argmax(axis=1)]
    both, log = ["label", "probability_0", "probability_1"], ["--scale", "log", "--probabilities"]
    named = ["label", "probability_no", "probability_yes"]
    ids = [f"a{k}" for k in range(240)]
    forms = {
        "logits": (["note", "logit_yes", "gold", "logit_no"], (ids, logits[:, 1], words, logits[:, 0]), [],
                   ["label", "logit_yes", "logit_no"]),
        "percent": (["label", "p_0", "p_1"], (label, *(100 * p).T), ["--scale", 100], both),
        "single": (["label", "probability"], (label, p[:, 1]), [], both),
        "logit": (["label", "logits"], (label, logits[:, 1] - logits[:, 0]), [], ["label", "logit_0", "logit_1"]),
        "positive": (["truth", "score", "id"], (words, p[:, 0], ids), ["--positive", "no"], ["id", *named]),
        "logarithms": (["label", "p_0", "p_1"], (label, *np.log(p).T), log, both),
        "with an answer": (
            ["label", "prediction", "confidence", "probability_no", "probability_yes"],
            (words, answers, p.max(axis=1), *p.T), [], ["label", "prediction", *named[1:]],
        ),
        "isotonic": (["gold", "p_no", "p_yes", "id"], (words, *p.T, ids), ["--method", "isotonic"],
                     ["id", "label", "prediction", "confidence"]),
    }  # fmt: skip
    for name, (header, columns, flags, expected) in forms.items():
        path = write(tmp_path / "p.csv", header, *columns)
        for out in ("c.csv", "c.safetensors"):
            command("calibrate", path, *flags, "--out", tmp_path / out)
            command("evaluate", tmp_path / out, "--json", tmp_path / f"{out}.json")
        assert list(cells(tmp_path / "c.csv")) == expected, name
        once, again = (json.loads((tmp_path / f"c.{kind}.json").read_text()) for kind in ("csv", "safetensors"))
        assert once["undefined"] == again["undefined"], name
        for key, value in again["metrics"].items():
            assert once["metrics"][key] == (None if value is None else pytest.approx(value, rel=1e-12)), (name, key)


@pytest.mark.parametrize("form", ["prediction", "correct"])
@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_ties_stay_with_the_class_that_the_file_predicts(method, form, tmp_path, command):
    rng = np.random.default_rng(0)
    sure, label = rng.uniform(0.4, 0.48, 300).round(3), rng.integers(0, 3, 300)
    shares = np.stack([sure, sure, 1 - 2 * sure], axis=1)
    shares[::3] = rng.dirichlet([2, 1, 1], 100)
    label = np.where(rng.random(300) < 0.7, label % 2, label)
    prediction = np.where((shares[:, 0] == shares[:, 1]) & (rng.random(300) < 0.8), label % 2, shares.argmax(axis=1))
    answers = [NAMES[k] for k in prediction] if form == "prediction" else (prediction == label).astype(int)
    path = write(
        tmp_path / "p.csv", ["label", form, *(f"probability_{name}" for name in NAMES)],
        [NAMES[k] for k in label], answers, *shares.T,
    )  # fmt: skip
    right = (prediction == label).mean()
    command("calibrate", path, "--method", method, "--out", tmp_path / "c.csv", "--json", tmp_path / "c.json")
    result = json.loads((tmp_path / "c.json").read_text())
    assert result["before"]["metrics"]["acc"] == pytest.approx(right)
    assert result["after"]["metrics"]["acc"] == pytest.approx(right)
    assert evaluate(**read(tmp_path / "c.csv").evaluation_inputs()).metrics["acc"] == pytest.approx(right)
    command("calibrate", path, "--method", method, "--out", tmp_path / "c.safetensors")
    once, again = (evaluate(**read(tmp_path / f"c.{kind}").evaluation_inputs()) for kind in ("csv", "safetensors"))
    assert once.metrics["acc"] == again.metrics["acc"]


def test_csv_from_another_format(tmp_path, command):
    logits, label = table()
    ids = np.array([f"a{k}" for k in range(240)])
    given = {"probabilities": softmax(logits, axis=1), "label": label, "id": ids, "class_names": np.array(NAMES)}
    np.savez(tmp_path / "p.npz", **given, filename=np.char.add(ids, ".png"))
    command("calibrate", tmp_path / "p.npz", "--out", tmp_path / "c.csv")
    after = cells(tmp_path / "c.csv")
    assert list(after) == ["filename", "id", "label", "probability_cat", "probability_dog", "probability_owl"]
    assert after["id"] == ids.tolist() and after["filename"][7] == "a7.png"
    assert after["label"] == [NAMES[k] for k in label]
    assert evaluate(**read(tmp_path / "c.csv").evaluation_inputs()).metrics["acc"] == pytest.approx(
        (logits.argmax(axis=1) == label).mean()
    )


def test_skipped_rows_are_not_written(tmp_path, command):
    logits, label = table()
    words, ids = [NAMES[k] for k in label], [f"a{row}" for row in range(240)]
    words[7] = ""
    header = ["label", *(f"logit_{name}" for name in NAMES), "id"]
    path = write(tmp_path / "p.csv", header, words, *logits.T, ids)
    command("calibrate", path, "--skip-missing", "--out", tmp_path / "c.csv")
    after, rows = cells(tmp_path / "c.csv"), np.delete(np.arange(240), 7)
    best = calibrate("temperature", logits=logits[rows], label=label[rows]).apply(logits=logits[rows])
    assert after["id"] == [ids[row] for row in rows] and after["label"] == [words[row] for row in rows]
    assert [float(cell) for cell in after["logit_dog"]] == best[:, 1].tolist()


def test_only_predictions_with_a_label_are_written(tmp_path, command):
    logits, label = table()
    ids = [f"a{row}" for row in range(240)]
    path = write(tmp_path / "p.csv", ["id", *(f"logit_{name}" for name in NAMES)], ids, *logits.T)
    some = np.random.default_rng(1).permutation(240)[:200]
    write(tmp_path / "t.csv", ["id", "label"], [ids[row] for row in some], [NAMES[label[row]] for row in some])
    command("calibrate", path, "--truth", tmp_path / "t.csv", "--skip-missing", "--out", tmp_path / "c.csv")
    assert cells(tmp_path / "c.csv")["id"] == [ids[row] for row in np.sort(some)]


@pytest.mark.parametrize("method", CALIBRATION_METHODS)
def test_a_calibrator_in_a_policy_was_fitted_to_the_design_half(method, tmp_path, capsys, command):
    from confrank.decisions.policy import Policy
    from confrank.decisions.rows import design_rows

    logits, label = table()
    np.savez(tmp_path / "p.npz", logits=logits, label=label)
    flags = ["--method", method, "--policy", tmp_path / "policy.json"]
    command("calibrate", tmp_path / "p.npz", *flags, "--json", tmp_path / "c.json")
    policy, half = Policy.load(tmp_path / "policy.json"), design_rows(240)
    part = policy.table_calibrator if method == "temperature" else policy.confidence_calibrator
    confidence, correct = softmax(logits, axis=1).max(axis=1), logits.argmax(axis=1) == label
    arrays = {"logits": logits, "label": label} if method == "temperature" else {
        "confidence": confidence, "correct": correct,
    }  # fmt: skip
    expected = calibrate(method, **{name: each[half] for name, each in arrays.items()})
    for name, value in expected.parameters.items():
        assert part.parameters[name] == pytest.approx(value)
    assert (part.rows.half, part.rows.used, part.rows.n) == ("design", int(half.sum()), 240)
    assert json.loads((tmp_path / "c.json").read_text())["num_fitted"] == half.sum()
    assert "policy" in capsys.readouterr().out
    command("calibrate", tmp_path / "p.npz", *flags, code=2)
    assert "use --replace, which drops" in capsys.readouterr().err
    command("calibrate", tmp_path / "p.npz", *flags, "--replace")
    assert Policy.load(tmp_path / "policy.json") == policy
    command("calibrate", tmp_path / "p.npz", *flags, "--replace", "--rows", "all")
    policy = Policy.load(tmp_path / "policy.json")
    part = policy.table_calibrator if method == "temperature" else policy.confidence_calibrator
    assert (part.rows.half, part.rows.used) == ("all", 240)
