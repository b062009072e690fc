"""Mistakes in words: the parser's, the system's and our own messages as one line for a person."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path

from confrank.phrasing import InputError

KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}


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
        if given and (literal := re.search(r"Literal\[(.*?)\]", text)):
            return _no_choice(_flag(found[1], flags), given[1], re.findall(r"'([^']*)'", literal[1]))
        return f"expected {_word(text) or 'another kind of value'} for {_flag(found[1], flags)}{got}"
    if found := re.fullmatch(r"unrecognized arguments: (\S+).*", text):
        if not found[1].startswith("-"):
            return f"expected nothing more, but got {found[1]!r}; see --help"
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
    if found := re.fullmatch(r"expected \"action\" to be one of {(.*)}, but it was not provided\.", text):
        return f"expected one of {found[1].replace(',', ', ')} to follow, but got nothing; see --help"
    if found := re.fullmatch(r"argument (\S+): expected one argument", text):
        return f"expected a value after {found[1]}, but got none"
    return text


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint to end a message with, if one of the known words is near."""
    close = get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _flag_of(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def in_words(error: Exception) -> str:
    """What went wrong, for a person: the system's words with what was expected, names with a hint if one is near.

    >>> in_words(PermissionError(13, "Permission denied", "runs"))
    'expected to be able to read or write runs, but got: Permission denied; mend that, or give another path'
    >>> in_words(NotADirectoryError(20, "Not a directory", "runs/a"))
    'expected a folder, but runs/a is none, or lies in something that is none; give another path'
    >>> in_words(ValueError("expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'"))
    "expected a model among small, vgg16 or package.module:factory, but got 'vgg-16'; did you mean vgg16?"
    """
    if isinstance(error, OSError) and isinstance(error.filename, str):
        path = Path(error.filename)
        place = path.parent if path.name.startswith(".") and path.suffix == ".part" else path
        if isinstance(error, FileExistsError | NotADirectoryError):
            return f"expected a folder, but {place} is none, or lies in something that is none; give another path"
        if isinstance(error, IsADirectoryError):
            return f"expected a file, but {place} is a folder; give another path"
        why = f"{error.strerror}; mend that, or give another path"
        return f"expected to be able to read or write {place}, but got: {why}"
    message = error.worded(_flag_of) if isinstance(error, InputError) else str(error)
    found = re.fullmatch(r"expected [\w ]+ among (.*), but got '([^']*)'", message)
    return message + did_you_mean(found[2], re.split(r", (?:or )?| or ", found[1])) if found else message


def _no_choice(name: str, value: str, choices: Iterable[str]) -> str:
    return f"expected {name} to be one of {', '.join(choices)}, but got {value!r}{did_you_mean(value, choices)}"


def _flag(key: str, flags: Iterable[str]) -> str:
    flag = f"--{key.replace('_', '-')}"
    return flag if flag in flags else key


def _word(kind: str) -> str | None:
    return next((word for name, word in KINDS.items() if f"<class '{name}'>" in kind), None)
