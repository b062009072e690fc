"""Paths to write: refused before the work where they cannot be written, or where a file would be lost."""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Protocol, cast, overload


class PathOf(Protocol):
    """The path that a flag names; None, where it was not given, stays None."""

    @overload
    def __call__(self, name: str) -> Path: ...
    @overload
    def __call__(self, name: None) -> None: ...


def _if_given(path_of: Callable[[str], Path]) -> PathOf:
    @wraps(path_of)
    def path_or_none(name: str | None) -> Path | None:
        return None if name is None else path_of(name)

    return cast(PathOf, path_or_none)


@_if_given
def folder_path(name: str) -> Path:
    """The path of a folder to write files in, if that is possible."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise ValueError(f"expected a folder to write in, but {name} is a file; give another path")
    _check_writable(path, name)
    return path


@_if_given
def file_path(name: str) -> Path:
    """The path of a file to write, if that can be written."""
    from confrank.atomic import is_stream

    path = Path(name)
    if path.is_dir():
        raise ValueError(f"expected a file to write, but {name} is a folder; name a file in it")
    if not is_stream(path):
        _check_writable(path.absolute().parent, name)
    return path


def _check_writable(folder: Path, name: str) -> None:
    """Raise if nothing can be written in a folder, or in that in which it would be made."""
    there = next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise ValueError(f"expected a folder to write {name} in, but {there} is a file; give another path")
    if not os.access(there, os.W_OK):
        raise ValueError(f"expected a folder to write {name} in, but {there} is read-only; give another path")


@_if_given
def json_path(name: str) -> Path:
    """The path of a JSON file to write, if its suffix says so; a pipe or device needs none."""
    from confrank.atomic import is_stream

    path = file_path(name)
    if path.suffix != ".json" and not is_stream(path):
        raise ValueError(f"expected --json to name a file ending in .json, but got {name}")
    return path


def _out_ending_in(suffix: str) -> PathOf:
    """The path of a file to write, if its suffix says so."""

    @_if_given
    def out_path(name: str) -> Path:
        path = file_path(name)
        if path.suffix != suffix:
            raise ValueError(f"expected --out to end in {suffix}, but got {name}")
        return path

    return out_path


csv_path, safetensors_path = _out_ending_in(".csv"), _out_ending_in(".safetensors")


@_if_given
def picture_path(name: str) -> Path:
    """The path of a picture to write, if its suffix is one that can be drawn."""
    path = file_path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a picture ending in .png, .svg or .pdf, but got {name}")
    return path


@_if_given
def page_path(name: str) -> Path:
    """The path of a page to write, if its suffix says so."""
    path = file_path(name)
    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return path


def keep_inputs(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if a file to write is, perhaps through a link, one of those to read or one of a run folder's own."""
    read = [file for place in inputs for file in _files_of(Path(place)) if file.exists()]
    for output in outputs:
        if output is not None and output.exists() and any(output.samefile(file) for file in read):
            raise ValueError(f"expected a file to write, but {output} is read by this command; give another path")


def keep_out_of_data(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if a picture to write, or a folder of them, would join or replace pictures that are read."""
    written = [*filter(None, outputs)]
    if not written:
        return
    for folder in (folder for place in inputs for folder in _picture_folders(Path(place))):
        for output in written:
            if output.resolve().is_relative_to(folder.resolve()):
                raise ValueError(
                    f"expected a path outside of {folder}, whose pictures this command reads, but got {output}"
                )


def _picture_folders(place: Path) -> list[Path]:
    """A folder, with those below it and behind its links; of a run those of its own data set."""
    from confrank.folders import folders_under
    from confrank.run_folder import RunFolder, load_config

    if not RunFolder(place).config.exists():
        return folders_under(place) if place.is_dir() else []
    data = Path(load_config(place).dataset)
    splits = [data / split for split in ("train", "test")]
    return [folder for split in splits if split.is_dir() for folder in folders_under(split)]


def _files_of(place: Path) -> list[Path]:
    """A file itself; of a run folder what its training left, but for the predictions, which can be written again."""
    from confrank.run_folder import RunFolder

    run = RunFolder(place)
    if not run.config.exists():
        return [place]
    kept = [run.config, run.log, run.environment, run.history, run.metrics, run.metrics_of("holdout")]
    return [*kept, *run.checkpoint.rglob("*"), *run.snapshot(0).parent.glob("*")]
