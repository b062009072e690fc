"""The bootstrap: every metric on resamples of the rows, or of whole clusters of rows.

A resample is the number of times each row is drawn. In sorted order, its cumulative sums are the steps of the
resample's ranking (a row drawn twice ties with itself), so one array operation handles a block of resamples exactly.
Several sets of predictions for the same samples share their resamples, so their differences are paired. For
sets that are too large to resample, the influence of each row on the AURC gives its differences from one sort.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from confrank.metrics import areas, calibration
from confrank.metrics.inputs import EQUAL_SHARES, TOLERANCE, Array, ArrayLike, Floats, Ints, scores_and_flags
from confrank.metrics.ranking_metrics import least_aurc
from confrank.metrics.samples import Samples

NO_INTERVALS = "with sample weights there are no intervals and no paired differences, only the values"
BLOCK = 1 << 20
BINS = 15
AREAS = ("aurc", "e_aurc", "augrc")
# Total draws: 1,000 resamples up to 50,000 rows, fewer above; by default none if even 200 would take minutes.
BUDGET, MOST, FEWEST, LARGEST = 50_000_000, 1000, 200, 1_000_000


def default_resamples(num_samples: int) -> int:
    """
    >>> [default_resamples(n) for n in (10_000, 100_000, 1_000_000, 10_000_000)]
    [1000, 500, 200, 0]
    """
    return 0 if num_samples > LARGEST else max(FEWEST, min(MOST, BUDGET // max(1, num_samples)))


def bootstrap(
    sets: Sequence[Samples], num_resamples: int, seed: int = 0, on_progress: Callable[[int, int], None] | None = None
) -> list[dict[str, Floats]]:
    """Each metric of each set on the same `num_resamples` resamples of the rows; NaN if undefined. None has weights.

    If the first set has clusters, they are resampled, and each brings all of its rows.
    `on_progress` is called with the number of rows resampled so far, over all sets, and their total.
    """
    if num_resamples < 1:
        raise ValueError(f"expected at least 1 resample, but got {num_resamples}")
    sizes = {len(samples) for samples in sets}
    if len(sizes) != 1 or 0 in sizes:
        raise ValueError(f"expected sets of predictions for the same samples, but got lengths {sorted(sizes)}")
    if any(samples.weight is not None for samples in sets):
        raise ValueError(f"expected predictions without weights to resample: {NO_INTERVALS}; leave out the weights")
    size = sizes.pop()
    done, total = 0, num_resamples * size * len(sets)
    report = on_progress or (lambda done, total: None)
    prepared = [_sorted(samples) for samples in sets]
    values: list[dict[str, list[Floats]]] = [{} for _ in sets]
    report(done, total)
    for counts in _resamples(size, num_resamples, np.random.default_rng(seed), sets[0].cluster):
        for item, collected in zip(prepared, values, strict=True):
            for key, resampled in _metrics(item, counts).items():
                collected.setdefault(key, []).append(resampled)
            done += counts.size
            report(done, total)
    return [{key: np.concatenate(parts) for key, parts in collected.items()} for collected in values]


@dataclass(frozen=True)
class _Sorted:
    """Samples in ranked order: rows from the surest down, the end of each tie group, and each row's contribution."""

    order: Ints
    ends: Ints
    wrong: Ints
    bins: list[tuple[Ints, Floats]]
    means: dict[str, Floats]


def _sorted(samples: Samples) -> _Sorted:
    order = np.argsort(-samples.confidence, kind="stable")
    confidence = samples.confidence[order]
    ends = np.flatnonzero(np.append(confidence[1:] != confidence[:-1], True))
    bins: list[tuple[Ints, Floats]] = []
    if samples.probability is not None:
        inside = calibration.bin_index(samples.probability.astype(np.float64), calibration.bin_edges(BINS))
        surplus: Floats = samples.correct.astype(np.float64) - samples.probability
        bins = [(rows, surplus[rows]) for rows in (np.flatnonzero(inside == k) for k in range(BINS)) if len(rows)]
    wrong = (~samples.correct[order]).astype(np.int64)
    return _Sorted(order, ends, wrong, bins, samples.proper_scores)


def _resamples(
    num_samples: int, num_resamples: int, rng: np.random.Generator, cluster: Ints | None = None
) -> Iterator[Ints]:
    """Blocks [b, n] with the number of times each row is drawn, or the cluster [n] of each row."""
    size = max(1, BLOCK // num_samples)
    units = num_samples if cluster is None else int(cluster.max()) + 1
    for start in range(0, num_resamples, size):
        rows = min(size, num_resamples - start)
        draws = rng.integers(0, units, (rows, units))
        draws += np.arange(rows)[:, None] * units
        times = np.bincount(draws.ravel(), minlength=rows * units).reshape(rows, units)
        yield times if cluster is None else times[:, cluster]


def _metrics(item: _Sorted, counts: Ints) -> dict[str, Floats]:
    metrics = _ranking_metrics(item, counts[:, item.order])
    num_samples, times = counts.sum(axis=1), counts.astype(np.float64)
    if item.bins:
        surplus = np.stack([times[:, rows] @ values for rows, values in item.bins], axis=1)
        metrics["ece"] = calibration.mean_gap(surplus, num_samples)
    for key, values in item.means.items():
        metrics[key] = times @ values / num_samples
    return metrics


def _ranking_metrics(item: _Sorted, counts: Ints) -> dict[str, Floats]:
    accepted, wrong = np.cumsum(counts, axis=1), np.cumsum(counts * item.wrong, axis=1)
    if len(item.ends) < counts.shape[1]:
        accepted, wrong = accepted[:, item.ends], wrong[:, item.ends]
    steps = areas.shifted(accepted), areas.shifted(wrong), accepted, wrong
    num_samples, num_wrong = accepted[:, -1], wrong[:, -1]
    num_right = num_samples - num_wrong
    risk = num_wrong / num_samples
    area = areas.aurc_terms(*steps).sum(axis=1) / num_samples
    both = np.where((num_wrong > 0) & (num_right > 0), 1.0, np.nan)
    some_wrong, some_right = areas.at_least_some(num_wrong), areas.at_least_some(num_right)
    totals = num_samples[:, None], num_wrong[:, None]
    least = least_aurc(num_right, num_samples)
    above = np.where((num_wrong > 0) & (num_right > 0), risk - least, np.nan)
    reached = (accepted - wrong) / some_right[:, None] >= 0.95 - EQUAL_SHARES
    at_tpr = np.take_along_axis(wrong, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
    return {
        "acc": 1 - risk,
        "aurc": area,
        "e_aurc": area - areas.best_aurc(risk),
        "naurc": (area - least) / above,
        "augrc": areas.augrc_terms(*steps).sum(axis=1) / num_samples**2,
        "aupr_error": both * areas.aupr_error_terms(*totals, *steps).sum(axis=1) / some_wrong,
        "fpr95": both * at_tpr / some_wrong,
        "auroc": both * areas.auroc_terms(num_wrong[:, None], *steps).sum(axis=1) / (some_wrong * some_right),
    }


@dataclass(frozen=True)
class PairedDifference:
    """Second minus first on the same samples; `p` is the two-sided bootstrap p-value of no difference."""

    value: float
    low: float
    high: float
    p: float


def paired_differences(
    first: Mapping[str, Floats],
    second: Mapping[str, Floats],
    first_metrics: Mapping[str, float | None],
    second_metrics: Mapping[str, float | None],
    level: float = 0.95,
    samples: tuple[Samples, Samples] | None = None,
) -> dict[str, PairedDifference | None]:
    """Second minus first, from the same resamples of both, by percentiles.

    With few errors, plain percentiles are too narrow. For the areas, the limit farther from 0 allows for the skewness
    of the resamples. For NLL, Brier score and AUPR-Error, the percentiles are farther out, as the quantiles of
    Student's t are. This needs the `samples` of both, in the same order of rows. With clusters, the quantiles of all
    metrics are those of the number of clusters; a single cluster leaves no interval.
    """
    differences: dict[str, PairedDifference | None] = {}
    degrees = {} if samples is None else _paired_degrees(*samples)
    if samples is not None and (cluster := samples[0].cluster) is not None:
        if not cluster.max():
            return dict.fromkeys(first_metrics)
        degrees = dict.fromkeys(first_metrics, float(cluster.max()))
    for key, a in first_metrics.items():
        b = second_metrics.get(key)
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
    limits = _percentiles(resampled, value, NormalDist().cdf(-student(normal, degrees)))
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
    values = second.proper_scores
    for key, one in first.proper_scores.items():
        if key in values:
            gaps = values[key] - one
            numbers[key] = effective_number(np.abs(gaps - gaps.mean()))
    return {key: number - 1 for key, number in numbers.items()}


def effective_number(values: Array) -> float:
    """Kish's effective number of samples: how many equal values carry as much information.

    >>> effective_number(np.array([1.0, 1.0])), effective_number(np.array([1.0, 0.0]))
    (2.0, 1.0)
    """
    squares = float(np.square(values).sum())
    return float(values.sum()) ** 2 / squares if squares else 0.0


def student(normal: float, degrees: float) -> float:
    """A quantile of Student's t from the normal one (Cornish and Fisher), within 2% from 4 degrees of freedom on."""
    z, per = normal, 1 / max(1, degrees)
    return z + per * (z**3 + z) / 4 + per**2 * (5 * z**5 + 16 * z**3 + 3 * z) / 96


def _normal(quantile: float, degrees: float) -> float:
    """The inverse of `student` for a quantile of 0 or more, by bisection."""
    low, high = 0.0, quantile
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if student(middle, degrees) < quantile else (low, middle)
    return high


def known_values(resampled: Floats) -> Floats | None:
    """The defined values; None if fewer than 95% are."""
    known = resampled[np.isfinite(resampled)]
    return None if len(known) < max(2, 0.95 * len(resampled)) else known


def _percentiles(resampled: Floats, value: float, tail: float) -> tuple[float, float] | None:
    known = known_values(resampled)
    if known is None:
        return None
    # The Weibull rule, k / (B + 1), is the right one for few resamples.
    low, high = np.quantile(known, [tail, 1 - tail], method="weibull") - (known.mean() - value)
    return float(low), float(high)


def aurc_influence(confidence: ArrayLike, correct: ArrayLike) -> tuple[float, Floats]:
    """The AURC, and the influence [n] of each prediction on it, with mean 0. Ties: the mean over all their orders.

    The prediction at rank i, with error e_i, has r_i - AURC + sum over k >= i of (e_i - r_k) / k, where r_k is the
    error rate among the k surest.

    >>> area, influence = aurc_influence([0.7, 0.6, 0.8], [True, False, True])
    >>> round(area, 4), influence.round(4).tolist()
    (0.1111, [-0.2222, 0.4444, -0.2222])
    """
    scores, flags = scores_and_flags(confidence, correct, "predictions to rank")
    order = np.argsort(-scores)
    wrong = (~flags[order]).astype(np.float64)
    starts, sizes = _tie_groups(scores[order])
    rank = np.arange(1, len(scores) + 1, dtype=np.float64)
    risk = np.cumsum(_group_means(wrong, starts, sizes)) / rank
    area = float(risk.mean())
    below = np.cumsum(1 / rank[::-1])[::-1]
    risk_below = np.cumsum((risk / rank)[::-1])[::-1]
    sorted_influence = _group_means(risk - area - risk_below, starts, sizes)
    sorted_influence += wrong * _group_means(below, starts, sizes)
    influence = np.empty_like(sorted_influence)
    influence[order] = sorted_influence
    return area, influence


def _tie_groups(ordered: NDArray[np.floating]) -> tuple[Ints, Ints]:
    """The first position and the size of each group of equal values."""
    starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1]))
    return starts, np.diff(starts, append=len(ordered))


def _group_means(values: Floats, starts: Ints, sizes: Ints) -> Floats:
    """Each value replaced by the mean of its group."""
    if len(starts) == len(values):
        return values
    return np.repeat(np.add.reduceat(values, starts) / sizes, sizes)


def difference_of(value: float, influence: Floats) -> PairedDifference:
    """A difference with its 95% interval and two-sided p-value, from the influence [n] of each row on it."""
    error = float(influence.std(ddof=1)) / len(influence) ** 0.5 if len(influence) > 1 else float("inf")
    value, error = (0.0 if abs(number) < TOLERANCE else number for number in (value, error))
    reach = NormalDist().inv_cdf(0.975) * error
    p = 2 * NormalDist().cdf(-abs(value) / error) if error else float(value == 0)
    return PairedDifference(value, value - reach, value + reach, p)
