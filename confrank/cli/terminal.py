"""What commands print: tables and lines that no name of a file can spoil, and bars for what takes a while."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from confrank.errors import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.segment import Segment

USAGE_ERROR = 2
LISTED = 50


def fail(message: str) -> NoReturn:
    """Report a mistake in one line and exit with code 2."""
    print(f"confrank: error: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


class Printable:
    """A stream that shows control characters as signs, so that no name of a file can change the terminal's state.

    What may contain escape codes of our own, as `rich` writes them, is written to `plain`.
    """

    def __init__(self, plain: Any) -> None:
        self.plain = plain

    def write(self, text: str) -> int:
        self.plain.write(printable(text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)


def plain(stream: Any) -> Any:
    """The stream behind a `Printable` one."""
    return getattr(stream, "plain", stream)


def make_console(*, lasting: bool = False, width: int = 120) -> "Console":
    """Where tables and notes are printed; a `lasting` command keeps running when nobody reads its output any more.

    `width` is that of a file or a pipe: 120 columns fit every table.
    """
    from rich.console import Console

    class Output(Console):
        def render(self, *given: Any, **options: Any) -> "Iterator[Segment]":
            for segment in super().render(*given, **options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

        def on_broken_pipe(self) -> None:
            drop_output(sys.stdout)
            if not lasting:
                raise BrokenPipeError

    return Output(highlight=False, width=None if sys.stdout.isatty() else width, file=plain(sys.stdout))


@contextmanager
def working(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show what takes a while; call the result with the work done and the total, where they are known."""
    from rich.console import Console

    from confrank.report.progress import work_bar

    with work_bar(Console(file=plain(sys.stderr), force_terminal=sys.stderr.isatty()), what) as advance:
        yield advance


def drop_output(stream: TextIO) -> None:
    """Discard buffered and further output of a stream whose reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(console: "Console", *lines: str, style: str | None = None) -> None:
    """Print lines of plain text; in a file or a pipe they are not wrapped, so that paths can be copied."""
    for line in lines:
        console.print(line, style=style, markup=False, soft_wrap=not console.is_terminal)


def list_unreadable(console: "Console", reasons: Sequence[str]) -> None:
    """Print why images cannot be read, one line each, the first 50 at most."""
    say(console, *(f"  {why}" for why in reasons[:LISTED]))
    if len(reasons) > LISTED:
        say(console, f"  and {len(reasons) - LISTED:,} more")


def say_once(console: "Console") -> Callable[[str], None]:
    """A callback that prints the notes of several runs, each note once."""
    said: set[str] = set()

    def note(text: str) -> None:
        if text not in said:
            say(console, text)
        said.add(text)

    return note


def terminal_width() -> int | None:
    """The number of columns of the terminal; None if the output goes to a file or a pipe."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
