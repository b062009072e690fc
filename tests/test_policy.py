"""Policies: the file, the rows that parts may use, and answers to new predictions."""

import csv
import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from confrank.decisions import Answers, Policy, calibrate, conformal_sets, select_with_fdr, threshold_for_coverage
from confrank.decisions.calibrators import METHODS, Calibrator
from confrank.decisions.policy import CalibratorPart, ScorePart, SelectionPart, SetsPart, ThresholdPart
from confrank.decisions.policy_file import as_text, checksum
from confrank.decisions.rows import design_rows, file_digest, shares_rows, sketch_of
from confrank.predictions import Predictions, read
from confrank.scores import fit
from confrank.scores import score as compute_score

NAMES = ["cat", "dog", "=eel"]


def made(num_rows=1200, seed=0, num_classes=3, **changes):
    """Probabilities whose largest is right about as often as it says."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(num_rows, num_classes))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = (generator.random((num_rows, 1)) > table.cumsum(axis=1)).sum(axis=1)
    return Predictions(**({"probabilities": table, "label": label} | changes))


def write(path, predictions, prefix="probability_", order=None, label=True):
    order = list(range(len(NAMES))) if order is None else order
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *(["label"] if label else []), *(prefix + NAMES[number] for number in order)])
        for row, (values, true) in enumerate(zip(predictions.probabilities.tolist(), predictions.label, strict=True)):
            writer.writerow(
                [f"a{row}", *([NAMES[true]] if label else []), *(repr(values[number]) for number in order)]
            )
    return path


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "val.csv", made())
    return tmp_path


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def last_error(capsys):
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return lines[0]


def test_halves_are_seeded_and_depend_on_the_position_alone():
    halves = [design_rows(1001, seed) for seed in (0, 0, 1)]
    assert [half.sum() for half in halves] == [500] * 3
    assert (halves[0] == halves[1]).all() and 0.4 < (halves[0] == halves[2]).mean() < 0.6
    # The split of a file must never change: policies rely on it.
    assert np.flatnonzero(design_rows(20)).tolist() == [1, 4, 5, 6, 7, 11, 13, 16, 17, 18]
    with pytest.raises(ValueError, match="seed of 0 or more"):
        design_rows(4, -1)


def test_a_digest_depends_on_values_types_and_labels():
    first = made(50)
    others = [
        replace(first, label=1 - first.label),
        replace(first, probabilities=first.probabilities.astype(np.float32)),
        replace(first, probabilities=first.probabilities[::-1]),
        Predictions(logits=first.probabilities, label=first.label),
    ]
    assert file_digest(first) == file_digest(made(50))
    assert len({file_digest(one) for one in [first, *others]}) == 5


@pytest.mark.parametrize("digits", [17, 5, 3, 2, 1])
def test_a_sketch_recognises_rows_but_not_coincidences(digits):
    def rounded(seed):
        generator = np.random.default_rng(seed)
        return Predictions(confidence=generator.random(1000).round(digits), correct=generator.random(1000) < 0.5)

    first, other, every = rounded(0), rounded(1), np.arange(1000)
    half = np.flatnonzero(design_rows(1000))
    sketch = sketch_of(first, half)
    assert not shares_rows(sketch, other, every)
    shuffled = Predictions(confidence=first.confidence[::-1], correct=~first.correct)
    assert shares_rows(sketch, shuffled, every) == (digits > 3)  # with fewer digits, chance explains everything
    if digits > 3:
        assert not shares_rows(sketch, first, np.setdiff1d(every, half))
        assert shares_rows(sketch, shuffled, np.arange(900, 1000))


def test_apply_gives_what_threshold_showed(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json", "--json", "t.json")
    shown = json.loads((files / "t.json").read_text())
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    assert (
        f"1,200 answers: {shown['accepted']:,} accepted, {1200 - shown['accepted']:,} rejected"
        in capsys.readouterr().out
    )
    answers, samples = rows_of(files / "a.csv"), read(files / "val.csv")
    assert list(answers[0]) == ["id", "prediction", "confidence", "accepted"]
    confidence = np.array([float(row["confidence"]) for row in answers])
    assert (confidence == samples.probabilities.max(axis=1)).all()
    accepted = np.array([row["accepted"] == "true" for row in answers])
    assert (accepted == (confidence >= shown["threshold"])).all() and accepted.sum() == shown["accepted"]
    assert answers[0]["id"] == "a0"
    predicted = [NAMES[number].replace("=eel", "'=eel") for number in samples.probabilities.argmax(axis=1)]
    assert [row["prediction"] for row in answers] == predicted  # no spreadsheet runs =eel
    policy = Policy.load(files / "p.json")
    applied = policy.apply({"probabilities": samples.probabilities})
    assert (applied.accepted == accepted).all() and (applied.confidence == confidence).all()


def test_new_files_need_no_labels_and_may_order_classes_otherwise(files, command):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    command("apply", "p.json", "val.csv", "--out", "a.csv")
    new = made()
    write(files / "bare.csv", new, prefix="", order=[2, 0, 1], label=False)
    # A further column is no class, and labels are neither needed nor checked.
    text = (files / "val.csv").read_text().replace(",cat,", ",,").replace("id,label", "id,gold")
    (files / "partly.csv").write_text(text)
    rows = (files / "bare.csv").read_text().splitlines()
    (files / "more.csv").write_text(
        "\n".join([f"age,{rows[0]}", *(f"{n % 7},{row}" for n, row in enumerate(rows[1:]))])
    )
    np.savez(files / "new.npz", probabilities=new.probabilities, class_names=NAMES, id=[f"a{n}" for n in range(1200)])
    for name in ("bare.csv", "partly.csv", "more.csv", "new.npz"):
        command("apply", "p.json", name, "--out", "b.csv")
        assert (files / "b.csv").read_text() == (files / "a.csv").read_text()


def test_a_confidence_alone_can_have_a_policy(files, command, capsys):
    table = made().probabilities
    right = table.argmax(axis=1) == made().label
    lines = [f"{value!r},{int(flag)}" for value, flag in zip(table.max(axis=1).tolist(), right, strict=True)]
    (files / "c.csv").write_text("\n".join(["confidence,correct", *lines]))
    (files / "n.csv").write_text("\n".join(["conf", *(line.split(",")[0] for line in lines)]))
    (files / "pipeline.jsonl").write_text('{"label": "cat", "score": 0.99}\n{"label": "dog", "score": 0.1}\n')
    command("threshold", "c.csv", "--risk", 0.2, "--policy", "p.json")
    command("apply", "p.json", "n.csv", "--out", "a.csv")
    assert list(rows_of(files / "a.csv")[0]) == ["row", "confidence", "accepted"]
    command("apply", "p.json", "pipeline.jsonl", "--out", "b.csv")
    assert [list(row.values()) for row in rows_of(files / "b.csv")] == [
        ["0", "cat", "0.99", "true"],
        ["1", "dog", "0.1", "false"],
    ]
    capsys.readouterr()
    command("apply", "p.json", "val.csv", code=2)
    assert "expected a confidence without probabilities" in last_error(capsys)


REFUSED = {
    "missing": (None, "expected a policy file, but bad.json does not exist"),
    "no JSON": ("nonsense", "not a JSON object"),
    "no policy": ('{"metrics": {}}', "it has no version of one"),
    "newer": ('{"confrank_policy": 2}', "version 1 or earlier, but got version 2; update confrank"),
    "nested": ("[" * 100000, "not a JSON object"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_files_are_refused(files, command, capsys, name):
    content, message = REFUSED[name]
    if content is not None:
        (files / "bad.json").write_text(content)
    command("apply", "bad.json", "val.csv", code=2)
    assert message in last_error(capsys)
    assert not (files / "answers.csv").exists()


def test_a_changed_policy_is_refused(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    content = (files / "p.json").read_text()
    threshold = json.loads(content)["threshold"]["threshold"]
    capsys.readouterr()
    (files / "p.json").write_text(content.replace(repr(threshold), "0.1"))
    command("apply", "p.json", "val.csv", code=2)
    assert "its content does not match its checksum; restore the file" in last_error(capsys)
    values = json.loads(content)
    del values["checksum"]
    for change in ({"threshold": {"threshold": 0.1, "colour": "red"}}, {"input": {}}, {"score": {"rows": 3}}):
        odd = values | change
        (files / "p.json").write_text(json.dumps(odd | {"checksum": checksum(odd)}))
        command("apply", "p.json", "val.csv", code=2)
        assert "expected a policy that confrank wrote, but got" in last_error(capsys)
    (files / "p.json").write_text(json.dumps(json.loads(content), indent=7, sort_keys=True))  # spaces may change
    command("apply", "p.json", "val.csv")


def test_predictions_of_another_kind_are_refused(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    four = made(50, num_classes=4)
    np.savez(files / "four.npz", probabilities=four.probabilities)
    np.savez(files / "logits.npz", logits=four.probabilities[:, :3])
    np.savez(files / "names.npz", probabilities=made(50).probabilities, class_names=["cat", "dog", "fox"])
    np.savez(files / "score.npz", confidence=four.probabilities[:, 0])
    for name, message in (
        ("four", "expected 3 classes, as in the file that the policy was made on, but got 4"),
        ("logits", "expected probabilities, as in the file that the policy was made on, but got logits"),
        ("names", "expected the classes that the policy was made on, but got fox instead of =eel"),
        ("score", "but got a confidence without probabilities"),
    ):
        capsys.readouterr()
        command("apply", "p.json", f"{name}.npz", code=2)
        assert message in last_error(capsys)
    (files / "odd.csv").write_text("id,height\na,3\nb,4\n")
    command("apply", "p.json", "odd.csv", code=2)
    assert "say what they are with --columns" in last_error(capsys)
    command("apply", "p.json", "val.csv", "--skip-missing", "--out", "p.json", code=2)
    assert "expected --out to end in .csv" in last_error(capsys)


def test_skipped_rows_need_a_key(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    (files / "new.csv").write_text("cat,dog,=eel\n0.2,0.3,0.5\n,0.3,0.5\n")
    capsys.readouterr()
    command("apply", "p.json", "new.csv", "--skip-missing", code=2)
    assert "expected a column that identifies rows" in last_error(capsys)
    (files / "new.csv").write_text("id,cat,dog,=eel\nx,0.2,0.3,0.5\ny,,0.3,0.5\nz,0.1,0.1,0.8\n")
    command("apply", "p.json", "new.csv", "--skip-missing")
    assert [row["id"] for row in rows_of(files / "answers.csv")] == ["x", "z"]


def test_a_part_is_replaced_only_on_request(files, command, capsys):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    before = (files / "p.json").read_bytes()
    capsys.readouterr()
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json", code=2)
    assert "expected a policy without a threshold, but this one has a threshold" in last_error(capsys)
    assert (files / "p.json").read_bytes() == before
    command("threshold", "val.csv", "--coverage", 0.5, "--policy", "p.json", "--replace")
    assert "dropped: a threshold" in capsys.readouterr().out
    assert Policy.load(files / "p.json").threshold.promise == ""
    for flags, message in (
        (["--replace"], "expected --policy with --replace"),
        (["--policy", "p.txt"], "ending in .json"),
        (["--policy", "q.json", "--split", 0.5], "either --split or --policy"),
    ):
        command("threshold", "val.csv", "--risk", 0.2, *flags, code=2)
        assert message in last_error(capsys)


def policy_with(part, predictions):
    return Policy.of(predictions).with_part(part)


def test_a_guarantee_uses_only_rows_that_nothing_saw():
    first, other = made(400), made(400, seed=1)
    index, rows = Policy.of(first).usable(first, "design", file="folder/first.csv", seed=3)
    assert (rows.file, rows.half, rows.used, rows.n, rows.seed) == ("first.csv", "design", 200, 400, 3)
    fitted = policy_with(CalibratorPart("temperature", {"temperature": 2.0}, rows), first)
    unseen, promised = fitted.usable(first, "promise")
    assert promised.half == "promise" and promised.seed == 3  # the seed of the policy counts
    assert not {*unseen.tolist()} & {*index.tolist()} and len(unseen) + len(index) == 400
    assert len(fitted.usable(other, "promise")[0]) == 400
    assert len(Policy.of(first).usable(first, "promise")[0]) == 400
    shuffled = made(400, probabilities=first.probabilities[::-1], label=first.label[::-1])
    with pytest.raises(ValueError, match="shares rows with first.csv that a calibrator of logits was fitted to"):
        fitted.usable(shuffled, "promise")
    held_out = made(400, probabilities=first.probabilities[unseen], label=first.label[unseen])
    assert len(fitted.usable(held_out, "promise")[0]) == 200
    _, every = Policy.of(first).usable(first, "design", every=True)
    greedy = policy_with(CalibratorPart("temperature", {"temperature": 2.0}, every), first)
    with pytest.raises(ValueError, match="used all rows of this file, and a guarantee is void on them"):
        greedy.usable(first, "promise")
    with pytest.raises(ValueError, match="saw some of them"):
        fitted.with_part(ThresholdPart(0.5, every, promise="Nothing goes wrong."))
    assert fitted.with_part(ThresholdPart(0.5, promised, promise="Little goes wrong.")).threshold.date


def test_parts_enter_in_order():
    predictions = made(40)
    policy = policy_with(ThresholdPart(0.5), predictions)
    calibrator = CalibratorPart("temperature", {"temperature": 2.0})
    with pytest.raises(ValueError, match="expected to add a calibrator of logits before the parts that rest on it"):
        policy.with_part(calibrator)
    replaced = policy.with_part(calibrator, replace=True)
    assert [*replaced.parts()] == ["table_calibrator"]
    with pytest.raises(ValueError, match="expected a calibrator among temperature"):
        policy.with_part(CalibratorPart("magic"))


def test_thresholds_per_class_and_group_reject_what_they_do_not_know():
    predictions = made(300, extra={"site": np.array(["north", "south", ""] * 100, dtype=object)})
    confidence, prediction = predictions.probabilities.max(axis=1), predictions.probabilities.argmax(axis=1)
    part = ThresholdPart(None, per="group", column="site", thresholds={"north": 0.6, "south": None})
    answers = policy_with(part, predictions).apply(predictions)
    north = np.arange(300) % 3 == 0
    assert (answers.accepted == (north & (confidence >= 0.6))).all() and answers.unknown == 100
    part = ThresholdPart(None, per="class", thresholds={"0": 0.7, "1": 0.4})
    answers = policy_with(part, predictions).apply(predictions)
    limits = np.array([0.7, 0.4, np.inf])[prediction]
    assert (answers.accepted == (confidence >= limits)).all() and answers.unknown == (prediction == 2).sum()
    with pytest.raises(ValueError, match="expected the column 'site', whose groups the policy distinguishes"):
        policy_with(ThresholdPart(None, per="group", column="site"), predictions).apply(made(10))


def fitted_policy(predictions, method=None, score=None, file="v.csv"):
    """A policy with a calibrator fitted to, and a score fitted to, the design half."""
    policy = Policy.of(predictions)
    if method in ("temperature", "vector"):
        index, rows = policy.usable(predictions, "design", file=file)
        fitted = calibrate(method, **{name: table[index] for name, table in policy.table(predictions).items()},
                           label=predictions.label[index])  # fmt: skip
        policy = policy.with_part(CalibratorPart(method, fitted.parameters, rows))
    if score is not None:
        index, rows = policy.usable(predictions, "design", file=file)
        table = {name: values[index] for name, values in policy.table(predictions).items()}
        parameters = fit(score, **table, correct=policy.correct(predictions)[index])
        policy = policy.with_part(ScorePart(score, parameters, rows))
    if method is not None and method not in ("temperature", "vector"):
        index, rows = policy.usable(predictions, "design", file=file)
        confidence, correct = policy.confidence(predictions), policy.correct(predictions)
        fitted = calibrate(method, confidence=confidence[index], correct=correct[index])
        policy = policy.with_part(CalibratorPart(method, fitted.parameters, rows))
    return policy


@pytest.mark.parametrize("method", [None, *METHODS])
@pytest.mark.parametrize("score", [None, "margin", "relu", "p-norm"])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_every_part_applies_bit_for_bit_after_its_file(tmp_path, kind, score, method):
    """What the command computes on all rows of its file is what `apply` computes from the saved policy."""
    if (score, method) == ("relu", "beta"):
        pytest.skip("beta calibration takes a confidence within [0, 1]")
    predictions = made()
    if kind == "logits":
        predictions = Predictions(logits=np.log(predictions.probabilities) * 3, label=predictions.label)
    policy = fitted_policy(predictions, method, score)
    index, rows = policy.usable(predictions, "promise", file="v.csv")
    assert rows.half == ("all" if method is None and score is None else "promise")
    confidence, correct = policy.confidence(predictions), policy.correct(predictions)
    point = threshold_for_coverage(confidence[index], correct[index], 0.6)
    policy = policy.with_part(ThresholdPart(point.threshold, rows))
    sets = conformal_sets(
        **{name: values[index] for name, values in policy.table(predictions).items()},
        label=predictions.label[index],
        method="aps",
        key=index,
    )
    policy = policy.with_part(SetsPart.of(sets, rows))
    policy.save(tmp_path / "p.json")
    answers = Policy.load(tmp_path / "p.json").apply(replace(predictions, label=None))
    assert answers.confidence.tolist() == confidence.tolist()
    assert answers.accepted[index].sum() == point.accepted
    assert (answers.accepted[index] & ~correct[index]).sum() == point.wrong
    assert (answers.sets == sets.sets(**policy.table(predictions))).all()
    # By hand, from the parts.
    table = {kind: getattr(predictions, kind)}
    if policy.table_calibrator is not None:
        table = {"logits": Calibrator(method, policy.table_calibrator.parameters).apply(**table)}
    expected = table[kind].max(axis=1) if "probabilities" in table else softmax(table["logits"], axis=1).max(axis=1)
    if score is not None:
        expected = compute_score(score, **table, **policy.score.parameters)
    if policy.confidence_calibrator is not None:
        expected = Calibrator(method, policy.confidence_calibrator.parameters).apply(expected)
    assert answers.confidence == pytest.approx(expected, abs=1e-12)
    assert (answers.prediction == next(iter(table.values())).argmax(axis=1)).all()


def test_a_subset_of_rows_has_the_same_answers_except_under_selection():
    predictions = made(900)
    policy = fitted_policy(predictions, "vector", "relu")
    index, rows = policy.usable(predictions, "promise")
    confidence, correct = policy.confidence(predictions), policy.correct(predictions)
    threshold = policy.with_part(ThresholdPart(float(np.median(confidence)), rows))
    some = np.arange(100, 200)
    part = Predictions(probabilities=predictions.probabilities[some])
    assert (threshold.apply(part).accepted == threshold.apply(predictions).accepted[some]).all()
    chosen = select_with_fdr(confidence[index], correct[index], confidence[some], 0.12)
    selection = policy.with_part(SelectionPart.of(chosen, rows))
    assert (selection.apply(part).accepted == chosen.selected).all() and 0 < chosen.num_selected < 100
    assert selection.selection.n == len(index) and len(selection.selection.scores) == (~correct[index]).sum()
    with pytest.raises(ValueError, match="without another acceptance rule to add a selection to"):
        threshold.with_part(SelectionPart.of(chosen, rows))


def test_sets_per_group_know_their_groups():
    site = np.array(["north", "south", "west"] * 300, dtype=object)
    predictions = made(900, extra={"site": site})
    sets = conformal_sets(
        probabilities=predictions.probabilities[:600], label=predictions.label[:600], group=site[:600]
    )
    policy = policy_with(SetsPart.of(sets, column="site"), predictions)
    answers = policy.apply(predictions)
    assert answers.accepted is None and "accepted" not in answers.columns()
    assert (answers.sets == sets.sets(probabilities=predictions.probabilities, group=site)).all()
    new = policy.apply({"probabilities": predictions.probabilities[:3], "site": np.array(["north", "east", "east"])})
    assert new.sets[1:].all() and new.unknown == 2
    names = Predictions(probabilities=np.eye(3), metadata={"class_names": '["a|b", "c", "=d"]'})
    assert policy_with(ThresholdPart(0.5), names).apply(names).name(0) == "a|b"
    columns = Answers(None, np.ones(1), None, np.array([[True, False, True]]), ["a|b", "c", "d"]).columns()
    assert columns["set"] == ["a\\|b|d"]


def test_a_policy_survives_its_file_exactly(tmp_path):
    predictions = made(100)
    index, rows = Policy.of(predictions).usable(predictions, "design", file="v.csv")
    policy = policy_with(CalibratorPart("temperature", {"temperature": 1 / 3}, rows), predictions)
    unseen, promised = policy.usable(predictions, "promise", file="v.csv")
    policy = policy.with_part(ThresholdPart(0.1 + 0.2, promised, "Few errors.", settings={"bound": 1e-300}))
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json") == policy
    assert len(unseen) + len(index) == 100
    assert policy.sentences() == json.loads((tmp_path / "p.json").read_text())["summary"]
    assert (
        policy.confidence(predictions).tolist() == Policy.load(tmp_path / "p.json").confidence(predictions).tolist()
    )


def test_text_is_readable_json():
    value = {"a": [[0.1] * 40] * 2, "b": {}, "c": ["long " * 30, "ä"], "d": None}
    assert json.loads(as_text(value)) == value
    assert as_text(value).count("\n") == 11


def test_apply_needs_no_torch(files, command):
    command("threshold", "val.csv", "--risk", 0.2, "--policy", "p.json")
    code = (
        "import sys; sys.argv = ['confrank', 'apply', 'p.json', 'val.csv', '--out', 'a.csv']\n"
        "from confrank.cli import main\n"
        "try: main()\n"
        "finally: print('torch' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout.splitlines()[-1]) == (0, "False"), result.stderr
