"""Paths to write, checked before the work starts: writable, of the right kind, and no input of the command."""

import os
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import Protocol, cast, overload


class PathOf(Protocol):
    """The path that a flag names; None if the flag was not given."""

    @overload
    def __call__(self, name: str) -> Path: ...
    @overload
    def __call__(self, name: None) -> None: ...


def _if_given(path_of: Callable[[str], Path]) -> PathOf:
    @wraps(path_of)
    def path_or_none(name: str | None) -> Path | None:
        if name == "":
            raise ValueError("expected a path to write, but got an empty one")
        return None if name is None else path_of(name)

    return cast(PathOf, path_or_none)


@_if_given
def folder_path(name: str) -> Path:
    """The path of a folder to write files in; raises if that is impossible."""
    path = Path(name)
    if path.exists() and not path.is_dir():
        raise ValueError(f"expected a folder to write in, but {name} is a file; choose another path")
    _check_writable(path, name)
    return path


@_if_given
def file_path(name: str) -> Path:
    """The path of a file to write; raises if it cannot be written."""
    from confrank.atomic import is_stream

    path = Path(name)
    if path.is_dir():
        raise ValueError(f"expected a file to write, but {name} is a folder; name a file in it")
    if not is_stream(path):
        _check_writable(path.absolute().parent, name)
    return path


def _check_writable(folder: Path, name: str) -> None:
    """Raise if a folder, or the nearest existing one above it, is not a writable folder."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"expected a folder to write {name} in, but {existing} is a file; choose another path")
    if not os.access(existing, os.W_OK):
        raise ValueError(f"expected a folder to write {name} in, but {existing} is read-only; choose another path")


@_if_given
def json_path(name: str) -> Path:
    """The path of a JSON file to write; it must end in .json, except for a pipe or device."""
    from confrank.atomic import is_stream

    path = file_path(name)
    if path.suffix != ".json" and not is_stream(path):
        raise ValueError(f"expected --json to name a file ending in .json, but got {name}")
    return path


def _out_ending_in(suffix: str) -> PathOf:
    """A function that gives the path of a file to write, which must have that suffix."""

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
    """The path of a figure to write; it must end in .png, .svg or .pdf."""
    path = file_path(name)
    if path.suffix not in (".png", ".svg", ".pdf"):
        raise ValueError(f"expected a figure ending in .png, .svg or .pdf, but got {name}")
    return path


@_if_given
def page_path(name: str) -> Path:
    """The path of a page to write; it must end in .html or .htm."""
    path = file_path(name)
    if path.suffix not in (".html", ".htm"):
        raise ValueError(f"expected a page ending in .html, but got {name}")
    return path


def keep_inputs(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if a file to write is, directly or through a link, an input or a file that training wrote."""
    read = [file for path in inputs for file in _protected_files(Path(path)) if file.exists()]
    for output in outputs:
        if output is not None and output.exists() and any(output.samefile(file) for file in read):
            raise ValueError(
                f"expected a file to write, but {output} is an input of this command; choose another path"
            )


def keep_out_of_data(inputs: Iterable[str | Path], *outputs: Path | None) -> None:
    """Raise if figures would be written among the images that are read."""
    written = [*filter(None, outputs)]
    if not written:
        return
    for folder in (folder for path in inputs for folder in _image_folders(Path(path))):
        for output in written:
            if output.resolve().is_relative_to(folder.resolve()):
                raise ValueError(
                    f"expected a path outside {folder}, whose images this command reads, but got {output}"
                )


def _image_folders(path: Path) -> list[Path]:
    """A folder with its subfolders, links followed; for a run folder, those of the data set it was trained on."""
    from confrank.folders import folders_under
    from confrank.run_folder import RunFolder, load_config

    if not RunFolder(path).config.exists():
        return folders_under(path) if path.is_dir() else []
    data = Path(load_config(path).dataset)
    splits = [data / split for split in ("train", "test")]
    return [folder for split in splits if split.is_dir() for folder in folders_under(split)]


def _protected_files(path: Path) -> list[Path]:
    """The file itself; for a run folder all that training wrote except predictions, which can be written again."""
    from confrank.run_folder import RunFolder

    run = RunFolder(path)
    if not run.config.exists():
        return [path]
    written = [run.config, run.log, run.environment, run.history, run.metrics, run.metrics_of("holdout")]
    return [*written, *run.checkpoint.rglob("*"), *run.snapshot(0).parent.glob("*")]
