"""The help of a command: how it is called, its options in groups, an example and its guide."""

import shutil
import textwrap
from argparse import SUPPRESS, Action
from dataclasses import dataclass
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

MAX_WIDTH = 100
HELP_COLUMN = 26
METAVARS: dict[type, str] = {int: "N", float: "X"}


@dataclass(frozen=True)
class Option:
    """A flag or argument: how to write it, and what it does."""

    form: str
    text: str


@dataclass(frozen=True)
class Help:
    """What the help of a command says, whatever it is printed as."""

    usage: str
    summary: str
    groups: dict[str, list[Option]]
    example: str
    guide: str


def usage_of(parser: "ArgumentParser") -> str:
    """The command with its arguments and required options. Call it before parsing, which clears `required`."""
    required = [_form(action) for action in parser._actions if action.option_strings and action.required]
    positional = [_form(action) for action in parser._actions if not action.option_strings]
    return " ".join([parser.prog, *positional, *required, "[options]"])


def argument_names(parser: "ArgumentParser") -> dict[str, str]:
    """The flag of each option and the name of each positional argument, as users write them.

    What belongs to an action of the command is called ACTION.NAME.
    """
    names = {action.dest: [*action.option_strings, _metavar(action)][0] for action in parser._actions}
    for action in parser._actions:
        for name, sub in action.choices.items() if isinstance(action.choices, dict) else ():
            names |= {f"{name}.{key}": written for key, written in argument_names(sub).items()}
    return names


def help_of(parser: "ArgumentParser", example: str, guide: str) -> Help:
    """The help of a parser: positional arguments first, then its groups of options, `--help` last."""
    arguments, options, *groups = parser._action_groups
    titled = [("arguments", arguments), *((group.title or "", group) for group in groups), ("other", options)]
    listed: dict[str, list[Option]] = {}
    for title, group in titled:  # groups with the same title are listed as one
        listed.setdefault(title, []).extend(_options(group._group_actions))
    shown = {title: entries for title, entries in listed.items() if entries}
    return Help(parser.usage or "", parser.description or "", shown, example, guide)


def help_text(item: Help, width: int | None = None) -> str:
    """The help as text for a terminal of that width (default: this terminal's, at most 100)."""
    width = width or min(shutil.get_terminal_size().columns, MAX_WIDTH)
    parts = [f"usage: {item.usage}", textwrap.fill(item.summary, width)]
    for title, options in item.groups.items():
        parts.append("\n".join([f"{title}:", *(_two_columns(option, width) for option in options)]))
    more = f"guide: docs/{item.guide}\n" if item.guide else ""
    return "\n\n".join([*parts, f"example: {item.example}\n{more}"])


def _two_columns(option: Option, width: int) -> str:
    """The option on the left, its help on the right; a long option has its line to itself."""
    form, margin = f"  {option.form}  ", " " * HELP_COLUMN
    text = option.text.replace("(default: ", "(default:\xa0")  # stays on one line with its value
    lines = textwrap.wrap(text, width - HELP_COLUMN, break_on_hyphens=False, break_long_words=False)
    if len(form) > HELP_COLUMN:
        lines = [form.rstrip(), *(margin + line for line in lines)]
    else:
        lines = [form.ljust(HELP_COLUMN) + lines[0], *(margin + line for line in lines[1:])]
    return "\n".join(lines).replace("\xa0", " ")


def _options(actions: list[Action]) -> list[Option]:
    shown = [action for action in actions if action.help is not SUPPRESS]
    return [option for action in shown for option in (_subcommands(action) or [Option(_form(action), _text(action))])]


def _subcommands(action: Action) -> list[Option]:
    choices = getattr(action, "_choices_actions", [])
    return [Option(choice.dest, choice.help or "") for choice in choices]


def _form(action: Action) -> str:
    """
    >>> from argparse import ArgumentParser
    >>> _form(ArgumentParser().add_argument("--out", metavar="FOLDER"))
    '--out FOLDER'
    >>> _form(ArgumentParser().add_argument("files", metavar="FILE", nargs="+"))
    'FILE...'
    """
    value = _metavar(action)
    if value and action.nargs in ("+", "*"):
        value += "..."
    elif value and action.nargs == "?":
        value = f"[{value}]"
    return " ".join(filter(None, [", ".join(action.option_strings), value]))


def _metavar(action: Action) -> str:
    """What the value is called: nothing of a switch, a letter of a number, else what the definition says."""
    kinds = _kinds(action)
    if action.nargs == 0 or (bool in kinds and action.default is False):
        return ""
    if bool in kinds:
        return "true|false"
    if isinstance(action.metavar, str) and not action.metavar.startswith("{"):
        return action.metavar
    return next((METAVARS[kind] for kind in kinds if kind in METAVARS), action.dest.upper().replace("_", "-"))


def _text(action: Action) -> str:
    """The help, the choices it does not name itself, and the default where that says something."""
    if "--help" in action.option_strings:
        return "show this help and exit"
    text = action.help or ""
    choices = [str(choice) for kind in _kinds(action) if get_origin(kind) is Literal for choice in get_args(kind)]
    if any(choice not in text for choice in choices):
        text += f": {', '.join(choices)}"
    silent = action.default in ("", SUPPRESS, [], ()) or action.default is None or action.default is False
    return text if silent or "default:" in text else f"{text} (default: {_worded(action.default)})"


def _kinds(action: Action) -> tuple[Any, ...]:
    """The type of an option's value, or the types of a union."""
    kind = getattr(action, "_typehint", action.type)
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _worded(value: Any) -> str:
    """
    >>> _worded(0.1), _worded((1 / 2, 5 / 6)), _worded("auto")
    ('0.1', '0.5,0.833', 'auto')
    """
    if isinstance(value, tuple | list):
        return ",".join(map(_worded, value))
    return f"{value:.3g}" if isinstance(value, float) else str(value)
