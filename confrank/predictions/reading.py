"""How to read a file of predictions: what the caller says about its columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Reading:
    """What `read` was asked: see there."""

    keep: Sequence[str] = ()
    columns: Mapping[str, str] = field(default_factory=dict)


PLAIN = Reading()
