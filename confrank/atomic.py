"""Files written atomically: to a temporary file first, flushed to disk, then renamed."""

import io
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NAME_START = 40  # characters of a name in that of its temporary file: a file system may limit names to 255 bytes


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that nobody reads half of it, even after a crash; a link, pipe or device stays what it is.

    Text may contain any path: bytes that are not UTF-8 are written as they are.
    """
    try:
        _write(path, content.encode(errors="surrogateescape") if isinstance(content, str) else content)
    except OSError as error:
        if error.filename is None:  # a full disk
            error.filename = str(path)
        raise


def _write(path: Path, content: bytes) -> None:
    if is_stream(path):
        path.write_bytes(content)
        return
    path = Path(os.path.realpath(path))  # `resolve` fails for a link to itself
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:NAME_START]}.{unique()}.part")
    try:
        write_synced(temporary, content)
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and flush it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def unique() -> str:
    """A name for a temporary file. Processes on two hosts that share a folder may have the same number.

    >>> unique() == unique()
    False
    """
    return f"{os.getpid()}-{secrets.token_hex(4)}"


def is_stream(path: Path) -> bool:
    """Whether this is a pipe or a device: write to it, do not replace it."""
    return path.exists() and not path.is_dir() and (not path.is_file() or Path("/dev") in path.absolute().parents)


def is_leftover(path: Path) -> bool:
    """Whether a killed writer left this file or folder, with a name like .config.yaml.123-9f0a6b1c.part."""
    return path.name.startswith(".") and path.name.endswith(".part")


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left in a folder. No other process may be writing to it."""
    for path in filter(is_leftover, folder.iterdir()):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink()


def packed(**arrays: NDArray[Any]) -> bytes:
    """Arrays as the content of a compressed .npz file."""
    content = io.BytesIO()
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def canonical_safetensors(content: bytes) -> bytes:
    """The same file with sorted metadata, so that equal contents give equal bytes."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable; does nothing if folders cannot be opened, as on Windows."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
