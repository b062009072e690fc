"""A progress bar with epoch, loss, accuracy and time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


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
