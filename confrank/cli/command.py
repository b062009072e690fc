"""What a command is, and what several of them share."""

import re
import sys
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from rich.console import Console

Device = Literal["auto", "cpu", "cuda"]
USAGE_ERROR = 2
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false", "tuple": "a list like [0.5,0.8]"}


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
        def error(self, message: str, ex: Exception | None = None) -> Any:
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


def fail(message: str) -> None:
    """Say what is wrong in one line, and exit as for a user's mistake."""
    print(f"confrank: error: {message}", file=sys.stderr)
    sys.exit(USAGE_ERROR)


def explained(message: str, flags: Iterable[str]) -> str:
    """The parser's words in ours.

    >>> explained("unrecognized arguments: --modle small", ["--model", "--method"])
    "expected flags that the command knows, but got '--modle'; did you mean --model?"
    """
    text, flags = " ".join(message.split()), list(flags)
    if found := re.fullmatch(r"Parser key \"(\w+)\": Expected a (.*?)\. Got value: (.*)", text):
        key, kind, value = found.groups()
        flag = f"--{key.replace('_', '-')}"
        name = flag if flag in flags else key
        if choices := re.findall(r"'([^']*)'", kind.partition("Literal")[2]):
            close = get_close_matches(value, choices, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            return f"expected {name} to be one of {', '.join(choices)}, but got {value!r}{hint}"
        word = next((word for key, word in KINDS.items() if f"'{key}'" in kind), kind)
        return f"expected {word} for {name}, but got {value!r}"
    if found := re.match(r"Parser key \"(\w+)\": Does not validate against any of the Union subtypes", text):
        flag = f"--{found[1].replace('_', '-')}"
        word = next((word for key, word in KINDS.items() if f"<class '{key}'>" in text), "another kind of value")
        value = re.search(r"Given value: (.*?)(?: \(|$)", text)
        return f"expected {word} for {flag if flag in flags else found[1]}" + (
            f", but got {value[1]!r}" if value else ""
        )
    if found := re.fullmatch(r"unrecognized arguments: (\S+).*", text):
        close = get_close_matches(found[1].partition("=")[0], flags, n=1)
        hint = f"did you mean {close[0]}?" if close else "see --help"
        return f"expected flags that the command knows, but got {found[1]!r}; {hint}"
    if found := re.fullmatch(r"the following arguments are required: (.*)", text):
        flag = f"--{found[1].replace('_', '-')}"
        return f"expected {flag if flag in flags else found[1]}, but it is missing; see --help"
    if found := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", text):
        choices = [choice.strip("' ") for choice in found[3].split(",")]
        close = get_close_matches(found[2], choices, n=1)
        hint = f"; did you mean {close[0]}?" if close else ""
        return f"expected {found[1]} to be one of {', '.join(choices)}, but got {found[2]!r}{hint}"
    if text.startswith("Problems parsing config: "):
        return f"expected settings in YAML, but they cannot be read: {text.partition(': ')[2]}"
    if found := re.fullmatch(r"argument (\S+): expected one argument", text):
        return f"expected a value after {found[1]}, but got none"
    return text


def make_console() -> "Console":
    """Where tables and notes go."""
    from rich.console import Console

    # A file or a pipe has no width of its own: wide enough for every table.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def device_of(name: Device) -> Any:
    """The torch device of a --device flag."""
    import torch

    from confrank.training.loop import default_device

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device for --device cuda, but torch sees none; use --device cpu")
    return default_device() if name == "auto" else torch.device(name)


def add_data_flags(parser: "ArgumentParser") -> None:
    """--root and --device."""
    parser.add_argument("--root", type=str | None, default=None, help="folder with the data sets' published files")
    parser.add_argument("--device", type=Device, default="auto", help="where to compute")


def root_of(arguments: "Namespace") -> Path | None:
    """The folder of a --root flag."""
    return None if arguments.root is None else Path(arguments.root)


def picture_path(name: str) -> Path:
    """The path of a picture to write, if its suffix is one that can be drawn."""
    path = Path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


def page_path(name: str) -> Path:
    """The path of a page to write, if its suffix says so."""
    if Path(name).suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return Path(name)
