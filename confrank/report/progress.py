"""Progress bars: epochs with loss, accuracy and time left; downloads with speed and time left; work in per cent.

If the output is not a terminal, a plain line on the error stream every half minute instead.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Column

from confrank.config import RunConfig

LINE_SECONDS = 30.0
# What takes longer than this is announced, by what was done in the first seconds.
LONG_SECONDS, JUDGED_AFTER = 20.0, 2.0


class _Lines:
    """At most one plain line every half minute, and none on a terminal."""

    def __init__(self, console: Console) -> None:
        self._silent = console.is_terminal
        self._last = time.monotonic()

    def say(self, text: str, *, at_once: bool = False) -> None:
        if not self._silent and (at_once or time.monotonic() - self._last >= LINE_SECONDS):
            self._last = time.monotonic()
            with suppress(OSError):  # the reader is gone; the work continues
                print(text, file=sys.stderr, flush=True)


class EpochBar:
    """One bar over all epochs of one or more runs."""

    def __init__(self, progress: Progress, total: int, lines: _Lines) -> None:
        self._progress, self._lines = progress, lines
        self._done: set[tuple[str, float]] = set()  # an epoch may be reported again when a run resumes
        self._total = total
        self._task = progress.add_task("", total=total, loss="", acc="")

    def advance(self, config: RunConfig, record: dict[str, Any]) -> None:
        """Count an epoch of a run."""
        name = config.run_name
        loss, acc = f"loss {record['loss']:.3f}", f"acc {record['acc']:.1%}"
        self._done.add((name, record["epoch"]))
        self._progress.update(self._task, completed=len(self._done), description=name, loss=loss, acc=acc)
        self._lines.say(f"{len(self._done)} of {self._total} epochs; {name}: {loss}, {acc}")


@contextmanager
def epoch_bar(console: Console, total: int) -> Iterator[EpochBar]:
    """A bar on the console while the block runs, removed afterwards."""
    columns = (
        BarColumn(),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn("epochs"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        TextColumn("{task.description}  {task.fields[loss]}  {task.fields[acc]}"),
    )
    with _progress(console, *columns) as progress:
        yield EpochBar(progress, total, _Lines(console))


@contextmanager
def download_bar(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A function to call with a file's name, bytes so far and total bytes; one bar per file, removed afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, TaskID] = {}
    lines = _Lines(console)
    with _progress(console, *columns, TimeRemainingColumn()) as progress:

        def advance(name: str, received: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.update(tasks[name], completed=received, total=total)
            lines.say(f"{name}: {received:,} of {total:,} bytes" if total else f"{name}: {received:,} bytes")

        yield advance


@contextmanager
def sample_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the number of samples done and the total; the bar is removed afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    lines = _Lines(console)
    with _progress(console, *columns, TextColumn("left")) as progress:
        task = progress.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)
            lines.say(f"{what}: {done:,} of {total:,}")

        yield advance


@contextmanager
def work_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the work done, first 0, and the total, in any unit; the bar is removed afterwards.

    If the output is not a terminal, the first line comes early if the work will take long, and says how long.
    """
    columns = (
        TextColumn("{task.description}", table_column=Column()),  # breaks on a narrow terminal; the others do not
        BarColumn(bar_width=16),
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
    )
    lines = _Lines(console)
    start: float | None = None
    with _progress(console, *columns) as progress:
        task = progress.add_task(what, total=None)

        def advance(done: int, total: int) -> None:
            nonlocal start
            progress.update(task, completed=done, total=total)
            if not done:
                start = time.monotonic()
            elif start is not None and (elapsed := time.monotonic() - start) >= JUDGED_AFTER:
                start = None
                if (seconds := elapsed * total / done) > LONG_SECONDS:
                    lines.say(f"{what}: about {seconds:.0f} s", at_once=True)
            lines.say(f"{what}: {done / total:.0%}")

        yield advance


@contextmanager
def _progress(console: Console, *columns: ProgressColumn) -> Iterator[Progress]:
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    if progress.disable:  # rich before 14.3 would print an empty line at its end
        yield progress
        return
    progress.start()
    try:
        yield progress
    finally:
        with suppress(OSError):  # a closed terminal
            progress.stop()
