"""The schema of predictions: arrays of one length, and strings as metadata.

There is `label` with `logits` or `probabilities` [n, K], or `label`, `prediction` and `confidence` [n], or
`confidence` and `correct` [n]. A table may come with the method's `confidence`. `index` [n] is the position in the
published split; `key` [n] identifies samples otherwise (file names or ids, as bytes in UTF-8), and so does each field
of `other_keys` [n]. `extra` are further columns of the file [n], by name: text as str objects, or numbers. The
metadata give class names, data set, split, method, model and seed, and the name of `key`. `notes` say how a file was
read, `roles` what each of its columns was taken for, `reading` what the caller said about it, and `rows` [n] which of
its rows these are, if some were skipped; none is written to files.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.errors import aligned, counted, joined
from confrank.metrics.inputs import (
    GIVE_CLASSES,
    Classes,
    class_numbers,
    names_of_classes,
    refuse_masked,
    row_numbers,
    same_rows,
    to_numpy,
)
from confrank.metrics.samples import both_classes, unknown_name

Array = NDArray[Any]
ARRAYS = ("logits", "probabilities", "label", "prediction", "confidence", "correct", "index", "key")


@dataclass(frozen=True)
class Predictions:
    """Numpy arrays as in the file; absent ones are None."""

    logits: Array | None = None
    probabilities: Array | None = None
    label: Array | None = None
    prediction: Array | None = None
    confidence: Array | None = None
    correct: Array | None = None
    index: Array | None = None
    key: Array | None = None
    other_keys: Array | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Array] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    reading: dict[str, Any] = field(default_factory=dict)
    rows: Array | None = None

    def __post_init__(self) -> None:
        check_shapes(self.arrays())
        if self.key is not None:
            object.__setattr__(self, "key", as_keys(self.key))
        for name, values in self.extra.items():
            if values.shape != (len(self),):
                raise ValueError(
                    f"expected a value of {name!r} for each of {len(self):,} rows, but got {values.shape}"
                )
        for key, value in self.metadata.items():
            if not isinstance(value, str):
                raise ValueError(
                    f"expected metadata to be strings, but got {value!r} for {key};"
                    " give class_names as a JSON list and anything else as str(value)"
                )

    def __repr__(self) -> str:
        return self.describe() + (f"\n{aligned([*self.roles.items()])}" if self.roles else "")

    def arrays(self) -> dict[str, Array]:
        return {name: value for name in ARRAYS if (value := getattr(self, name)) is not None}

    @property
    def table(self) -> Array | None:
        return self.logits if self.logits is not None else self.probabilities

    def evaluation_inputs(self) -> dict[str, Array]:
        """The arrays that `confrank.evaluate` and `confrank.metrics.sample_values` take."""
        return {name: value for name, value in self.arrays().items() if name not in ("index", "key")}

    @property
    def key_name(self) -> str:
        return self.metadata.get("key", "id")

    @property
    def keys(self) -> dict[str, Array]:
        """All columns that identify samples, by name."""
        keys = {} if self.key is None else {self.key_name: self.key}
        others = self.other_keys
        return keys if others is None else keys | {name: others[name] for name in others.dtype.names or ()}

    def key_of(self, row: int) -> str | None:
        """A readable name of a row: its file, or its id after the word id."""
        if self.key is None:
            return None
        word = f"{self.key_name} " if self.key_name.endswith("id") else ""
        return word + bytes(self.key[row]).decode(errors="replace")

    def __len__(self) -> int:
        return len(next(iter(self.arrays().values())))

    def select(self, rows: Array) -> "Predictions":
        """The rows of these numbers or flags."""
        arrays: dict[str, Any] = {name: values[rows] for name, values in self.arrays().items()}
        others = None if self.other_keys is None else self.other_keys[rows]
        extra = {name: values[rows] for name, values in self.extra.items()}
        return replace(self, **arrays, other_keys=others, extra=extra, rows=self.file_rows[rows])

    @property
    def file_rows(self) -> Array:
        """The row of the file that each row was: its own number, unless rows were left out."""
        return np.arange(len(self)) if self.rows is None else self.rows

    @property
    def class_names(self) -> list[str] | None:
        names: list[str] | None = json.loads(self.metadata.get("class_names", "null"))
        return names

    def describe(self) -> str:
        """One line that says what was read.

        >>> import numpy as np
        >>> Predictions(probabilities=np.eye(3), label=np.arange(3)).describe()
        '3 predictions, 3 classes, probabilities'
        >>> Predictions(confidence=np.ones(1), correct=np.ones(1)).describe()
        '1 prediction, confidence and correct'
        """
        parts = [counted(len(self), "prediction")]
        if self.table is not None:
            parts += [f"{self.table.shape[1]} classes", "logits" if self.logits is not None else "probabilities"]
            parts += ["confidence"] if self.confidence is not None else []
        elif self.correct is not None:
            parts.append("confidence and correct")
        else:
            roles = [role for role in ("label", "prediction", "confidence") if getattr(self, role) is not None]
            parts.append(joined(roles))
        parts += [self.metadata["binary"]] if "binary" in self.metadata else []
        if self.keys:
            parts.append(f"identified by {' and '.join(self.keys)}")
        if "labels" in self.metadata:
            parts.append(f"labels {self.metadata['labels']}")
        if "unnamed" in self.metadata:
            parts.append(f"including classes that no label names: {self.metadata['unnamed']}")
        parts += self.notes
        ignored = self.metadata.get("ignored")
        return ", ".join(parts) + (f" (ignored: {ignored})" if ignored else "")

    def dependence_notes(self, what: str) -> list[str]:
        """A line if several rows have one id, as images of one patient, and nobody said what rows belong to.

        It says `what` then does not hold, with the name of the id's column for `{column}`.
        """
        repeated = [name for name, role in self.roles.items() if role == "ignored (not unique)"]
        if self.key is not None or "cluster" in self.extra or not repeated:
            return []
        name = repeated[0]
        return [f"note: {name} is not unique; if rows of one {name} depend on each other, {what.format(column=name)}"]


def as_predictions(
    model: Predictions | Mapping[str, Classes],
    columns: Collection[str] = (),
    others: Mapping[str, Classes] | None = None,
) -> Predictions:
    """A mapping of arrays as predictions, with the named columns as `extra`; see `evaluate` for names of classes.

    The index of pandas is the `index`, if it identifies the rows. `others` are arrays that must have the same one.

    >>> as_predictions({"label": ["b", "a"], "prediction": ["b", "b"], "confidence": [0.9, 0.8]}).class_names
    ['a', 'b']
    """
    if isinstance(model, Predictions):
        return model
    if not isinstance(model, Mapping):
        got = type(model).__name__
        raise ValueError(f"expected arrays by name, but got {got}; read a data frame by confrank.predictions.read")
    if unknown := [name for name in model if name not in (*ARRAYS, "classes", *columns)]:
        raise unknown_name(unknown, [*ARRAYS, "classes"])
    given = {name: values for name, values in model.items() if name != "classes"}
    same_rows(**(given | dict(others or {})))
    arrays: dict[str, Any] = {name: to_numpy(values) for name, values in given.items()}
    table = model.get("logits", model.get("probabilities"))
    for kind in arrays.keys() & {"logits", "probabilities"}:
        arrays[kind] = both_classes(arrays[kind], is_logits=kind == "logits")
    extra = {name: values for name, values in arrays.items() if name in columns}
    classes: dict[str, Any] = {name: arrays.pop(name) for name in ("label", "prediction") if name in arrays}
    names = names_of_classes(table, model.get("classes"))
    numbers, names = class_numbers(classes, names, "" if table is None else GIVE_CLASSES)
    arrays = {name: values for name, values in (arrays | numbers).items() if name in ARRAYS}
    if (index := row_numbers(*given.values())) is not None:
        arrays = {"index": index} | arrays
    return Predictions(**arrays, extra=extra, metadata={} if names is None else {"class_names": json.dumps(names)})


def as_keys(values: Array) -> Array:
    """Names or integers [n] as bytes in UTF-8, without surrounding spaces and without decimals such as .0.

    >>> as_keys(np.array([7, 10])), as_keys(np.array([" é"])), as_keys(np.array(["7.0", "10.0"]))
    (array([b'7', b'10'], dtype='|S2'), array([b'\\xc3\\xa9'], dtype='|S3'), array([b'7', b'10'], dtype='|S2'))
    """
    if values.dtype.kind in "iu":
        width = max(len(str(value)) for value in (values.min(initial=0), values.max(initial=0)))
        return values.astype(f"S{width}")
    keys: Array = np.char.strip(values if values.dtype.kind == "S" else np.char.encode(values.astype(str), "utf-8"))
    if (np.char.endswith(keys, b".0") | (keys == b"")).all():  # as pandas writes integers if one is missing
        whole: Array = np.char.partition(keys, b".")[:, 0]
        if ((np.char.add(whole, b".0") == keys) & np.char.isdigit(whole) | (keys == b"")).all():
            return whole
    return keys


def check_shapes(arrays: dict[str, Array], *, text: bool = False) -> None:
    """Raise if there is no array, or one has a wrong shape, type or length; with `text`, classes may be names."""
    if not arrays:
        raise ValueError(f"expected arrays among {', '.join(ARRAYS)}, but got none")
    for role, values in arrays.items():
        refuse_masked(values)
        if not isinstance(values, np.ndarray):
            raise ValueError(
                f"expected {role} to be a numpy array, but got {type(values).__module__}.{type(values).__qualname__};"
                " convert it with tensor.detach().float().cpu().numpy()"
            )
        dimensions = 2 if role in ("probabilities", "logits", "outputs") else 1
        kinds = "fiubUS" if text and role in ("label", "prediction") else "iuUS" if role == "key" else "fiub"
        if values.ndim != dimensions or values.dtype.kind not in kinds:
            raise ValueError(
                f"expected {role} to be an array of {counted(dimensions, 'dimension')} of numbers,"
                f" but got shape {values.shape} of {values.dtype}"
            )
    lengths = {role: len(values) for role, values in arrays.items()}
    if len({*lengths.values()}) > 1:
        shown = ", ".join(f"{length} in {role}" for role, length in lengths.items())
        raise ValueError(f"expected the same number of rows in each array, but got {shown}")
