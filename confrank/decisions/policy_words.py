"""What a policy does and guarantees, in sentences."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.decisions.costs import ACCEPT_ALL
from confrank.decisions.policy_parts import (
    WORDS,
    CalibratorPart,
    Input,
    Part,
    ScorePart,
    SetsPart,
    ThresholdPart,
    the_parts,
)
from confrank.errors import counted, joined

if TYPE_CHECKING:
    from confrank.decisions.policy import Policy

SEPARATE = "Each guarantee holds separately, with its own probability; together they hold with a lower one."


def sentences(item: Input, parts: Mapping[str, Part]) -> list[str]:
    """A sentence about the input, and one or two about each part."""
    lines = [_input(item)]
    for part in parts.values():
        lines += [_does(part), *filter(None, [part.promise])]
    several = sum(bool(part.promise) for part in parts.values()) > 1
    return [*lines, SEPARATE] if several else lines


def replaced_sentences(parts: Mapping[str, Part], replaced: Mapping[str, int]) -> list[str]:
    """For each file of a guarantee, how many guarantees on it were replaced before."""
    files = {part.rows.digest: part.rows.file for part in parts.values() if part.promise and part.rows is not None}
    return [
        f"Replaces {counted(replaced[digest], 'earlier guarantee')} on {file or 'the same rows'}: a guarantee that"
        " was chosen for its result is weaker than it says."
        for digest, file in files.items()
        if replaced.get(digest)
    ]


def _input(item: Input) -> str:
    before = f", calibrated by {item.calibrated_by}" if item.calibrated_by else ""
    if item.kind == "confidence":
        return f"Takes the confidence of each prediction{before}."
    ranked = " and the confidence of each prediction" if item.ranked else ""
    return f"Takes the {item.kind} of {item.num_classes} classes{ranked}{before}."


def _does(part: Part) -> str:
    if isinstance(part, CalibratorPart):
        what = "logits" if part.slot == "table_calibrator" else "confidence"
        return f"Calibrates the {what} by the method {part.method}{_made(part, 'fitted to')}."
    if isinstance(part, ScorePart):
        return f"Ranks by the score {part.name}{_made(part, 'chosen on')}."
    if isinstance(part, ThresholdPart):
        return _accepts(part)
    assert isinstance(part, SetsPart)
    within = {"all": "", "class": " within each true class", "group": f" within each {part.column}"}[part.per]
    return f"Gives each answer a set of classes by {part.method.upper()}, at level {part.level:g}{within}."


def _accepts(part: ThresholdPart) -> str:
    if part.per == "all":
        what = f"answers with confidence >= {part.threshold!r}"
        if part.threshold is None or part.threshold == ACCEPT_ALL:
            what = "nothing" if part.threshold is None else "every answer"
        return f"Accepts {what}{_reason(part)}."
    return f"Accepts answers with at least the confidence of their threshold, one per {part.column or 'class'}."


def _reason(part: ThresholdPart) -> str:
    """Why a threshold without a guarantee was chosen."""
    settings = part.settings
    if settings.get("method") == "cost":
        error = "that of its table" if settings.get("cost_error") is None else f"{settings['cost_error']:g}"
        return f", at the least cost if an error costs {error} and a rejection {settings['cost_reject']:g}"
    coverage = settings.get("coverage")
    return "" if coverage is None else f", chosen to accept a share of {coverage:g}"


def _made(part: Part, how: str) -> str:
    rows = part.rows
    return "" if rows is None else f" ({how} {rows.used:,} of {counted(rows.n, 'row')} of {rows.file})"


def risk_promise(risk: float, delta: float, num_rows: int) -> str:
    """The guarantee of a threshold: of what, to whom, and under which assumption.

    >>> risk_promise(0.05, 0.001, 2000)[:92]
    'Among accepted answers, the error rate is at most 0.05, with probability 0.999 over the 2,00'
    """
    return (
        f"Among accepted answers, the error rate is at most {risk:g}, with probability {1 - delta:.12g} over the"
        f" {num_rows:,} rows that certify it, if new answers are drawn independently from the same distribution as"
        " these rows."
    )


def added_lines(before: "Policy", part: Part, changed: "Policy", path: Path) -> list[str]:
    """What adding a part to the policy in a file did, as lines."""
    dropped, others = before.replaced_by(part), [*changed.parts()]
    notes = [] if part.rows is None else [*part.rows.notes]
    noted = [f"note        {note}" for note in [*notes, *replaced_sentences({part.slot: part}, changed.replaced)]]
    if not before.parts() and others == [part.slot]:
        return [f"policy      created {path} with {WORDS[part.slot]}", *noted]
    done = f"replaced {the_parts([part.slot])}" if part.slot in dropped else f"added {WORDS[part.slot]}"
    lines = [f"policy      {path}: {done}"]
    if more := [slot for slot in dropped if slot != part.slot]:
        lines.append(f"            dropped {the_parts(more)}")
    return [*lines, f"            it now has {joined([WORDS[slot] for slot in others])}", *noted]
