"""The threshold of least expected cost, if an error and a rejection cost different amounts."""

import math
import sys
from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from confrank.decisions.operating import OperatingPoint, random_folds, random_split
from confrank.errors import InputError, aligned
from confrank.metrics.inputs import (
    TOLERANCE,
    Array,
    ArrayLike,
    Flags,
    Floats,
    Ints,
    as_scores,
    as_weights,
    describe,
    scores_and_flags,
    to_numpy,
    weighted_mean,
)
from confrank.metrics.samples import Samples

FOLDS = 5
# Thresholds of different folds rest on common rows, so a cross-fitted cost varies more than that of independent
# rows. If only this share of them counts, intervals hold: benchmarks/costs.py.
CROSS_FITTED = 0.8
# Costs that differ by less than this share of the highest possible cost are equal.
EQUAL = 1e-12
# A threshold that every confidence reaches, for JSON, which has no infinite numbers.
ACCEPT_ALL = -sys.float_info.max


@dataclass(frozen=True)
class MeanCost:
    """The mean cost of a prediction on `num_samples` rows, and its 95% interval, which is None with weights."""

    value: float
    low: float | None
    high: float | None
    num_samples: int


@dataclass(frozen=True)
class CostThreshold:
    """Accept confidence >= threshold: inf if rejecting everything is cheapest, -inf if accepting everything is.

    `cost` is the mean cost of the rows that the threshold was chosen on, and therefore too low for new ones;
    `held_out` is the cost of rows that it was not chosen on. `accept_all` is the mean cost of accepting everything,
    and `cost_reject` that of rejecting everything. `cost_error` is None if it differs between rows.
    """

    threshold: float
    cost: float
    accepted: int
    wrong: int
    num_samples: int
    cost_error: float | None
    cost_reject: float
    accept_all: float
    held_out: MeanCost | None = None

    def __repr__(self) -> str:
        rows = OperatingPoint(self.threshold, self.accepted, self.wrong, self.num_samples).rows
        rows.append(["cost per prediction", f"{self.cost:.4g}"])
        if self.held_out is not None:
            value, low, high = self.held_out.value, self.held_out.low, self.held_out.high
            limits = "" if low is None else f" [{low:.4g}, {high:.4g}]"
            rows.append(["on rows it was not chosen on", f"{value:.4g}{limits}"])
        rows.append(["cost of accepting everything", f"{self.accept_all:.4g}"])
        rows.append(["cost of rejecting everything", f"{self.cost_reject:.4g}"])
        return aligned(rows)

    def as_dict(self) -> dict[str, Any]:
        """For JSON, where a threshold that accepts nothing is null, and one that accepts everything `ACCEPT_ALL`."""
        return {**asdict(self), "threshold": None if self.threshold == math.inf else max(self.threshold, ACCEPT_ALL)}


@dataclass(frozen=True)
class _Rows:
    """Checked arrays [n]: confidence, correct, what each row costs if it is accepted and wrong, and weights."""

    confidence: Array
    correct: Flags
    error: Floats
    weight: Floats

    def select(self, rows: Array) -> "_Rows":
        return _Rows(self.confidence[rows], self.correct[rows], self.error[rows], self.weight[rows])


def cost_threshold(
    confidence: ArrayLike,
    correct: ArrayLike,
    *,
    cost_error: float | ArrayLike,
    cost_reject: float,
    sample_weight: ArrayLike | None = None,
    folds: int = FOLDS,
    seed: int = 0,
) -> CostThreshold:
    """The threshold of least mean cost: `cost_error` for each accepted error, `cost_reject` for each rejection.

    Of equal costs, it is the one that accepts the most. `cost_error` may be an array [n]: the cost of each row if it
    is wrong (`error_costs` makes one from a table of classes). `held_out` is cross-fitted: the rows of each fold have
    the threshold that the other folds choose. It is None if `folds` is 0 or there is one row only.

    >>> rule = cost_threshold([0.9, 0.8, 0.7, 0.6], [True, True, False, True], cost_error=10, cost_reject=1, folds=0)
    >>> rule.threshold, rule.cost, rule.accept_all
    (0.8, 0.5, 2.5)
    """
    rows = _checked(confidence, correct, cost_error, cost_reject, sample_weight)
    threshold = _cheapest(rows, cost_reject)
    accepted, size = _accepted(rows, threshold), len(rows.correct)
    held_out = None
    if folds and size > 1:
        each = np.empty(size)
        for others, fold in random_folds(size, min(folds, size), seed):
            each[fold] = _cheapest(rows.select(others), cost_reject)
        held_out = _mean_cost(rows, each, cost_reject, CROSS_FITTED if sample_weight is None else None)
    return CostThreshold(
        threshold=threshold,
        cost=weighted_mean(_costs(rows, threshold, cost_reject), rows.weight),
        accepted=int(np.count_nonzero(accepted)),
        wrong=int(np.count_nonzero(accepted & ~rows.correct)),
        num_samples=size,
        cost_error=_single(rows.error),
        cost_reject=float(cost_reject),
        accept_all=weighted_mean(_costs(rows, -math.inf, cost_reject), rows.weight),
        held_out=held_out,
    )


def cost_at(
    confidence: ArrayLike,
    correct: ArrayLike,
    threshold: float,
    *,
    cost_error: float | ArrayLike,
    cost_reject: float,
    sample_weight: ArrayLike | None = None,
) -> MeanCost:
    """The mean cost of a threshold that was not chosen on these rows, with its interval unless there are weights.

    >>> round(cost_at([0.9, 0.8, 0.7], [True, False, False], 0.8, cost_error=10, cost_reject=1).value, 4)
    3.6667
    """
    rows = _checked(confidence, correct, cost_error, cost_reject, sample_weight)
    return _mean_cost(rows, threshold, cost_reject, 1.0 if sample_weight is None else None)


def _checked(
    confidence: ArrayLike,
    correct: ArrayLike,
    cost_error: float | ArrayLike,
    cost_reject: float,
    sample_weight: ArrayLike | None,
) -> _Rows:
    further = {"cost_error": cost_error, "sample_weight": sample_weight}
    scores, flags = scores_and_flags(confidence, correct, "predictions whose cost can be measured", **further)
    if not 0 <= cost_reject < math.inf:
        raise InputError(f"expected a cost of at least 0, but got {cost_reject}", "change {cost_reject}")
    given: Any = cost_error
    costs = to_numpy(given)
    if costs.dtype.kind not in "fiu":
        raise ValueError(f"expected costs to be numbers, but got {describe(costs)}")
    errors = np.full(len(scores), float(costs)) if costs.ndim == 0 else costs.astype(np.float64)
    if errors.shape != scores.shape:
        raise ValueError(f"expected one cost, or one for each of {len(scores):,} rows, but got shape {errors.shape}")
    wrong = ~((errors >= 0) & np.isfinite(errors))
    if wrong.any():
        raise InputError(f"expected a cost of at least 0, but got {errors[wrong][0]}", "change {cost_error}")
    weights = np.ones(len(scores)) if sample_weight is None else as_weights(sample_weight, len(scores))
    rows = _Rows(scores, flags, errors, weights)
    return rows if weights.all() else rows.select(weights > 0)


def _single(errors: Floats) -> float | None:
    return float(errors[0]) if (errors == errors[0]).all() else None


def _cheapest(rows: _Rows, cost_reject: float) -> float:
    order = np.argsort(-rows.confidence, kind="stable")
    ordered = rows.confidence[order].astype(np.float64)
    # A threshold accepts all confidences down to TOLERANCE below it.
    ends = np.searchsorted(-ordered, TOLERANCE - ordered, side="right") - 1
    weight, unit = rows.weight[order], _single(rows.error)
    accepted = np.cumsum(weight)
    # One product is more exact than many sums.
    lost = np.cumsum(np.where(rows.correct[order], 0.0, weight * (rows.error[order] if unit is None else 1.0)))
    spent = (lost if unit is None else unit * lost) + cost_reject * (accepted[-1] - accepted)
    costs = np.append(cost_reject * accepted[-1], spent[ends])
    rounding = EQUAL * accepted[-1] * max(float(rows.error.max()), cost_reject)
    position = int(np.flatnonzero(costs <= costs.min() + rounding)[-1])
    if position == len(ordered):  # new confidences may be lower than all of these
        return -math.inf
    return math.inf if position == 0 else float(ordered[position - 1])


def _accepted(rows: _Rows, threshold: float | Floats) -> Flags:
    """As `at_or_above` does, but the threshold may differ between rows."""
    return rows.confidence.astype(np.float64) >= threshold - TOLERANCE


def _costs(rows: _Rows, threshold: float | Floats, cost_reject: float) -> Floats:
    """What each prediction costs. [n]"""
    return np.where(_accepted(rows, threshold), np.where(rows.correct, 0.0, rows.error), float(cost_reject))


def _mean_cost(rows: _Rows, threshold: float | Floats, cost_reject: float, share: float | None) -> MeanCost:
    """`mean_cost` of a threshold, or of one for each row; without a `share`, there is no interval."""
    accepted, costs = _accepted(rows, threshold), _costs(rows, threshold, cost_reject)
    if share is None:
        return MeanCost(weighted_mean(costs, rows.weight), None, None, len(costs))
    if np.all(np.asarray(threshold) == math.inf):  # known without any measurement
        return MeanCost(float(cost_reject), float(cost_reject), float(cost_reject), len(accepted))
    # Rows that are rejected cannot be errors.
    highest = max(float(rows.error.max(initial=0, where=accepted)), cost_reject)
    return mean_cost(costs, highest, share)


def mean_cost(costs: ArrayLike, highest: float, share: float = 1.0) -> MeanCost:
    """The mean of costs [n] between 0 and `highest`, with a 95% interval that is wide enough if errors are rare.

    It is the interval of Agresti and Coull, for costs instead of shares: the normal one after adding z^2 / 2 rows of
    cost 0 and as many of the highest cost, with z = 1.96. If rows are not independent, only a `share` of them counts.

    >>> measured = mean_cost([0, 0, 1, 0, 10, 0, 0, 0, 1, 0], highest=10)
    >>> measured.value, round(measured.low, 2), round(measured.high, 2)
    (1.2, 0.14, 4.37)
    """
    values = as_scores(costs, "costs").astype(np.float64)
    each = np.ones(len(values))
    value, size = weighted_mean(values, each), share * len(values)
    z = NormalDist().inv_cdf(0.975)
    added = z**2 / 2
    total = size + 2 * added
    centre = (size * value + added * highest) / total
    square = (size * weighted_mean(values**2, each) + added * highest**2) / total
    reach = z * math.sqrt(max(0.0, square - centre**2) / total)
    low, high = max(0.0, centre - reach), min(highest, centre + reach)
    return MeanCost(value, min(low, value), max(high, value), len(values))


def checked_cost_threshold(
    samples: Samples,
    cost_error: float | Floats,
    cost_reject: float,
    folds: int = FOLDS,
    split: float | None = None,
    seed: int = 0,
) -> tuple[CostThreshold, str]:
    """The threshold of least cost, and how its cost on other rows was measured: by folds, or on a share `split`."""
    if split is None:
        rule = cost_threshold(
            samples.confidence, samples.correct, cost_error=cost_error, cost_reject=cost_reject,
            sample_weight=samples.weight, folds=folds, seed=seed,
        )  # fmt: skip
        return rule, f"each of {min(folds, len(samples))} folds with the threshold that the others choose"
    rows, others = random_split(len(samples), split, seed)

    def part(index: Ints) -> tuple[Samples, dict[str, Any]]:
        chosen = samples.select(index)
        errors = cost_error[index] if isinstance(cost_error, np.ndarray) else cost_error
        return chosen, {"cost_error": errors, "cost_reject": cost_reject, "sample_weight": chosen.weight}

    chosen, costs = part(rows)
    rule = cost_threshold(chosen.confidence, chosen.correct, **costs, folds=0)
    rest, costs = part(others)
    held_out = cost_at(rest.confidence, rest.correct, rule.threshold, **costs)
    return replace(rule, held_out=held_out), f"on {len(others):,} rows set aside"
