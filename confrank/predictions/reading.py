"""How to read a file of predictions: what the caller says about its columns."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from confrank.errors import InputError

Scale = float | Literal["log"]
Kind = Literal["probabilities", "logits"]
# Roles that `columns` may give to a column. Those after `key` are kept, under the name of the role.
EXTRA_ROLES = ("group", "sample_weight", "text", "time")
COLUMN_ROLES = (
    "label", "prediction", "confidence", "correct", "probabilities", "logits", "index", "key", *EXTRA_ROLES
)  # fmt: skip
TRUE_ROLES = ("label", "correct")
# Roles that another file of the same kind need not have: its record leaves them out.
UNRECORDED = ("sample_weight", "text", "time")
SCORE_ROLES = ("confidence", "probabilities", "logits")
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


def record_of(reading: Reading, values: Sequence[str]) -> dict[str, Any]:
    """What was said about a file, to read others like it; {} if nothing. `values` are the columns of its scores.

    >>> record_of(Reading(columns={"label": "gold"}, scale=100), ["score"])
    {'columns': {'label': 'gold'}, 'scale': 100, 'values': ['score']}
    """
    columns = {role: name for role, name in reading.columns.items() if role not in UNRECORDED}
    said = {"columns": columns, "positive": reading.positive, "scale": reading.scale, "kind": reading.kind}
    given = {name: value for name, value in said.items() if value}
    return given | {"values": [*values]} if given else {}


def recalled(reading: Reading, record: Mapping[str, Any], header: Collection[str]) -> tuple[Reading, list[str]]:
    """The reading of a file with these columns, completed by the record of another file, and a note on what it added.

    Columns of the record count where the file has them, and the rest if it has the columns of the scores and the
    caller names no others. What the caller says overrides it, except that another positive class is an error.
    """
    present = {name.strip().lower() for name in header}
    settled = {*reading.columns, *(() if reading.labelled else TRUE_ROLES)}
    columns = {
        role: name
        for role, name in record.get("columns", {}).items()
        if name.strip().lower() in present and role not in settled and name not in reading.columns.values()
    }
    values = {name.strip().lower() for name in record.get("values", ())}
    chosen = {name.strip().lower() for role, name in reading.columns.items() if role in SCORE_ROLES or ":" in role}
    is_alike = values <= present and chosen <= values
    said = {name: record.get(name) for name in ("positive", "scale", "kind")} if is_alike else {}
    if reading.positive is not None and said.get("positive") not in (None, reading.positive):
        raise InputError(
            f"expected the probability of {said['positive']!r}, as in the file that the policy was made on, but got"
            f" that of {reading.positive!r}",
            "leave out {positive}",
        )
    added: dict[str, Any] = {
        name: value for name, value in said.items() if value is not None and getattr(reading, name) is None
    }
    notes = [
        f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"
        for name, value in (columns | added).items()
    ]
    keep = [name for name in reading.keep if name not in columns]
    completed = replace(reading, keep=keep, columns={**reading.columns, **columns}, **added)
    return completed, [f"read as the policy records: {', '.join(notes)}"] if notes else []
