"""Learn then Test: how many of the most confident rows can be accepted with a guaranteed error rate.

Angelopoulos et al., "Learn then Test" (2021). "More than `risk` of the accepted answers are wrong" is tested for the
k most confident rows, for growing k, with the exact binomial test. A sequence of tests starts at the smallest k that
zero errors would certify, and ends at the first test that fails; each of its tests has the full level. Several
sequences, one for each doubling of that k, share the level, so that one early error does not end the search. Which k
are tested does not depend on which answers are right. A confidence that ranks is assumed: lower thresholds have no
lower error rate.
"""

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.special import bdtr

from confrank.metrics.inputs import TOLERANCE, Array, Ints

# More rows than this are no useful advice.
MOST_NEEDED = 10**9
# Sequences of tests that start at most.
MOST_STARTS = 40
# Sequences test each number of errors up to this one, then in steps of 2%.
DENSE = 50


@dataclass(frozen=True)
class RankedRows:
    """Rows, the most confident first, how many of the first 0, 1, ..., n are wrong, and the risk to certify."""

    confidence: Array  # [n]
    wrong: Ints  # [n + 1]
    risk: float

    def __len__(self) -> int:
        return len(self.confidence)

    def accepted_with(self, k: Array | int) -> Ints:
        """How many rows a threshold at the k-th confidence accepts: k, and the ties of the last."""
        threshold = self.confidence[np.asarray(k) - 1]
        accepted: Ints = np.searchsorted(-self.confidence, TOLERANCE - threshold, side="right")
        return accepted


def ranked_rows(confidence: Array, correct: Array, risk: float) -> RankedRows:
    """The rows by confidence."""
    order = np.argsort(-confidence, kind="stable")
    return RankedRows(confidence[order], np.append(0, np.cumsum(~correct[order])), risk)


def is_certified(wrong: Any, accepted: Any, risk: Any, level: float) -> Any:
    """Whether so few errors among so many accepted have a probability of at most `level` at any higher error rate."""
    return (bdtr(wrong, accepted, risk) <= level) & (accepted > wrong)


def rows_needed(risk: float, delta: float, rate: float = 0.0) -> int | None:
    """The smallest number of accepted rows that certifies the risk if a share `rate` of them is wrong.

    Without errors it is ceil(ln delta / ln(1 - risk)). None if it is more than a billion.

    >>> rows_needed(0.05, 0.001), rows_needed(0.05, 0.001, 0.025), rows_needed(0.05, 0.001, 0.05)
    (135, 645, None)
    """
    if rate >= risk:
        return None
    low, high = 0, math.ceil(math.log(delta) / math.log1p(-risk))
    while not is_certified(math.floor(rate * high), high, risk, delta):
        low, high = high, 2 * high
        if high > MOST_NEEDED:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        enough = is_certified(math.floor(rate * middle), middle, risk, delta)
        low, high = (low, middle) if enough else (middle, high)
    return high


def most_certified(rows: RankedRows, level: float) -> tuple[int, float]:
    """The largest number of rows that can be accepted (0 for none), and the level of each sequence of tests."""
    starts, each = _starts(rows, level)
    return max((_last_certified(rows, start, each) for start in starts), default=0), each


def _starts(rows: RankedRows, level: float) -> tuple[list[int], float]:
    """The numbers of accepted rows at which sequences start, and the level of each sequence."""
    chosen: tuple[list[int], float] = [], level
    for number in range(1, MOST_STARTS + 1):
        first = rows_needed(rows.risk, level / number)
        if first is None or first << (number - 1) > len(rows):
            break
        chosen = [first << step for step in range(number)], level / number
    return chosen


def _last_certified(rows: RankedRows, start: int, level: float) -> int:
    """The largest number accepted such that all tests from `start` up to it pass; 0 if the first one fails."""
    steps = _steps(rows.risk, level, len(rows))
    tested = np.unique(rows.accepted_with(np.append(start, steps[steps > start])))
    failed = np.flatnonzero(~is_certified(rows.wrong[tested], tested, rows.risk, level))
    num_passed = failed[0] if len(failed) else len(tested)
    return int(tested[num_passed - 1]) if num_passed else 0


@lru_cache(maxsize=64)  # all sequences of a group have the same steps
def _steps(risk: float, level: float, most: int) -> Ints:
    """The smallest numbers of rows that 0, 1, 2, ... errors would certify, and `most`, the number of all rows."""
    errors = np.arange(int(risk * most) + 1)
    thin = np.unique((DENSE * 1.02 ** np.arange(1, 51 + 50 * math.log2(max(1, len(errors))))).astype(np.int64))
    errors = np.append(errors[: DENSE + 1], thin[(thin > DENSE) & (thin < len(errors))])
    low, high = errors.copy(), np.full(len(errors), most + 1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        enough = is_certified(errors, middle, risk, level)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.append(high[high <= most], most)


def number_needed(rows: RankedRows, level: float, widest: int = 0) -> int | None:
    """About how many rows with these error rates would certify a threshold; None if no number would.

    The thresholds considered accept all rows, halved `widest` times, and further halves of them. Where there are
    errors, one more is assumed, since the most favourable threshold is picked. Without errors the number is a lower
    limit.
    """
    least = math.inf
    for k in [max(1, len(rows) >> step) for step in range(widest, 10)]:
        accepted = int(rows.accepted_with(k))
        wrong = int(rows.wrong[accepted])
        needed = rows_needed(rows.risk, level, (wrong + (wrong > 0)) / accepted) or math.inf
        least = min(least, needed / accepted * len(rows))
    return max(math.ceil(least), len(rows) + 1) if least < MOST_NEEDED else None
