"""Paths to write, checked before the work starts: writable, of the right kind, and no input of the command."""

import json
import os
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any


def check_folder(path: Path) -> Path:
    """The path of a folder to write files in; raises if that is impossible."""
    if path.exists() and not path.is_dir():
        raise ValueError(f"expected a folder to write in, but {path} is a file; choose another path")
    _check_writable(path, str(path))
    return path


def check_file(path: Path, *suffixes: str) -> Path:
    """The path of a file to write, with one of these endings if any are given; raises if it cannot be written."""
    from confrank.files import is_stream

    if path.is_dir():
        raise ValueError(f"expected a file to write, but {path} is a folder; name a file in it")
    if suffixes and path.suffix not in suffixes:
        raise ValueError(f"expected --out to name a file ending in {' or '.join(suffixes)}, but got {path}")
    if not is_stream(path):
        _check_writable(path.absolute().parent, str(path))
        if path.exists() and not os.access(path, os.W_OK):
            raise ValueError(f"expected a file to write, but {path} is read-only; choose another path")
    return path


def _check_writable(folder: Path, name: str) -> None:
    """Raise if a folder, or the nearest existing one above it, is not a writable folder."""
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not existing.is_dir():
        raise ValueError(f"expected a folder to write {name} in, but {existing} is a file; choose another path")
    if not os.access(existing, os.W_OK):
        raise ValueError(f"expected a folder to write {name} in, but {existing} is read-only; choose another path")


def write_json(path: Path | None, values: Any) -> None:
    """Write values to the file of --json; do nothing if the flag was not given."""
    from confrank.files import write_atomically

    if path is not None:
        write_atomically(path, json.dumps(values, indent=1))


def keep_inputs(inputs: Iterable[str | Path | None], *outputs: Path | None) -> None:
    """Raise if a file to write is, also through a link, an input, a file that training wrote, or another output.

    Every command calls it with all it reads and all it writes. Those that were not given are None.
    """
    from confrank.files import is_stream

    for file in filter(None, outputs):
        check_file(file)
    given = [Path(path) for path in inputs if path is not None]
    read = [one for path in given for one in _protected_files(path) if one.exists()]
    for output in outputs:
        if output is not None and output.exists() and any(output.samefile(one) for one in read):
            raise ValueError(
                f"expected a file to write, but {output} is an input of this command; choose another path"
            )
    for one, other in combinations(filter(None, outputs), 2):
        if not is_stream(one) and (os.path.realpath(one) == os.path.realpath(other) or _are_linked(one, other)):
            raise ValueError(f"expected a file for each result, but {one} and {other} are one; choose another path")


def _are_linked(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)


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
    from confrank.data import LOADERS
    from confrank.data.custom import image_folders
    from confrank.files import folders_under
    from confrank.runs.folder import RunFolder, load_config

    if not RunFolder(path).config.exists():
        return folders_under(path) if path.is_dir() else []
    dataset = load_config(path).dataset
    splits = [] if dataset in LOADERS else image_folders(Path(dataset))
    return [folder for split in splits for folder in folders_under(split)]


def _protected_files(path: Path) -> list[Path]:
    """The file itself, or those in a folder; for a run folder, all that training wrote except predictions."""
    from confrank.runs.folder import RunFolder

    run = RunFolder(path)
    if not run.config.exists():
        return [*path.iterdir()] if path.is_dir() else [path]
    written = [run.config, run.log, run.environment, run.history, run.metrics, run.metrics_of("holdout")]
    return [*written, *run.checkpoint.rglob("*"), *run.snapshots.glob("*")]
