"""Conformal sets: for each row, a set of classes that includes the true one with a chosen probability.

A set holds the classes whose nonconformity is at most a quantile of that of the true classes in n calibration rows:
the ceil((n + 1) level)-th smallest.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.special import softmax

from confrank.decisions.guarantee import check_shares, refuse_weights
from confrank.decisions.nonconformity import (
    FREE_RANK,
    PENALTY,
    SET_METHODS,
    SetMethod,
    calibration_rows_needed,
    conformal_quantile,
    content_uniforms,
    file_seed,
    nonconformity,
    row_uniforms,
)
from confrank.errors import InputError, aligned, counted, named
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import (
    TOLERANCE,
    Array,
    ArrayLike,
    Classes,
    Flags,
    Floats,
    as_scores,
    check_columns,
    chunks,
    column_names,
    labels_for,
    same_length,
    same_rows,
    to_numpy,
)
from confrank.scores.table import Table, table_of

Per = Literal["all", "class", "group"]
ALL = "all"


@dataclass(frozen=True)
class ConformalSets:
    """How to build sets for new rows.

    `quantiles` and `counts` (of calibration rows) are given for "all", for the number of each class as text, or for
    each group. An infinite quantile means too few rows: every set holds the class, or all classes.
    """

    method: SetMethod
    level: float
    num_classes: int
    per: Per
    quantiles: Mapping[str, float]
    counts: Mapping[str, int]
    seed: int = 0
    penalty: float = PENALTY
    free_rank: int = FREE_RANK
    # The columns of the data frame that it was calibrated on; policies check names by themselves.
    columns: list[Any] | None = field(default=None, compare=False)

    def sets(
        self,
        *,
        logits: ArrayLike | None = None,
        probabilities: ArrayLike | None = None,
        group: Classes | None = None,
        key: Classes | None = None,
        uniform: ArrayLike | None = None,
    ) -> Flags:
        """Which classes are in the set of each row [n, K]; `group`, `key` and `uniform` [n] as for `conformal_sets`.

        A set may be empty. In an unknown group it holds all classes.
        """
        table = table_of(logits, probabilities)
        given = probabilities if logits is None else logits
        same_rows(predictions=given, group=group, key=key)
        check_columns(given, self.columns)
        if table.num_classes != self.num_classes:
            raise ValueError(
                f"expected {self.num_classes} classes, as in the calibration, but got {table.num_classes}"
            )
        u, limits = _uniforms(self.method, key, uniform, len(table), self.seed), self._limits(group, len(table))
        members = np.empty(table.values.shape, dtype=bool)
        options = (self.method, self.penalty, self.free_rank)
        for rows, scores in _scored(table, u, self.seed, options):
            members[rows] = scores <= limits[rows] + TOLERANCE
        return members

    def __repr__(self) -> str:
        rows = [[self.per, "calibration rows", "quantile"]]
        rows += [[name, f"{count:,}", f"{self.quantiles[name]:.6g}"] for name, count in self.counts.items()]
        first = f"{self.method.upper()} at level {self.level:g}: classes with a nonconformity up to the quantile"
        notes = [self.promise(), *filter(None, [self.shortage()])]
        return "\n".join([first, aligned(rows), *notes])

    def _limits(self, group: Classes | None, num_rows: int) -> Floats:
        """The quantiles that each row is compared with [n, K or 1]."""
        if self.per != "group":
            return np.broadcast_to(np.array([*self.quantiles.values()]), (num_rows, len(self.quantiles)))
        limits = np.full((num_rows, 1), math.inf)
        for name, rows in _grouped(group, num_rows).items():
            limits[rows] = self.quantiles.get(name, math.inf)
        return limits

    def promise(self, of: str = "group") -> str:
        """What is guaranteed, to whom, and under which assumption, in one sentence; `of` says what the groups are."""
        whom = {"all": "", "class": " within each true class", "group": f" within each {of}"}[self.per]
        return (
            f"the set of a new row includes its true class with probability at least {self.level:g}{whom},"
            f" on average over calibration files and new rows, if the row and the"
            f" {counted(sum(self.counts.values()), 'calibration row')} are exchangeable{whom}"
        )

    def shortage(self, of: str = "group", class_names: Sequence[str] | None = None) -> str | None:
        """Where there are too few rows, and how many are needed; None if there are enough."""
        needed = calibration_rows_needed(self.level)
        short = {name: count for name, count in self.counts.items() if count < needed}
        if not short:
            return None
        if self.per == "all":
            few = f"{counted(short[ALL], 'row')} {'is' if short[ALL] == 1 else 'are'} too few"
            return f"{few}: every set holds all classes; {needed:,} rows are needed"
        word, effect = ("class", "it is in every set") if self.per == "class" else (of, "its sets hold all classes")
        names = [class_names[int(name)] if class_names and self.per == "class" else name for name in short]
        listed = named([f"{name} ({counted(few, 'row')})" for name, few in zip(names, short.values(), strict=True)])
        return f"too few rows of {word} {listed}: {effect}; each {word} needs {needed:,} rows"

    def as_dict(self) -> dict[str, Any]:
        """Plain JSON values; an infinite quantile is None."""
        finite = {name: value if math.isfinite(value) else None for name, value in self.quantiles.items()}
        values = {name: value for name, value in asdict(self).items() if name != "columns"}
        return {**values, "quantiles": finite}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> "ConformalSets":
        """The inverse of `as_dict`."""
        quantiles = {name: math.inf if value is None else value for name, value in values["quantiles"].items()}
        return ConformalSets(**{**values, "quantiles": quantiles})


def conformal_sets(
    *,
    logits: ArrayLike | None = None,
    probabilities: ArrayLike | None = None,
    label: Classes,
    level: float = 0.9,
    method: SetMethod = "lac",
    per_class: bool = False,
    group: Classes | None = None,
    key: Classes | None = None,
    uniform: ArrayLike | None = None,
    seed: int = 0,
    penalty: float = PENALTY,
    free_rank: int = FREE_RANK,
    sample_weight: ArrayLike | None = None,
) -> ConformalSets:
    """Sets that include the true class of a new row with probability `level`, from labelled rows [n, K].

    The guarantee holds on average, or within each true class (`per_class`), or within each value of `group` [n]. APS
    and RAPS take u from a hash of a seed and the `key` [n] of the row (without keys, its probabilities), so that
    neither the order nor the other new rows change a set; or give u as `uniform` [n]. With keys, the seed of the
    result comes from `seed` and the labelled rows. Choose `penalty` and `free_rank` of RAPS on other rows.

    >>> probabilities = np.array([[0.75, 0.25], [0.5, 0.5], [0.25, 0.75], [0.9, 0.1]])
    >>> rule = conformal_sets(probabilities=probabilities, label=[0, 0, 1, 0], level=0.6)
    >>> rule.quantiles, rule.sets(probabilities=[[0.8, 0.2], [0.5, 0.5]]).tolist()
    ({'all': 0.25}, [[True, False], [False, False]])
    """
    refuse_weights(sample_weight)
    check_shares(level=level)
    _check_options(method, penalty, free_rank)
    if per_class and group is not None:
        raise InputError("expected sets per class or per group, but got both", "choose {per_class} or {by}")
    table = table_of(logits, probabilities)
    given = probabilities if logits is None else logits
    labels = labels_for(label, given, {"group": group, "key": key}, predictions=table.values)
    if not len(table):
        raise ValueError("expected labelled rows to calibrate sets on, but got none")
    if key is not None and uniform is None and method != "lac":
        seed = file_seed(table.values[np.arange(len(table)), labels], seed)
    u, scores = _uniforms(method, key, uniform, len(table), seed), np.empty(len(table))
    for rows, part in _scored(table, u, seed, (method, penalty, free_rank)):
        scores[rows] = part[np.arange(len(part)), labels[rows]]
    per: Per = "class" if per_class else "all" if group is None else "group"
    cells = {ALL: np.arange(len(table))} if group is None else _grouped(group, len(table))
    if per_class:
        cells = {str(number): np.flatnonzero(labels == number) for number in range(table.num_classes)}
    quantiles = {name: conformal_quantile(scores[rows], level) for name, rows in cells.items()}
    counts = {name: len(rows) for name, rows in cells.items()}
    values = (method, level, table.num_classes, per, quantiles, counts, seed, penalty, free_rank)
    return ConformalSets(*values, columns=column_names(given))


def _check_options(method: str, penalty: float, free_rank: int) -> None:
    if method not in SET_METHODS:
        raise ValueError(f"expected a method among {', '.join(SET_METHODS)}, but got {method!r}")
    for name, value in (("penalty", penalty), ("free rank", free_rank)):
        if not 0 <= value < math.inf:
            raise ValueError(f"expected a {name} of at least 0, but got {value}")


def _scored(
    table: Table, uniform: Floats | None, seed: int, options: tuple[SetMethod, float, int]
) -> Iterator[tuple[slice, Floats]]:
    """The nonconformity of each class [m, K], for parts of m rows; `options` are method, penalty and free rank."""
    for rows in chunks(*table.values.shape):
        part = np.ascontiguousarray(table.values[rows], dtype=np.float64)
        if table.kind == "logits":
            with np.errstate(over="ignore"):  # logits may be further apart than numbers go
                part = softmax(part, axis=1)
        u = content_uniforms(part, seed) if uniform is None else uniform[rows]
        yield rows, nonconformity(part, u, *options)


def _uniforms(
    method: SetMethod, key: Classes | None, uniform: ArrayLike | None, num_rows: int, seed: int
) -> Floats | None:
    """The u of each row; LAC needs none. None if the content of the row gives it."""
    if method == "lac":
        return np.zeros(num_rows)
    if uniform is not None:
        given: Floats = as_scores(uniform, "uniform").astype(np.float64)
        if len(given) and not (given.min() >= 0 and given.max() <= 1):
            raise ValueError(f"expected uniform within [0, 1], but got values in [{given.min()}, {given.max()}]")
        same_length(uniform=given, predictions=np.empty(num_rows))
        return given
    if key is None:
        return None
    keys = to_numpy(key)
    same_length(key=keys, predictions=np.empty(num_rows))
    return row_uniforms(keys, seed)


def _grouped(group: Classes | None, num_rows: int) -> dict[str, Array]:
    if group is None:
        raise InputError("expected the group of each row, but got none", "add {group}")
    same_length(group=to_numpy(group), predictions=np.empty(num_rows))
    return dict(rows_by_group(group))
