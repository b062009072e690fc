"""Downloads that survive bad networks: resumed, retried, verified, and renamed to their final name when complete.

The bytes received so far are in NAME.part next to the target. The next attempt, in this process or a later one, asks
the server only for the rest. A later process does not resume a part that has no checksum to verify it.
"""

import http.client
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from confrank.data.published import PUBLISHED, PublishedFile, search_folders
from confrank.files import sync_folder

CHUNK = 1 << 18
ATTEMPTS = 5
# Status codes that may go away if the request is repeated.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)

Progress = Callable[[int, int | None], None]
Note = Callable[[str], None]


class InterruptedTransferError(OSError):
    """The transfer broke off; another attempt may get the rest."""


@dataclass(frozen=True)
class Fetched:
    """A file of a data set on this machine, its digest ("md5:..." or "sha256:..."), and whether that was verified."""

    path: Path
    digest: str
    verified: bool
    downloaded: bool


def fetch(
    name: str,
    root: Path | None = None,
    *,
    on_progress: Callable[[str, int, int | None], None] = lambda name, received, total: None,
    on_note: Note | None = None,
) -> list[Fetched]:
    """Download a set's published files to `root/NAME`, except those already intact there or in `root`."""
    if name not in PUBLISHED:
        why = "; digits comes with scikit-learn and needs no files" if name == "digits" else ""
        raise ValueError(f"expected a published data set among {', '.join(PUBLISHED)}, but got {name!r}{why}")
    folders, fetched = search_folders(name, root), []
    for file in PUBLISHED[name].files:
        present = _present(file, folders)
        if present is None:
            path = folders[0] / file.name
            progress = partial(on_progress, file.name)
            actual = download(file.url, path, file.md5, on_progress=progress, on_note=on_note)
            present = Fetched(path, actual, verified=file.md5 is not None, downloaded=True)
        fetched.append(present)
    return fetched


def _present(file: PublishedFile, folders: tuple[Path, ...]) -> Fetched | None:
    for path in (folder / file.name for folder in folders):
        if path.is_file():
            actual = digest(path, file.md5)
            if file.md5 is None or actual == f"md5:{file.md5}":
                return Fetched(path, actual, verified=file.md5 is not None, downloaded=False)
    return None


def digest(path: Path, md5: str | None = None) -> str:
    """The file's digest: "md5:..." if there is an md5 to compare with, or else "sha256:..."."""
    import pooch

    algorithm = "sha256" if md5 is None else "md5"
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def download(
    url: str,
    target: Path,
    md5: str | None = None,
    *,
    on_progress: Progress | None = None,
    on_note: Note | None = None,
    attempts: int = ATTEMPTS,
    timeout: float = 30.0,
    pause: float = 1.0,
) -> str:
    """Download to `target`, verify, and return the digest.

    It gives up after `attempts` in a row that received nothing, with pauses that double from `pause` seconds. An
    attempt ends after `timeout` seconds without a byte. A wrong checksum is a `ValueError` that names both. An older
    file under the final name stays until the new one is complete.
    """
    part = target.with_name(f"{target.name}.part")
    target.parent.mkdir(parents=True, exist_ok=True)
    if md5 is None:
        part.unlink(missing_ok=True)
    for resumed in [True, False] if part.exists() else [False]:
        transfer = _Transfer(url, part, timeout, on_progress or (lambda received, total: None))
        transfer.run(attempts, pause, on_note or (lambda note: None))
        actual, size = digest(part, md5), part.stat().st_size
        if md5 is None or actual == f"md5:{md5}":
            break
        part.unlink()
        if not resumed:  # otherwise the older part may be wrong: download again from the start
            raise ValueError(
                f"expected md5 {md5} for {target.name} from {url}, but got {actual.removeprefix('md5:')}"
                f" ({size:,} bytes); it was deleted: try again later, or put the correct file into {target.parent}"
            )
    part.replace(target)
    sync_folder(target.parent)
    return actual


class _Transfer:
    """One download; `part` holds the bytes received so far."""

    def __init__(self, url: str, part: Path, timeout: float, on_progress: Progress) -> None:
        self.url, self.part, self.timeout, self.on_progress = url, part, timeout, on_progress
        self.validator: str | None = None

    def run(self, attempts: int, pause: float, on_note: Note) -> None:
        """Repeat until the file is complete, or until `attempts` in a row received nothing."""
        failures, furthest = 0, self.received()
        while True:
            try:
                return self.attempt()
            except InterruptedTransferError as error:
                failures = 1 if self.received() > furthest else failures + 1
                furthest = max(furthest, self.received())
                if failures >= attempts:
                    raise OSError(
                        f"expected to download {self.url}, but {error} ({failures} attempts in a row);"
                        " try again later"
                    ) from None
                wait = pause * 2 ** (failures - 1)
                on_note(f"{error}; trying again in {wait:g} s")
                time.sleep(wait)

    def received(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def attempt(self) -> None:
        """Request the missing bytes and append them."""
        response = self._open(self.received())
        if response is not None:
            with response:
                start = self._start(response)
                length = response.headers.get("Content-Length")
                self.validator = response.headers.get("ETag") or response.headers.get("Last-Modified")
                self._append(response, start, None if length is None else start + int(length))
        with self.part.open("rb") as file:
            if _looks_like_a_page(file.read(100)):
                self.part.unlink()
                raise self._not_a_file(self.url)

    def _open(self, start: int) -> http.client.HTTPResponse | None:
        """The server's response, or None if nothing is missing."""
        headers = {"User-Agent": "confrank"}
        if start:
            headers["Range"] = f"bytes={start}-"
            if self.validator and not self.validator.startswith("W/"):
                headers["If-Range"] = self.validator
        try:
            request = urllib.request.Request(self.url, headers=headers)
            response: http.client.HTTPResponse = urllib.request.urlopen(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            with error:
                self._refused(error)
            return None
        except (OSError, http.client.HTTPException) as error:
            raise InterruptedTransferError(_reason(error)) from None
        return response

    def _refused(self, error: urllib.error.HTTPError) -> None:
        """Raise, unless the server refused because the part is already complete."""
        if error.code == 416:
            if error.headers.get("Content-Range", "") != f"bytes */{self.received()}":
                self.part.unlink()
                raise InterruptedTransferError("the server has a shorter file than the part received before")
            return
        answer = f"the server answered {error.code} {error.reason}"
        if error.code in TRANSIENT:
            raise InterruptedTransferError(answer)
        raise OSError(f"expected a file at {self.url}, but {answer}")

    def _start(self, response: http.client.HTTPResponse) -> int:
        """The offset of the response's bytes: the end of the part, or 0 if the server does not support ranges."""
        if response.headers.get_content_type() == "text/html":
            raise self._not_a_file(response.url)
        if response.status != 206:
            return 0
        start, answered = self.received(), response.headers.get("Content-Range", "")
        if not answered.startswith(f"bytes {start}-"):
            self.part.unlink()
            raise InterruptedTransferError(f"the server sent {answered or 'no range'} when asked for bytes {start}-")
        return start

    def _append(self, response: http.client.HTTPResponse, start: int, total: int | None) -> None:
        with self.part.open("ab" if start else "wb") as file:
            received = start
            self.on_progress(received, total)
            while chunk := self._read(response):
                file.write(chunk)
                received += len(chunk)
                self.on_progress(received, total)
            file.flush()
            os.fsync(file.fileno())
        if total is not None and received < total:
            raise InterruptedTransferError(f"the connection ended after {received:,} of {total:,} bytes")

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read1(CHUNK)
        except (OSError, http.client.HTTPException) as error:
            raise InterruptedTransferError(f"{_reason(error)} after {self.received():,} bytes") from None

    def _not_a_file(self, address: str) -> ValueError:
        moved = "" if address == self.url else f" ({address})"
        return ValueError(
            f"expected a data file from {self.url}, but got a web page{moved}; the publisher may have moved it:"
            f" download it manually and put it into {self.part.parent} as {self.part.name.removesuffix('.part')}"
        )


def _looks_like_a_page(head: bytes) -> bool:
    return head.lstrip(b"\xef\xbb\xbf \t\r\n")[:15].lower().startswith((b"<!doctype html", b"<html", b"<head"))


def _reason(error: Exception) -> str:
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(cause, TimeoutError):
        return "the server stalled"
    return str(cause) or type(cause).__name__
