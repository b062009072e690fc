"""The published data sets: who publishes which files, what they hold, where they are on this machine, and downloads.

The files of a data set are searched in `root/NAME` and in `root`, as the published archive or as the folder it
unpacks to. Archives are read directly, by member name: nothing is ever unpacked to disk.
"""

import gzip
import os
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from confrank.errors import InputError

if TYPE_CHECKING:
    from requests import RequestException

CHUNK_BYTES = 1 << 18
ATTEMPTS = 4
# Status codes that may go away if the request is repeated.
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)


@dataclass(frozen=True)
class PublishedFile:
    """A file on the publisher's server; `md5` is None if the publisher gives no checksum."""

    name: str
    url: str
    md5: str | None


@dataclass(frozen=True)
class Published:
    """A data set's files, the folder its archive unpacks to, and how many images of each class there are.

    A set without `train` is for out-of-distribution tests: it has no labels, and `test` is the number of its images.
    """

    summary: str
    files: tuple[PublishedFile, ...]
    folder: str | None
    test: tuple[int, ...]
    train: tuple[int, ...] = ()


def _at(url: str, md5: str | None = None) -> PublishedFile:
    """The file at an address, which ends with its name and perhaps a query."""
    return PublishedFile(url.rpartition("/")[2].partition("?")[0], url, md5)


_TORONTO = "https://www.cs.toronto.edu/~kriz"
_STANFORD = "http://ufldl.stanford.edu/housenumbers"
_ODIN = "https://www.dropbox.com/s"

PUBLISHED: dict[str, Published] = {
    "cifar10": Published(
        summary="32x32 photographs in 10 classes",
        files=(_at(f"{_TORONTO}/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),),
        folder="cifar-10-batches-bin",
        train=(5000,) * 10,
        test=(1000,) * 10,
    ),
    "cifar100": Published(
        summary="32x32 photographs in 100 classes",
        files=(_at(f"{_TORONTO}/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),),
        folder="cifar-100-binary",
        train=(500,) * 100,
        test=(100,) * 100,
    ),
    "svhn": Published(
        summary="32x32 house-number digits",
        files=(
            _at(f"{_STANFORD}/train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
            _at(f"{_STANFORD}/test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
        ),
        folder=None,
        train=(4948, 13861, 10585, 8497, 7458, 6882, 5727, 5595, 5045, 4659),
        test=(1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595),
    ),
    "tinyimagenet": Published(
        summary="TinyImageNet's test images at 32x32, for out-of-distribution tests",
        files=(_at(f"{_ODIN}/kp3my3412u5k9rl/Imagenet_resize.tar.gz?dl=1"),),
        folder="Imagenet_resize",
        test=(10_000,),
    ),
    "lsun": Published(
        summary="LSUN's test scenes at 32x32, for out-of-distribution tests",
        files=(_at(f"{_ODIN}/moqh2wh8696c3yl/LSUN_resize.tar.gz?dl=1"),),
        folder="LSUN_resize",
        test=(10_000,),
    ),
    "isun": Published(
        summary="iSUN's scenes at 32x32, for out-of-distribution tests",
        files=(_at(f"{_ODIN}/ssz7qxfqae0cca5/iSUN.tar.gz?dl=1"),),
        folder="iSUN",
        test=(8925,),
    ),
}


def default_root() -> Path:
    """The folder of data sets if no root is given: $CONFRANK_DATA, or else a per-user cache folder."""
    if named := os.environ.get("CONFRANK_DATA"):
        return Path(named).expanduser()
    import pooch

    return Path(pooch.os_cache("confrank"))


def search_folders(name: str, root: Path | None) -> tuple[Path, Path]:
    """The folders that may hold a set's files; downloads go to the first."""
    base = default_root() if root is None else root
    return base / name, base


def present_files(name: str, root: Path | None, only: Sequence[str] = ()) -> tuple[Path, ...]:
    """The folder or files (`only` these) that hold the named set; empty if any is missing."""
    published = PUBLISHED[name]
    for folder in search_folders(name, root):
        if published.folder and (folder / published.folder).is_dir():
            return (folder / published.folder,)
        paths = tuple(folder / file.name for file in published.files if not only or file.name in only)
        if all(path.is_file() for path in paths):
            return paths
    return ()


def locate(name: str, root: Path | None, only: Sequence[str] = ()) -> tuple[Path, ...]:
    """The folder or files that hold the named set; a `ValueError` says how to get them."""
    if paths := present_files(name, root, only):
        return paths
    published, (subfolder, base) = PUBLISHED[name], search_folders(name, root)
    entries = " and ".join(file.name for file in published.files)
    folder = f" or the folder {published.folder}" if published.folder else ""
    raise InputError(
        f"expected {entries}{folder} in {base} or {subfolder}, but there is nothing",
        f"run: confrank data fetch {name}" + ("" if root is None else ", with the same {root}"),
    )


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
    bar: Callable[[str], object] = lambda name: False,
    on_note: Callable[[str], None] = lambda text: None,
) -> list[Fetched]:
    """Download a set's published files to `root/NAME`, except those already intact there or in `root`.

    `bar` gives a progress bar for a file's name, as `pooch.HTTPDownloader` takes it.
    """
    if name not in PUBLISHED:
        why = "; digits comes with scikit-learn and needs no files" if name == "digits" else ""
        raise ValueError(f"expected a published data set among {', '.join(PUBLISHED)}, but got {name!r}{why}")
    folders, fetched = search_folders(name, root), []
    for file in PUBLISHED[name].files:
        intact = _intact(file, folders)
        if intact is None:
            _download(file, folders[0], bar(file.name), on_note)
        path, actual = intact or (folders[0] / file.name, digest(folders[0] / file.name, file.md5))
        fetched.append(Fetched(path, actual, verified=file.md5 is not None, downloaded=intact is None))
    return fetched


def _intact(file: PublishedFile, folders: Sequence[Path]) -> tuple[Path, str] | None:
    """The file in the first folder that has it as published, and its digest."""
    for path in (folder / file.name for folder in folders):
        if path.is_file():
            actual = digest(path, file.md5)
            if file.md5 is None or actual == f"md5:{file.md5}":
                return path, actual
    return None


def digest(path: Path, md5: str | None = None) -> str:
    """The file's digest: "md5:..." if there is an md5 to compare with, or else "sha256:..."."""
    import pooch

    algorithm = "sha256" if md5 is None else "md5"
    return f"{algorithm}:{pooch.file_hash(str(path), alg=algorithm)}"


def _download(file: PublishedFile, folder: Path, bar: object, on_note: Callable[[str], None]) -> None:
    """Let pooch download a file; an older one stays until the new one is complete. All errors are worded here."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # it would print notes of its own
    load = pooch.HTTPDownloader(bar, CHUNK_BYTES, headers={"Accept-Encoding": "identity"})
    remedy = f"the publisher may have moved it: download it manually and put it into {folder} as {file.name}"
    attempts = 0

    def attempt(url: str, target: str, caller: object) -> None:
        nonlocal attempts
        attempts += 1
        os.unlink(target)  # pooch has created it so that its owner alone may read it
        try:
            load(url, target, caller)
        except requests.RequestException as error:
            if error.response is not None and error.response.status_code not in TRANSIENT:
                raise OSError(f"expected a file at {url}, but got {_reason(error)}; {remedy}") from None
            if attempts < ATTEMPTS:
                on_note(f"{file.name}: {_reason(error)}; trying again")
            raise  # pooch tries again
        with open(target, "rb") as start:
            if start.read(100).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
                raise OSError(f"expected a data file from {url}, but got a web page; {remedy}")

    known = {file.name: file.md5 and f"md5:{file.md5}"}
    cache = pooch.create(folder, "", registry=known, urls={file.name: file.url}, retry_if_failed=ATTEMPTS - 1)
    try:
        cache.fetch(file.name, downloader=attempt)
    except requests.RequestException as error:
        problem = f"expected to download {file.url}, but got {_reason(error)} in each of {ATTEMPTS} attempts"
        raise OSError(f"{problem}; try again later") from None
    except ValueError as error:
        actual = str(error).rpartition(" but got ")[2].partition(".")[0]
        raise ValueError(
            f"expected md5 {file.md5} for {file.name} from {file.url}, but got {actual}; it was deleted:"
            f" try again later, or put the correct file into {folder}"
        ) from None
    except OSError as error:
        cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
        if cause.errno is None:  # worded above
            raise
        raise OSError(cause.errno, cause.strerror, str(folder)) from None


def _reason(error: "RequestException") -> str:
    """Why a request failed, without the layers around it."""
    if error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    cause: BaseException = error
    while deeper := cause.__cause__ or cause.__context__:
        cause = deeper
    return f"{type(cause).__name__} ({getattr(cause, 'strerror', None) or cause})"


def read_files(source: Path, folder: str, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """The named files, each of exactly the given size, from a folder or from the archive that holds the folder."""
    if source.is_dir():
        return {name: _read_file(source / name, size) for name, size in sizes.items()}
    contents: dict[str, bytes] = {}
    with open_archive(source) as archive:
        for path, size, stream in archive:
            name = path.removeprefix(f"{folder}/")
            if path != name and name in sizes:
                _check_size(f"{name} in {source}", sizes[name], size, source)
                contents[name] = stream.read()
    if missing := [name for name in sizes if name not in contents]:
        raise ValueError(f"expected {', '.join(missing)} in {source}, but there is none; {_fetch_again(source)}")
    return contents


def _read_file(path: Path, size: int) -> bytes:
    if not path.is_file():
        raise ValueError(f"expected the file {path}, but there is none; {_fetch_again(path.parent)}")
    _check_size(str(path), size, path.stat().st_size, path.parent)
    return path.read_bytes()


def _check_size(what: str, expected: int, actual: int, source: Path) -> None:
    if actual != expected:
        raise ValueError(f"expected {expected:,} bytes in {what}, but got {actual:,}; {_fetch_again(source)}")


def _fetch_again(source: Path) -> str:
    return f"delete {source} and fetch it again (confrank data fetch)"


Member = tuple[str, int, IO[bytes]]


def _members(tar: tarfile.TarFile) -> Iterator[Member]:
    """The path, size and content of each regular file in order, without hidden ones; read each before the next."""
    for member in tar:
        path = member.name.removeprefix("./")
        if member.isreg() and not Path(path).name.startswith("."):
            stream = tar.extractfile(member)
            assert stream is not None  # regular files only
            yield path, member.size, stream


@contextmanager
def open_archive(path: Path) -> Iterator[Iterator[Member]]:
    """The members of a .tar.gz to iterate over; damage anywhere, up to the checksum at its end, is a `ValueError`."""
    try:
        with gzip.open(path) as stream:
            with tarfile.open(fileobj=stream, mode="r:") as tar:
                yield _members(tar)
            while stream.read(1 << 20):
                pass
    except (tarfile.TarError, gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"expected an intact .tar.gz archive, but {path} cannot be read: {error}; {_fetch_again(path)}"
        ) from None
