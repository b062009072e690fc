"""The bootstrap: every metric on resamples of the rows.

A resample is the number of times each row is drawn. In sorted order, its cumulative sums are the steps of the
resample's ranking (a row drawn twice ties with itself), so one array operation handles a block of resamples exactly.
Several sets of predictions for the same samples share their resamples, so their differences are paired.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from confrank.metrics import areas, calibration
from confrank.metrics.arrays import EQUAL_SHARES, Floats, Ints
from confrank.metrics.evaluation import KEYS
from confrank.metrics.samples import Samples

NO_INTERVALS = "with sample weights there are no intervals and no paired differences, only the values"
BLOCK = 1 << 20
BINS = 15
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
    values: list[dict[str, list[Floats]]] = [{key: [] for key in KEYS} for _ in sets]
    report(done, total)
    for counts in _resamples(size, num_resamples, np.random.default_rng(seed)):
        for item, collected in zip(prepared, values, strict=True):
            for key, resampled in _metrics(item, counts).items():
                collected[key].append(resampled)
            done += counts.size
            report(done, total)
    return [{key: np.concatenate(parts) for key, parts in collected.items() if parts} for collected in values]


@dataclass(frozen=True)
class _Sorted:
    """Samples in ranked order: rows from the surest down, the end of each tie group, and each row's contribution."""

    order: Ints
    ends: Ints
    wrong: Ints
    bins: list[tuple[Ints, Floats]]
    nll: Floats | None
    brier: Floats | None


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
    return _Sorted(order, ends, wrong, bins, samples.nll, samples.brier)


def _resamples(num_samples: int, num_resamples: int, rng: np.random.Generator) -> Iterator[Ints]:
    """Blocks [b, n] with the number of times each row is drawn."""
    size = max(1, BLOCK // num_samples)
    for start in range(0, num_resamples, size):
        rows = min(size, num_resamples - start)
        draws = rng.integers(0, num_samples, (rows, num_samples))
        draws += np.arange(rows)[:, None] * num_samples
        yield np.bincount(draws.ravel(), minlength=rows * num_samples).reshape(rows, num_samples)


def _metrics(item: _Sorted, counts: Ints) -> dict[str, Floats]:
    num_samples = counts.shape[1]
    metrics = _ranking_metrics(item, counts[:, item.order])
    if item.bins or item.brier is not None:
        times = counts.astype(np.float64)
        if item.bins:
            surplus = np.stack([times[:, rows] @ values for rows, values in item.bins], axis=1)
            metrics["ece"] = calibration.mean_gap(surplus, num_samples)
        for key, values in (("nll", item.nll), ("brier", item.brier)):
            if values is not None:
                metrics[key] = times @ values / num_samples
    return metrics


def _ranking_metrics(item: _Sorted, counts: Ints) -> dict[str, Floats]:
    num_samples = counts.shape[1]
    accepted, wrong = np.cumsum(counts, axis=1), np.cumsum(counts * item.wrong, axis=1)
    if len(item.ends) < counts.shape[1]:
        accepted, wrong = accepted[:, item.ends], wrong[:, item.ends]
    steps = areas.shifted(accepted), areas.shifted(wrong), accepted, wrong
    num_wrong = wrong[:, -1]
    num_right = accepted[:, -1] - num_wrong
    risk = num_wrong / num_samples
    area = areas.aurc_terms(*steps).sum(axis=1) / num_samples
    both = np.where((num_wrong > 0) & (num_right > 0), 1.0, np.nan)
    some_wrong, some_right = areas.at_least_some(num_wrong), areas.at_least_some(num_right)
    totals = accepted[:, -1:], num_wrong[:, None]
    reached = (accepted - wrong) / some_right[:, None] >= 0.95 - EQUAL_SHARES
    at_tpr = np.take_along_axis(wrong, reached.argmax(axis=1)[:, None], axis=1)[:, 0]
    return {
        "acc": 1 - risk,
        "aurc": area,
        "e_aurc": area - areas.best_aurc(risk),
        "augrc": areas.augrc_terms(*steps).sum(axis=1) / num_samples**2,
        "aupr_error": both * areas.aupr_error_terms(*totals, *steps).sum(axis=1) / some_wrong,
        "fpr95": both * at_tpr / some_wrong,
        "auroc": both * areas.auroc_terms(num_wrong[:, None], *steps).sum(axis=1) / (some_wrong * some_right),
    }
