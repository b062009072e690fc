"""The policy file: JSON that people can read, with a version, and a checksum that shows changes."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, fields, is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from confrank.decisions.policy_parts import SLOTS, Part
from confrank.errors import InputError, similar_path
from confrank.files import NAME_START, distinct_names

VERSION = 1
LONGEST_LINE = 120
LONGEST_WAIT = 60.0  # seconds; to add a part takes less than one
MOST_BYTES = 1 << 28
# Calibrators that policies had before, and those that serve instead.
FORMER = {"vector": "temperature", "platt": "isotonic", "beta": "isotonic", "histogram": "isotonic"}


def policy_text(content: Mapping[str, Any]) -> str:
    """The content of a policy with its version and checksum, as JSON."""
    values = json.loads(json.dumps({"confrank_policy": VERSION, **content}, allow_nan=False))  # tuples become lists
    return as_text({**values, "checksum": checksum(values)}) + "\n"


def read_policy(path: Path) -> dict[str, Any]:
    """The content of a policy file, after checking its version and its checksum."""
    values = _parsed(path)
    version = values.get("confrank_policy")
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"{path}: expected a policy of version {VERSION} or earlier, but got version {version}",
            "update confrank, which is older than this policy",
        )
    if version != VERSION:
        raise InputError(f"{path}: expected a policy that confrank wrote, but it has no version number")
    if values.pop("checksum", None) != checksum(values):
        raise InputError(
            f"{path}: expected a policy as confrank wrote it, but its content does not match its checksum",
            "restore the file, or make the policy again: a changed policy has no guarantee",
        )
    _refuse_former_parts(path, values)
    return values


def _refuse_former_parts(path: Path, values: Mapping[str, Any]) -> None:
    """Raise if a policy has a part that is no longer supported, and name the command that replaces it."""
    parts = {slot: part for slot, part in values.items() if isinstance(part, dict)}
    commands: dict[str, str] = {}
    for slot in ("table_calibrator", "confidence_calibrator"):
        method = str(parts.get(slot, {}).get("method"))
        if method in FORMER:
            commands[f"the calibrator {method}"] = f"calibrate FILE --method {FORMER[method]} --policy NEW.json"
    if "selection" in parts:
        commands["a selection"] = f"select FILE --fdr {parts['selection'].get('fdr')} --new NEW --out OUT.csv"
    threshold = parts.get("threshold", {})
    settings = threshold.get("settings")
    if isinstance(settings, dict) and settings.get("class_risk"):
        groups = f"--by {threshold['column']}" if threshold.get("column") else "--per-class"
        asked = f"--risk {settings.get('risk')} --delta {settings.get('delta')} {groups}"
        commands["a risk of single classes"] = f"threshold FILE {asked} --policy NEW.json"
    if commands:
        what, command = next(iter(commands.items()))  # one at a time
        raise InputError(
            f"{path}: expected a policy of this version of confrank, but it has {what}, which confrank no longer"
            " supports",
            f"use: confrank {command}",
        )


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Let no other process change a policy file meanwhile; the lock is a hidden file next to it."""
    from filelock import FileLock, Timeout  # which takes as long to import as a small file to read

    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock = FileLock(path.with_name(f".{path.name[:NAME_START]}.lock"), fallback_to_soft=False)
        lock.acquire(timeout=LONGEST_WAIT)
    except Timeout:
        raise InputError(
            f"{path}: expected to change this policy, but another command is doing so", "try again"
        ) from None
    try:
        yield
    finally:
        lock.release()


def _parsed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        state = "is not a file" if path.exists() else f"does not exist{similar_path(path)}"
        raise InputError(f"expected a policy file, but {path} {state}")
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path}: expected a policy file, but it is larger than {MOST_BYTES >> 20} MiB")
    try:
        values = json.loads(path.read_bytes(), parse_constant=_refuse_constant, object_pairs_hook=distinct_names)
    except InputError as error:
        raise InputError(f"{path}: {error.problem}", "restore the file") from None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise InputError(
            f"{path}: expected a policy that confrank wrote, but it is not a JSON object",
            "give a file that a command wrote with {policy}",
        )
    return values


def _refuse_constant(name: str) -> None:
    raise ValueError(f"expected finite numbers, but got {name}")


def checksum(values: Mapping[str, Any]) -> str:
    """SHA-256 of the values as JSON with sorted keys, so that neither order nor spaces matter."""
    text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def as_text(value: Any, indent: int = 0) -> str:
    """JSON of at most 120 characters a line, where possible; a list of numbers is one line.

    >>> print(as_text({"score": "margin", "table": [[1.0, 0.5], [0.25, 1.0]], "names": ["x" * 60, "y" * 60]}))
    {
     "score": "margin",
     "table": [[1.0, 0.5], [0.25, 1.0]],
     "names": [
      "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
      "yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy"
     ]
    }
    """
    flat = json.dumps(value, ensure_ascii=False, allow_nan=False)
    plain = isinstance(value, list) and all(isinstance(item, int | float) for item in value)
    if plain or not isinstance(value, list | dict) or (indent and len(flat) + indent <= LONGEST_LINE):
        return flat
    if isinstance(value, dict):
        entries = [
            f"{json.dumps(key, ensure_ascii=False)}: {as_text(item, indent + 1)}" for key, item in value.items()
        ]
    else:
        entries = [as_text(item, indent + 1) for item in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    lines = ",\n".join(" " * (indent + 1) + entry for entry in entries)
    return f"{first}\n{lines}\n{' ' * indent}{last}"


def part_as_dict(part: Part) -> dict[str, Any]:
    """A part as JSON values, without those that are the default."""
    defaults = _defaults(type(part))
    values = {name: value for name, value in asdict(part).items() if value != defaults[name]}
    if part.rows is not None:
        values["rows"] = {name: value for name, value in values["rows"].items() if value not in (None, ())}
    return values


def _defaults(kind: type[Part]) -> dict[str, Any]:
    """The default of each field; MISSING, which equals no value, if it has none."""
    return {
        item.name: item.default_factory() if item.default_factory is not MISSING else item.default
        for item in fields(kind)
    }


def part_from_dict(slot: str, values: Mapping[str, Any]) -> Part:
    """The part that `part_as_dict` wrote; a ValueError or TypeError if it is none."""
    part: Part = restored(SLOTS[slot], values)
    if part.slot != slot:
        raise ValueError(f"expected a {slot}, but got a {part.slot}")
    return part


def restored(kind: Any, value: Any) -> Any:
    """A JSON value as the type of its field says: records from objects, tuples from lists, anything else as it is."""
    if isinstance(kind, UnionType) and value is not None:
        kind = get_args(kind)[0]  # of X | None
    if is_dataclass(kind) and value is not None:
        kinds = get_type_hints(kind)
        record: Any = kind
        return record(**{name: restored(kinds[name], each) for name, each in value.items()})
    return tuple(value) if get_origin(kind) is tuple else value
