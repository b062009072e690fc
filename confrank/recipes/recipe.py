"""What a recipe says about itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TrainingRecipe:
    """Settings of `confrank.config.RunConfig` that differ from their defaults.

    source: who proposed it. passes: forward and backward passes of a step, in units of a plain step.
    expected: a result to compare with. published: by data set, the AURC that others give for ResNet-18 and 45,000
    training images. by_dataset: settings that differ for a data set. The setting `averaging_lr` is given by its share
    of `lr`, as `averaging_lr_share`.
    """

    source: str
    passes: int
    expected: str
    settings: Mapping[str, Any]
    by_dataset: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
