"""Test whether the guarantee of a policy still holds for new answers with labels."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from confrank.cli.command import Arguments, Command, Parser, add_option, between_0_and_1
from confrank.cli.source import add_file, kept, predictions_path, reading_of, role_columns
from confrank.errors import about, counted
from confrank.runs.outputs import json_path, keep_inputs, page_path, write_json

if TYPE_CHECKING:
    from confrank.decisions.chronology import Chronology
    from confrank.decisions.policy import Policy
    from confrank.decisions.promises import Followed
    from confrank.predictions import Predictions

BROKEN = 3
DAY = re.compile(r"\d{4}-\d\d-\d\d")


def _monitor_arguments(parser: Parser) -> None:
    parser.add_argument("policy", type=str, metavar="POLICY", help="policy file (.json) that other commands wrote")
    add_file(parser, "new predictions with their labels", "LABELLED")
    test = parser.add_argument_group("test")
    time = "sort rows by this column of numbers or dates, as in 2026-11-30 or 30.11.2026 (default: as in the file)"
    add_option(test, "--time", str, "COLUMN", time)
    add_option(test, "--alpha", float, "SHARE", "largest probability of a false alarm", 0.05)
    test.add_argument("--unlabelled", action="store_true", help="test only drift of the confidence, without labels")
    output = parser.add_argument_group("output")
    add_option(output, "--json", str, "FILE", "write the numbers to this file (.json)")
    add_option(output, "--report", str, "FILE", "write a page with charts over time (.html)")


def _monitor(arguments: Arguments) -> None:
    from confrank.decisions.policy import Policy
    from confrank.files import write_atomically
    from confrank.report.monitoring import monitor_lines, monitor_record

    table, report = json_path(arguments.json), page_path(arguments.report)
    inputs = [arguments.policy, arguments.file, predictions_path(arguments.file), arguments.truth]
    keep_inputs(inputs, table, report)
    between_0_and_1(arguments, "alpha")
    policy = Policy.load(arguments.policy)
    predictions, times = _read(arguments, policy)
    followed = _followed(arguments, policy, predictions, times)
    promises = [part.promise for part in policy.parts().values() if part.promise]
    texts = None if times is None else times.texts
    write_json(table, {"policy": arguments.policy, "file": arguments.file, **monitor_record(followed, texts)})
    if report:
        from confrank.report.monitor_page import monitor_page

        names = [Path(arguments.policy).name, Path(arguments.file).name]
        write_atomically(report, monitor_page(followed, promises, names, texts, _coverage(policy)))
    print("\n".join([f"read {predictions.describe()}", *policy.doubts(predictions), *_tie_notes(times)]))
    print("\n".join(monitor_lines(followed, promises, texts)))
    if report:
        print(f"report: {report}")
    if followed.monitored.holds is False:
        sys.exit(BROKEN)


def _read(arguments: Arguments, policy: "Policy") -> "tuple[Predictions, Chronology | None]":
    """The predictions with the columns that are needed, and the order of time if there is a column for it."""
    from confrank.decisions.chronology import chronology
    from confrank.predictions import read

    reading = reading_of(arguments)
    column = arguments.time or next(iter(role_columns(reading, "time")), None)
    labelled, keep = not arguments.unlabelled, kept(reading, *policy.columns, column)
    path = predictions_path(arguments.file)
    like = policy.input.reading
    predictions = read(path, **reading, labelled=labelled, classes=policy.classes, keep=keep, like=like)
    return predictions, None if column is None else chronology(predictions.extra[column], column)


def _followed(
    arguments: Arguments, policy: "Policy", predictions: "Predictions", times: "Chronology | None"
) -> "Followed":
    import numpy as np

    from confrank.decisions.promises import follow, follow_unlabelled

    order = np.arange(len(predictions)) if times is None else times.order
    test = follow_unlabelled if arguments.unlabelled else follow
    with about(arguments.file):
        return test(policy, predictions, order, alpha=arguments.alpha)


def _coverage(policy: "Policy") -> float | None:
    """The share accepted at calibration, if the threshold recorded it."""
    part = policy.threshold
    if part is None or part.rows is None:
        return None
    counts = [part.settings, *part.settings.get("groups", {}).values()]
    accepted = [one["accepted"] for one in counts if one.get("accepted") is not None]
    return sum(accepted) / part.rows.used if accepted else None


def _tie_notes(times: "Chronology | None") -> list[str]:
    if times is None or not times.num_tied or all(map(DAY.fullmatch, times.texts)):
        return []
    return [f"{counted(times.num_tied, 'row')} share their time with others; these stay in the order of the file"]


MONITOR = Command(
    "test whether the guarantee of a policy still holds for new answers (exit code 3 if not)",
    "confrank monitor policy.json labelled.csv --time date --report monitor.html",
    _monitor_arguments,
    _monitor,
    guide="how-to/monitor.md",
)
