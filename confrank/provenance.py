"""What a run is: one record, written into its checkpoint, its weights file and its predictions alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confrank.config import RunConfig

DIGESTS = ("data", "test_data")
SEQUENCES = ("class_names", "input_shape", "mean", "std", "vocabulary")
# "image_shape" was the name of "input_shape" in the first files.
STORED = ("config", "input_kind", "versions", "image_shape", "from_pool", *SEQUENCES, *DIGESTS)


@dataclass(frozen=True)
class Provenance:
    """The settings of a run (data set, model and method among them), its classes, its input, versions and data.

    An image has the shape [h, w, c] and is normalised by `mean` and `std` [c]; a text has a vocabulary.
    `digests` are fingerprints of the data: "data" of both splits, "test_data" of the test split. The labels of a run
    `from_pool` are not with its data.
    Files of earlier versions lack some of these; what they lack is empty.

    >>> record = Provenance(RunConfig(), ("cat", "dog"), (8, 8, 1), (0.5,), (0.2,))
    >>> Provenance.from_metadata(record.as_metadata()) == record
    True
    """

    config: RunConfig
    class_names: tuple[str, ...] = ()
    input_shape: tuple[int, ...] = ()
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    vocabulary: tuple[str, ...] = ()
    input_kind: str = "image"
    versions: Mapping[str, str] = field(default_factory=dict)
    digests: Mapping[str, str] = field(default_factory=dict)
    from_pool: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without what is empty."""
        values = {
            "config": self.config.as_dict(),
            "input_kind": self.input_kind,
            **{name: list(getattr(self, name)) for name in SEQUENCES},
            "versions": dict(self.versions),
            "from_pool": self.from_pool,
            **self.digests,
        }
        return {name: value for name, value in values.items() if value}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "Provenance":
        """The record in the values of `as_dict`, or in those of an earlier version."""
        values = {"input_shape": values.get("image_shape", ()), **values}
        return cls(
            RunConfig.from_dict(values["config"]),
            input_kind=values.get("input_kind", "image"),
            versions=values.get("versions", {}),
            from_pool=values.get("from_pool", False),
            digests={name: values[name] for name in DIGESTS if name in values},
            **{name: tuple(values.get(name, ())) for name in SEQUENCES},
        )

    def as_metadata(self) -> dict[str, str]:
        """Each value as JSON: the metadata of a safetensors file."""
        return {name: json.dumps(value, sort_keys=True) for name, value in self.as_dict().items()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> "Provenance | None":
        """The record in a file's metadata; None if they do not hold one."""
        try:
            values = {name: json.loads(metadata[name]) for name in STORED if name in metadata}
        except (ValueError, RecursionError):
            return None
        return cls.from_dict(values) if isinstance(values.get("config"), dict) else None

    def of_predictions(self, split: str) -> dict[str, str]:
        """The metadata of predictions for a split, without a vocabulary, which is long.

        Other tools read data set, model, method and seed as text.
        """
        plain = {name: str(getattr(self.config, name)) for name in ("dataset", "model", "method", "seed")}
        stored = {name: value for name, value in self.as_metadata().items() if name != "vocabulary"}
        return {**stored, "split": split, **plain}
