"""File 2: what a model said about a split, for anyone to evaluate.

A predictions file holds `label` and `logits` or `probabilities` [n, K], and/or `confidence` [n] (the method's
own) and `correct` [n]; `index` [n] is the position in the published split. Metadata (strings) tells class
names, data set, split, method, model and seed.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from confrank.confidence import max_probability
from confrank.config import RunConfig
from confrank.files import canonical_safetensors, write_atomically

Array = NDArray[Any]
ARRAYS = ("logits", "probabilities", "label", "confidence", "correct", "index")


@dataclass(frozen=True)
class Predictions:
    """Arrays as in the file; those that are absent are None."""

    logits: Array | None = None
    probabilities: Array | None = None
    label: Array | None = None
    confidence: Array | None = None
    correct: Array | None = None
    index: Array | None = None
    metadata: dict[str, str] = field(default_factory=dict)

    def arrays(self) -> dict[str, Array]:
        return {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}

    def evaluation_inputs(self) -> dict[str, Array]:
        """What `confrank.evaluate` takes."""
        return {name: value for name, value in self.arrays().items() if name != "index"}

    def ranked(self) -> tuple[Array, Array]:
        """(confidence, correct): the file's own confidence, or else the largest probability."""
        table = self.logits if self.logits is not None else self.probabilities
        correct = self.correct if table is None or self.label is None else table.argmax(axis=1) == self.label
        confidence = self.confidence
        if confidence is None and table is not None:
            confidence = (
                table.max(axis=1) if self.logits is None else max_probability(torch.tensor(table).double()).numpy()
            )
        assert confidence is not None and correct is not None, "evaluate() has checked that they are there"
        return confidence, correct

    def __len__(self) -> int:
        return len(next(iter(self.arrays().values())))

    @property
    def class_names(self) -> list[str] | None:
        names: list[str] | None = json.loads(self.metadata.get("class_names", "null"))
        return names

    def describe(self) -> str:
        """One line that says what was read.

        >>> Predictions(probabilities=np.eye(3), label=np.arange(3)).describe()
        '3 predictions, 3 classes, probabilities'
        """
        table = self.logits if self.logits is not None else self.probabilities
        parts = [f"{len(self):,} predictions"]
        if table is not None:
            parts += [f"{table.shape[1]} classes", "logits" if self.logits is not None else "probabilities"]
        if self.confidence is not None:
            parts.append("confidence")
        return ", ".join(parts)


def run_metadata(config: RunConfig, class_names: Iterable[str], split: str) -> dict[str, str]:
    """What a predictions file of a run says about itself."""
    return {
        "class_names": json.dumps(list(class_names)),
        "split": split,
        **{key: str(getattr(config, key)) for key in ("dataset", "model", "method", "seed")},
    }


def save_predictions(path: Path, predictions: Predictions) -> None:
    """Write a predictions file in safetensors format, atomically."""
    arrays = {name: np.ascontiguousarray(value) for name, value in predictions.arrays().items()}
    write_atomically(path, canonical_safetensors(save(arrays, metadata=predictions.metadata)))


def load_predictions(path: Path) -> Predictions:
    """Read .safetensors, .npz or .csv; a `ValueError` names the file and what was expected."""
    if not path.exists():
        raise ValueError(f"expected a predictions file, but {path} does not exist")
    if path.is_dir():
        raise ValueError(f"expected a predictions file, but {path} is a folder")
    if path.stat().st_size == 0:
        raise ValueError(f"expected a predictions file, but {path} is empty")
    if path.suffix not in READERS:
        raise ValueError(f"expected a file ending in {', '.join(READERS)}, but got {path}")
    predictions = READERS[path.suffix](path)
    if not predictions.arrays():
        raise ValueError(
            f"expected label with logits or probabilities, or confidence with correct, but {path} has none of them"
        )
    return predictions


def _read_safetensors(path: Path) -> Predictions:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys() if name in ARRAYS}  # noqa: SIM118
            return Predictions(**arrays, metadata=dict(file.metadata() or {}))
    except SafetensorError as error:
        raise ValueError(f"expected a safetensors file, but {path} cannot be read: {error}") from None


def _read_npz(path: Path) -> Predictions:
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return Predictions(**{name: file[name] for name in file.files if name in ARRAYS})
    except Exception as error:  # numpy raises zipfile, value, key and OS errors for broken archives
        raise ValueError(f"expected an npz archive of arrays, but {path} cannot be read: {error}") from None


def _read_csv(path: Path) -> Predictions:
    """Columns: label, confidence, correct, index, and probability_0.. or logit_0.. in class order."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected a CSV file in UTF-8, but {path} cannot be read: {error}") from None
    header = next(csv.reader(io.StringIO(text)), [])
    tables = {
        kind: [column for column in header if column.startswith(prefix)]
        for kind, prefix in (("probabilities", "probability_"), ("logits", "logit_"))
    }
    known = {*ARRAYS} - {*tables}
    unknown = [column for column in header if not (column in known or column.startswith(("probability_", "logit_")))]
    if unknown or len(set(header)) < len(header):
        raise ValueError(
            f"expected distinct columns among {', '.join(sorted(known))}, probability_*, logit_*, but {path} has"
            f" {', '.join(header)[:300]}"
        )
    if not text.partition("\n")[2].strip():
        raise ValueError(f"expected rows of {len(header)} numbers under the header, but {path} has none")
    try:
        values = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=1, ndmin=2, comments=None)
    except ValueError as error:
        raise ValueError(f"expected a number in each of {len(header)} columns, but {path}: {error}") from None
    if values.shape[1] != len(header):
        raise ValueError(f"expected rows of {len(header)} numbers, but {path} has rows of {values.shape[1]}")
    return _csv_predictions(path, header, values, tables)


def _csv_predictions(path: Path, header: list[str], values: Array, tables: dict[str, list[str]]) -> Predictions:
    arrays: dict[str, Any] = {
        kind: values[:, [header.index(name) for name in names]] for kind, names in tables.items() if names
    }
    for name in set(header) & {*ARRAYS}:
        column = values[:, header.index(name)]
        if name in ("label", "index"):
            if (column != np.floor(column)).any() or not np.isfinite(column).all():
                raise ValueError(f"expected whole numbers in column {name}, but {path} has others")
            column = column.astype(np.int64)
        arrays[name] = column
    return Predictions(**arrays)


READERS: dict[str, Callable[[Path], Predictions]] = {
    ".safetensors": _read_safetensors,
    ".npz": _read_npz,
    ".csv": _read_csv,
}
