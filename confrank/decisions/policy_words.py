"""What a policy does and promises, in sentences."""

from collections.abc import Mapping

from confrank.decisions.policy_parts import (
    CalibratorPart,
    Input,
    Part,
    ScorePart,
    SelectionPart,
    SetsPart,
    ThresholdPart,
)


def sentences(item: Input, parts: Mapping[str, Part]) -> list[str]:
    """A sentence about the input, and one or two about each part."""
    lines = [_input(item)]
    for part in parts.values():
        lines += [_does(part), *filter(None, [part.promise])]
    several = sum(bool(part.promise) for part in parts.values()) > 1
    return [*lines, "Each promise holds by itself; that all hold together is less likely."] if several else lines


def _input(item: Input) -> str:
    before = f", calibrated by {item.calibrated_by}" if item.calibrated_by else ""
    if item.kind == "confidence":
        return f"Takes the confidence of each prediction{before}."
    ranked = " and the confidence of each prediction" if item.ranked else ""
    return f"Takes the {item.kind} of {item.num_classes} classes{ranked}{before}."


def _does(part: Part) -> str:
    if isinstance(part, CalibratorPart):
        what = "logits" if part.slot == "table_calibrator" else "confidence"
        return f"Calibrates the {what} by the method {part.method}{_fitted(part)}."
    if isinstance(part, ScorePart):
        return f"Ranks by the score {part.name}{_fitted(part)}."
    if isinstance(part, ThresholdPart):
        return _accepts(part)
    if isinstance(part, SelectionPart):
        return f"Accepts the answers of a file that a false-discovery rate of {part.fdr:g} permits."
    assert isinstance(part, SetsPart)
    return f"Gives each answer a set of classes by {part.method.upper()}, at level {part.level:g}{_for_each(part)}."


def _accepts(part: ThresholdPart) -> str:
    if part.per == "all":
        what = "nothing" if part.threshold is None else f"answers with confidence >= {part.threshold!r}"
        return f"Accepts {what}{_reason(part)}."
    return f"Accepts answers with at least the confidence of their threshold{_for_each(part)}."


def _reason(part: ThresholdPart) -> str:
    """Why a threshold without a guarantee was chosen."""
    settings = part.settings
    if settings.get("method") == "cost":
        error = "that of its table" if settings.get("cost_error") is None else f"{settings['cost_error']:g}"
        return f", at the least cost if an error costs {error} and a rejection {settings['cost_reject']:g}"
    coverage = settings.get("coverage")
    return "" if coverage is None else f", chosen to accept a share of {coverage:g}"


def _for_each(part: ThresholdPart | SetsPart) -> str:
    if part.per == "all":
        return ""
    return ", one per class" if part.per == "class" else f", one per group of {part.column}"


def _fitted(part: Part) -> str:
    rows = part.rows
    return "" if rows is None else f" (fitted to or chosen on {rows.used:,} of {rows.n:,} rows of {rows.file})"


def risk_promise(risk: float, delta: float, num_rows: int) -> str:
    """What a guaranteed threshold promises, to whom, and under which assumption.

    >>> risk_promise(0.05, 0.001, 2000)[:92]
    'Among accepted answers, the error rate is at most 0.05, with probability 0.999 over the 2,00'
    """
    return (
        f"Among accepted answers, the error rate is at most {risk:g}, with probability {1 - delta:.12g} over the"
        f" {num_rows:,} rows that certify it, if new answers are drawn independently from the same distribution as"
        " these rows."
    )
