"""Intervals: how much a metric would vary with other samples, by the bootstrap for all but accuracy and ECE."""

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np

from confrank.metrics import calibration
from confrank.metrics.arrays import TOLERANCE, Array, ArrayLike, Floats
from confrank.metrics.evaluation import KEYS
from confrank.metrics.inversion import ece_limits
from confrank.metrics.resampling import BINS
from confrank.metrics.samples import Samples

IntervalMethod = Literal["bootstrap", "logit bootstrap", "square-root bootstrap", "test inversion", "Wilson"]
# Percentiles of these are too narrow with few errors. Shares of a rare kind are skewed close to 0 and 1; the areas
# are weighted counts of errors, NLL and Brier score mostly too, and the square root of a count has nearly the same
# variance whatever the count.
ON_LOGIT_SCALE = ("aupr_error", "auroc")
ON_ROOT_SCALE = ("aurc", "e_aurc", "augrc", "nll", "brier")
HIGHEST = {"nll": np.inf, "brier": 2.0}  # 1 for the other metrics
AREAS = ("aurc", "e_aurc", "augrc")


@dataclass(frozen=True)
class Interval:
    low: float
    high: float
    method: IntervalMethod = "bootstrap"


@dataclass(frozen=True)
class PairedDifference:
    """Second minus first on the same samples; `p` is the two-sided bootstrap p-value of no difference."""

    value: float
    low: float
    high: float
    p: float


def intervals_of(
    resampled: dict[str, Floats],
    metrics: dict[str, float | None],
    level: float = 0.95,
    samples: Samples | None = None,
    seed: int = 0,
) -> dict[str, Interval | None]:
    """An interval of each metric: percentiles of the resampled values, corrected by the bootstrap's bias estimate.

    For AUROC and AUPR-Error, Student's t times the standard error on the logit scale; for AURC, E-AURC, AUGRC, NLL
    and Brier score, on the square-root scale; for ECE, `ece_interval`; for accuracy, Wilson's. These need the
    `samples`: without them, ECE has no interval, that of accuracy is by percentiles, and t is the normal quantile.
    None if the metric is undefined, if it is undefined in more than a twentieth of the resamples, or (except for
    accuracy) if all resamples agree. Limits stay within the metric's range.
    """
    intervals: dict[str, Interval | None] = {}
    for key in KEYS:
        values, value = resampled.get(key), metrics[key]
        if value is None or values is None or key == "ece":
            intervals[key] = None
        elif key == "acc" and samples is not None:
            intervals[key] = _share_interval(value, level, len(samples))
        elif key in ON_LOGIT_SCALE or key in ON_ROOT_SCALE:
            intervals[key] = _scaled_interval(key, values, value, level, samples)
        else:
            intervals[key] = _interval(values, value, level)
    if samples is not None and samples.probability is not None:
        given = samples.probability, samples.correct
        intervals["ece"] = ece_interval(*given, level=level, seed=seed)
    return intervals


def ece_interval(
    confidence: ArrayLike, correct: ArrayLike, bins: int = BINS, *, level: float = 0.95, seed: int = 0
) -> Interval | None:
    """An interval of the population's ECE with these bins, by test inversion; None for no predictions.

    The bootstrap cannot give one, since the estimate is biased upward. A calibrated model's interval starts at 0.

    >>> interval = ece_interval([0.9] * 50, [True] * 45 + [False] * 5)
    >>> interval.low, interval.high < 0.15
    (0.0, True)
    """
    limits = ece_limits(calibration.reliability_bins(confidence, correct, bins), level, seed)
    return None if limits is None else Interval(*limits, "test inversion")


def paired_differences(
    first: dict[str, Floats],
    second: dict[str, Floats],
    first_metrics: dict[str, float | None],
    second_metrics: dict[str, float | None],
    level: float = 0.95,
    samples: tuple[Samples, Samples] | None = None,
) -> dict[str, PairedDifference | None]:
    """Second minus first, from the same resamples of both, by percentiles.

    With few errors, plain percentiles are too narrow. For the areas, the limit farther from 0 allows for the skewness
    of the resamples. For NLL, Brier score and AUPR-Error, the percentiles are farther out, as the quantiles of
    Student's t are. This needs the `samples` of both, in the same order of rows.
    """
    differences: dict[str, PairedDifference | None] = {}
    degrees = {} if samples is None else _paired_degrees(*samples)
    for key in KEYS:
        a, b = first_metrics[key], second_metrics[key]
        differences[key] = None
        if a is not None and b is not None and key in first and key in second:
            value, resampled = float(_rounded(b - a)), _rounded(second[key] - first[key])
            differences[key] = _difference(value, resampled, level, degrees.get(key, np.inf), skewed=key in AREAS)
    return differences


def _rounded(difference: float | Floats) -> Floats:
    """0 instead of a rounding error: sums depend on the order of their rows, which each model sorts."""
    return np.where(np.abs(difference) < TOLERANCE, 0.0, difference)


def _difference(
    value: float, resampled: Floats, level: float, degrees: float = np.inf, *, skewed: bool = False
) -> PairedDifference | None:
    """Percentiles at the normal tail beyond the quantile of Student's t (Hesterberg 2015), and p from that tail."""
    normal = NormalDist().inv_cdf((1 + level) / 2)
    limits = _percentiles(resampled, value, NormalDist().cdf(-_student(normal, degrees)))
    if limits is None:
        return None
    known = resampled[np.isfinite(resampled)]
    # Centred as the limits are, so that both agree; a resample without any difference counts on both sides.
    centred, equal = known - (known.mean() - value), known == 0
    sides = (centred <= 0) | equal, (centred >= 0) | equal
    # The add-one form never claims p = 0; a set against itself gives 1.
    tail = min((1 + int(np.count_nonzero(side))) / (1 + len(known)) for side in sides)
    p = 1.0 if tail >= 0.5 else 2 * NormalDist().cdf(-_normal(-NormalDist().inv_cdf(tail), degrees))
    low, high = _widened(limits, value, known, normal) if skewed else limits
    if p > 1 - level:  # percentiles count those resamples on one side only
        low, high = min(low, 0.0), max(high, 0.0)
    return PairedDifference(value, low, high, p)


def _widened(limits: tuple[float, float], value: float, known: Floats, normal: float) -> tuple[float, float]:
    """The limit farther from 0, moved by what percentiles lack if the resamples are skewed that way.

    To the second order, BCa (Efron 1987) moves both limits by z0 (2 + z^2), where the bias z0 and the acceleration
    are a sixth of the skewness. With few errors, the limit nearer to 0 would move too far, and p would be too small.
    """
    low, high = limits
    centred = known - known.mean()
    variance = float((centred**2).mean())
    shift = (2 + normal**2) / 6 * float((centred**3).mean()) / variance if variance else 0.0
    return low + (min(shift, 0.0) if value <= 0 else 0.0), high + (max(shift, 0.0) if value >= 0 else 0.0)


def _paired_degrees(first: Samples, second: Samples) -> dict[str, float]:
    """Degrees of freedom of differences: one less than there are rows that decide them.

    For means, these are Kish's effective number of the rows' differences; for AUPR-Error, the rows that either model
    gets wrong, or those that either gets right if they are fewer.
    """
    wrong, right = ~first.correct | ~second.correct, first.correct | second.correct
    numbers = {"aupr_error": float(min(np.count_nonzero(wrong), np.count_nonzero(right)))}
    for key, one, two in (("nll", first.nll, second.nll), ("brier", first.brier, second.brier)):
        if one is not None and two is not None:
            numbers[key] = effective_number(np.abs(two - one - (two - one).mean()))
    return {key: number - 1 for key, number in numbers.items()}


def _interval(resampled: Floats, value: float, level: float) -> Interval | None:
    limits = _percentiles(resampled, value, (1 - level) / 2)
    # If all resamples agree, e.g. without any error, the bootstrap cannot estimate the uncertainty.
    if limits is None or limits[0] == limits[1]:
        return None
    return Interval(float(np.clip(limits[0], 0.0, 1.0)), float(np.clip(limits[1], 0.0, 1.0)))


def _share_interval(value: float, level: float, size: int) -> Interval:
    """Wilson's (1927) interval of a share of `size` rows."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre, reach = value + z**2 / (2 * size), z * (value * (1 - value) / size + (z / (2 * size)) ** 2) ** 0.5
    low, high = ((centre + side) / (1 + z**2 / size) for side in (-reach, reach))
    return Interval(max(0.0, min(low, value)), min(1.0, max(high, value)), "Wilson")


def _scaled_interval(
    key: str, resampled: Floats, value: float, level: float, samples: Samples | None
) -> Interval | None:
    """Student's t times the standard error, on a scale on which the resampled values are less skewed."""
    known = _known(resampled)
    if known is None or known.min() == known.max():
        return None
    values, quantile = np.append(known, value), _quantile(key, level, samples)
    if key in ON_ROOT_SCALE:
        # E-AURC is never below 0, apart from rounding.
        low, high = _limits(np.sqrt(np.maximum(values, 0)), quantile).clip(0, HIGHEST.get(key, 1.0) ** 0.5) ** 2
        return Interval(float(low), float(high), "square-root bootstrap")
    nearest = 1e-6 if samples is None else 1 / (4 * len(samples))
    values = np.clip(values, nearest, 1 - nearest)
    low, high = 1 / (1 + np.exp(-_limits(np.log(values / (1 - values)), quantile)))
    return Interval(min(float(low), value), max(float(high), value), "logit bootstrap")


def _limits(values: Floats, quantile: float) -> Floats:
    """The limits around the last of the values; the others are its resamples."""
    reach = quantile * float(values[:-1].std(ddof=1))
    return np.array([values[-1] - reach, values[-1] + reach])


def _quantile(key: str, level: float, samples: Samples | None) -> float:
    """The quantile of Student's t with one degree of freedom less than there are samples that decide the metric.

    They are those of the rarer outcome. NLL and Brier score are means, decided by the rows with large values: Kish's
    effective number of the values.
    """
    normal = NormalDist().inv_cdf((1 + level) / 2)
    if samples is None:
        return normal
    values = {"nll": samples.nll, "brier": samples.brier}.get(key)
    if values is not None:
        return _student(normal, effective_number(values) - 1)
    right = int(np.count_nonzero(samples.correct))
    return _student(normal, min(right, len(samples) - right) - 1)


def effective_number(values: Array) -> float:
    """Kish's effective number of samples: how many equal values carry as much information.

    >>> effective_number(np.array([1.0, 1.0])), effective_number(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    squares = float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else 0.0


def _student(normal: float, degrees: float) -> float:
    """A quantile of Student's t from the normal one (Cornish and Fisher), within 2% from 4 degrees of freedom on."""
    z, per = normal, 1 / max(1, degrees)
    return z + per * (z**3 + z) / 4 + per**2 * (5 * z**5 + 16 * z**3 + 3 * z) / 96


def _normal(student: float, degrees: float) -> float:
    """The inverse of `_student` for a quantile of 0 or more, by bisection."""
    low, high = 0.0, student
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _student(middle, degrees) < student else (low, middle)
    return high


def _known(resampled: Floats) -> Floats | None:
    """The defined values; None if fewer than 95% are."""
    known = resampled[np.isfinite(resampled)]
    return None if len(known) < max(2, 0.95 * len(resampled)) else known


def _percentiles(resampled: Floats, value: float, tail: float) -> tuple[float, float] | None:
    known = _known(resampled)
    if known is None:
        return None
    # The Weibull rule, k / (B + 1), is the right one for few resamples.
    low, high = np.quantile(known, [tail, 1 - tail], method="weibull") - (known.mean() - value)
    return float(low), float(high)
