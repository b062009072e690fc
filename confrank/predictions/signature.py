"""What a file is by its first bytes, if its name says something else."""

import zipfile
from pathlib import Path

# The first bytes of a format, what it is, and its ending.
SIGNATURES = (
    (b"PK\x03\x04", "an npz archive", ".npz"),
    (b"\x1f\x8b", "compressed by gzip", ".gz"),
    (b"PAR1", "a Parquet file", ".parquet"),
    (b"\x93NUMPY", "an npy file", ".npy"),
)
TEXT_ENDINGS = ".csv, .tsv, .json or .jsonl"


def refuse_other_format(path: Path) -> None:
    """Raise if the first bytes of a file show another format than its name, and say how to name it."""
    with path.open("rb") as file:
        start = file.read(256)
    ending = path.suffix.lower()
    for signature, what, proper in SIGNATURES:
        if not start.startswith(signature):
            continue
        names = _names_in(path) if proper == ".npz" else []
        if any(name.endswith("/data.pkl") for name in names):
            what, proper = "a file of torch.save", ".pt"
        if ending == proper or (ending in (".pt", ".pth") and (proper == ".pt" or not names)):
            return
        if not _is_text(start):
            raise ValueError(f"expected a {ending} file, but it is {_remedied(path, what, proper)}")
    if ending in [proper for _, _, proper in SIGNATURES] and _is_text(start):
        name = path.with_suffix("").name
        remedy = f"rename it to {name}" if ending == ".gz" else f"rename it to end in {TEXT_ENDINGS}"
        raise ValueError(f"expected a {ending} file, but it is text; {remedy}")


def _remedied(path: Path, what: str, ending: str) -> str:
    """What a file is, and how to name it."""
    if ending == ".gz":
        return f"{what}; rename it to {path.name}.gz if it holds text, or unpack it"
    names = _names_in(path) if ending == ".npz" else []
    if "[Content_Types].xml" in names:
        return "an Excel workbook; save the sheet as CSV UTF-8"
    if not all(name.endswith(".npy") for name in names):
        return "a zip archive; unpack it"
    return f"{what}; rename it to end in {ending}"


def _names_in(path: Path) -> list[str]:
    """The names in a zip archive; none if it is damaged."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return []


def _is_text(start: bytes) -> bool:
    """Whether bytes are printable characters of ASCII, or spaces between them."""
    return start.isascii() and all(byte >= 32 or byte in b"\t\n\r" for byte in start)
