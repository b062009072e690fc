"""Which rows a policy recognises: copies with fewer digits, other orders, repeated rows, and rows of guarantees."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import softmax

from confrank.decisions.identity import identity_of, shares_rows, sketch_of, sketches_share
from confrank.decisions.outcome import outcome_of
from confrank.decisions.policy import CalibratorPart, Policy, ScorePart, ThresholdPart
from confrank.decisions.promises import follow
from confrank.predictions import Predictions
from confrank.report.monitoring import monitor_record

IDS = np.array([f"img-{row}.png" for row in range(4000)])
TEMPERATURE = {"temperature": 2.0}


def made(num_rows=1000, seed=0, ids=None, num_classes=4, scale=1.5):
    rng = np.random.default_rng(seed)
    table = softmax(scale * rng.normal(size=(num_rows, num_classes)), axis=1)
    label = (rng.random((num_rows, 1)) > table.cumsum(axis=1)).sum(axis=1).clip(max=num_classes - 1)
    return Predictions(probabilities=table, label=label, key=ids)


def selected(predictions, rows, digits=None, dtype=np.float64, ids=None):
    table = predictions.probabilities[rows]
    table = (table if digits is None else table.round(digits)).astype(dtype)
    return Predictions(probabilities=table, label=predictions.label[rows], key=ids)


def fitted_to(predictions, *, every=True, **changes):
    policy = Policy.of(predictions)
    _, rows = policy.usable(predictions, "design", file="v.csv", every=every)
    return policy.with_part(CalibratorPart("temperature", TEMPERATURE, replace(rows, **changes)))


def every_row(predictions):
    return sketch_of(identity_of(predictions), np.arange(len(predictions)))


@pytest.mark.parametrize(("digits", "dtype"), [(5, np.float64), (4, np.float64), (3, np.float64), (None, np.float16)])
@pytest.mark.parametrize("is_logits", [False, True])
def test_rounded_copies_in_another_order_are_recognised(digits, dtype, is_logits):
    first, order = made(), np.random.default_rng(5).permutation(1000)
    copy, other = selected(first, order, digits, dtype), selected(made(seed=1), order, digits, dtype)
    if is_logits:
        first, copy, other = (
            Predictions(logits=np.log(one.probabilities + 1e-4).astype(one.probabilities.dtype), label=one.label)
            for one in (first, copy, other)
        )
    with pytest.raises(ValueError, match=r"shares rows with v\.csv that a calibrator of logits .*; use other rows$"):
        fitted_to(first).usable(copy, "promise")
    assert len(fitted_to(first).usable(other, "promise")[0]) == 1000


def test_ids_recognise_a_few_rows_with_two_digits():
    first, other = made(ids=IDS[:1000]), made(2000, seed=1)
    few = np.arange(0, 1000, 40)
    table = np.concatenate([other.probabilities, first.probabilities[few].round(2)])
    label = np.concatenate([other.label, first.label[few]])
    mixed = Predictions(probabilities=table, label=label, key=np.concatenate([IDS[1000:3000], IDS[few]]))
    sketch = every_row(first)
    assert shares_rows(sketch, identity_of(mixed)) and sketches_share(sketch, every_row(first))
    assert not shares_rows(sketch, identity_of(replace(mixed, key=None)))  # too few for their content alone
    assert not shares_rows(sketch, identity_of(replace(other, key=np.tile(IDS[:1000], 2))))  # names of other samples
    # Ids have other lengths in other files, and whole numbers identify nothing.
    longer = replace(mixed, key=np.append(mixed.key[:-1], b"x" * 99))
    assert shares_rows(sketch, identity_of(longer))
    assert identity_of(replace(first, key=np.arange(1000))).keys is None


@pytest.mark.parametrize("num_classes", [2, 10])
@pytest.mark.parametrize("scale", [1.0, 8.0])
@pytest.mark.parametrize("digits", [2, 3, 6])
def test_other_rows_of_sure_models_are_not_recognised(num_classes, scale, digits):
    files = [made(800, seed, num_classes=num_classes, scale=scale) for seed in range(6)]
    rounded = [selected(one, np.arange(800), digits) for one in files]
    sketches, identities = [every_row(one) for one in rounded], [identity_of(one) for one in rounded]
    for number, sketch in enumerate(sketches):
        assert [shares_rows(sketch, one) for one in identities] == [other == number for other in range(6)]
        assert [sketches_share(sketch, one) for one in sketches] == [other == number for other in range(6)]


def test_confidences_with_ties_are_recognised_as_a_file():
    rng = np.random.default_rng(0)
    label, prediction = rng.integers(0, 3, (2, 1000))
    first = Predictions(confidence=rng.random(1000).round(2), prediction=prediction, label=label)
    policy = Policy.of(first)
    _, rows = policy.usable(first, "design", every=True)
    assert "recognises them only in a copy of the complete file" in rows.notes[0]
    policy = policy.with_part(CalibratorPart("isotonic", {}, rows))
    shuffled = Predictions(confidence=first.confidence[::-1], prediction=prediction[::-1], label=label)
    with pytest.raises(ValueError, match="shares rows with"):
        policy.usable(shuffled, "promise")
    shuffled = replace(shuffled, prediction=(shuffled.prediction + 1) % 3)
    assert not shares_rows(rows.sketch, identity_of(shuffled))
    fine = replace(first, confidence=rng.random(1000))
    assert Policy.of(fine).usable(fine, "design")[1].notes == ()


def test_copies_of_a_row_are_in_one_half():
    first = made(300, scale=0.5)
    repeated = selected(first, np.tile(np.arange(300), 4))
    policy = fitted_to(repeated, every=False)
    unseen, rows = policy.usable(repeated, "promise")
    design, _ = Policy.of(repeated).usable(repeated, "design")
    assert len(unseen) + len(design) == 1200 and not {*(unseen % 300)} & {*(design % 300)}
    assert 400 < len(unseen) < 800 and policy.table_calibrator.rows.notes == ()
    assert rows.notes[0].startswith(f"{len(unseen) * 3 // 4} of {len(unseen)} rows repeat another row exactly")
    assert shares_rows(policy.table_calibrator.rows.sketch, identity_of(first))
    # Rows of a leaf of a tree, and sure rows, are alike without being copies.
    for table in (np.tile(first.probabilities[:20], (60, 1)), np.tile([[1.0, 0, 0, 0], [0, 1.0, 0, 0]], (600, 1))):
        alike = Predictions(probabilities=table, label=np.tile(first.label[:20], 60))
        assert len(Policy.of(alike).usable(alike, "design")[0]) == 600
        assert Policy.of(alike).usable(alike, "promise")[1].notes == ()


def test_a_changed_file_is_named():
    first = made()
    corrected = replace(first, label=np.roll(first.label, 1))
    with pytest.raises(ValueError, match=r"folder/v\.csv has changed since a calibrator of logits .*; start"):
        fitted_to(first, every=False).usable(corrected, "promise", file="folder/v.csv")


def test_a_seed_that_is_not_used_is_named():
    first = made()
    policy = fitted_to(first, every=False)
    assert policy.usable(first, "promise", seed=4)[1].notes == (
        "the policy already splits this file with seed 0, so seed 4 was not used",
    )
    assert policy.usable(made(seed=1), "promise", seed=4)[1].seed == 4


def test_a_guarantee_needs_rows_that_no_part_saw():
    first, policy = made(), fitted_to(made(), every=False)
    with pytest.raises(ValueError, match="expected the rows that the guarantee was computed on"):
        policy.with_part(ThresholdPart(0.5, promise="Few errors."))
    assert policy.with_part(ThresholdPart(0.5)).threshold
    shuffled, other = selected(first, np.arange(1000)[::-1], 4), made(seed=1)
    rows = [Policy.of(one).usable(one, "promise")[1] for one in (shuffled, other)]
    with pytest.raises(ValueError, match="a calibrator of logits saw some of them"):
        policy.with_part(ThresholdPart(0.5, rows[0], "Few errors."))
    assert policy.with_part(ThresholdPart(0.5, rows[1], "Few errors.")).threshold.rows == rows[1]


def test_replaced_guarantees_are_counted(tmp_path):
    first, other = made(), made(seed=1)
    policy = Policy.of(first)
    rows, others = (policy.usable(one, "promise", file=f"{one.label[0]}.csv")[1] for one in (first, other))
    policy = policy.with_part(ThresholdPart(0.5, rows, "Few errors."))
    assert not policy.replaced
    policy = policy.with_part(ThresholdPart(0.6, rows, "Few errors."), replace=True)
    policy = policy.with_part(ScorePart("margin"), replace=True)  # drops the threshold, too
    policy = policy.with_part(ThresholdPart(0.7, rows, "Few errors."))
    assert policy.replaced == {rows.digest: 2}
    assert policy.sentences()[-1].startswith(
        f"Replaces 2 earlier guarantees on {rows.file}: a guarantee that was chosen"
    )
    policy.save(tmp_path / "p.json")
    assert Policy.load(tmp_path / "p.json") == policy
    assert json.loads((tmp_path / "p.json").read_text())["replaced"] == {rows.digest: 2}
    fresh = policy.with_part(ThresholdPart(0.7, others, "Few errors."), replace=True)
    assert fresh.replaced == {rows.digest: 3} and "earlier" not in " ".join(fresh.sentences())


def test_rows_of_a_guarantee_do_not_confirm_it():
    first = made(2000)
    _, rows = Policy.of(first).usable(first, "promise", file="v.csv")
    part = ThresholdPart(0.5, rows, "Few errors.", settings={"risk": 0.5})
    order = np.arange(2000)
    policy, shuffled = Policy.of(first).with_part(part), selected(first, order[::-1], 5)
    record = monitor_record(follow(policy, shuffled, order))
    assert record["answer"] == ["No guarantee was tested: parts of the policy were made on rows of this file."]
    assert record["holds"] is None and "do not test its guarantee" in record["remarks"][0]
    assert outcome_of(policy, shuffled).seen and not outcome_of(policy, made(2000, seed=1)).seen
    record = monitor_record(follow(policy, made(2000, seed=1), order))
    assert record["holds"] is True and not record["remarks"]
    # Rows that a part saw are too good, so a guarantee that is broken on them is broken.
    wrong = replace(shuffled, label=(shuffled.probabilities.argmax(axis=1) + 1) % 4)
    record = monitor_record(follow(policy, wrong, order))
    assert record["holds"] is False and record["answer"][0].startswith("The guarantee is broken")
