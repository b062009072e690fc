"""Error messages of the parser, the system and the library, each worded as one line."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from confrank.phrasing import InputError

KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


def explained(message: str, flags: Iterable[str]) -> str:
    """A message of the argument parser, in plain words.

    >>> explained("unrecognized arguments: --modle small", ["--model", "--method"])
    "expected a known option, but got '--modle'; did you mean --model?"
    """
    text, flags = " ".join(message.split()), list(flags)
    if match := re.fullmatch(r"Parser key \"(\w+)\": Expected a (.*?)\. Got value: (.*)", text):
        key, kind, value = match.groups()
        if choices := re.findall(r"'([^']*)'", kind.partition("Literal")[2]):
            return _no_choice(_flag(key, flags), value, choices)
        return f"expected {_word(kind) or kind} for {_flag(key, flags)}, but got {value!r}"
    if match := re.match(r"Parser key \"(\w+)\": Does not validate against any of the Union subtypes", text):
        given = re.search(r"Given value: (.*?)(?: \(|$)", text)
        got = f", but got {given[1]!r}" if given else ""
        if given and (literal := re.search(r"Literal\[(.*?)\]", text)):
            return _no_choice(_flag(match[1], flags), given[1], re.findall(r"'([^']*)'", literal[1]))
        return f"expected {_word(text) or 'another kind of value'} for {_flag(match[1], flags)}{got}"
    if match := re.fullmatch(r"unrecognized arguments: (\S+).*", text):
        if not match[1].startswith("-"):
            return f"expected no further argument, but got {match[1]!r}; see --help"
        hint = did_you_mean(match[1].partition("=")[0], flags) or "; see --help"
        return f"expected a known option, but got {match[1]!r}{hint}"
    if match := re.fullmatch(r"the following arguments are required: (.*)", text):
        return f"expected {_flag(match[1], flags)}, but it is missing; see --help"
    if match := re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", text):
        return _no_choice(match[1], match[2], [choice.strip("' ") for choice in match[3].split(",")])
    if match := re.fullmatch(r"Parser key \"config\": (?:Path is not a|File does not exist).*'(.*)'", text):
        return f"expected a YAML file of settings for --config, but {match[1]} does not exist or is not a file"
    if match := re.fullmatch(r"Unexpected config:(.*)", text):
        start = match[1].strip()
        got = repr(f"{start[:40]}..." if len(start) > 40 else start) if start else "nothing"
        return f"expected settings in YAML, one per line as in epochs: 60, but got {got}"
    if match := re.fullmatch(r"Option '(\w+)' is not accepted", text):
        known = [flag.removeprefix("--").replace("-", "_") for flag in flags]
        return f"expected a known setting, but got {match[1]!r}{did_you_mean(match[1], known)}"
    if text.startswith("Problems parsing config: "):
        return f"expected settings in YAML, but could not parse them: {text.partition(': ')[2]}"
    if match := re.fullmatch(r"expected \"action\" to be one of {(.*)}, but it was not provided\.", text):
        return f"expected one of {match[1].replace(',', ', ')}, but got nothing; see --help"
    if match := re.fullmatch(r"argument (\S+): expected one argument", text):
        return f"expected a value after {match[1]}, but got none"
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message that suggests the nearest known word; empty if none is near."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _flag_of(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def in_words(error: Exception) -> str:
    """An error as one line: what was expected, what came, and the nearest known name where a name is unknown.

    >>> in_words(PermissionError(13, "Permission denied", "runs"))
    'expected to be able to read or write runs, but got: Permission denied; fix that or choose another path'
    >>> in_words(NotADirectoryError(20, "Not a directory", "runs/a"))
    'expected a folder, but runs/a is a file or inside one; choose another path'
    >>> in_words(ValueError("expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'"))
    "expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'; did you mean vgg16?"
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
        return _system_words(error, path.parent if path.name.startswith(".") and path.suffix == ".part" else path)
    message = error.worded(_flag_of) if isinstance(error, InputError) else str(error)
    match = re.fullmatch(r"expected [\w ]+ among (.*), but got '([^']*)'", message)
    return message + did_you_mean(match[2], re.split(r", (?:or )?| or ", match[1])) if match else message


def _system_words(error: OSError, path: Path) -> str:
    if isinstance(error, FileNotFoundError):
        return f"expected a file or folder, but {path} does not exist; check the path"
    if isinstance(error, FileExistsError | NotADirectoryError):
        return f"expected a folder, but {path} is a file or inside one; choose another path"
    if isinstance(error, IsADirectoryError):
        return f"expected a file, but {path} is a folder; choose another path"
    why = f"{error.strerror}; fix that or choose another path"
    return f"expected to be able to read or write {path}, but got: {why}"


def _no_choice(name: str, value: str, choices: Iterable[str]) -> str:
    return f"expected {name} to be one of {', '.join(choices)}, but got {value!r}{did_you_mean(value, choices)}"


def _flag(key: str, flags: Iterable[str]) -> str:
    flag = f"--{key.replace('_', '-')}"
    return flag if flag in flags else key


def _word(kind: str) -> str | None:
    return next((word for name, word in KINDS.items() if f"<class '{name}'>" in kind), None)
