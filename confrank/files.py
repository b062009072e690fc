"""Files and folders: written atomically, listed, locked for one process, and measured before they are unpacked."""

import io
import json
import math
import os
import secrets
import shutil
import socket
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from confrank.errors import InputError

LOCK = ".lock"
NAME_START = 40  # characters of a name in that of its temporary file: a file system may limit names to 255 bytes
MAX_GIGABYTES = 2.0
# The environment variable that replaces MAX_GIGABYTES.
VARIABLE = "CONFRANK_MAX_GIGABYTES"


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
    # Processes on two hosts that share a folder may have the same number.
    temporary = path.with_name(f".{path.name[:NAME_START]}.{os.getpid()}-{secrets.token_hex(4)}.part")
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


class HeldError(ValueError):
    """Another process works in a folder; `holder` is its process number and host."""

    def __init__(self, folder: Path, holder: str) -> None:
        super().__init__(f"expected {folder} to be free, but {holder} is working in it; wait for it or stop it")
        self.holder = holder


class Lock:
    """One process per folder, on any platform. A crash frees the lock.

    The holder's process and host are written to a second file: the lock file itself may be truncated by others.
    """

    def __init__(self, path: Path) -> None:
        from filelock import FileLock, Timeout  # heavy, and reading needs no lock

        self._holder = holder_path(path)
        # A soft lock would outlive a crash, so a file system without real locks is an error.
        self._lock = FileLock(path, timeout=0, fallback_to_soft=False)
        try:
            self._lock.acquire()
        except Timeout:
            raise HeldError(path.parent, self._who()) from None
        self._holder.write_text(f"process {os.getpid()} on {socket.gethostname()}\n")

    def _who(self) -> str:
        try:
            return self._holder.read_text().strip() or "another process"
        except OSError:
            return "another process"

    def release(self) -> None:
        """Let others in. Releasing twice is harmless."""
        self._lock.release()


def holder_path(lock: Path) -> Path:
    """The file next to a lock that names its holder."""
    return lock.with_name(f"{lock.name}.holder")


def is_lock(path: Path) -> bool:
    """Whether this is a folder's lock or the file that names its holder."""
    return path.name in (LOCK, f"{LOCK}.holder")


def folders_under(folder: Path) -> list[Path]:
    """A folder and all folders below it, each once, except hidden ones.

    Links are followed last, and not if they lead to a folder already listed or to one that contains `folder`.
    """
    return [path for path, _ in _walked(folder)]


def files_under(folder: Path) -> list[Path]:
    """All files in a folder and in the folders below it, except hidden ones (see `folders_under`)."""
    return [Path(entry) for _, entries in _walked(folder) for entry in entries if not _is_folder(entry)]


def _walked(folder: Path) -> list[tuple[Path, list[os.DirEntry[str]]]]:
    """Every folder with its entries that are not hidden, sorted by name."""
    seen = {folder.resolve(), *folder.resolve().parents}
    links = [folder]
    folders = []

    def walk(current: Path) -> None:
        with os.scandir(current) as found:
            entries = sorted((one for one in found if not one.name.startswith(".")), key=lambda one: one.name)
        folders.append((current, entries))
        for entry in filter(_is_folder, entries):
            path = Path(entry)
            if entry.is_symlink():
                links.append(path)
            elif path.resolve() not in seen:
                seen.add(path.resolve())
                walk(path)

    for link in links:  # appended to during the loop
        if link is folder or link.resolve() not in seen:
            seen.add(link.resolve())
            walk(link)
    return folders


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False


def distinct_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The `object_pairs_hook` of what reads JSON: of two values with one name, the last alone would count."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(
            f"expected distinct names in each object, but got {twice[:80]!r} twice", "rename one of them"
        )
    return found


def gigabytes_allowed(given: float | None = None) -> float:
    """The limit in gigabytes: as given, or from the environment, or the default."""
    text = os.environ.get(VARIABLE, MAX_GIGABYTES) if given is None else given
    try:
        limit = float(text)
    except ValueError:
        limit = math.nan
    if not limit > 0:
        raise InputError(f"expected a positive limit in gigabytes, but got {text!r}", "change {max_gigabytes}")
    return limit


def check_unpacked(unpacked: int, packed: int, max_gigabytes: float | None = None) -> None:
    """Raise if a file of `packed` bytes unpacks to more than the limit. An uncompressed file is as large as it is.

    Without `max_gigabytes` the environment sets the limit, and the error says so.
    """
    limit = gigabytes_allowed(max_gigabytes)
    if unpacked > max(limit * 1e9, packed):
        name = f"the environment variable {VARIABLE}" if max_gigabytes is None else "{max_gigabytes}"
        raise InputError(
            f"expected at most {limit:g} GB when unpacked, but got {_shown(unpacked)} from {_shown(packed)}",
            f"raise the limit with {name} if the file is meant to be this large",
        )


def check_npz(path: Path) -> None:
    """Raise if the arrays of an npz archive would take more than the limit."""
    check_unpacked(npz_size(path), path.stat().st_size)


def npz_size(path: Path) -> int:
    """The unpacked size of an npz archive; an error if the shape of an array needs more bytes than there are."""
    with zipfile.ZipFile(path) as archive:
        names = [name.removesuffix(".npy") for name in archive.namelist()]
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            raise InputError(f"expected each array once, but got {twice[0][:80]!r} twice", "save the file again")
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as stream:
                    shape, _, kind = npy_header(stream)
                needed = math.prod(shape) * kind.itemsize
                if not kind.hasobject and needed > member.file_size:
                    raise InputError(
                        f"expected {needed:,} bytes in {member.filename} for shape {shape} of {kind},"
                        f" but got {member.file_size:,}",
                        "save the file again",
                    )
        return sum(member.file_size for member in archive.infolist())


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the array in an open npy file."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, kind = read(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"expected lengths of at least 0, but got shape {shape}")
    return shape, fortran, kind


def _shown(size: int) -> str:
    """
    >>> _shown(13_000_000), _shown(3_100_000_000), _shown(900)
    ('13 MB', '3.1 GB', '900 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"
