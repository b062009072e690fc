"""How to read a file of predictions: what the caller says about its columns."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from confrank.phrasing import InputError

Scale = float | Literal["log"]
Kind = Literal["probabilities", "logits"]
# Roles that `columns` may give to a column. Those after `key` are kept, under the name of the role.
EXTRA_ROLES = ("group", "sample_weight", "text", "time")
COLUMN_ROLES = (
    "label", "prediction", "confidence", "correct", "probabilities", "logits", "index", "key", *EXTRA_ROLES
)  # fmt: skip
CLASS_ROLES: dict[str, Kind] = {"probability:": "probabilities", "logit:": "logits"}


@dataclass(frozen=True)
class Reading:
    """What `read` was asked; see there. `kind` says what class columns hold, whatever their names say.

    If not `labelled`, a file needs no labels, and those it has are not read. `classes` are the names of the classes
    that it must have.
    """

    keep: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    positive: str | None = None
    scale: Scale | None = None
    kind: Kind | None = None
    skip_missing: bool = False
    labelled: bool = True
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for role in self.columns:
            classes = [role[len(prefix) :] for prefix in CLASS_ROLES if role.startswith(prefix)]
            if role not in COLUMN_ROLES and not any(classes):
                known = ", ".join([*COLUMN_ROLES, *(f"{prefix}NAME" for prefix in CLASS_ROLES)])
                raise InputError(f"expected a role among {known}, but got {role!r}", "change {columns}")
        if self.scale is not None and self.scale != "log" and not 0 < self.scale < math.inf:
            raise InputError(f"expected a positive number or 'log', but got {self.scale!r}", "change {scale}")


PLAIN = Reading()
