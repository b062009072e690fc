"""Does a guarantee still hold? Tests of error rates and of drift, over new answers in the order of time.

Each test may be looked at after every answer. If everything is as guaranteed, any of the tests of error rates ever
alarms with probability at most alpha, and so does the test of drift, whose level is separate.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from confrank.decisions.betting import RiskTest, e_text, risk_test
from confrank.decisions.drift import DriftTest, Reference, drift_test
from confrank.errors import aligned
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import ArrayLike, Flags, Ints, as_flags, same_length, same_rows

ERRORS = "error rate among accepted answers"
MISSES = "share of sets without the true class"


@dataclass(frozen=True)
class Claim:
    """A guarantee: at most `limit` of the answers at `rows` are bad, where `bad` [n] is about all answers.

    The test gets a share of alpha, divided by `parts`.
    """

    what: str
    limit: float
    bad: Flags
    rows: Ints
    group: str | None = None
    parts: int = 1


@dataclass(frozen=True)
class Watch:
    """A guarantee and its test; `rows` are the positions of the answers that it is about, in the order of time."""

    what: str
    group: str | None
    rows: Ints
    test: RiskTest

    @property
    def alarm_row(self) -> int | None:
        return None if self.test.alarm is None else int(self.rows[self.test.alarm])

    @property
    def since_row(self) -> int | None:
        return None if self.test.since is None else int(self.rows[self.test.since])


@dataclass(frozen=True)
class Monitored:
    """The tests of all guarantees, and that of drift if there is a reference."""

    alpha: float
    watches: tuple[Watch, ...]
    drift: DriftTest | None = None

    def __repr__(self) -> str:
        words = {True: "no sign of a broken guarantee", False: "a guarantee is broken", None: "nothing was tested"}
        rows = [
            [
                one.what if one.group is None else f"{one.what} in {one.group}",
                f"{one.test.risk:.4g}",
                f"{one.test.num_wrong:,} of {one.test.num_answers:,}",
                e_text(one.test.log_e_value, one.test.alarm),
                f"{one.test.line:g}",
                "-" if one.alarm_row is None else f"{one.alarm_row:,}",
            ]
            for one in self.watches
        ]
        if (drift := self.drift) is not None:
            alarm = "-" if drift.alarm is None else f"{drift.alarm:,}"
            evidence = e_text(drift.log_e_value, drift.alarm)
            rows.append(["drift of the confidence", "", "", evidence, f"{drift.line:g}", alarm])
        heading = ["guarantee", "at most", "measured", "e-value", "alarm at", "first alarm in row"]
        return f"{words[self.holds]} (level {self.alpha:g})\n{aligned([heading, *rows])}"

    @property
    def holds(self) -> bool | None:
        """Whether no test raised an alarm; None if nothing was tested."""
        if not any(watch.test.num_answers for watch in self.watches):
            return None
        return all(watch.test.holds for watch in self.watches)

    @property
    def first_alarm(self) -> Watch | None:
        """The guarantee whose break was noticed first."""
        broken = [watch for watch in self.watches if not watch.test.holds]
        return min(broken, key=lambda watch: watch.alarm_row or 0, default=None)


def monitor(
    correct: ArrayLike,
    risk: float,
    *,
    accepted: ArrayLike | None = None,
    group: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    reference: Reference | None = None,
    alpha: float = 0.05,
) -> Monitored:
    """Test "the error rate among accepted answers is at most `risk`", for answers in the order of time.

    With `group` [n], each group is tested with a share of alpha: the j-th to occur with 1 / (j (j + 1)) of it, so
    that a new group leaves the lines of the others where they are. With `confidence` [n] and the `reference` of the
    calibration rows, drift is tested too. A file that grows continues its test; other answers restart it.

    >>> monitor([True] * 300, 0.05).holds, monitor([True, False] * 150, 0.05).holds
    (True, False)
    """
    same_rows(correct=correct, accepted=accepted, group=group, confidence=confidence)
    right = as_flags(correct)
    taken = np.ones(len(right), dtype=bool) if accepted is None else as_flags(accepted, "accepted")
    same_length(correct=right, accepted=taken)
    groups: Mapping[str, Ints] = {"": np.arange(len(right))} if group is None else rows_by_group(group)
    # Equal shares of those that have occurred so far would add up to more than alpha over time.
    ordered = sorted(groups.items(), key=lambda one: int(one[1][0]))
    places = {name: place for place, (name, _) in enumerate(ordered, 1)}
    parts = dict.fromkeys(groups, 1) if group is None else {name: k * (k + 1) for name, k in places.items()}
    claims = [
        Claim(ERRORS, risk, ~right, rows[taken[rows]], name or None, parts[name]) for name, rows in groups.items()
    ]
    drift = None if confidence is None or reference is None else drift_test(confidence, reference, alpha=alpha)
    watches = tuple(watch for claim in claims for watch in watched([claim], alpha))
    return Monitored(alpha, watches, drift)


def watched(claims: Sequence[Claim], alpha: float) -> tuple[Watch, ...]:
    """The test of each guarantee, with an equal share of alpha."""
    return tuple(
        Watch(
            one.what,
            one.group,
            one.rows,
            risk_test(one.bad[one.rows], one.limit, alpha=alpha, num_tests=one.parts * len(claims)),
        )
        for one in claims
    )


def miscoverage_bound(num_calibration: int, level: float, delta: float) -> float | None:
    """With probability 1 - delta over the calibration rows, at most this share of conformal sets miss the true class.

    Conformal sets guarantee `level` on average over calibration rows. Given these rows, the share of misses has at
    most the distribution of an order statistic of uniform values. None if the sets contain all classes.

    >>> round(miscoverage_bound(1000, 0.9, 0.025), 4)
    0.1192
    """
    rank = math.ceil((num_calibration + 1) * level - 1e-9)
    if rank > num_calibration:
        return None
    return float(betaincinv(num_calibration + 1 - rank, rank, 1 - delta))
