"""A threshold for each group, all of them with guaranteed error rates at one overall level.

The groups share delta equally. Within a group, `learn_then_test` looks for the threshold: "fixed-sequence" follows
one sequence of tests at the full level of the group, "bonferroni" several that share it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from confrank.decisions.guarantee import check_shares, refuse_weights, risk_bound
from confrank.decisions.learn_then_test import RankedRows, most_certified, number_needed, ranked_rows
from confrank.decisions.operating import OperatingPoint
from confrank.display import Displayed, Grid, Shown
from confrank.metrics.arrays import (
    Array,
    ArrayLike,
    Flags,
    as_classes,
    as_scores,
    at_or_above,
    same_length,
    scores_and_flags,
)
from confrank.metrics.frames import same_rows
from confrank.metrics.groups import rows_by_group
from confrank.phrasing import InputError, counted

Correction = Literal["fixed-sequence", "bonferroni"]
# How many sequences of tests each correction starts at most.
MOST_STARTS: dict[Correction, int] = {"fixed-sequence": 1, "bonferroni": 40}
ALL = "all"


@dataclass(frozen=True)
class GroupThreshold:
    """The threshold of one group; `point` is None if nothing can be guaranteed, and then no answer is accepted.

    `needed` is then about how many rows of the group would suffice at its present error rates; None if no number
    would. `classes` are (accepted, wrong) for each class that has a risk.
    """

    group: str
    num_samples: int
    point: OperatingPoint | None
    needed: int | None = None
    classes: tuple[tuple[int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        point = {"threshold": None, "accepted": 0} if self.point is None else self.point.as_dict()
        return {"n": self.num_samples, **point, "needed": self.needed, "classes": [list(one) for one in self.classes]}


@dataclass(frozen=True, repr=False)
class GroupThresholds(Displayed):
    """One threshold per group, and what they guarantee together.

    `class_risk` are further risks of classes, by number; `group_risk` are risks of groups other than `risk`.
    """

    risk: float
    delta: float
    correction: Correction
    groups: tuple[GroupThreshold, ...]
    class_risk: tuple[tuple[int, float], ...] = ()
    group_risk: tuple[tuple[str, float], ...] = ()

    def _display(self) -> list[Shown]:
        rows = [[one.group, f"{one.num_samples:,}", *_cells(one.point)] for one in self.groups]
        heading = ["group", "rows", "threshold", "accepted", "error rate among accepted", "at most"]
        return [Grid(rows, heading), self.promise()]

    @property
    def thresholds(self) -> dict[str, float | None]:
        """The threshold of each group; None if the group has none."""
        return {one.group: None if one.point is None else one.point.threshold for one in self.groups}

    def accepts(self, confidence: ArrayLike, group: ArrayLike) -> Flags:
        """Which answers [n] are accepted; see `accepted_by_group`."""
        return accepted_by_group(confidence, group, self.thresholds)

    def promise(self, of: str = "group", class_names: list[str] | None = None) -> str:
        """What is guaranteed, to whom, and under which assumption, in one sentence; `of` says what the groups are."""
        certified = sum(one.point is not None for one in self.groups)
        if not certified:
            return "nothing is guaranteed: no group has enough rows with few enough errors"
        several = len(self.groups) > 1
        which = f" in each {of}{' with a threshold' * (certified < len(self.groups))}" * several
        name = {number: class_names[number] if class_names else str(number) for number, _ in self.class_risk}
        others = f" ({', '.join(f'{name}: {risk:g}' for name, risk in self.group_risk)})" if self.group_risk else ""
        risks = [f"the error rate among accepted answers is at most {self.risk:g}{others}"]
        risks += [
            f"that among accepted {name[number]!r} answers at most {risk:g}" for number, risk in self.class_risk
        ]
        rows = sum(one.num_samples for one in self.groups)
        return (
            f"with probability {1 - self.delta:.12g},{which} {' and '.join(risks)}, if new rows are drawn"
            f" independently from the same distribution as these {rows:,}, and if accepting less confident answers"
            f" does not lower the error rate ({self._correction(of)})"
        )

    def _correction(self, of: str) -> str:
        several = counted(len(self.groups), of if of == "predicted class" else "group")
        shared = [several] if len(self.groups) > 1 else []
        shared += ["sequences of tests"] if self.correction == "bonferroni" else []
        parts = ["Learn then Test", "fixed sequence" * (self.correction == "fixed-sequence")]
        return ", ".join([*filter(None, parts), *([f"Bonferroni over {' and '.join(shared)}"] if shared else [])])

    def as_dict(self) -> dict[str, Any]:
        return {
            "requested_risk": self.risk,
            "delta": self.delta,
            "class_risk": {str(number): risk for number, risk in self.class_risk},
            "group_risk": dict(self.group_risk),
            "correction": self.correction,
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
    correction: Correction = "bonferroni",
    prediction: ArrayLike | None = None,
    class_risk: Mapping[int, float] | None = None,
    group_risk: Mapping[str, float] | None = None,
    sample_weight: ArrayLike | None = None,
) -> GroupThresholds:
    """One threshold for each value of `group` [n] that guarantees an error rate of at most `risk` among accepted.

    All guarantees hold together with probability 1 - delta. A group for which nothing can be guaranteed has no
    threshold.
    Without `group` there is one group, "all". `class_risk` adds risks: in each group, at most `class_risk[c]` of the
    accepted answers of class c (those with `prediction` c) are wrong. `group_risk` gives some groups another risk, by
    the value as text. `sample_weight` is refused.

    >>> sure = np.linspace(0, 1, 400)
    >>> result = group_thresholds(sure, sure > 0.3, ["a"] * 80 + ["b"] * 320, risk=0.1, delta=0.01)
    >>> result.thresholds, result.groups[0].needed
    ({'a': None, 'b': 0.2957393483709273}, None)
    """
    refuse_weights(sample_weight)
    limits, others = dict(class_risk or {}), dict(group_risk or {})
    check_shares(risk=risk, delta=delta, **{f"the risk of class {number}": limit for number, limit in limits.items()})
    check_shares(**{f"the risk of {name}": limit for name, limit in others.items()})
    if correction not in MOST_STARTS:
        raise ValueError(f"expected a correction among {', '.join(MOST_STARTS)}, but got {correction!r}")
    further = {"group": group, "prediction": prediction}
    scores, flags = scores_and_flags(confidence, correct, "predictions to choose thresholds from", **further)
    scores = scores.astype(np.float64)
    parts = {ALL: np.arange(len(scores))} if group is None else rows_by_group(group)
    masks = [np.ones(len(scores), dtype=bool), *_class_masks(prediction, limits)]
    same_length(confidence=scores, group=np.concatenate([*parts.values()]), prediction=masks[-1])
    chosen = []
    for name, rows in parts.items():
        risks = [others.get(name, risk), *limits.values()]
        ranking = ranked_rows(scores[rows], flags[rows], [mask[rows] for mask in masks], risks)
        chosen.append(_threshold_of(name, ranking, delta / len(parts), MOST_STARTS[correction]))
    return GroupThresholds(risk, delta, correction, tuple(chosen), tuple(limits.items()), tuple(others.items()))


def _class_masks(prediction: ArrayLike | None, class_risk: Mapping[int, float]) -> list[Array]:
    if not class_risk:
        return []
    if prediction is None:
        raise InputError("expected the predicted classes with a risk per class, but got none", "add {prediction}")
    classes = as_classes(prediction, "prediction")
    return [classes == number for number in class_risk]


def _threshold_of(name: str, rows: RankedRows, level: float, most_starts: int) -> GroupThreshold:
    accepted, each = most_certified(rows, level, most_starts)
    if not accepted:
        return GroupThreshold(name, len(rows), None, number_needed(rows, each))
    counts = [*zip(rows.number[:, accepted].tolist(), rows.wrong[:, accepted].tolist(), strict=True)]
    num_accepted, num_wrong = counts[0]
    bound = risk_bound(num_wrong, num_accepted, each)
    point = OperatingPoint(float(rows.confidence[accepted - 1]), num_accepted, num_wrong, len(rows), bound)
    return GroupThreshold(name, len(rows), point, classes=tuple(counts[1:]))


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
