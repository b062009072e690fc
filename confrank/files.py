"""Files that are either whole or absent: written aside, flushed to disk, then renamed. And what lies in folders."""

import fcntl
import io
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_atomically(path: Path, content: bytes | str) -> None:
    """Write a file so that a reader or a crash never meets half of it; a link stays one, a pipe or device too."""
    content = content.encode() if isinstance(content, str) else content
    if is_stream(path):
        path.write_bytes(content)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    sync_folder(path.parent)


def is_stream(path: Path) -> bool:
    """Whether this is a pipe or a device, which must be written to, not replaced."""
    return path.exists() and not path.is_dir() and (not path.is_file() or Path("/dev") in path.absolute().parents)


def is_leftover(path: Path) -> bool:
    """Whether this is what a killed writer left: a file or folder under a name like .config.yaml.123.part."""
    return path.name.startswith(".") and path.name.endswith(".part")


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers left in a folder that nobody else is working in."""
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
    """The same file with its metadata in alphabetical order: equal contents give equal bytes."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header.get("__metadata__", {}).items()))
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + content[8 + size :]


def sync_folder(folder: Path) -> None:
    """Make renames in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folders_under(folder: Path) -> list[Path]:
    """A folder and those below it, each once; hidden ones are left out.

    Links are followed after all else, but not to where a folder has been found already, nor to one that holds it all.
    """
    return [place for place, _ in _walked(folder)]


def files_under(folder: Path) -> list[Path]:
    """All that is neither a folder nor hidden in a folder and in those below it (see `folders_under`)."""
    return [Path(entry) for _, entries in _walked(folder) for entry in entries if not _is_folder(entry)]


def _walked(folder: Path) -> list[tuple[Path, list[os.DirEntry[str]]]]:
    """Every folder with what is in it."""
    seen = {folder.resolve(), *folder.resolve().parents}
    links = [folder]
    found = []

    def walk(place: Path) -> None:
        entries = _entries(place)
        found.append((place, entries))
        for entry in filter(_is_folder, entries):
            path = Path(entry)
            if entry.is_symlink():
                links.append(path)
            elif path.resolve() not in seen:
                seen.add(path.resolve())
                walk(path)

    for link in links:  # which grow meanwhile
        if link is folder or link.resolve() not in seen:
            seen.add(link.resolve())
            walk(link)
    return found


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """What is in a folder and not hidden, by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself
        return False


class Lock:
    """One process per folder: an advisory lock on a file that names its holder. A crash frees it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not self._is_at(path):  # its last holder has just removed it
                raise BlockingIOError
        except BlockingIOError:
            self._file.seek(0)
            holder = self._file.read().strip() or "unknown"
            self._file.close()
            raise ValueError(
                f"expected {path.parent} to be free, but process {holder} is working in it; wait for it or stop it"
            ) from None
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def _is_at(self, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(self._file.fileno()), path.stat())
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Let others in. Releasing twice is harmless."""
        self._file.close()
