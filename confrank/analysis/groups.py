"""Groups of one model's predictions: metrics, intervals, and the error rate among accepted at one threshold."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from confrank.analysis.model import Differences, as_dicts, limits_of, thinned_curve
from confrank.errors import aligned, counted, named
from confrank.metrics import Evaluation, Interval, RiskCoverageCurve, Samples, evaluation_of
from confrank.metrics.curve import curve_of
from confrank.metrics.groups import Acceptance, accepted_at
from confrank.metrics.inputs import Ints
from confrank.metrics.ranking import ranked

# The share of all predictions that are accepted where groups are compared; the page judges the whole set there, too.
COVERAGE = 0.8
NUM_POINTS = 120
LEVEL = 0.95
# Groups that are printed; `Grouping.groups` has all.
MOST_ROWS = 30
PRINTED = ("acc", "aurc", "ece")
CELLS = ("n", "coverage", "error rate among accepted", *PRINTED)


@dataclass(frozen=True)
class Group:
    """One group: its metrics, its curve, and what the threshold of the whole set does to it.

    `risk_at_coverage` is the error rate among its own most confident share instead. `too_small` means that the 95%
    interval of its error rate among accepted includes that of the whole set and is wider than it is high; it is None
    with weights or clusters, which leave no interval. `weight` is its share of all weight.
    """

    value: str
    evaluation: Evaluation
    acceptance: Acceptance
    risk_at_coverage: float
    curve: RiskCoverageCurve
    weight: float
    too_small: bool | None
    intervals: dict[str, Interval | None] = field(default_factory=dict)
    no_intervals: dict[str, str] = field(default_factory=dict)
    num_resamples: int = 0
    differences_to: dict[int, Differences] = field(default_factory=dict)

    @property
    def differences(self) -> Differences:
        """Those to the first model; empty if there are none."""
        return self.differences_to.get(0, {})

    @property
    def risk_interval(self) -> tuple[float, float] | None:
        """The exact 95% interval of its error rate among accepted; None with weights or clusters, or without any."""
        accepted, wrong = self.acceptance.accepted, self.acceptance.wrong
        return None if self.too_small is None or not accepted else exact_interval(wrong, accepted)

    @property
    def cells(self) -> list[str]:
        """What is printed of it, under the headings `CELLS`."""
        point, metrics, limits = self.acceptance, self.evaluation.metrics, self.risk_interval
        rate = "none accepted" if point.risk is None else f"{point.risk:.4f}"
        if limits is not None:
            rate += f" [{limits[0]:.4f}, {limits[1]:.4f}]"
        values = ("-" if (value := metrics[key]) is None else f"{value:.4f}" for key in PRINTED)
        return [f"{self.evaluation.num_samples:,}", f"{point.coverage:.4f}", rate, *values]

    def as_dict(self) -> dict[str, Any]:
        at_threshold = asdict(self.acceptance)
        at_threshold["risk_interval"] = self.risk_interval and list(self.risk_interval)
        result: dict[str, Any] = {
            "n": self.evaluation.num_samples,
            "metrics": self.evaluation.metrics,
            "intervals": limits_of(self.intervals),
            "undefined": self.evaluation.undefined,
            "no_interval": self.no_intervals,
            "weight": self.weight,
            "risk_at_coverage": self.risk_at_coverage,
            "at_threshold": at_threshold,
            "too_small": self.too_small,
        }
        if self.differences:
            result["difference_to_first"] = as_dicts(self.differences)
        return result


@dataclass(frozen=True)
class Grouping:
    """The groups of one column, and what the threshold does to all predictions together."""

    column: str
    coverage: float
    overall: Acceptance
    groups: tuple[Group, ...]

    def __getitem__(self, value: str) -> Group:
        return next(group for group in self.groups if group.value == value)

    def __repr__(self) -> str:
        rows = [[group.value, *group.cells] for group in self.by_risk[:MOST_ROWS]]
        return "\n".join([aligned([[self.column, *CELLS], *rows]), *self.notes])

    @property
    def by_risk(self) -> list[Group]:
        """The groups with the highest error rate among accepted first, those too small to say last."""
        return sorted(self.groups, key=lambda one: (one.too_small is True, -(one.acceptance.risk or 0)))

    @property
    def notes(self) -> list[str]:
        """What is printed below the groups: how many are hidden, the threshold, and which groups are too small."""
        small = [group.value for group in self.groups if group.too_small]
        text = (
            f"one threshold for all groups, {self.overall.threshold:.6g}, accepts {self.overall.coverage:.1%} of all,"
            f" of which {self.overall.risk or 0:.2%} are wrong"
        )
        more = len(self.groups) - MOST_ROWS
        hidden = [f"and {counted(more, 'more group')} of lower error rate"] if more > 0 else []
        return [*hidden, text + (f"; too small to say: {named(small)}" if small else "")]

    @property
    def worst(self) -> Group | None:
        """Of the groups large enough to say, the one with the highest error rate among accepted; None without any."""
        first = self.by_risk[0]
        return first if len(self.groups) > 1 and not first.too_small and first.acceptance.wrong else None

    def is_clear(self, group: Group) -> bool:
        """Whether a group's error rate exceeds that of all predictions beyond chance, for this many groups."""
        if group.risk_interval is None:
            return False
        point = group.acceptance
        low, _ = exact_interval(point.wrong, point.accepted, 1 - (1 - LEVEL) / len(self.groups))
        return low > (self.overall.risk or 0)

    def as_dict(self) -> dict[str, Any]:
        return {group.value: group.as_dict() for group in self.groups}


def grouping_of(column: str, samples: Samples, rows: Mapping[str, Ints], coverage: float = COVERAGE) -> Grouping:
    """The groups of a column, given by the rows of each value, without intervals."""
    if not 0 < coverage <= 1:
        raise ValueError(f"expected a coverage in (0, 1], but got {coverage}")
    curve = curve_of(ranked(samples.confidence, samples.correct, samples.weight))
    overall = accepted_at(samples, float(curve.threshold[curve.at_coverage(coverage)]))
    total = samples.total
    groups = tuple(_group(value, samples.select(chosen), overall, coverage, total) for value, chosen in rows.items())
    return Grouping(column, coverage, overall, groups)


def _group(value: str, part: Samples, overall: Acceptance, coverage: float, total: float) -> Group:
    ranking = ranked(part.confidence, part.correct, part.weight)
    point, curve = accepted_at(part, overall.threshold), curve_of(ranking)
    own = curve.last_accepted(curve.threshold[curve.at_coverage(coverage)])
    return Group(
        value=value,
        evaluation=evaluation_of(part, ranking),
        acceptance=point,
        risk_at_coverage=float(curve.risk[own]),
        curve=thinned_curve(ranking, NUM_POINTS),
        weight=part.total / total,
        too_small=_is_too_small(point, overall) if part.weight is None and part.cluster is None else None,
    )


def _is_too_small(point: Acceptance, overall: Acceptance) -> bool:
    """Whether the interval of the error rate includes that of all predictions, and is wider than that is high."""
    if point.risk is None:
        return True
    risk, (low, high) = overall.risk or 0.0, exact_interval(point.wrong, point.accepted)
    return risk > 0 and low <= risk <= high and high - low > risk


def exact_interval(wrong: int, accepted: int, level: float = LEVEL) -> tuple[float, float]:
    """The interval of Clopper and Pearson of the error rate among accepted.

    It is for a threshold that was not chosen on these predictions. Approximate intervals exclude the true rate too
    often where groups are small and errors rare.

    >>> tuple(round(limit, 4) for limit in exact_interval(5, 50))
    (0.0333, 0.2181)
    """
    from scipy.special import betaincinv  # slow to import, and only groups need it

    tail = (1 - level) / 2
    low = float(betaincinv(wrong, accepted - wrong + 1, tail)) if wrong else 0.0
    high = float(betaincinv(wrong + 1, accepted - wrong, 1 - tail)) if wrong < accepted else 1.0
    return low, high
