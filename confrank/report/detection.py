"""What figures and page show of detectors: their scores on one out-set, run by run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.metrics.detection import rank_sets, roc_curve
from confrank.metrics.ranking import auroc_of
from confrank.report.contents import Histogram, shortened

GRID = np.linspace(0, 1, 401)
NUM_BARS = 40
# A detector's scores (inside, outside) in each run.
Runs = Sequence[tuple[NDArray[Any], NDArray[Any]]]


@dataclass(frozen=True)
class Scored:
    """Every detector's scores on one out-set, of the runs of one data set, network and method."""

    dataset: str
    model: str
    method: str
    out_set: str
    detectors: Mapping[str, Runs]

    @property
    def title(self) -> str:
        return f"{self.dataset}, {self.model}, {self.method}: out-set {shortened(self.out_set, 40)}"


@dataclass(frozen=True)
class MeanCurve:
    """ROC curves of several runs: their mean height at each FPR of `GRID`, its spread, and the mean AUROC."""

    tpr: NDArray[np.float64]
    spread: NDArray[np.float64] | None
    auroc: float


def mean_roc(runs: Runs) -> MeanCurve:
    curves = [roc_curve(*run, limit=4000) for run in runs]
    heights = np.array([np.interp(GRID, curve.fpr, curve.tpr) for curve in curves])
    areas = [value for run in runs if (value := auroc_of(rank_sets(*run))) is not None]
    spread = heights.std(axis=0, ddof=1) if len(runs) > 1 else None
    return MeanCurve(heights.mean(axis=0), spread, float(np.mean(areas)))


def score_histogram(inside: NDArray[Any], outside: NDArray[Any]) -> Histogram:
    """Counts over equal-width bins, inside as `right` and outside as `wrong`.

    Distances have long tails: a twentieth of a percent of the scores at each end falls into the outermost bins.
    """
    low, high = np.quantile(np.concatenate([inside, outside]), [0.0005, 0.9995])
    edges = np.linspace(low, high if high > low else low + 1, NUM_BARS + 1)
    counts = [np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] for scores in (inside, outside)]
    return Histogram(edges, *counts)
