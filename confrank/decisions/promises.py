"""A policy on new answers: what it guarantees about them, tested in the order of time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.decisions.drift import DriftTest, Reference, drift_test
from confrank.decisions.monitor import ERRORS, MISSES, Claim, Monitored, miscoverage_bound, watched
from confrank.decisions.outcome import was_made_on
from confrank.decisions.policy import Answers, Policy
from confrank.decisions.policy_apply import distinguished, group_of
from confrank.decisions.policy_parts import Part, SetsPart, ThresholdPart
from confrank.errors import InputError, class_text
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import Flags, Ints
from confrank.predictions import Predictions

MADE_HERE = (
    "Parts of the policy were made on rows of this file, so these answers do not test its guarantee; give newer ones."
)


@dataclass(frozen=True)
class Followed:
    """A policy on new answers: the tests, and the answers themselves, all in the order of time.

    `order` [n] are the rows of the labelled answers in the order of time. `accepted` [n] is None if the policy has no
    acceptance rule, and `wrong` [n] if there are no labels. `remarks` say what is not tested. `seen`: parts of the
    policy were made on rows among these, which can break its guarantee, but not confirm it.
    """

    monitored: Monitored
    order: Ints
    accepted: Flags | None
    wrong: Flags | None
    remarks: tuple[str, ...]
    seen: bool = False

    @property
    def num_wrong_accepted(self) -> int | None:
        """How many of the accepted answers are wrong."""
        if self.accepted is None or self.wrong is None:
            return None
        return int((self.accepted & self.wrong).sum())


def follow(policy: Policy, predictions: Predictions, order: Ints, *, alpha: float = 0.05) -> Followed:
    """Test what the policy guarantees about labelled predictions; `order` are their rows in the order of time."""
    answers, right = policy.apply(predictions), policy.correct(predictions)
    seen = was_made_on(policy, predictions)
    accepted = None if answers.accepted is None else answers.accepted[order]
    predictions = policy.matched(predictions)
    claims = [*_error_claims(policy.threshold, predictions, answers, ~right, order)]
    groups = _calibrated(policy.sets, predictions)
    # Of a guarantee that holds on average over calibration rows, half of the share is for the chance in these rows.
    level = alpha / max(1, len(claims) + len(groups)) / 2
    claims += [*_miss_claims(policy.sets, groups, predictions, answers, order, level)]
    monitored = Monitored(alpha, watched(claims, alpha), drift_of(policy, answers.confidence[order], alpha))
    remarks = [MADE_HERE] if seen else []
    remarks += _remarks(policy)
    return Followed(monitored, order, accepted, ~right[order], tuple(remarks), seen)


def follow_unlabelled(policy: Policy, predictions: Predictions, order: Ints, *, alpha: float = 0.05) -> Followed:
    """Test drift alone."""
    answers = policy.apply(predictions)
    drift = drift_of(policy, answers.confidence[order], alpha)
    if drift is None:
        raise InputError(
            "expected a policy that records the confidences it was made on, but this one does not",
            "make the policy again, or give labels",
        )
    accepted = None if answers.accepted is None else answers.accepted[order]
    return Followed(Monitored(alpha, (), drift), order, accepted, None, ())


def reference_in(policy: Policy) -> Reference | None:
    """The calibration confidences that the acceptance rule, or the sets, recorded."""
    parts: Sequence[Part | None] = (policy.threshold, policy.sets)
    records = [part.rows.reference for part in parts if part is not None and part.rows is not None]
    return next(filter(None, records), None)


def drift_of(policy: Policy, confidence: NDArray[Any], alpha: float) -> DriftTest | None:
    reference = reference_in(policy)
    return None if reference is None else drift_test(confidence, reference, alpha=alpha)


def _positions(rows: Ints, order: Ints) -> Ints:
    """Where rows of the file are in the order of time, ascending."""
    flags = np.zeros(len(order), dtype=bool)
    flags[rows] = True
    return np.flatnonzero(flags[order])


def _error_claims(
    part: ThresholdPart | None, predictions: Predictions, answers: Answers, wrong: Flags, order: Ints
) -> Iterator[Claim]:
    """The error rate among accepted, of each group or class that has a threshold."""
    if part is None or not part.promise or part.settings.get("risk") is None:
        return
    assert answers.accepted is not None, "a threshold accepts"
    for value, rows in _by_value(part, predictions, answers).items():
        taken = _positions(rows[answers.accepted[rows]], order)
        yield Claim(ERRORS, part.settings["risk"], wrong[order], taken, value or None)


def _by_value(part: ThresholdPart, predictions: Predictions, answers: Answers) -> dict[str, Ints]:
    """The rows of each class or group that has a threshold; "" for all."""
    if part.per == "all":
        return {"": np.arange(len(answers))}
    values = distinguished(part, predictions, answers.prediction)
    rows = {} if values is None else rows_by_group(values)
    none = np.zeros(0, dtype=np.int64)
    return {value: rows.get(value, none) for value, limit in part.thresholds.items() if limit is not None}


def _miss_claims(
    part: SetsPart | None,
    groups: Mapping[str, tuple[int, Ints]],
    predictions: Predictions,
    answers: Answers,
    order: Ints,
    level: float,
) -> Iterator[Claim]:
    """The share of sets without the true class, of each class or group."""
    if part is None or answers.sets is None or predictions.label is None:
        return
    missed = ~answers.sets[np.arange(len(answers)), predictions.label]
    for value, (count, rows) in groups.items():
        bound = miscoverage_bound(count, part.level, level)
        if bound is not None:
            yield Claim(MISSES, bound, missed[order], _positions(rows, order), value or None, parts=2)


def _calibrated(part: SetsPart | None, predictions: Predictions) -> dict[str, tuple[int, Ints]]:
    """The number of calibration rows, and the new rows, of each true class or group with sets; "" for all."""
    label = predictions.label
    if part is None or not part.promise or label is None:
        return {}
    if part.per == "all":
        return {"": (sum(part.counts.values()), np.arange(len(label)))}
    if part.per == "class":
        names = {number: class_text(predictions.class_names, int(number)) for number in part.counts}
        return {names[number]: (count, np.flatnonzero(label == int(number))) for number, count in part.counts.items()}
    none = np.zeros(0, dtype=np.int64)
    rows = rows_by_group(group_of(part.column or "group", predictions))
    return {value: (count, rows.get(value, none)) for value, count in part.counts.items()}


def _remarks(policy: Policy) -> Iterator[str]:
    """What is not tested, and why."""
    if policy.threshold is not None and not policy.threshold.promise:
        yield "The threshold guarantees no error rate, so there is none to test."
    if policy.threshold is None and policy.sets is None:
        yield "The policy accepts nothing and gives no sets, so there is no guarantee to test."


def accepted_share(policy: Policy) -> float | None:
    """The share accepted at calibration, if the threshold recorded it."""
    part = policy.threshold
    if part is None or part.rows is None:
        return None
    counts = [part.settings, *part.settings.get("groups", {}).values()]
    accepted = [one["accepted"] for one in counts if one.get("accepted") is not None]
    return sum(accepted) / part.rows.used if accepted else None
