"""The numbers in words: what a reader wants to know before any chart."""

from collections.abc import Collection, Sequence

from confrank.analysis import Analysis
from confrank.metrics import Evaluation
from confrank.phrasing import counted
from confrank.report.scales import SHOWN, p_text, shown

COVERAGE = 0.8
CLEAR = 0.05
AURC = SHOWN["aurc"].heading


def percent(share: float, digits: int = 1) -> str:
    """A share in per cent, never rounded to 0 or 100 unless it is.

    >>> percent(0.80251), percent(0.00004), percent(0.99999), percent(0.0)
    ('80.3%', 'under 0.1%', 'over 99.9%', '0.0%')
    """
    text, least = f"{share:.{digits}%}", 10.0**-digits
    if 0 < share < 1 and float(text[:-1]) == 0:
        return f"under {least:g}%"
    if 0 < share < 1 and float(text[:-1]) == 100:
        return f"over {100 - least:g}%"
    return text


def verdict(examined: Analysis) -> list[str]:
    """Sentences about one set of predictions."""
    curve, metrics = examined.curve, examined.evaluation.metrics
    position = curve.at_coverage(COVERAGE)
    accepted, wrong = int(curve.accepted[position]), int(curve.wrong[position])
    assert metrics["acc"] is not None and metrics["aurc"] is not None
    risk = wrong / accepted
    sentences = [
        f"Right in {percent(metrics['acc'])} of {counted(curve.num_samples, 'prediction')}.",
        f"Accepting the surest {curve.coverage[position]:.0%} leaves {percent(risk)} errors.",
        f"Accepting all leaves {percent(1 - metrics['acc'])}.",
        f"{AURC} is {shown('aurc', metrics['aurc'])}{_limits(examined, 'aurc')}.",
    ]
    if examined.mean_probability is not None:
        sentences.append(_calibration(examined.mean_probability, metrics["acc"]))
    return sentences


def _limits(examined: Analysis, key: str) -> str:
    limits = examined.intervals.get(key)
    return "" if limits is None else f", 95% interval {shown(key, limits.low)} to {shown(key, limits.high)}"


def _calibration(claimed: float, right: float) -> str:
    gap = claimed - right
    if abs(gap) < 0.01:
        return f"On average it claims {percent(claimed)}, which is what it delivers."
    word = "overconfident" if gap > 0 else "underconfident"
    claim = f"On average it claims {percent(claimed)} and delivers {percent(right)}"
    return f"{claim}: {word} by {abs(100 * gap):.1f} points."


def comparisons(examined: Sequence[Analysis]) -> list[str]:
    """A sentence for each further set that has a paired difference in AURC to the first."""
    sentences = []
    for item in examined[1:]:
        gap = item.differences.get("aurc")
        if gap is None:
            reason = item.pairing if item.num_resamples else "no resamples were drawn"
            sentences.append(f"{item.name} and {examined[0].name} are not compared pair by pair ({reason}).")
            continue
        detail = f"95% interval {_signed(gap.low)} to {_signed(gap.high)}, {p_text(gap.p)}"
        if gap.p <= CLEAR and gap.value:
            word = "better" if gap.value < 0 else "worse"
            pair = f"{item.name} ranks its answers {word} than {examined[0].name}"
            sentences.append(f"{pair}: its {AURC} differs by {_signed(gap.value)} ({detail}).")
        else:
            pair = f"Between {item.name} and {examined[0].name}"
            sentences.append(f"{pair} no difference in {AURC} can be told: {_signed(gap.value)} ({detail}).")
    return sentences


def _signed(value: float) -> str:
    return f"{value * SHOWN['aurc'].factor:+.2f}"


def footnotes(evaluations: Collection[tuple[str, Evaluation]]) -> list[str]:
    """Why a metric is missing, and what else a reader should know of named evaluations."""
    lines = []
    for name, evaluation in evaluations:
        prefix = f"{name}: " if len(evaluations) > 1 else ""
        lines += [f"{prefix}{SHOWN[key].heading} undefined: {why}" for key, why in evaluation.undefined.items()]
        lines += [f"{prefix}{note}" for note in evaluation.notes]
    return lines
