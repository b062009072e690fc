"""What the monitor of a policy says: lines for a terminal, and JSON values."""

from collections.abc import Sequence
from typing import Any

from confrank.decisions.betting import e_text
from confrank.decisions.drift import DriftTest
from confrank.decisions.monitor import MISSES, Watch
from confrank.decisions.promises import Followed
from confrank.errors import counted
from confrank.report.verdict import percent

Times = Sequence[str] | None
RESTART = (
    "This file starts a new test: answers in other files do not count. To continue the test, append new answers to"
    " this file; looking often does not raise the share of false alarms."
)


def monitor_lines(followed: Followed, promises: Sequence[str], times: Times = None) -> list[str]:
    """Everything for a terminal; `promises` are the sentences of the policy, `times` the time of each row."""
    rows = [("guarantee", promise) for promise in promises]
    rows.append(("data", answers_sentence(followed, times)))
    rows += [("test", claim_sentence(watch)) for watch in followed.monitored.watches]
    rows += [("drift", sentence) for sentence in drift_sentences(followed, times)]
    rows += [("remark", sentence) for sentence in followed.remarks]
    rows += [("answer", sentence) for sentence in verdict_sentences(followed, times)]
    rows += [("note", sentence) for sentence in (*level_sentences(followed), RESTART)]
    names = [name for name, _ in rows]
    shown = ["" if number and names[number - 1] == name else name for number, name in enumerate(names)]
    return [f"{name:<11} {text}" for name, (_, text) in zip(shown, rows, strict=True)]


def answers_sentence(followed: Followed, times: Times = None) -> str:
    """How many answers there are, in which order, and what the policy did to them."""
    number = len(followed.order)
    order = "in the order of the file" if times is None else "in the order of time"
    text = f"{counted(number, 'answer')}, {order}"
    if followed.accepted is None or not number:
        return text
    accepted, wrong = int(followed.accepted.sum()), followed.num_wrong_accepted
    text += f"; {accepted:,} accepted ({percent(accepted / number)})"
    if wrong is None or not accepted:
        return text
    return f"{text}, {wrong:,} of them wrong ({percent(wrong / accepted)})"


def verdict_sentences(followed: Followed, times: Times = None) -> list[str]:
    """Whether the guarantee holds, and since when it does not."""
    watches = followed.monitored.watches
    if not watches:
        return ["No guarantee was tested."]
    if followed.seen and followed.monitored.holds is not False:
        return ["No guarantee was tested: parts of the policy were made on rows of this file."]
    if followed.monitored.holds is None:
        return ["The guarantee cannot be tested: it covers none of these answers."]
    if not followed.monitored.holds:
        return [f"The guarantee is broken: {_broken(one, followed, times)}" for one in watches if not one.test.holds]
    tested = len({*(row for watch in watches for row in watch.rows.tolist())})
    these = "this 1 answer" if tested == 1 else f"these {counted(tested, 'answer')}"
    return [f"There is no sign in {these} that the guarantee is broken."]


def _broken(watch: Watch, followed: Followed, times: Times) -> str:
    test, noticed, start = watch.test, watch.alarm_row, watch.since_row
    assert noticed is not None and start is not None and test.alarm is not None and test.since is not None
    until = int(test.log_e_value.argmax())
    bad, last = test.wrong[test.since : until + 1], row_name(int(watch.rows[until]), followed, times)
    return (
        f"the {subject(watch)} is above {test.risk:.4g}. First noticed at {row_name(noticed, followed, times)},"
        f" the {_ordinal(test.alarm + 1)} answer tested. The rise started at about"
        f" {row_name(start, followed, times)}: from there to {last} it is {percent(float(bad.mean()))}"
        f" ({int(bad.sum()):,} of {len(bad):,})."
    )


def subject(watch: Watch) -> str:
    """What the guarantee limits, with its group."""
    return watch.what if watch.group is None else f"{watch.what} in {watch.group}"


def claim_sentence(watch: Watch) -> str:
    test = watch.test
    rate = f"{test.num_wrong:,} of {test.num_answers:,}"
    if test.num_answers:
        rate += f" ({percent(test.num_wrong / test.num_answers)})"
    return (
        f"the {subject(watch)} is at most {test.risk:.4g}: {rate},"
        f" e-value {e_text(test.log_e_value, test.alarm)}, alarm at {test.line:g}"
    )


def drift_sentences(followed: Followed, times: Times = None) -> list[str]:
    """Whether confidences have drifted, if the policy recorded those that it was made on."""
    drift = followed.monitored.drift
    if drift is None:
        return ["Not tested: the policy does not record the confidences that it was made on."]
    rows = f"those of the {drift.num_reference:,} calibration rows"
    numbers = f"e-value {e_text(drift.log_e_value, drift.alarm)}, alarm at {drift.line:g}"
    if drift.alarm is None:
        return [f"No drift of the confidences noticed, compared with {rows} ({numbers})."]
    assert drift.below is not None
    return [
        f"Confidences are no longer distributed like {rows} ({numbers}), first noticed at"
        f" {row_name(drift.alarm, followed, times)}. {percent(drift.below)} of them are as low as the lower"
        f" {percent(drift.expected)} were.",
        "The guarantee assumed that nothing changes."
        + " Labels are needed to say whether it still holds." * (followed.wrong is None),
    ]


def level_sentences(followed: Followed) -> list[str]:
    """The levels of the tests, and how they are shared."""
    monitored, sentences = followed.monitored, []
    number = len(monitored.watches)
    if number:
        shared = f" They share it equally: {number} tests, {monitored.alpha / number:.4g} each." if number > 1 else ""
        word = "the tests of the guarantee raise" if number > 1 else "the test of the guarantee raises"
        sentences.append(
            f"If the guarantee holds, {word} a false alarm with probability at most {monitored.alpha:g}.{shared}"
        )
    if any(watch.what == MISSES for watch in monitored.watches):
        sentences.append(
            "Sets guarantee their level on average over calibration rows; the limit allows for chance in these rows."
        )
    if monitored.drift is not None:
        sentences.append(f"The test of drift has a separate level of {monitored.alpha:g}, and needs no labels.")
    return sentences


def row_name(position: int, followed: Followed, times: Times = None) -> str:
    """A row by its number in the file, and its time."""
    row = int(followed.order[position])
    return f"row {row:,}" + ("" if times is None else f" ({times[row]})")


def _ordinal(number: int) -> str:
    """
    >>> _ordinal(1), _ordinal(12), _ordinal(1003)
    ('1st', '12th', '1,003rd')
    """
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"


def monitor_record(followed: Followed, times: Times = None) -> dict[str, Any]:
    """The outcome as JSON values. Rows count from 0, as in the file."""
    monitored, accepted = followed.monitored, followed.accepted
    return {
        "holds": None if followed.seen and monitored.holds else monitored.holds,
        "answer": verdict_sentences(followed, times),
        "alpha": monitored.alpha,
        "num_answers": len(followed.order),
        "accepted": None if accepted is None else int(accepted.sum()),
        "wrong": followed.num_wrong_accepted,
        "tests": [_watch_record(watch, followed, times) for watch in monitored.watches],
        "drift": None if monitored.drift is None else _drift_record(monitored.drift, followed, times),
        "remarks": list(followed.remarks),
        "note": RESTART,
    }


def _watch_record(watch: Watch, followed: Followed, times: Times) -> dict[str, Any]:
    test = watch.test
    return {
        "what": watch.what,
        "group": watch.group,
        "limit": test.risk,
        "num_answers": test.num_answers,
        "num_bad": test.num_wrong,
        "alarm_at": test.line,
        "log_e_value": float(test.log_e_value[-1]) if test.num_answers else 0.0,
        "alarm": _row_record(watch.alarm_row, followed, times),
        "since": _row_record(watch.since_row, followed, times),
    }


def _drift_record(drift: DriftTest, followed: Followed, times: Times) -> dict[str, Any]:
    return {
        "num_calibration": drift.num_reference,
        "alarm_at": drift.line,
        "log_e_value": float(drift.log_e_value[-1]) if len(drift.log_e_value) else 0.0,
        "alarm": _row_record(drift.alarm, followed, times),
        "below": drift.below,
        "expected_below": drift.expected,
    }


def _row_record(position: int | None, followed: Followed, times: Times) -> dict[str, Any] | None:
    if position is None:
        return None
    row = int(followed.order[position])
    return {"row": row, "time": None if times is None else times[row]}
