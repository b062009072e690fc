"""What figures and pages show about detectors: their scores on one out-set, run by run."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.analysis import Histogram
from confrank.metrics.arrays import Floats
from confrank.metrics.ranking_metrics import auroc_of, fpr_at_tpr_of
from confrank.metrics.separation import rank_sets, roc_curve
from confrank.ood.results import Group, Scores
from confrank.report.names import shortened
from confrank.report.verdict import percent

GRID = np.linspace(0, 1, 401)
NUM_BARS = 40
# A detector's scores (inside, outside) in each run.
Runs = Sequence[tuple[Scores, Scores]]


def title_of(group: Group) -> str:
    """The heading of the results on one out-set."""
    return f"{group.dataset}, {group.model}, {group.method}: out-set {shortened(group.out_set, 40)}"


@dataclass(frozen=True)
class MeanCurve:
    """ROC curves of several runs: heights [runs, 401] at each FPR of `GRID`, mean AUROC and FPR at 95% TPR."""

    heights: Floats
    auroc: float
    fpr95: float


def mean_roc(runs: Runs) -> MeanCurve:
    curves = [roc_curve(*run, limit=4000) for run in runs]
    heights = np.array([np.interp(GRID, curve.fpr, curve.tpr) for curve in curves])
    ranked = [rank_sets(*run) for run in runs]
    areas, rates = ([value for item in ranked if (value := of(item)) is not None] for of in (auroc_of, fpr_at_tpr_of))
    return MeanCurve(heights, float(np.mean(areas)), float(np.mean(rates)))


def detection_verdict(curves: Mapping[str, MeanCurve], out_set: str, tuned: Collection[str]) -> list[str]:
    """Sentences about one out-set: which detector is best, how good it is, and which is best without tuning on it.

    `tuned` are the detectors whose settings were chosen on images of this out-set.
    """
    best = max(curves, key=lambda name: curves[name].auroc)
    if curves[best].auroc <= 0.5:
        return [f"No detector here separates {out_set} from in-distribution images better than chance."]
    alone = f"{best} on {out_set}"
    first = f"Of {len(curves)} detectors, {best} is best at detecting {out_set}" if len(curves) > 1 else alone
    sentences = [f"{first}: {_how_well(curves[best])}."]
    if best in tuned:
        sentences.append("Its settings were tuned on other images of the same out-set.")
        if unseen := {name: curve for name, curve in curves.items() if name not in tuned}:
            name = max(unseen, key=lambda name: unseen[name].auroc)
            sentences.append(f"Of those not tuned on it, {name} is best: {_how_well(unseen[name])}.")
    return sentences


def _how_well(curve: MeanCurve) -> str:
    passed = f"{percent(curve.fpr95)} of the out-of-distribution images are accepted too"
    return f"AUROC {percent(curve.auroc)}; when 95% of in-distribution images are accepted, {passed}"


def score_histogram(inside: NDArray[Any], outside: NDArray[Any]) -> Histogram:
    """Numbers of scores in equal-width bins, inside as `right` and outside as `wrong`.

    Distances have long tails, so the outermost bins also count the 0.05% of scores beyond each end.
    """
    low, high = np.quantile(np.concatenate([inside, outside]), [0.0005, 0.9995])
    edges = np.linspace(low, high if high > low else low + 1, NUM_BARS + 1)
    counts = [np.histogram(np.clip(scores, edges[0], edges[-1]), edges)[0] for scores in (inside, outside)]
    return Histogram(edges, *counts)
