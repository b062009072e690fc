"""Policies: the rows that parts may use, the file, and answers to new predictions."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from confrank import evaluate
from confrank.decisions import Answers, Policy, calibrate, conformal_sets, threshold_for_coverage
from confrank.decisions.calibrators import CALIBRATION_METHODS, Calibrator
from confrank.decisions.identity import identity_of, shares_rows, sketch_of
from confrank.decisions.policy import CalibratorPart, ScorePart, SetsPart, ThresholdPart
from confrank.decisions.policy_file import as_text
from confrank.decisions.rows import design_rows, file_digest
from confrank.predictions import Predictions
from confrank.scores import fit
from confrank.scores import score as compute_score


def made(num_rows=1200, seed=0, num_classes=3, **changes):
    """Probabilities whose largest is right about as often as it says."""
    generator = np.random.default_rng(seed)
    logits = 2 * generator.normal(size=(num_rows, num_classes))
    table = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    label = (generator.random((num_rows, 1)) > table.cumsum(axis=1)).sum(axis=1)
    return Predictions(**({"probabilities": table, "label": label} | changes))


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
        replace(first, prediction=first.probabilities.argmax(axis=1)),
    ]
    assert file_digest(first) == file_digest(made(50))
    assert len({file_digest(one) for one in [first, *others]}) == 6


@pytest.mark.parametrize("digits", [17, 5, 3, 2, 1])
def test_a_sketch_recognises_rows_but_not_coincidences(digits):
    def rounded(seed):
        generator = np.random.default_rng(seed)
        return Predictions(confidence=generator.random(1000).round(digits), correct=generator.random(1000) < 0.5)

    first, other, every = rounded(0), rounded(1), np.arange(1000)
    half = np.flatnonzero(design_rows(1000))
    sketch = sketch_of(identity_of(first), half)
    assert not shares_rows(sketch, identity_of(other))
    shuffled = identity_of(Predictions(confidence=first.confidence[::-1], correct=~first.correct))
    assert shares_rows(sketch, shuffled)
    # With fewer digits, chance explains everything except a complete copy.
    assert shares_rows(sketch, shuffled.select(every[1:])) == (digits > 3)
    if digits > 3:
        assert not shares_rows(sketch, identity_of(first).select(np.setdiff1d(every, half)))
        assert shares_rows(sketch, shuffled.select(np.arange(900, 1000)))


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
    assert answers.unknown_names == ("(missing)",)
    part = ThresholdPart(None, per="class", thresholds={"0": 0.7, "1": 0.4})
    answers = policy_with(part, predictions).apply(predictions)
    limits = np.array([0.7, 0.4, np.inf])[prediction]
    assert (answers.accepted == (confidence >= limits)).all() and answers.unknown == (prediction == 2).sum()
    with pytest.raises(ValueError, match="expected the column 'site', whose groups the policy distinguishes"):
        policy_with(ThresholdPart(None, per="group", column="site"), predictions).apply(made(10))


def test_no_rows_have_no_answers():
    no_rows = {"probabilities": np.empty((0, 3)), "site": np.empty(0, dtype=object)}
    sites = made(60, extra={"site": np.array(["a", "b"] * 30, dtype=object)})
    sets = conformal_sets(probabilities=sites.probabilities, label=sites.label, group=sites.extra["site"])
    rules = [{"per": "group", "column": "site", "thresholds": {"a": 0.5}}, {"per": "class", "thresholds": {"0": 0.5}}]
    for part in (*(ThresholdPart(None, **rule) for rule in rules), SetsPart.of(sets, column="site")):
        answers = policy_with(part, sites).apply(no_rows if part.column else {"probabilities": np.empty((0, 3))})
        assert len(answers) == 0 and all(not column for column in answers.columns().values())


def largest(logits):
    """The largest probability, added from the smallest: a steep calibrator magnifies the last digits."""
    return softmax(np.sort(logits), axis=1).max(axis=1)


def fitted_policy(predictions, method=None, score=None, file="v.csv"):
    """A policy with a calibrator fitted to, and a score fitted to, the design half."""
    policy = Policy.of(predictions)
    if method == "temperature":
        index, rows = policy.usable(predictions, "design", file=file)
        fitted = calibrate(method, **{name: table[index] for name, table in policy.table(predictions).items()},
                           label=predictions.label[index])  # fmt: skip
        policy = policy.with_part(CalibratorPart(method, fitted.parameters, rows))
    if score is not None:
        index, rows = policy.usable(predictions, "design", file=file)
        table = {name: values[index] for name, values in policy.table(predictions).items()}
        parameters = fit(score, **table, correct=policy.correct(predictions)[index])
        policy = policy.with_part(ScorePart(score, parameters, rows))
    if method == "isotonic":
        index, rows = policy.usable(predictions, "design", file=file)
        confidence, correct = policy.confidence(predictions), policy.correct(predictions)
        fitted = calibrate(method, confidence=confidence[index], correct=correct[index])
        policy = policy.with_part(CalibratorPart(method, fitted.parameters, rows))
    return policy


@pytest.mark.parametrize("method", [None, *CALIBRATION_METHODS])
@pytest.mark.parametrize("score", [None, "margin", "relu", "p-norm"])
@pytest.mark.parametrize("kind", ["logits", "probabilities"])
def test_every_part_applies_bit_for_bit_after_its_file(tmp_path, kind, score, method):
    """What the command computes on all rows of its file is what `apply` computes from the saved policy."""
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
    expected = table["probabilities"].max(axis=1) if "probabilities" in table else largest(table["logits"])
    if score is not None:
        expected = compute_score(score, **table, **policy.score.parameters)
    if policy.confidence_calibrator is not None:
        expected = Calibrator(method, policy.confidence_calibrator.parameters).apply(expected)
    assert answers.confidence == pytest.approx(expected, abs=1e-12)
    assert (answers.prediction == next(iter(table.values())).argmax(axis=1)).all()


def test_a_subset_of_rows_has_the_same_answers():
    predictions = made(900)
    policy = fitted_policy(predictions, "temperature", "relu")
    _, rows = policy.usable(predictions, "promise")
    threshold = policy.with_part(ThresholdPart(float(np.median(policy.confidence(predictions))), rows))
    some = np.arange(100, 200)
    part = Predictions(probabilities=predictions.probabilities[some])
    assert (threshold.apply(part).accepted == threshold.apply(predictions).accepted[some]).all()


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


def test_changed_bytes_never_crash(tmp_path):
    predictions = made(60)
    _, rows = Policy.of(predictions).usable(predictions, "design", file="v.csv")
    policy = policy_with(ScorePart("margin", {}, rows), predictions).with_part(ThresholdPart(0.5))
    content, generator = policy.as_text().encode(), np.random.default_rng(0)
    for _ in range(150):
        position, byte = int(generator.integers(len(content))), int(generator.integers(256))
        (tmp_path / "p.json").write_bytes(content[:position] + bytes([byte]) + content[position + 1 :])
        try:
            message = "" if Policy.load(tmp_path / "p.json") == policy else "another policy"  # a space may change
        except ValueError as error:
            message = str(error)
        assert not message or "expected a policy" in message
    for length in range(0, len(content) - 2, 97):
        (tmp_path / "p.json").write_bytes(content[:length])
        with pytest.raises(ValueError, match="not a JSON object"):
            Policy.load(tmp_path / "p.json")


def test_a_file_without_class_names_gets_those_of_the_policy():
    part = ThresholdPart(None, per="class", thresholds={"a": 0.4, "b": 0.7, "c": None})
    policy = policy_with(part, made(100, metadata={"class_names": '["a", "b", "c"]'}))
    answers = policy.apply({"probabilities": made(100).probabilities})
    assert {answers.name(number) for number in answers.prediction} == {"a", "b", "c"} and not answers.unknown
    assert (answers.accepted == (answers.confidence >= np.array([0.4, 0.7, 2])[answers.prediction])).all()


def test_a_given_prediction_decides_between_tied_classes():
    table = np.array([[0.5, 0.5], [0.9, 0.1], [0.5, 0.5]])
    names = {"class_names": '["a", "b"]'}
    predictions = Predictions(
        probabilities=table, label=np.array([1, 0, 0]), prediction=np.array([1, 0, 1]), metadata=names
    )
    policy = policy_with(ThresholdPart(0.4), predictions)
    assert policy.apply(predictions).prediction.tolist() == [1, 0, 1]
    assert policy.correct(predictions).tolist() == [True, True, False]
    assert evaluate(**predictions.evaluation_inputs()).metrics["acc"] == 2 / 3
    reordered = Predictions(
        probabilities=table[:, ::-1], label=1 - predictions.label, prediction=1 - predictions.prediction,
        metadata={"class_names": '["b", "a"]'},
    )  # fmt: skip
    assert policy.apply(reordered).prediction.tolist() == [1, 0, 1]
    assert policy.correct(reordered).tolist() == [True, True, False]
    calibrated = policy_with(CalibratorPart("temperature", {"temperature": 3.0}), predictions)
    assert calibrated.apply(predictions).prediction.tolist() == [1, 0, 1]
    assert calibrated.apply(reordered).prediction.tolist() == [1, 0, 1]
    assert calibrated.correct(predictions).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="the class with the largest value, but got 1 in row 1"):
        policy.apply(replace(predictions, prediction=np.array([1, 1, 1])))


def test_strange_class_names_survive(tmp_path):
    names = {"class_names": json.dumps(["caf\u00e9", "\udcff", "\u2028"])}
    policy = policy_with(ThresholdPart(0.5), made(10, metadata=names))
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json") == policy
    assert "café" in (tmp_path / "p.json").read_bytes().decode(errors="surrogatepass")


def test_promises_hold_one_by_one():
    predictions = made(200)
    policy = policy_with(ThresholdPart(0.5, promise="Few errors."), predictions)
    assert policy.sentences()[-1] == "Few errors."
    sets = conformal_sets(probabilities=predictions.probabilities, label=predictions.label)
    assert policy.with_part(SetsPart.of(sets)).sentences()[-1].startswith("Each guarantee holds separately")
    before = Predictions(logits=np.zeros((2, 3)), metadata={"temperature": "1.5"})
    assert Policy.of(before).sentences() == ["Takes the logits of 3 classes, calibrated by the temperature 1.5."]
    with pytest.raises(ValueError, match=r"calibrated by the temperature 1\.5, .* calibrated by the temperature 2"):
        Policy.of(before).apply(replace(before, metadata={"temperature": "2.0"}))
    with pytest.raises(ValueError, match=r"that were not calibrated, .* calibrated by the method isotonic"):
        Policy.of(made(3)).apply(made(3, metadata={"calibrator": "isotonic"}))
    assert "do not say whether" in Policy.of(before).doubts(Predictions(logits=np.zeros((2, 3))))[0]


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


def test_text_is_readable_json():
    value = {"a": [[0.1] * 40] * 2, "b": {}, "c": ["long " * 30, "ä"], "d": None}
    assert json.loads(as_text(value)) == value
    assert as_text(value).count("\n") == 11
