"""All metrics of one set of predictions, as far as the given arrays define them."""

from dataclasses import asdict, dataclass, field

from confrank.errors import aligned, counted
from confrank.metrics import calibration, ranking, ranking_metrics
from confrank.metrics.samples import Samples, certain_note, mean_of

KEYS = ("acc", "aurc", "e_aurc", "naurc", "augrc", "aupr_error", "fpr95", "auroc", "ece", "nll", "brier")


@dataclass(frozen=True)
class Evaluation:
    """The metrics named in `KEYS`, as raw fractions; an undefined one is None, with the reason in `undefined`.

    A bare confidence within [0, 1] is taken as the probability of being right: it has `nll_correct` and
    `brier_correct` too.
    `notes` are remarks for the reader, e.g. how many probabilities were clipped. Printed, it is a table.
    """

    metrics: dict[str, float | None]
    undefined: dict[str, str]
    num_samples: int
    num_classes: int | None
    notes: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    def __repr__(self) -> str:
        classes = f", {counted(self.num_classes, 'class')}" if self.num_classes else ""
        values = [
            (key, f"undefined: {self.undefined[key]}" if value is None else f"{value:.4g}")
            for key, value in self.metrics.items()
        ]
        return "\n".join([counted(self.num_samples, "prediction") + classes, aligned(values), *self.notes])


def evaluation_of(
    samples: Samples, ranked: ranking.AnyRanking | None = None, bins: calibration.ReliabilityBins | None = None
) -> Evaluation:
    """Every metric that the samples define; `ranked` and `bins` are reused if given."""
    metrics: dict[str, float | None] = dict.fromkeys(KEYS)
    weight = samples.weight
    if not len(samples):
        return Evaluation(metrics, dict.fromkeys(KEYS, "there are no predictions"), 0, samples.num_classes)
    undefined: dict[str, str] = {}
    metrics |= _ranking_metrics(ranked or ranking.ranked(samples.confidence, samples.correct, weight))
    if samples.probability is None:
        undefined["ece"] = "confidence is outside [0, 1]: it is a score, not a probability"
    else:
        bins = bins or calibration.reliability_bins(samples.probability, samples.correct, sample_weight=weight)
        metrics["ece"] = calibration.ece_of(bins)
    scores, notes = samples.proper_scores, samples.notes + samples.nll_notes
    for key, values in scores.items():
        metrics[key] = mean_of(values, weight)
    if samples.brier is None:
        undefined |= dict.fromkeys(("nll", "brier"), "needs the probabilities of all classes and the labels")
    elif samples.nll is None:
        undefined["nll"] = "the logits of a class and of the label are too far apart for a finite value"
    if "nll_correct" in scores:
        notes = notes + certain_note(scores["nll_correct"], samples.confidence.dtype)
    for key in ("naurc", "aupr_error", "fpr95", "auroc"):
        if metrics[key] is None:
            kind = "wrong" if samples.correct.all() else "right"
            undefined[key] = f"needs right and wrong predictions, but none is {kind}"
    return Evaluation(metrics, undefined, len(samples), samples.num_classes, notes)


def _ranking_metrics(ranked: ranking.AnyRanking) -> dict[str, float | None]:
    area = ranking_metrics.aurc_of(ranked)
    risk = ranked.num_wrong / ranked.num_samples
    assert area is not None
    return {
        "acc": ranked.num_correct / ranked.num_samples,
        "aurc": area,
        "e_aurc": area - ranking_metrics.best_aurc(risk),
        "naurc": ranking_metrics.naurc_of(ranked),
        "augrc": ranking_metrics.augrc_of(ranked),
        "aupr_error": ranking_metrics.aupr_error_of(ranked),
        "fpr95": ranking_metrics.fpr_at_tpr_of(ranked),
        "auroc": ranking_metrics.auroc_of(ranked),
    }
