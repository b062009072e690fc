"""What a command is, and what several of them share."""

import os
import shutil
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TextIO

from confrank.cli.wording import explained

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

Device = Literal["auto", "cpu", "cuda"]
USAGE_ERROR = 2
LISTED = 50


@dataclass(frozen=True)
class Command:
    """A command: a line for the overview, an example, its flags, and what it does."""

    summary: str
    example: str
    add_arguments: Callable[["ArgumentParser"], None]
    run: Callable[["Namespace"], None]


def make_parser(command: Command, prog: str | None = None) -> "ArgumentParser":
    """The parser of a command: its mistakes are one line, its example is one line."""
    from jsonargparse import ArgumentParser, DefaultHelpFormatter

    class Formatter(RawDescriptionHelpFormatter, DefaultHelpFormatter):
        pass

    class Parser(ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            flags = [flag for action in self._actions for flag in action.option_strings]
            fail(explained(message, flags))

    parser = Parser(
        prog=prog,
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"example: {command.example}\n",
        formatter_class=Formatter,
        allow_abbrev=False,
    )
    command.add_arguments(parser)
    return parser


def fail(message: str) -> NoReturn:
    """Say what is wrong in one line, and exit as for a user's mistake."""
    print(f"confrank: error: {message}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def make_console(*, lasting: bool = False) -> "Console":
    """Where tables and notes go; a `lasting` command goes on where nobody reads them any more."""
    from rich.console import Console

    class Output(Console):
        def on_broken_pipe(self) -> None:
            drop_output(sys.stdout)
            if not lasting:
                raise BrokenPipeError

    # A file or a pipe has no width of its own: wide enough for every table.
    return Output(highlight=False, width=None if sys.stdout.isatty() else 120)


def drop_output(stream: TextIO) -> None:
    """Let what is written from now on, and what waits to be, go nowhere: its reader is gone."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def say(console: "Console", text: str, style: str | None = None) -> None:
    """Print a line of plain text; in a file or a pipe it stays one line, so that paths and commands stay whole."""
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)


def list_unreadable(console: "Console", reasons: Sequence[str]) -> None:
    """Why pictures cannot be read, a line each; of many the first."""
    for why in reasons[:LISTED]:
        say(console, f"  {why}")
    if len(reasons) > LISTED:
        say(console, f"  and {len(reasons) - LISTED:,} more")


def say_once(console: "Console") -> Callable[[str], None]:
    """A listener to the notes of many runs: what one has said, the others need not."""
    said: set[str] = set()

    def note(text: str) -> None:
        if text not in said:
            say(console, text)
        said.add(text)

    return note


def terminal_width() -> int | None:
    """How many columns the terminal has; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def device_of(name: Device) -> Any:
    """The torch device of a --device flag."""
    import torch

    from confrank.environment import default_device

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device for --device cuda, but torch sees none; use --device cpu")
    return default_device() if name == "auto" else torch.device(name)


def add_root(parser: "ArgumentParser", use: str = "") -> None:
    """--root, which `root_of` reads; `use` says what the data are for, where that is not plain."""
    what = f"folder of data sets{use} (default: $CONFRANK_DATA or a user cache)"
    parser.add_argument("--root", type=str | None, default=None, help=what)


def add_device(parser: "ArgumentParser") -> None:
    """--device, which `device_of` reads."""
    parser.add_argument("--device", type=Device, default="auto", help="where to compute")


def root_of(arguments: "Namespace") -> Path | None:
    """The folder of a --root flag."""
    return None if arguments.root is None else Path(arguments.root)


def listed(given: str | Sequence[str] | None) -> list[str]:
    """The parts of a flag's value, which stand between commas (or, if it takes several values, spaces).

    >>> listed("random, entropy,"), listed(["energy,knn", "odin"]), listed(None)
    (['random', 'entropy'], ['energy', 'knn', 'odin'], [])
    """
    if given is None:
        return []
    text = given if isinstance(given, str) else ",".join(given)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"expected values with commas between them, but got {text!r}")
    return parts


def at_least(minimum: int, arguments: "Namespace", *names: str) -> None:
    """Raise if one of the flags has a smaller value; those not given are None."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < minimum:
            raise ValueError(f"expected --{name.replace('_', '-')} to be at least {minimum}, but got {value}")
