"""A threshold for each group, all of them with guaranteed error rates at one overall level.

The groups share delta equally. Within a group, `learn_then_test` looks for the threshold by sequences of tests, which
share the level of the group (Bonferroni).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.decisions.guarantee import check_shares, refuse_weights, risk_bound
from confrank.decisions.learn_then_test import RankedRows, most_certified, number_needed, ranked_rows
from confrank.decisions.operating import OperatingPoint, measured_at
from confrank.errors import InputError, aligned, counted
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import (
    Array,
    ArrayLike,
    Flags,
    as_scores,
    at_or_above,
    same_length,
    same_rows,
    scores_and_flags,
)
from confrank.metrics.samples import Samples
from confrank.predictions import Predictions

ALL = "all"


@dataclass(frozen=True)
class GroupThreshold:
    """The threshold of one group; `point` is None if nothing can be guaranteed, and then no answer is accepted.

    `needed` is then about how many rows of the group would suffice at its present error rates; None if no number
    would.
    """

    group: str
    num_samples: int
    point: OperatingPoint | None
    needed: int | None = None

    def as_dict(self) -> dict[str, Any]:
        point = {"threshold": None, "accepted": 0} if self.point is None else self.point.as_dict()
        return {"n": self.num_samples, **point, "needed": self.needed}


@dataclass(frozen=True)
class GroupThresholds:
    """One threshold per group, and what they guarantee together."""

    risk: float
    delta: float
    groups: tuple[GroupThreshold, ...]

    def __repr__(self) -> str:
        rows = [[one.group, f"{one.num_samples:,}", *_cells(one.point)] for one in self.groups]
        heading = ["group", "rows", "threshold", "accepted", "error rate among accepted", "at most"]
        return f"{aligned([heading, *rows])}\n{self.promise()}"

    @property
    def thresholds(self) -> dict[str, float | None]:
        """The threshold of each group; None if the group has none."""
        return {one.group: None if one.point is None else one.point.threshold for one in self.groups}

    def accepts(self, confidence: ArrayLike, group: ArrayLike) -> Flags:
        """Which answers [n] are accepted; see `accepted_by_group`."""
        return accepted_by_group(confidence, group, self.thresholds)

    def promise(self, of: str = "group") -> str:
        """What is guaranteed, to whom, and under which assumption, in one sentence; `of` says what the groups are."""
        certified = sum(one.point is not None for one in self.groups)
        if not certified:
            return "nothing is guaranteed: no group has enough rows with few enough errors"
        several = len(self.groups) > 1
        which = f" in each {of}{' with a threshold' * (certified < len(self.groups))}" * several
        rows = sum(one.num_samples for one in self.groups)
        shared = f"{counted(len(self.groups), of if of == 'predicted class' else 'group')} and " * several
        return (
            f"with probability {1 - self.delta:.12g},{which} the error rate among accepted answers is at most"
            f" {self.risk:g}, if new rows are drawn independently from the same distribution as these {rows:,}, and"
            " if accepting less confident answers does not lower the error rate (Learn then Test, Bonferroni over"
            f" {shared}sequences of tests)"
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "requested_risk": self.risk,
            "delta": self.delta,
            "groups": {one.group: one.as_dict() for one in self.groups},
        }


def _cells(point: OperatingPoint | None) -> list[str]:
    if point is None or point.risk is None:
        return ["none", "0", "-", "-"]
    return [f"{point.threshold:.6g}", f"{point.accepted:,}", f"{point.risk:.4g}", f"{point.bound or 1:.4g}"]


def group_thresholds(
    confidence: ArrayLike,
    correct: ArrayLike,
    group: ArrayLike | None = None,
    risk: float = 0.05,
    delta: float = 0.001,
    *,
    sample_weight: ArrayLike | None = None,
) -> GroupThresholds:
    """One threshold for each value of `group` [n] that guarantees an error rate of at most `risk` among accepted.

    All guarantees hold together with probability 1 - delta. A group for which nothing can be guaranteed has no
    threshold. Without `group` there is one group, "all". `sample_weight` is refused.

    >>> sure = np.linspace(0, 1, 400)
    >>> result = group_thresholds(sure, sure > 0.3, ["a"] * 80 + ["b"] * 320, risk=0.1, delta=0.01)
    >>> result.thresholds, result.groups[0].needed
    ({'a': None, 'b': 0.2957393483709273}, None)
    """
    refuse_weights(sample_weight)
    check_shares(risk=risk, delta=delta)
    scores, flags = scores_and_flags(confidence, correct, "predictions to choose thresholds from", group=group)
    scores = scores.astype(np.float64)
    parts = {ALL: np.arange(len(scores))} if group is None else rows_by_group(group)
    same_length(confidence=scores, group=np.concatenate([*parts.values()]))
    chosen = []
    for name, rows in parts.items():
        chosen.append(_threshold_of(name, ranked_rows(scores[rows], flags[rows], risk), delta / len(parts)))
    return GroupThresholds(risk, delta, tuple(chosen))


def _threshold_of(name: str, rows: RankedRows, level: float) -> GroupThreshold:
    accepted, each = most_certified(rows, level)
    if not accepted:
        return GroupThreshold(name, len(rows), None, number_needed(rows, each))
    wrong = int(rows.wrong[accepted])
    bound = risk_bound(wrong, accepted, each)
    return GroupThreshold(
        name, len(rows), OperatingPoint(float(rows.confidence[accepted - 1]), accepted, wrong, len(rows), bound)
    )


def accepted_by_group(confidence: ArrayLike, group: ArrayLike, thresholds: Mapping[str, float | None]) -> Flags:
    """Which answers [n] reach the threshold of their group [n]; none in a group that is unknown or has no threshold.

    >>> accepted_by_group([0.9, 0.9, 0.7, 0.9], ["a", "b", "a", "c"], {"a": 0.8, "b": None}).tolist()
    [True, False, False, False]
    """
    same_rows(confidence=confidence, group=group)
    scores = as_scores(confidence)
    accepted = np.zeros(len(scores), dtype=bool)
    for name, rows in rows_by_group(group).items():
        threshold = thresholds.get(name)
        if threshold is not None:
            accepted[rows] = at_or_above(scores[rows], threshold)
    return accepted


def rows_in_groups(
    predictions: Predictions, samples: Samples, by: str | None, class_names: list[str] | None
) -> Array:
    """The group of each row [n]: its value of a column, or the name of its predicted class."""
    if by is not None:
        return group_values(predictions, by)
    if samples.prediction is None or class_names is None:
        raise InputError(
            "expected predicted classes with --per-class, but the file has confidence and correct only",
            "name the column with {columns}, as in prediction=COLUMN",
        )
    return np.array(class_names, dtype=object)[samples.prediction]


def group_values(predictions: Predictions, by: str) -> Array:
    """A column of groups [n]; an error that names it if it has too many values."""
    rows_by_group(predictions.extra[by], by)
    return predictions.extra[by]


def class_names(predictions: Predictions, samples: Samples) -> list[str] | None:
    """The names of the classes, or their numbers as text; None if the file has no classes."""
    if predictions.class_names:
        return predictions.class_names
    numbers = [values.max() for values in (samples.prediction, samples.label) if values is not None and len(values)]
    return [str(number) for number in range(1 + int(max(numbers)))] if numbers else None


def measured_by_group(result: GroupThresholds, samples: Samples, groups: Array) -> dict[str, OperatingPoint]:
    """What the thresholds do to other rows, by group."""
    points = {}
    for name, rows in rows_by_group(groups).items():
        threshold = result.thresholds.get(name)
        if threshold is not None:
            points[name] = measured_at(samples.confidence[rows], samples.correct[rows], threshold)
    return points
