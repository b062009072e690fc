"""File 1: the state of a run between two steps, written so that no crash can lose it.

`checkpoint/` holds one folder per saved position, named epoch-step; the newest two stay. Each has
`weights.safetensors`, `state.pt` (plain tensors, numbers and strings: loadable with `weights_only=True`) and
`manifest.json` with the sha256 of both. A folder is written under a temporary name, flushed and renamed.
"""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights
from torch import Tensor

from confrank.files import remove_leftovers, sync_folder, write_synced

FORMAT = 1
NAME = re.compile(r"\d+-\d+")
NUM_KEPT = 2


@dataclass(frozen=True)
class Checkpoint:
    """Network weights; `state` is all else that training needs to resume; `meta` is the record of the run."""

    weights: dict[str, Tensor]
    state: dict[str, Any]
    meta: dict[str, Any]


class DamagedCheckpointError(ValueError):
    """The bytes of a checkpoint differ from those that were saved."""


def save_checkpoint(folder: Path, position: tuple[int, int], checkpoint: Checkpoint) -> Path:
    """Save under (epoch, step) and remove all but the newest two. An error leaves the earlier ones intact."""
    name = f"{position[0]:06d}-{position[1]:06d}"
    partial, target = folder / f".{name}.{os.getpid()}.part", folder / name
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    state = io.BytesIO()
    torch.save(checkpoint.state, state)
    copies = {
        name: values.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, values in checkpoint.weights.items()
    }
    contents = {"weights.safetensors": save_weights(copies), "state.pt": state.getvalue()}
    manifest = {
        "format": FORMAT,
        "meta": checkpoint.meta,
        "sha256": {file: hashlib.sha256(content).hexdigest() for file, content in contents.items()},
    }
    body = json.dumps(manifest, indent=1).encode()
    contents["manifest.json"] = body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n"
    try:
        partial.mkdir()
        for file, content in contents.items():
            write_synced(partial / file, content)
        sync_folder(partial)
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except OSError as error:
        shutil.rmtree(partial, ignore_errors=True)
        message = f"could not save the checkpoint ({error.strerror}); the earlier ones are intact"
        raise OSError(error.errno, message, str(target)) from None
    sync_folder(folder)
    for old in saved(folder)[:-NUM_KEPT]:
        shutil.rmtree(old)
    return target


def saved(folder: Path) -> list[Path]:
    """The folders of the saved positions, oldest first."""
    paths = (path for path in folder.glob("[0-9]*-[0-9]*") if NAME.fullmatch(path.name) and path.is_dir())
    return sorted(paths, key=_position)


def _position(path: Path) -> tuple[int, ...]:
    return tuple(map(int, path.name.split("-")))


def set_newer_aside(folder: Path, position: tuple[int, int]) -> None:
    """Rename what was saved after a position: a damaged checkpoint must not count among the newest two."""
    for path in saved(folder):
        if _position(path) > position:
            damaged = folder / f"damaged-{path.name}"
            shutil.rmtree(damaged, ignore_errors=True)
            path.rename(damaged)


def load_latest(folder: Path) -> tuple[Checkpoint, list[str]]:
    """The newest intact checkpoint, and a line on each newer one that is damaged."""
    problems: list[str] = []
    for path in reversed(saved(folder)):
        try:
            return load_checkpoint(path), problems
        except DamagedCheckpointError as error:
            problems.append(str(error))
    if problems:
        raise DamagedCheckpointError(
            f"{'; '.join(problems)}; no intact checkpoint is left: remove {folder.parent} to start over"
        )
    raise ValueError(f"expected a checkpoint in {folder}, but there is none")


def load_checkpoint(path: Path) -> Checkpoint:
    """Read and verify one saved position. Nothing in it is ever executed."""
    manifest = _unsealed(path / "manifest.json")
    contents = {}
    for file, expected in manifest["sha256"].items():
        contents[file] = _read(path / file)
        actual = hashlib.sha256(contents[file]).hexdigest()
        if actual != expected:
            raise DamagedCheckpointError(f"expected sha256 {expected} for {path / file}, but got {actual}")
    try:
        state = torch.load(io.BytesIO(contents["state.pt"]), weights_only=True, map_location="cpu")
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        why = str(error).strip().splitlines()[-1] if str(error) else type(error).__name__
        raise DamagedCheckpointError(
            f"expected only tensors, numbers and strings in {path / 'state.pt'}, but it holds something else: {why}"
        ) from None
    return Checkpoint(load_weights(contents["weights.safetensors"]), state, manifest["meta"])


def _unsealed(path: Path) -> dict[str, Any]:
    """The manifest; an error unless its last line is the sha256 of the lines before."""
    content = _read(path)
    body, _, seal = content.rstrip(b"\n").rpartition(b"\n")
    actual = hashlib.sha256(body).hexdigest()
    if seal.decode(errors="replace") != actual or not content.endswith(b"\n"):
        raise DamagedCheckpointError(
            f"expected {path} to end with its sha256, but got {seal[:80]!r} for content of sha256 {actual}"
        )
    try:
        manifest: dict[str, Any] = json.loads(body)
    except (ValueError, RecursionError):
        raise DamagedCheckpointError(f"expected a JSON object in {path}, but got {body[:80]!r}") from None
    if not isinstance(manifest, dict) or not isinstance(manifest.get("sha256"), dict):
        raise DamagedCheckpointError(f"expected digests in {path}, but got {body[:80]!r}")
    if manifest.get("format") != FORMAT or set(manifest["sha256"]) != {"weights.safetensors", "state.pt"}:
        raise DamagedCheckpointError(
            f"expected checkpoint format {FORMAT} in {path}, but got {manifest.get('format')}"
        )
    return manifest


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise DamagedCheckpointError(f"expected a readable {path}, but got: {error.strerror}") from None
