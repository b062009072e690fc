"""Error messages of the parser, the system and the library, each worded as one line."""

import re
from collections.abc import Callable, Mapping, Sequence

from confrank.errors import did_you_mean, joined

Names = Mapping[str, str]
OTHER_FLAGS = dict.fromkeys(("--page", "--html"), "--report")  # what people look for under other names
KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def explained(message: str, names: Names) -> str:
    """A message of the argument parser, in plain words. `names` are the arguments as users write them.

    >>> explained("unrecognized arguments: --modle small", {"model": "--model", "method": "--method"})
    "expected a known option, but got '--modle'; did you mean --model?"
    """
    text = " ".join(message.split())
    for pattern, worded in _MESSAGES.items():
        if match := re.fullmatch(pattern, text):
            return worded(match, names)
    return text


def _wrong_kind(match: re.Match[str], names: Names) -> str:
    """A value that its type does not accept: one that is no choice, or no number."""
    name, kind, value = names.get(match["key"], match["key"]), match["kind"], match["value"].partition(" (")[0]
    if literal := re.search(r"Literal\[(.*?)\]", kind):
        return _no_choice(name, value, re.findall(r"'([^']*)'", literal[1]))
    what = next((word for name, word in KINDS.items() if f"<class '{name}'>" in kind), "another kind of value")
    share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", value) if "<class 'float'>" in kind else None
    hint = f"; did you mean {float(share[1]) / 100:g}?" if share else ""
    return f"expected {what} for {name}, but got {value!r}{hint}"


def _no_choice(name: str, value: str, choices: Sequence[str]) -> str:
    what = f"{name} to be one of" if name.startswith("-") else "one of"  # an argument is known by its position
    return f"expected {what} {', '.join(choices)}, but got {value!r}{did_you_mean(value, choices)}"


def _unknown(match: re.Match[str], names: Names) -> str:
    if not match[1].startswith("-"):
        return f"expected no further argument, but got {match[1]!r}; see --help"
    flag = match[1].partition("=")[0]
    hint = did_you_mean(OTHER_FLAGS.get(flag, flag), names.values()) or "; see --help"
    return f"expected a known option, but got {match[1]!r}{hint}"


def _no_settings(match: re.Match[str], names: Names) -> str:
    start = match[1].strip()
    got = repr(f"{start[:40]}..." if len(start) > 40 else start) if start else "nothing"
    return f"expected settings in YAML, one per line as in epochs: 60, but got {got}"


_MESSAGES: dict[str, Callable[[re.Match[str], Names], str]] = {
    r"Parser key \"config\": (?:Path is not a|File does not exist).*'(.*)'": lambda match, names: (
        f"expected a YAML file of settings for --config, but {match[1]} does not exist or is not a file"
    ),
    r"Parser key \"(?P<key>\w+)\": (?P<kind>Expected a .*?)\. Got value: (?P<value>.*)": _wrong_kind,
    r"Parser key \"(?P<key>\w+)\": (?P<kind>Does not validate .*)Given value: (?P<value>.*)": _wrong_kind,
    r"unrecognized arguments: (\S+).*": _unknown,
    r"the following arguments are required: (.*)": lambda match, names: (
        f"expected {joined([names.get(key, key) for key in match[1].split(', ')])}, but got none; see --help"
    ),
    r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)": lambda match, names: _no_choice(
        match[1], match[2], [choice.strip("' ") for choice in match[3].split(",")]
    ),
    r"Unexpected config:(.*)": _no_settings,
    r"Option '(\w+)' is not accepted": lambda match, names: (
        f"expected a known setting, but got {match[1]!r}{did_you_mean(match[1], names)}"
    ),
    r"Problems parsing config: (.*)": lambda match, names: (
        f"expected settings in YAML, but could not parse them: {match[1]}"
    ),
    r"expected \"action\" to be one of {(.*)}, but it was not provided\.": lambda match, names: (
        f"expected one of {match[1].replace(',', ', ')}, but got nothing; see --help"
    ),
    r"argument (\S+): expected (?:one|at least one) argument": lambda match, names: (
        f"expected a value after {match[1]}, but got none"
    ),
}
