"""What a command is, and what several of them share."""

import os
import re
import shutil
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
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


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
        if choices := re.findall(r"'([^']*)'", kind.partition("Literal")[2]):
            return _no_choice(_flag(key, flags), value, choices)
        return f"expected {_word(kind) or kind} for {_flag(key, flags)}, but got {value!r}"
    if found := re.match(r"Parser key \"(\w+)\": Does not validate against any of the Union subtypes", text):
        given = re.search(r"Given value: (.*?)(?: \(|$)", text)
        got = f", but got {given[1]!r}" if given else ""
        return f"expected {_word(text) or 'another kind of value'} for {_flag(found[1], flags)}{got}"
    if found := re.fullmatch(r"unrecognized arguments: (\S+).*", text):
        hint = did_you_mean(found[1].partition("=")[0], flags) or "; see --help"
        return f"expected flags that the command knows, but got {found[1]!r}{hint}"
    if found := re.fullmatch(r"the following arguments are required: (.*)", text):
        return f"expected {_flag(found[1], flags)}, but it is missing; see --help"
    if found := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", text):
        return _no_choice(found[1], found[2], [choice.strip("' ") for choice in found[3].split(",")])
    if found := re.fullmatch(r"Parser key \"config\": (?:Path is not a|File does not exist).*'(.*)'", text):
        return f"expected a file of settings for --config, but {found[1]} is none"
    if found := re.fullmatch(r"Unexpected config:(.*)", text):
        start = found[1].strip()
        got = repr(f"{start[:40]}..." if len(start) > 40 else start) if start else "nothing"
        return f"expected settings in YAML, a line like epochs: 60 for each, but got {got}"
    if found := re.fullmatch(r"Option '(\w+)' is not accepted", text):
        known = [flag.removeprefix("--").replace("-", "_") for flag in flags]
        return f"expected settings that the command knows, but got {found[1]!r}{did_you_mean(found[1], known)}"
    if text.startswith("Problems parsing config: "):
        return f"expected settings in YAML, but they cannot be read: {text.partition(': ')[2]}"
    if found := re.fullmatch(r"argument (\S+): expected one argument", text):
        return f"expected a value after {found[1]}, but got none"
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to end a message with, if one of the known words is near."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def in_words(error: Exception) -> str:
    """What went wrong, for a person: the system's words with what was expected, names with a hint if one is near.

    >>> in_words(NotADirectoryError(20, "Not a directory", "runs"))
    'expected to be able to read or write runs, but got: Not a directory; mend that, or give another path'
    >>> in_words(ValueError("expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'"))
    "expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'; did you mean vgg16?"
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
        place = path.parent if path.name.startswith(".") and path.suffix == ".part" else path
        why = f"{error.strerror}; mend that, or give another path"
        return f"expected to be able to read or write {place}, but got: {why}"
    message = str(error)
    found = re.fullmatch(r"expected [\w ]+ among (.*), but got '([^']*)'", message)
    return message + did_you_mean(found[2], re.split(r", (?:or )?| or ", found[1])) if found else message


def _no_choice(name: str, value: str, choices: Iterable[str]) -> str:
    return f"expected {name} to be one of {', '.join(choices)}, but got {value!r}{did_you_mean(value, choices)}"


def _flag(key: str, flags: Iterable[str]) -> str:
    flag = f"--{key.replace('_', '-')}"
    return flag if flag in flags else key


def _word(kind: str) -> str | None:
    return next((word for name, word in KINDS.items() if f"<class '{name}'>" in kind), None)


def make_console() -> "Console":
    """Where tables and notes go."""
    from rich.console import Console

    # A file or a pipe has no width of its own: wide enough for every table.
    return Console(highlight=False, width=None if sys.stdout.isatty() else 120)


def say(console: "Console", text: str, style: str | None = None) -> None:
    """Print a line of plain text; in a file or a pipe it stays one line, so that paths and commands stay whole."""
    console.print(text, style=style, markup=False, soft_wrap=not console.is_terminal)


def terminal_width() -> int | None:
    """How many columns the terminal has; None if the output goes elsewhere."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def device_of(name: Device) -> Any:
    """The torch device of a --device flag."""
    import torch

    from confrank.training.loop import default_device

    if name == "cuda" and not torch.cuda.is_available():
        raise ValueError("expected a CUDA device for --device cuda, but torch sees none; use --device cpu")
    return default_device() if name == "auto" else torch.device(name)


def add_data_flags(parser: "ArgumentParser") -> None:
    """--root and --device."""
    parser.add_argument("--root", type=str | None, default=None, help="folder with the data sets' files")
    parser.add_argument("--device", type=Device, default="auto", help="where to compute")


def root_of(arguments: "Namespace") -> Path | None:
    """The folder of a --root flag."""
    return None if arguments.root is None else Path(arguments.root)


def at_least(minimum: int, arguments: "Namespace", *names: str) -> None:
    """Raise if one of the flags has a smaller value; those not given are None."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < minimum:
            raise ValueError(f"expected --{name.replace('_', '-')} to be at least {minimum}, but got {value}")


def file_path(name: str) -> Path:
    """The path of a file to write, if that can be written."""
    from confrank.files import is_stream

    path = Path(name)
    if path.is_dir():
        raise ValueError(f"expected a file to write, but {name} is a folder; name a file in it")
    if is_stream(path):
        return path
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise ValueError(f"expected a folder to write {name} in, but {there} is a file; give another path")
    if not os.access(there, os.W_OK):
        raise ValueError(f"expected a folder to write {name} in, but {there} is read-only; give another path")
    return path


def json_path(name: str) -> Path:
    """The path of a JSON file to write, if its suffix says so; a pipe or device needs none."""
    from confrank.files import is_stream

    path = file_path(name)
    if path.suffix != ".json" and not is_stream(path):
        raise ValueError(f"expected --json to name a file ending in .json, but got {name}")
    return path


def picture_path(name: str) -> Path:
    """The path of a picture to write, if its suffix is one that can be drawn."""
    path = file_path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


def page_path(name: str) -> Path:
    """The path of a page to write, if its suffix says so."""
    if Path(name).suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return file_path(name)


def keep_inputs(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if a file to write is, perhaps through a link, one of those to read or one of a run folder's own."""
    read = [file for place in inputs for file in _files_of(Path(place)) if file.exists()]
    for output in outputs:
        if output is not None and output.exists() and any(output.samefile(file) for file in read):
            raise ValueError(f"expected a file to write, but {output} is read by this command; give another path")


def _files_of(place: Path) -> list[Path]:
    """A file itself; of a run folder what its training left, but for the predictions, which can be written again."""
    from confrank.config import RunFolder

    run = RunFolder(place)
    if not run.config.exists():
        return [place]
    kept = [run.config, run.log, run.environment, run.history, run.metrics, run.metrics_of("holdout")]
    return [*kept, *run.checkpoint.rglob("*"), *run.snapshot(0).parent.glob("*")]
