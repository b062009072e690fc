"""A table of logits or probabilities, and several scores of some of its rows in one pass over small blocks."""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from confrank.metrics.inputs import Array, ArrayLike, Floats, Ints, as_probabilities, as_table, chunks
from confrank.scores.functions import shifted, softmax

Kind = Literal["logits", "probabilities"]
# What a function takes: `shifted` are logits whose largest is 0, as several functions need them. The values of a row
# are in ascending order, except those `by class`: the last digit of a sum depends on the order.
Form = Literal["logits", "shifted", "probabilities", "by class"]


@dataclass(frozen=True)
class Table:
    """Checked logits or probabilities [n, K], in the type they came in."""

    values: Array
    kind: Kind

    def __len__(self) -> int:
        return len(self.values)

    @property
    def num_classes(self) -> int:
        return int(self.values.shape[1])

    def blocks(self, rows: Ints) -> Iterator[tuple[slice, Array]]:
        """The given rows in blocks, in the type of the table, each with its position among the rows."""
        for part in chunks(len(rows), self.num_classes):
            yield part, self.values[rows[part]]


def table_of(logits: ArrayLike | None = None, probabilities: ArrayLike | None = None) -> Table:
    """Check what a caller gave: logits or probabilities [n, K]."""
    if (logits is None) == (probabilities is None):
        raise ValueError(f"expected logits or probabilities, but got {'neither' if logits is None else 'both'}")
    if logits is not None:
        return Table(as_table(logits, "logits"), "logits")
    assert probabilities is not None
    return Table(as_probabilities(probabilities), "probabilities")


def forms_of(block: Array, kind: Kind, wanted: Collection[Form]) -> dict[Form, Floats]:
    """A block in the wanted forms, in float64. Logits of probabilities are ln p, clipped at the smallest number."""
    values = np.ascontiguousarray(block, dtype=np.float64)
    forms: dict[Form, Floats] = {}
    if "by class" in wanted:
        forms["by class"] = np.minimum(values, 1) if kind == "probabilities" else softmax(shifted(values))
    values = np.sort(values, axis=1)
    if kind == "probabilities":
        forms["probabilities"] = np.minimum(values, 1)
        values = np.log(np.maximum(values, np.finfo(block.dtype).tiny)) if {*wanted} - {*forms} else values
    forms["logits"] = values
    if "shifted" in wanted or "probabilities" not in forms:
        forms["shifted"] = shifted(values)
    if "probabilities" in wanted and "probabilities" not in forms:
        forms["probabilities"] = softmax(forms["shifted"])
    return forms


def computed(
    table: Table, rows: Ints, functions: Mapping[str, tuple[Form, Callable[..., Floats], Mapping[str, Any]]]
) -> dict[str, Floats]:
    """Values [len(rows)] by name, from (what the function takes, the function, its parameters)."""
    results = {name: np.empty(len(rows)) for name in functions}
    wanted = {form for form, _, _ in functions.values()}
    for part, block in table.blocks(rows):
        forms = forms_of(block, table.kind, wanted)
        for name, (form, function, parameters) in functions.items():
            results[name][part] = function(forms[form], **parameters)
    return results
