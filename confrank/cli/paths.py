"""Paths to write: refused before the work where they cannot be written, or where a file would be lost."""

import os
from collections.abc import Iterable
from pathlib import Path


def file_path(name: str) -> Path:
    """The path of a file to write, if that can be written."""
    from confrank.files import is_stream

    path = Path(name)
    if path.is_dir():
        raise ValueError(f"expected a file to write, but {name} is a folder; name a file in it")
    if is_stream(path):
        return path
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir():
        raise ValueError(f"expected a folder to write {name} in, but {there} is a file; give another path")
    if not os.access(there, os.W_OK):
        raise ValueError(f"expected a folder to write {name} in, but {there} is read-only; give another path")
    return path


def json_path(name: str) -> Path:
    """The path of a JSON file to write, if its suffix says so; a pipe or device needs none."""
    from confrank.files import is_stream

    path = file_path(name)
    if path.suffix != ".json" and not is_stream(path):
        raise ValueError(f"expected --json to name a file ending in .json, but got {name}")
    return path


def picture_path(name: str) -> Path:
    """The path of a picture to write, if its suffix is one that can be drawn."""
    path = file_path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


def page_path(name: str) -> Path:
    """The path of a page to write, if its suffix says so."""
    if Path(name).suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return file_path(name)


def keep_inputs(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if a file to write is, perhaps through a link, one of those to read or one of a run folder's own."""
    read = [file for place in inputs for file in _files_of(Path(place)) if file.exists()]
    for output in outputs:
        if output is not None and output.exists() and any(output.samefile(file) for file in read):
            raise ValueError(f"expected a file to write, but {output} is read by this command; give another path")


def _files_of(place: Path) -> list[Path]:
    """A file itself; of a run folder what its training left, but for the predictions, which can be written again."""
    from confrank.config import RunFolder

    run = RunFolder(place)
    if not run.config.exists():
        return [place]
    kept = [run.config, run.log, run.environment, run.history, run.metrics, run.metrics_of("holdout")]
    return [*kept, *run.checkpoint.rglob("*"), *run.snapshot(0).parent.glob("*")]
