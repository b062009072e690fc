"""Intervals: how much a metric would vary with other samples.

An error adds a fixed amount to AURC, E-AURC and AUGRC, which depends on its rank: these areas are weighted counts of
errors, with limits from the gamma distribution. Accuracy, FPR at 95% TPR and ECE have intervals of their own. The
others, and all metrics of clusters, are resampled.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from confrank.metrics import calibration
from confrank.metrics.areas import Amounts, best_aurc, harmonic_gap, shifted
from confrank.metrics.curve import curve_of
from confrank.metrics.inputs import Array, ArrayLike, Floats
from confrank.metrics.ranking import AnyRanking, ranked
from confrank.metrics.ranking_metrics import least_aurc
from confrank.metrics.resampling import BINS, effective_number, known_values, student
from confrank.metrics.samples import Samples

IntervalMethod = Literal[
    "Wilson",
    "gamma",
    "order statistics",
    "test inversion",
    "logit bootstrap",
    "log bootstrap",
    "square-root bootstrap",
    "cluster bootstrap",
]
# The scale on which resampled values are least skewed. Shares of a rare kind are skewed close to 0 and 1. NLL and
# Brier scores are mostly weighted counts of errors, and the square root of a count has nearly the same variance
# whatever the count. NAURC is a ratio.
Scale = Literal["plain", "logit", "log", "square-root"]
SCALES: dict[str, Scale] = {
    "aupr_error": "logit",
    "auroc": "logit",
    "naurc": "log",
    "nll": "square-root",
    "brier": "square-root",
    "nll_correct": "square-root",
    "brier_correct": "square-root",
}
# Of clusters: all other metrics are on the log scale.
CLUSTER_SCALES: dict[str, Scale] = {"acc": "plain", "aupr_error": "logit", "auroc": "logit"}
BY_ROWS = ("ece", "fpr95")
FEWEST = 2


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    method: IntervalMethod


def intervals_of(
    samples: Samples,
    metrics: Mapping[str, float | None],
    resampled: Mapping[str, Floats],
    *,
    level: float = 0.95,
    seed: int = 0,
) -> dict[str, Interval | None]:
    """An interval of each metric, from the samples or from its values on resamples of them (`bootstrap`).

    Accuracy: Wilson's; AURC, E-AURC and AUGRC: `area_intervals`; FPR at 95% TPR: `fpr_interval`; ECE: `ece_interval`.
    For the others, and for all metrics of samples with clusters, Student's t times the standard error of the
    resampled values, on the scale on which they are least skewed. None if the metric is undefined, or if
    `no_interval` says why.
    """
    ranking = ranked(samples.confidence, samples.correct)
    found: dict[str, Interval | None] = {}
    if samples.cluster is None:
        low, high = wilson(np.array(ranking.num_correct), int(ranking.num_samples), level)
        found = {"acc": Interval(float(low), float(high), "Wilson"), "fpr95": fpr_interval(ranking, level=level)}
        found |= area_intervals(ranking, level)
        if samples.probability is not None and "ece" in metrics:
            found["ece"] = ece_interval(samples.probability, samples.correct, level=level, seed=seed)
    for key, value in metrics.items():
        if value is None:
            found[key] = None
        elif key not in found and key in resampled:
            found[key] = _bootstrap_interval(key, value, resampled[key], ranking, samples, level)
    return {key: found.get(key) for key in metrics}


def no_interval(key: str, samples: Samples) -> str:
    """Why a metric that is defined has no interval, although there are resamples."""
    if samples.cluster is not None and key in BY_ROWS:
        return "its interval takes rows as independent, which those of a cluster are not"
    if samples.cluster is not None and samples.cluster.max() == 0:
        return "needs two clusters or more"
    if key in samples.proper_scores:
        return f"needs {FEWEST} wrong predictions or more, and that no single row makes up most of it"
    return "needs more right or wrong predictions"


def area_intervals(ranking: AnyRanking, level: float = 0.95) -> dict[str, Interval]:
    """Intervals of AURC, E-AURC and AUGRC, without resampling, and exact under ties. None of them has weights.

    >>> interval = area_intervals(ranked(np.linspace(1, 0, 40), np.arange(40) < 36))["aurc"]
    >>> round(interval.low, 4), round(interval.high, 4)
    (0.0015, 0.126)
    """
    size = ranking.num_samples
    area = _counted(ranking, lambda before, after: _aurc_of_an_error(before, after, size))
    generalised = _counted(ranking, lambda before, after: (size - (before + after + 1) / 2 + 1) / size**2)
    num_wrong = ranking.num_wrong
    risk = _Counted(num_wrong / size, num_wrong / size**2, 1 / size, 1 / size**2, int(num_wrong))
    least = float(best_aurc(np.array(risk.errors)))
    reaches = []
    for limit, risk_limit in zip(area.limits(level), risk.limits(level), strict=True):
        a, b = abs(area.errors - limit), abs(least - float(best_aurc(np.array(risk_limit))))
        # The two move together: errors that weigh the same change both by the same numbers of errors.
        reaches.append(math.sqrt(max(0.0, a**2 + b**2 - 2 * area.evenness * a * b)))
    excess = area.errors - least
    limits = {"aurc": area.limits(level), "e_aurc": (excess - reaches[0], excess + reaches[1])}
    limits["augrc"] = generalised.limits(level)
    return {key: Interval(max(0.0, low), min(1.0, high), "gamma") for key, (low, high) in limits.items()}


@dataclass(frozen=True)
class _Counted:
    """A sum over errors of what each adds, the sum of their squares, and the means of both if every row were one."""

    errors: float
    squares: float
    mean: float
    mean_square: float
    num_wrong: int

    def limits(self, level: float) -> tuple[float, float]:
        """Limits of the expected sum (Fay and Feuer 1997, with the mean of Tiwari et al. 2006)."""
        tail, low = (1 - level) / 2, 0.0
        if self.errors:
            low = gamma_quantile(tail, self.errors**2 / self.squares) * self.squares / self.errors
        more, squares = self.errors + self.mean, self.squares + self.mean_square  # with one more error
        return low, gamma_quantile(1 - tail, more**2 / squares) * squares / more

    @property
    def evenness(self) -> float:
        """1 if all errors add the same."""
        if not self.num_wrong:
            return self.mean / math.sqrt(self.mean_square)
        return self.errors / math.sqrt(self.num_wrong * self.squares)


def _counted(ranking: AnyRanking, added: Callable[[Amounts, Amounts], Floats]) -> _Counted:
    """`added` gives what an error adds in each step, from the rows accepted before and after it."""
    sums, accepted_before, wrong_before = np.zeros(4), 0, 0
    for accepted, wrong in ranking.steps():
        before = shifted(accepted, accepted_before)
        rows, errors, each = accepted - before, wrong - shifted(wrong, wrong_before), added(before, accepted)
        sums += [errors @ each, errors @ each**2, rows @ each, rows @ each**2]
        accepted_before, wrong_before = accepted[-1], wrong[-1]
    errors, squares, mean, mean_square = (sums / [1, 1, ranking.num_samples, ranking.num_samples]).tolist()
    return _Counted(errors, squares, mean, mean_square, int(ranking.num_wrong))


def _aurc_of_an_error(before: Amounts, after: Amounts, size: float) -> Floats:
    """(H(n) - H(rank - 1)) / n, averaged over the ranks before + 1 .. after of a step; H the harmonic numbers."""
    beyond = harmonic_gap(after, np.full_like(after, size))
    each: Floats = (beyond + 1 - before / (after - before) * harmonic_gap(before, after)) / size
    return each


def gamma_quantile(share: float, shape: float) -> float:
    """The quantile of the gamma distribution with scale 1, by bisection.

    scipy has it too, but importing that takes as long as evaluating a small file.

    >>> round(gamma_quantile(0.95, 1.0), 6), round(-math.log(0.05), 6)
    (2.995732, 2.995732)
    """
    low, high = 0.0, shape + 1
    while _gamma_share(high, shape) < share:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high and high - low > 1e-14 * high:
        if _gamma_share(middle, shape) < share:
            low = middle
        else:
            high = middle
    return high


def _gamma_share(value: float, shape: float) -> float:
    """The distribution function: a series below the mean, Legendre's continued fraction above (by Lentz)."""
    front = math.exp(shape * math.log(value) - value - math.lgamma(shape))
    if value < shape + 1:
        term = total = 1 / shape
        step = shape
        while term > 1e-17 * total:
            step += 1
            term *= value / step
            total += term
        return front * total
    b = value + 1 - shape
    c, d = math.inf, 1 / b
    fraction, step, change = d, 0.0, 0.0
    while abs(change - 1) > 1e-15:
        step += 1
        a, b = step * (shape - step), b + 2
        d = 1 / (a * d + b)
        c = b + a / c
        change = c * d
        fraction *= change
    return 1 - front * fraction


def wilson(count: Array, size: int, level: float = 0.95) -> tuple[Floats, Floats]:
    """Limits of a share of `size` rows (Wilson 1927)."""
    z, share = NormalDist().inv_cdf((1 + level) / 2), count / size
    centre, reach = share + z**2 / (2 * size), z * np.sqrt(share * (1 - share) / size + (z / (2 * size)) ** 2)
    low, high = ((centre + side) / (1 + z**2 / size) for side in (-reach, reach))
    return np.clip(low, 0.0, share), np.clip(high, share, 1.0)


def fpr_interval(ranking: AnyRanking, tpr: float = 0.95, level: float = 0.95) -> Interval | None:
    """An interval of `fpr_at_tpr`, whose threshold is an estimate as well; None without both kinds.

    The right predictions leave some thresholds possible: those at which the share of right ones may be `tpr`. From
    the highest of them comes the lower limit of the share of errors, from the lowest the upper one. Wide, but it
    holds with ties, where the share of errors jumps from one threshold to the next.
    """
    if not ranking.has_both:
        return None
    curve = curve_of(ranking)
    lowest, highest = wilson(curve.accepted - curve.wrong, int(ranking.num_correct), level)
    first, last = int((highest >= tpr).argmax()), len(lowest) - 1
    if lowest[last] >= tpr:
        last = int((lowest >= tpr).argmax())
    low, high = wilson(curve.wrong[[first, last]], int(ranking.num_wrong), level)
    return Interval(float(low[0]), float(high[1]), "order statistics")


def ece_interval(
    confidence: ArrayLike, correct: ArrayLike, bins: int = BINS, *, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """An interval of the population's ECE with these bins, by test inversion; None for no predictions.

    The bootstrap cannot give one, since the estimate is biased upward. A calibrated model's interval starts at 0.

    >>> interval = ece_interval([0.9] * 50, [True] * 45 + [False] * 5)
    >>> interval.low, interval.high < 0.15
    (0.0, True)
    """
    limits = calibration.ece_limits(calibration.reliability_bins(confidence, correct, bins), level, seed)
    return None if limits is None else Interval(*limits, "test inversion")


def _bootstrap_interval(
    key: str, value: float, resampled: Floats, ranking: AnyRanking, samples: Samples, level: float
) -> Interval | None:
    """Student's t times the standard error, on the scale of the metric; within what the metric can be."""
    quantile = _quantile(key, samples, level)
    known = known_values(resampled)
    if quantile is None or known is None or known.min() == known.max():
        return None
    scale: Scale = SCALES[key] if samples.cluster is None else CLUSTER_SCALES.get(key, "log")
    values, highest = np.append(known, value), 1.0
    if scale == "logit":
        nearest = 1 / (4 * len(samples))
        values = np.clip(values, nearest, 1 - nearest)
    with np.errstate(divide="ignore"):  # a resample without errors has no logarithm
        values = _ON_SCALE[scale](values)
    known = known_values(values[:-1])
    if known is None or not np.isfinite(values[-1]):
        return None
    if key == "naurc":
        highest = _worst_naurc(ranking)
    elif key in samples.proper_scores:
        highest = float(samples.proper_scores[key].max())  # which no mean exceeds
    reach = quantile * float(known.std(ddof=1))
    low, high = _FROM_SCALE[scale](values[-1] + np.array([-reach, reach])).clip(0, highest).tolist()
    methods: dict[Scale, IntervalMethod] = {"logit": "logit bootstrap", "log": "log bootstrap"}
    method = "cluster bootstrap" if samples.cluster is not None else methods.get(scale, "square-root bootstrap")
    return Interval(min(low, value), max(high, value), method)


_ON_SCALE: dict[str, Callable[[Floats], Floats]] = {
    "plain": lambda values: values,
    "log": lambda values: np.log(np.maximum(values, 0)),
    "square-root": lambda values: np.sqrt(np.maximum(values, 0)),
    "logit": lambda values: np.log(values / (1 - values)),
}
_FROM_SCALE: dict[str, Callable[[Floats], Floats]] = {
    "plain": lambda values: values,
    "log": np.exp,
    "square-root": lambda values: np.maximum(values, 0) ** 2,
    "logit": lambda values: 1 / (1 + np.exp(-values)),
}


def _quantile(key: str, samples: Samples, level: float) -> float | None:
    """The quantile of Student's t with one degree of freedom less than there are samples that decide the metric.

    They are those of the rarer outcome. NLL and Brier score are means, decided by the rows with large values: Kish's
    effective number of the values. None if too few decide.
    """
    tail = (1 + level) / 2
    if samples.cluster is not None:
        degrees = int(samples.cluster.max())
        if key in BY_ROWS or not degrees:
            return None
        from scipy.special import stdtrit  # late: importing it takes as long as evaluating a small file

        return float(stdtrit(degrees, tail))
    wrong = int(np.count_nonzero(~samples.correct))
    deciding: float = min(wrong, len(samples) - wrong)
    if key in samples.proper_scores:
        deciding = effective_number(samples.proper_scores[key])
        if min(wrong, deciding) < FEWEST:
            return None
    return student(NormalDist().inv_cdf(tail), deciding - 1)


def _worst_naurc(ranking: AnyRanking) -> float:
    """The NAURC if all errors were surer than the right predictions."""
    right, wrong, size = (np.array([n]) for n in (ranking.num_correct, ranking.num_wrong, ranking.num_samples))
    least = least_aurc(right, size)
    worst = wrong / size * (1 + harmonic_gap(wrong, size))
    return float(((worst - least) / (wrong / size - least))[0])
