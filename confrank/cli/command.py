"""What a command is, and what several commands share."""

import re
from argparse import HelpFormatter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from confrank.cli.help import argument_names, help_of, help_text, usage_of
from confrank.cli.terminal import (
    fail,
)  # fmt: skip
from confrank.cli.wording import explained
from confrank.errors import counted, did_you_mean, flag_of

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser, Namespace
    from jsonargparse._core import ArgumentGroup

    Options = ArgumentParser | ArgumentGroup

# What the functions of a command take; the names are quoted because jsonargparse is slow to import.
Parser: TypeAlias = "ArgumentParser"
Arguments: TypeAlias = "Namespace"
Format = Literal["terminal", "markdown", "latex", "csv"]
USAGE_ERROR = 2
LISTED = 50


@dataclass(frozen=True)
class Command:
    """A command: a summary, an example, its options, what it does, and the page of docs/ that explains it.

    `defaults` are defaults of its options that depend on those given, on the command line or in a file of settings.
    A command may consist of `actions`, see `command_of`.
    """

    summary: str
    example: str
    add_arguments: Callable[["ArgumentParser"], None]
    run: Callable[["Namespace"], None]
    guide: str = ""
    defaults: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None
    actions: Mapping[str, "Command"] = field(default_factory=dict)


def make_parser(command: Command, prog: str) -> "ArgumentParser":
    """The parser of a command; a mistake is reported in one line."""
    from jsonargparse import ArgumentParser

    class WordedParser(ArgumentParser):
        def error(self, message: str, ex: Exception | None = None) -> NoReturn:
            fail(explained(message, argument_names(self)))

        def parse_string(self, *given: Any, **options: Any) -> "Namespace":
            # The parameter's name depends on the version of jsonargparse.
            _check_settings(given[0] if given else options.get("content", options.get("cfg_str", "")))
            settings: Namespace = super().parse_string(*given, **options)
            return settings

        def parse_args(self, args: Sequence[str] | None = None, *others: Any, **options: Any) -> "Namespace":  # type: ignore[override]
            if command.defaults is not None:
                given = super().parse_args(args, *others, **{**options, "defaults": False})
                self.set_defaults(command.defaults(vars(given)))
            return super().parse_args(args, *others, **options)

        def format_help(self, formatter: HelpFormatter | None = None) -> str:
            return help_text(help_of(self, command.example, command.guide))

    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    parser = WordedParser(prog=prog, description=summary, allow_abbrev=False, print_config=None)
    command.add_arguments(parser)
    parser.usage = usage_of(parser)
    return parser


def _check_settings(text: str) -> None:
    """Raise if a file of settings cannot be parsed at a reasonable cost; the parser reports other mistakes."""
    from yaml import YAMLError

    from confrank.runs.folder import check_yaml

    with suppress(YAMLError):
        check_yaml(text)


def command_of(actions: Mapping[str, Command], summary: str, example: str, guide: str) -> Command:
    """A command that consists of actions, each with its options, example and help."""

    def add_arguments(parser: Parser) -> None:
        added = parser.add_subcommands(required=True, dest="action", title="actions")
        for name, command in actions.items():
            added.add_subcommand(name, make_parser(command, f"{parser.prog} {name}"), help=command.summary)

    def run(arguments: Arguments) -> None:
        actions[arguments.action].run(arguments[arguments.action])

    return Command(summary, example, add_arguments, run, guide, actions=actions)


def device_of(name: str, ray: str | None = None) -> Any:
    """The torch device of a --device flag; on a Ray cluster it is meant for the tasks, and None for auto."""
    import torch

    from confrank.environment import default_device, keep_freed_memory

    check_device(name)
    if ray is not None:
        return None if name == "auto" else torch.device(name)
    kind, _, number = name.partition(":")
    available = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= available:
        found, remedy = counted(available, "GPU") if available else "none", "use --device auto"
        if available > 1:
            remedy = f"use --device cuda:0 to cuda:{available - 1}"
        raise ValueError(f"expected a GPU for --device {name}, but torch finds {found}; {remedy}")
    device = default_device() if name == "auto" else torch.device(name)
    if device.type == "cpu":
        keep_freed_memory()  # a command has its process to itself
    return device


def check_device(name: str) -> None:
    """Raise unless this is the name of a device, available or not."""
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", name):
        names = ("auto", "cpu", "cuda", "cuda:0")
        raise ValueError(
            f"expected --device to be one of auto, cpu, cuda, cuda:N, but got {name!r}{did_you_mean(name, names)}"
        )


def add_option(options: "Options", flag: str, kind: Any, metavar: str, what: str, default: Any = None) -> None:
    """Add an option with a value; without a default it is None if it is not given."""
    options.add_argument(
        flag, type=kind | None if default is None else kind, default=default, metavar=metavar, help=what
    )


def add_root(options: "Options", use: str = "") -> None:
    """Add --root, which `root_of` reads; `use` says what the data are needed for, where that is not obvious."""
    add_option(
        options, "--root", str, "FOLDER", f"folder of data sets{use} (default: $CONFRANK_DATA or a user cache)"
    )


def add_device(options: "Options") -> None:
    """Add --device, which `device_of` reads."""
    add_option(options, "--device", str, "NAME", "device to compute on: auto, cpu, cuda or cuda:N", "auto")


def add_checkpoint_minutes(options: "Options", default: float) -> None:
    """Add --checkpoint-minutes."""
    what = "save a checkpoint at least every X minutes"
    add_option(options, "--checkpoint-minutes", float, "X", what, default)


def root_of(arguments: "Namespace") -> Path | None:
    """The folder of a --root flag."""
    return None if arguments.root is None else Path(arguments.root)


def listed(given: str | Sequence[str] | None) -> list[str]:
    """The values of a flag that takes several, separated by commas (or, for some flags, spaces).

    >>> listed("random, entropy,"), listed(["energy,knn", "odin"]), listed(None)
    (['random', 'entropy'], ['energy', 'knn', 'odin'], [])
    """
    if given is None:
        return []
    text = given if isinstance(given, str) else ",".join(given)
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"expected values separated by commas, but got {text!r}")
    return parts


def at_least(minimum: int, arguments: "Namespace", *names: str) -> None:
    """Raise if a flag has a smaller value; flags that were not given are None and pass."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and value < minimum:
            raise ValueError(f"expected {flag_of(name)} to be at least {minimum}, but got {value}")


def between_0_and_1(arguments: "Namespace", *names: str) -> None:
    """Raise if a flag is not between 0 and 1; flags that were not given are None and pass."""
    for name in names:
        value = getattr(arguments, name)
        if value is not None and not 0 < value < 1:
            hint = f"; did you mean {value / 100:g}?" if 1 < value < 100 else ""
            raise ValueError(f"expected {flag_of(name)} in (0, 1), but got {value:g}{hint}")
