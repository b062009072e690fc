"""The folder of a run: the paths of its files, and reading its config and log."""

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from confrank.config import RunConfig
from confrank.errors import did_you_mean
from confrank.files import LOCK
from confrank.predictions import Predictions


class RunFolder:
    """The paths of a run's files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config, self.environment = path / "config.yaml", path / "environment.json"
        self.log, self.history = path / "log.jsonl", path / "history.npz"
        self.checkpoint, self.snapshots, self.lock = path / "checkpoint", path / "snapshots", path / LOCK
        self.metrics = self.metrics_of("test")

    def metrics_of(self, split: str) -> Path:
        return self.path / ("metrics.json" if split == "test" else f"metrics-{split}.json")

    def predictions(self, split: str) -> Path:
        return self.path / "predictions" / f"{split}.safetensors"

    def snapshot(self, epoch: int) -> Path:
        return self.snapshots / f"epoch-{epoch:04d}.safetensors"

    def read_log(self) -> list[dict[str, Any]]:
        """The records of the epochs so far, without a last line that is not complete (yet, or on a full disk)."""
        text = self.log.read_text() if self.log.exists() else ""
        records = []
        for line in text.splitlines(keepends=True):
            try:
                records.append(json.loads(line))
            except ValueError as error:
                if line.endswith("\n"):
                    raise ValueError(f"expected one JSON record per line in {self.log}, but: {error}") from None
        return records

    def check_snapshots(self, epochs: Iterable[int]) -> None:
        """Raise if the run has passed one of these epochs without storing its predictions."""
        done = len(self.read_log())
        paths = (self.snapshot(epoch) for epoch in epochs if epoch <= done)
        if missing := [path for path in paths if not path.exists()]:
            raise ValueError(
                f"expected {missing[0]}, but the run did not store it; remove its folder to train it again"
            )


# Settings are a flat mapping, some of whose values are lists.
MAX_YAML_DEPTH, MAX_YAML_LENGTH = 8, 1_000_000


def check_yaml(text: str) -> None:
    """Raise if settings are too long or nested too deep, or use aliases, which can multiply without end."""
    if len(text) > MAX_YAML_LENGTH:
        raise ValueError(f"expected at most {MAX_YAML_LENGTH:,} characters of settings, but got {len(text):,}")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(f"expected settings without aliases, but got *{event.anchor}; write the value itself")
        if depth > MAX_YAML_DEPTH:
            raise ValueError(f"expected plain settings, but got lists nested more than {MAX_YAML_DEPTH} deep")


def load_config(run: Path) -> RunConfig:
    """The config of a run folder."""
    path = RunFolder(run).config
    if not path.exists():
        state = "has none" if run.exists() else "does not exist"
        raise ValueError(f"expected a run folder with a config.yaml, but {run} {state}")
    try:
        text = path.read_text()
        check_yaml(text)
        return RunConfig.from_dict(yaml.safe_load(text))
    except (yaml.YAMLError, TypeError, ValueError, AttributeError) as error:
        why = " ".join(str(error).split())
        raise ValueError(f"expected run settings in {path}, but they cannot be read: {why}") from None


def images_of(path: Path, predictions: Predictions, rows: list[int], root: Path | None) -> dict[int, Any]:
    """Images of the given rows of a file, if the predictions belong to a run or name a published data set."""
    index = predictions.index
    if index is None or predictions.label is None or not rows or predictions.metadata.get("input_kind") == '"text"':
        return {}
    run = next((folder for folder in (path, path.parent.parent) if RunFolder(folder).config.exists()), None)
    dataset, image_size = predictions.metadata.get("dataset"), None
    if run is not None:
        config = load_config(run)
        dataset, image_size = config.dataset, config.image_size
    if dataset is None:
        return {}
    import numpy as np

    from confrank.data import LOADERS, load_of

    if run is None and dataset not in LOADERS:  # a file must not choose which folders are opened
        return {}
    from_pool = "from_pool" in predictions.metadata
    data = load_of(run or path, dataset, root, from_pool=from_pool, image_size=image_size)
    split = data.test if predictions.metadata.get("split") == "test" else data.train
    if index.max() >= len(split) or not np.array_equal(split.labels[index], predictions.label):
        raise ValueError(f"expected the data that {path} was computed from, but images or labels have changed since")
    return {row: split.images[int(index[predictions.file_rows == row][0])] for row in rows}


def read_settings(path: Path) -> dict[str, Any]:
    """Some settings of a run from a YAML file, such as the config.yaml of another run."""
    if not path.is_file():
        raise ValueError(f"expected a YAML file of settings for --config, but {path} does not exist or is not a file")
    text = path.read_text()
    try:
        check_yaml(text)
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"expected settings in YAML, but could not parse them: {error}") from None
    if not isinstance(values, dict):
        start = " ".join(text.split())
        got = repr(f"{start[:40]}..." if len(start) > 40 else start) if start else "nothing"
        raise ValueError(f"expected settings in YAML, one per line as in epochs: 60, but got {got}")
    known = [item.name for item in fields(RunConfig)]
    for name in values:
        if name not in known:
            raise ValueError(f"expected a known setting, but got {name!r}{did_you_mean(str(name), known)}")
    return values
