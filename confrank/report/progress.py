"""Progress bars: epochs with loss, accuracy and time left; downloads with speed and time left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)


class EpochBar:
    """One bar over all epochs of one or more runs."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, loss="", acc="")

    def advance(self, name: str, record: dict[str, float]) -> None:
        """An epoch of the named run is done."""
        self._progress.update(
            self._task,
            advance=1,
            description=name,
            loss=f"loss {record['loss']:.3f}",
            acc=f"acc {record['acc']:.1%}",
        )


@contextmanager
def epoch_bar(console: Console, total: int) -> Iterator[EpochBar]:
    """A bar on the console while the block runs; gone afterwards."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("epochs  {task.fields[loss]}  {task.fields[acc]}"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        yield EpochBar(progress, total)


@contextmanager
def download_bar(console: Console) -> Iterator[Callable[[str, int, int | None], None]]:
    """A function to call with a file's name, bytes so far and bytes in all; a bar for each file, gone afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:

        def advance(name: str, received: int, total: int | None) -> None:
            if name not in tasks:
                tasks[name] = progress.add_task(name, total=None)
            progress.update(tasks[name], completed=received, total=total)

        yield advance


@contextmanager
def sample_bar(console: Console, what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to call with how many samples are done and how many there are; the bar is gone afterwards."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("left"), console=console, transient=True) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)
