"""The scores by name: what each is computed from, its parameters, and where it is not defined."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.metrics.inputs import ArrayLike, Floats, Ints, as_flags, same_length
from confrank.scores import functions
from confrank.scores.fitting import fit_power, fit_relu, fit_temperature_by_aurc
from confrank.scores.table import Form, Kind, Table, computed, table_of

STANDARD = "max-probability"


@dataclass(frozen=True)
class Score:
    """What a score is computed from, how, and its parameters, by name; `fit` is given if they must be fitted."""

    of: Form
    function: Callable[..., Floats]
    meaning: str
    parameters: Mapping[str, Callable[[Any], Any]]
    fit: Callable[..., dict[str, Any]] | None = None
    needs_logits: bool = False


def _positive(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError("a positive number")
    return float(value)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError("a whole number above 0")
    return value


def _power(value: Any) -> float | None:
    if value is None or (value == 0 and not isinstance(value, bool)):
        return None if value is None else 0
    return _positive(value)


def _matrix(value: Any) -> Floats:
    try:
        matrix = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("a square matrix of numbers") from None
    if matrix.ndim != 2 or len(matrix) != matrix.shape[1] or not np.isfinite(matrix).all():
        raise ValueError("a square matrix of numbers")
    return matrix


# In order of preference: of scores that rank equally well, `choose` takes the first.
SCORES: dict[str, Score] = {
    "max-probability": Score("probabilities", functions.largest, "the largest probability", {}),
    "margin": Score("probabilities", functions.margin, "largest minus second probability", {}),
    "logit-margin": Score("shifted", functions.margin, "largest minus second logit", {}),
    "negative-entropy": Score("probabilities", functions.negative_entropy, "1 - entropy / ln K", {}),
    "sum-of-squares": Score("probabilities", functions.sum_of_squares, "sum of p²; ranks as DOCTOR", {}),
    "gen": Score(
        "probabilities", functions.gen, "generalised entropy (GEN), negative", {"gamma": _positive, "top": _count}
    ),
    "max-logit": Score("logits", functions.largest, "the largest logit", {}, needs_logits=True),
    "energy": Score("logits", functions.energy, "log sum exp of the logits", {}, needs_logits=True),
    "p-norm": Score("shifted", functions.p_norm, "largest centred logit over the p-norm", {"p": _power}, fit_power),
    "max-probability-temperature": Score(
        "shifted",
        functions.tempered,
        "largest probability at the temperature of least AURC",
        {"temperature": _positive},
        fit_temperature_by_aurc,
    ),
    "relu": Score("by class", functions.relu, "relative uncertainty, negative", {"matrix": _matrix}, fit_relu),
}
names = tuple(SCORES)


def refusal(name: str, kind: Kind, num_classes: int) -> str | None:
    """Why a score is not defined for such a table; None if it is."""
    if SCORES[name].needs_logits and kind == "probabilities":
        lost = (
            "the energy of ln p is constant" if name == "energy" else "probabilities do not have the scale of logits"
        )
        return f"needs logits: {lost}"
    if name == "p-norm" and num_classes == 2:
        return "needs at least 3 classes: it is constant for 2"
    return None


def score(
    name: str, *, logits: ArrayLike | None = None, probabilities: ArrayLike | None = None, **parameters: Any
) -> Floats:
    """The score of each row [n], higher = surer, from logits or probabilities [n, K].

    Names are written with `-` or `_`. `p-norm` needs `p`, `max-probability-temperature` needs `temperature`, and
    `relu` needs `matrix`: `choose` and `fit` give them. `gen` takes `gamma` and `top`.

    >>> score("margin", probabilities=[[0.5, 0.375, 0.125], [0.25, 0.5, 0.25]]).tolist()
    [0.125, 0.25]
    >>> score("p-norm", logits=[[3.0, 0.0, 0.0]], p=1).tolist()
    [0.5]
    """
    table, name = table_of(logits, probabilities), name.replace("_", "-")
    checked = check(name, table, parameters)
    return scored(table, np.arange(len(table)), {name: checked})[name]


def fit(
    name: str,
    *,
    correct: ArrayLike,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
) -> dict[str, Any]:
    """The parameters of a score, fitted to right and wrong predictions [n]; {} if it has none to fit.

    >>> fit("p-norm", logits=[[3.0, 1.0, 0.0], [2.0, 1.9, 0.0]], correct=[True, False])
    {'p': None}
    """
    table, flags, name = table_of(logits, probabilities), as_flags(correct), name.replace("_", "-")
    same_length(correct=flags, predictions=table.values)
    known(name, table)
    return plain(fitted(name, table, flags, np.arange(len(table))))


def fitted(name: str, table: Table, correct: Any, rows: Ints) -> dict[str, Any]:
    """The parameters of a score, fitted on these rows."""
    function = SCORES[name].fit
    return {} if function is None else function(table, correct, rows)


def known(name: str, table: Table) -> Score:
    """The score of a name, if it is defined for the table."""
    if name not in SCORES:
        raise ValueError(f"expected a score among {', '.join(SCORES)}, but got {name!r}")
    reason = refusal(name, table.kind, table.num_classes)
    if reason is not None:
        raise InputError(f"expected a score that these {table.kind} define, but {name} {reason}", "use another score")
    return SCORES[name]


def check(name: str, table: Table, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a score, as its function takes them."""
    entry, checked = known(name, table), {}
    for key, value in parameters.items():
        if key not in entry.parameters:
            allowed = f"{', '.join(entry.parameters)} for {name}" if entry.parameters else f"no parameter for {name}"
            raise ValueError(f"expected {allowed}, but got {key!r}")
        try:
            checked[key] = entry.parameters[key](value)
        except ValueError as error:
            raise ValueError(f"expected {key} of {name} to be {error}, but got {str(value)[:80]}") from None
    missing = [key for key in entry.parameters if entry.fit is not None and key not in checked]
    if missing:
        raise ValueError(f"expected the parameter {missing[0]!r} of {name}, but got none; `choose` and `fit` give it")
    if name == "relu" and len(checked["matrix"]) != table.num_classes:
        raise ValueError(
            f"expected a matrix for {table.num_classes} classes, but got one for {len(checked['matrix'])};"
            " use predictions with the classes that the score was fitted to"
        )
    return checked


def scored(table: Table, rows: Ints, parameters: Mapping[str, Mapping[str, Any]]) -> dict[str, Floats]:
    """Several scores of these rows in one pass, each with its checked parameters."""
    return computed(
        table, rows, {name: (SCORES[name].of, SCORES[name].function, given) for name, given in parameters.items()}
    )


def plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as plain values: a matrix as nested lists."""
    return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in parameters.items()}
