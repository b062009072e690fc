"""Limits on what a file may cost: sizes are read from headers before anything is unpacked."""

import math
import os
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np

from confrank.phrasing import InputError

MAX_GIGABYTES = 2.0
MAX_MEGAPIXELS = 100
# The environment variable that replaces MAX_GIGABYTES.
VARIABLE = "CONFRANK_MAX_GIGABYTES"


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
                    _check_member(stream, member)
        return sum(member.file_size for member in archive.infolist())


def _check_member(stream: IO[bytes], member: zipfile.ZipInfo) -> None:
    shape, _, kind = npy_header(stream)
    needed = math.prod(shape) * kind.itemsize
    if not kind.hasobject and needed > member.file_size:
        raise InputError(
            f"expected {needed:,} bytes in {member.filename} for shape {shape} of {kind},"
            f" but got {member.file_size:,}",
            "save the file again",
        )


def npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type of the array in an open npy file."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, kind = read(file)
    if any(length < 0 for length in shape):
        raise ValueError(f"expected lengths of at least 0, but got shape {shape}")
    return shape, fortran, kind


def check_pixels(width: int, height: int) -> None:
    """Raise if a picture has more pixels than the limit."""
    if width * height > MAX_MEGAPIXELS * 1_000_000:
        raise ValueError(
            f"expected at most {MAX_MEGAPIXELS} megapixels, but got {width:,} x {height:,} pixels; scale it down"
        )


def _shown(size: int) -> str:
    """
    >>> _shown(13_000_000), _shown(3_100_000_000), _shown(900)
    ('13 MB', '3.1 GB', '900 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size} bytes"
