"""The numbers in sentences: what a reader wants to know before looking at a chart."""

import math
from collections.abc import Collection, Sequence

import numpy as np

from confrank.analysis import CLAIMS, COVERAGE, Analysis, pair_sentences
from confrank.errors import counted
from confrank.metrics import Evaluation, RiskCoverageCurve
from confrank.report.names import shortened
from confrank.report.scales import SHOWN, shown

ROUNDING = 1e-10  # a share of weight that is all, or nothing, may differ from it by less than this, in per cent
AURC = SHOWN["aurc"].heading


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent, with two significant digits of what is nearly nothing or nearly all.

    >>> percent(0.80251), percent(0.000042), percent(0.99999), percent(0.0), percent(1e-9)
    ('80.3%', '0.0042%', '99.9990%', '0.0%', 'under 0.0001%')
    """
    nearest = 100 * min(share, 1 - share)
    if nearest > ROUNDING:
        if nearest < 1e-4:
            return "under 0.0001%" if share < 0.5 else "over 99.9999%"
        if nearest < 10.0**-digits:
            digits = 1 - math.floor(math.log10(nearest) + 1e-9)
    return f"{share:.{digits}%}"


def verdict(model: Analysis) -> list[str]:
    """Sentences about one set of predictions."""
    metrics = model.evaluation.metrics
    assert metrics["acc"] is not None and metrics["aurc"] is not None
    return [
        f"Accuracy is {percent(metrics['acc'])} over {counted(model.curve.num_samples, 'prediction')}.",
        _accepting(model.curve),
        f"Accept all, and {_error_rate(float(model.curve.risk[-1]))} are wrong.",
        f"{AURC} is {shown('aurc', metrics['aurc'])}{_limits(model, 'aurc')}.",
        *confidence_sentences(model),
    ]


def _accepting(curve: RiskCoverageCurve) -> str:
    """What the threshold does that accepts about the chosen share, and rejects something."""
    rejecting = np.flatnonzero((curve.coverage > 0) & (curve.coverage < 1))
    if not len(rejecting):
        return "All have the same confidence, so no threshold can separate right answers from wrong ones."
    position = min(curve.at_coverage(COVERAGE), int(rejecting[-1]))
    share, risk = float(curve.coverage[position]), float(curve.risk[position])
    return f"Accept the most confident {percent(share, 0)}, and {_error_rate(risk)} of them are wrong."


def _error_rate(risk: float) -> str:
    return percent(risk) if risk else "none"


def confidence_sentences(model: Analysis) -> list[str]:
    """Whether confidence is higher or lower than accuracy, and whether it ranks the wrong way round."""
    accuracy, sentences = model.evaluation.metrics["acc"], []
    if model.mean_probability is not None and accuracy is not None:
        sentences.append(_calibration(model.mean_probability, accuracy))
    warning = inversion_warning(model)
    return [*sentences, warning] if warning else sentences


def inversion_warning(model: Analysis) -> str | None:
    """A sentence if confidence ranks the wrong way round."""
    if not _is_inverted(model):
        return None
    auroc = shown("auroc", model.evaluation.metrics["auroc"])
    return (
        f"Confident answers are wrong more often than others ({SHOWN['auroc'].heading} is"
        f" {auroc}{_limits(model, 'auroc')}). Is the confidence an uncertainty, which is lower for surer answers?"
    )


def _is_inverted(model: Analysis) -> bool:
    """Whether right predictions have lower confidence than wrong ones, beyond chance."""
    auroc, limits = model.evaluation.metrics["auroc"], model.intervals.get("auroc")
    if auroc is None or limits is not None:
        return limits is not None and limits.high < 0.5
    # The standard error of an AUROC of 50% (Mann and Whitney): a perfectly inverted ranking has no interval.
    number, wrong = model.curve.num_samples, model.curve.num_wrong
    return 0.5 - auroc > 1.96 * math.sqrt((number + 1) / (12 * wrong * (number - wrong)))


def ece_note(models: Sequence[Analysis]) -> str:
    """Why the interval of the ECE is made in another way than the others; empty if there is none."""
    intervals = [limits for model in models if (limits := model.intervals.get("ece"))]
    inverted = any(limits.method == "test inversion" for limits in intervals)
    return "ECE: interval by test inversion, since the estimate is biased upward" if inverted else ""


def _limits(model: Analysis, key: str) -> str:
    limits = model.intervals.get(key)
    return "" if limits is None else f", 95% interval {shown(key, limits.low)} to {shown(key, limits.high)}"


def _calibration(claimed: float, accuracy: float) -> str:
    """The gap is that of the two numbers as shown.

    >>> _calibration(0.8644, 0.8146)
    'Mean confidence is 86.4%: overconfident by 4.9 percentage points.'
    """
    gap = claimed - accuracy
    if abs(gap) < 0.01:
        return f"Mean confidence is {percent(claimed)}, which matches the accuracy."
    word = "overconfident" if gap > 0 else "underconfident"
    points = abs(float(f"{100 * claimed:.1f}") - float(f"{100 * accuracy:.1f}"))
    return f"Mean confidence is {percent(claimed)}: {word} by {points:.1f} percentage points."


def comparisons(models: Sequence[Analysis]) -> list[str]:
    """What the paired differences of each two models say, and why models are not compared with the first."""
    names = [shortened(model.name) for model in models]
    sentences = pair_sentences(models, names, {key: (SHOWN[key].heading, SHOWN[key].factor, 2) for key in CLAIMS})
    for name, model in zip(names[1:], models[1:], strict=True):
        if not model.differences:
            reason = model.pairing if model.num_resamples else "no resamples were drawn"
            reason = "rows have weights" if model.weighted_by else reason
            sentences.append(f"{name} and {names[0]} are not compared pair by pair ({reason}).")
    return sentences


def footnotes(evaluations: Collection[tuple[str, Evaluation]]) -> list[str]:
    """Why a metric is undefined, and the notes of each named evaluation."""
    lines = []
    for name, evaluation in evaluations:
        prefix = f"{name}: " if len(evaluations) > 1 else ""
        reasons: dict[str, list[str]] = {}
        for key, why in evaluation.undefined.items():
            reasons.setdefault(why, []).append(SHOWN[key].heading)
        lines += [f"{prefix}{', '.join(headings)} undefined: {why}" for why, headings in reasons.items()]
        lines += [f"{prefix}{note}" for note in evaluation.notes]
    return lines
