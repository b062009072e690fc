"""What a file is by its first bytes, if its name says something else."""

import zipfile
from pathlib import Path

from confrank.predictions.text_file import PACKED

# The first bytes of a format, what it is, and its endings.
SIGNATURES: tuple[tuple[bytes, str, tuple[str, ...]], ...] = (
    (b"PK\x03\x04", "an npz archive", (".npz",)),
    (b"\x1f\x8b", "compressed by gzip", (".gz",)),
    (b"BZh", "compressed by bzip2", (".bz2",)),
    (b"\xfd7zXZ\x00", "compressed by xz", (".xz",)),
    (b"\x28\xb5\x2f\xfd", "compressed by zstd", (".zst",)),
    (b"PAR1", "a Parquet file", (".parquet",)),
    (b"ARROW1", "an Arrow file", (".arrow", ".feather", ".ipc")),
    (b"\x93NUMPY", "an npy file", (".npy",)),
)
# Zip archives of other formats, by the end of the name of a file in them.
ZIP_FORMATS = {
    "/data.pkl": ("a file of torch.save", (".pt", ".pth")),
    "[Content_Types].xml": ("an Excel workbook", (".xlsx",)),
}
ZIP_ENDINGS = [ending for _, endings in ZIP_FORMATS.values() for ending in endings]
TEXT_ENDINGS = ".csv, .tsv, .json or .jsonl"


def refuse_other_format(path: Path) -> None:
    """Raise if the first bytes of a file show another format than its name, and say how to name it."""
    with path.open("rb") as file:
        start = file.read(256)
    ending = path.suffix.lower()
    for signature, what, endings in SIGNATURES:
        if start.startswith(signature):
            if endings == (".npz",):
                what, endings = _zip_format(path, ending, what)
            if ending in endings:
                return
            if not _is_text(start):
                raise ValueError(f"expected a {ending} file, but it is {_remedied(path, what, endings)}")
    binary = [".zip", *ZIP_ENDINGS, *(proper for _, _, endings in SIGNATURES for proper in endings)]
    if ending in binary and _is_text(start):
        name = path.with_suffix("").name
        remedy = f"rename it to {name}" if ending in PACKED else f"rename it to end in {TEXT_ENDINGS}"
        raise ValueError(f"expected a {ending} file, but it is text; {remedy}")


def _zip_format(path: Path, ending: str, what: str) -> tuple[str, tuple[str, ...]]:
    """What a zip archive is, and its endings: none for several files, that of its name if it is damaged."""
    if ending == ".zip":
        return what, (ending,)
    names = _names_in(path)
    if not names:
        return what, (".npz", ending) if ending in ZIP_ENDINGS else (".npz",)
    for end, found in ZIP_FORMATS.items():
        if any(name.endswith(end) for name in names):
            return found
    if all(name.endswith(".npy") for name in names):
        return what, (".npz",)
    return "a zip archive", ((".zip",) if len(names) == 1 else ())


def _remedied(path: Path, what: str, endings: tuple[str, ...]) -> str:
    """What a file is, and how to name it."""
    if not endings:
        return f"{what}; unpack it"
    if endings[0] in PACKED:
        return f"{what}; rename it to {path.name}{endings[0]} if it holds text, or unpack it"
    return f"{what}; rename it to end in {endings[0]}"


def _names_in(path: Path) -> list[str]:
    """The names in a zip archive; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except Exception:  # zipfile raises errors of many types for damaged archives
        return []


def _is_text(start: bytes) -> bool:
    """Whether bytes are printable characters of ASCII, or spaces between them."""
    return start.isascii() and all(byte >= 32 or byte in b"\t\n\r" for byte in start)
