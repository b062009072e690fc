"""Folders: list what they hold, and lock them for one process."""

import os
import socket
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = ".lock"


def folders_under(folder: Path) -> list[Path]:
    """A folder and all folders below it, each once, except hidden ones.

    Links are followed last, and not if they lead to a folder already listed or to one that contains `folder`.
    """
    return [path for path, _ in _walked(folder)]


def files_under(folder: Path) -> list[Path]:
    """All files in a folder and in the folders below it, except hidden ones (see `folders_under`)."""
    return [Path(entry) for _, entries in _walked(folder) for entry in entries if not _is_folder(entry)]


def _walked(folder: Path) -> list[tuple[Path, list[os.DirEntry[str]]]]:
    """Every folder with its entries."""
    seen = {folder.resolve(), *folder.resolve().parents}
    links = [folder]
    folders = []

    def walk(current: Path) -> None:
        entries = _entries(current)
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


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The entries of a folder except hidden ones, sorted by name."""
    with os.scandir(folder) as entries:
        return sorted((entry for entry in entries if not entry.name.startswith(".")), key=lambda entry: entry.name)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False


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
