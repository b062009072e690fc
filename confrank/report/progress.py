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


class DownloadBar:
    """The bar of one file, as pooch wants it: setting the `total` starts an attempt."""

    def __init__(self, progress: Progress, name: str, lines: _Lines) -> None:
        self._progress, self._name, self._lines = progress, name, lines
        self._task = progress.add_task(name, total=None)

    @property
    def total(self) -> int:
        return self._total

    @total.setter
    def total(self, size: int) -> None:
        self._total = size  # 0 if it is unknown
        self.reset()

    def update(self, size: int) -> None:
        self._received += size  # pooch rounds the last piece up
        received = min(self._received, self._total or self._received)
        self._progress.update(self._task, completed=received, total=self._total or None)
        of = f" of {self._total:,}" if self._total else ""
        self._lines.say(f"{self._name}: {received:,}{of} bytes")

    def reset(self) -> None:
        self._received = 0

    def close(self) -> None:
        """The bar stays until the command ends."""


@contextmanager
def download_bar(console: Console) -> Iterator[Callable[[str], DownloadBar]]:
    """A function from a file's name to its bar; the bars are removed afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    lines = _Lines(console)
    with _progress(console, *columns, TimeRemainingColumn()) as progress:
        yield lambda name: DownloadBar(progress, name, lines)


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
