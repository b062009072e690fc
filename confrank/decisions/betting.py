"""An anytime-valid test of an error rate: betting against "wrong with probability at most r".

A gambler starts with capital 1. Before each answer she may stake some of it on "wrong", at odds that are fair for an
error rate of exactly r. While no answer is wrong with probability above r, given those before it, her expected
capital never grows, so it ever reaches 1/alpha with probability at most alpha (Ville's inequality), however often one
looks. She spreads her capital over the time at which the error rate rises (`START`) and over the size of the rise
(`ODDS`). A stake on a rise that starts at answer s grows like the likelihood ratio of the answers from s on.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import xlogy

from confrank.decisions.guarantee import check_shares
from confrank.metrics.inputs import ArrayLike, Flags, Floats, Ints, as_flags

ODDS = (1.25, 1.5, 2.0, 3.0, 5.0)  # odds of an error after the rise, as multiples of the odds at r; equal shares
START = 1 / 5000  # half of the capital is staked at this rate, half of it as 1 / (s (s + 1)): early and late rises


@dataclass(frozen=True)
class RiskTest:
    """A test of "the error rate is at most `risk`" over a sequence; positions count its answers from 0.

    `wrong` [n] are the errors, and `log_e_value` [n] is the logarithm of the capital after each answer. `alarm` is
    the first answer at which it reaches `line`, and `since` the likeliest start of the rise, given the answers up to
    the highest e-value; both are None if it never does.
    """

    risk: float
    line: float
    wrong: Flags
    log_e_value: Floats
    alarm: int | None
    since: int | None

    @property
    def holds(self) -> bool:
        return self.alarm is None

    @property
    def num_answers(self) -> int:
        return len(self.wrong)

    @property
    def num_wrong(self) -> int:
        return int(self.wrong.sum())


def log_e_values(wrong: ArrayLike, risk: float) -> Floats:
    """The logarithm of the gambler's capital after each answer [..., n], for errors [..., n] in the order of time.

    >>> np.exp(log_e_values([True, False, True], 0.1)).round(3).tolist()
    [1.277, 1.182, 1.897]
    """
    if not 0 < risk < 1:
        raise ValueError(f"expected a risk in (0, 1), but got {risk}")
    return log_capital(_log_ratios(np.asarray(wrong, dtype=bool), risk))


def log_capital(log_ratios: Sequence[Floats]) -> Floats:
    """The logarithm of the capital [..., n] if it is spread over these bets and over the time at which they start.

    `log_ratios` are, for each bet, the logarithms of what a stake at time 0 has grown to [..., n].
    """
    stake, rest = (np.log(part) for part in _stakes(np.arange(1.0, log_ratios[0].shape[-1] + 1)))
    total = np.broadcast_to(rest, log_ratios[0].shape)
    for ratio in log_ratios:
        before = np.concatenate([np.zeros_like(ratio[..., :1]), ratio[..., :-1]], axis=-1)
        capital = ratio + np.logaddexp.accumulate(stake - before, axis=-1)
        total = np.logaddexp(total, capital - np.log(len(log_ratios)))
    return total


def first_alarm(log_e_value: Floats, line: float) -> int | None:
    """The first position at which the e-value reaches the line."""
    above = np.flatnonzero(log_e_value >= np.log(line))
    return int(above[0]) if len(above) else None


def _stakes(time: Floats) -> tuple[Floats, Floats]:
    """The share of the capital staked on a rise that starts at each time (1, 2, ...), and what is left after it."""
    late = (1 - START) ** time
    return (late * START / (1 - START) + 1 / (time * (time + 1))) / 2, (late + 1 / (time + 1)) / 2


def _log_ratios(wrong: Flags, risk: float) -> list[Floats]:
    """The log-likelihood ratio of all answers so far [..., n], for each rise in `ODDS`."""
    errors = np.cumsum(wrong, axis=-1)
    right = np.arange(1, wrong.shape[-1] + 1) - errors
    higher = [odds * risk / (1 - risk + odds * risk) for odds in ODDS]
    return [errors * np.log(rate / risk) + right * np.log((1 - rate) / (1 - risk)) for rate in higher]


def risk_test(wrong: ArrayLike, risk: float, *, alpha: float = 0.05, num_tests: int = 1) -> RiskTest:
    """Test errors [n] in the order of time; of `num_tests` tests, each gets an equal share of alpha.

    While the error rate is at most `risk`, any of the tests ever alarms with probability at most alpha.
    """
    check_shares(alpha=alpha)
    flags = as_flags(wrong, "wrong")
    line = num_tests / alpha
    log_e_value = log_e_values(flags, risk)
    alarm = first_alarm(log_e_value, line)
    since = None if alarm is None else _likeliest_start(flags[: int(log_e_value.argmax()) + 1], (risk, line), alarm)
    return RiskTest(risk, line, flags, log_e_value, alarm, since)


def _likeliest_start(wrong: Flags, test: tuple[float, float], latest: int) -> int:
    """The answer, `latest` at most, from which on a higher error rate than before makes the errors most likely.

    Only starts count from which a stake alone reaches the line; `test` is the risk and the line.
    """
    errors = np.concatenate([[0], np.cumsum(wrong)[:-1]])
    before, after = np.arange(len(wrong)), np.arange(len(wrong), 0, -1)
    later = wrong.sum() - errors
    gain = [ratio[-1] - np.concatenate([[0.0], ratio[:-1]]) for ratio in _log_ratios(wrong, test[0])]
    proves = np.max(gain, axis=0) >= np.log(test[1])
    fit = _log_likelihood(errors, before) + _log_likelihood(later, after)
    return int(np.where(proves & (later * before >= errors * after), fit, -np.inf)[: latest + 1].argmax())


def _log_likelihood(errors: Ints, number: Ints) -> Floats:
    """Of so many errors among so many answers, at the error rate that they have."""
    rate = errors / np.maximum(number, 1)
    likelihood: Floats = xlogy(errors, rate) + xlogy(number - errors, 1 - rate)
    return likelihood


def e_text(log_e_value: Sequence[float] | Floats, alarm: int | None = None) -> str:
    """The last e-value of a test or, after an alarm, the highest: the last may have returned below the alarm.

    >>> e_text([0.0, 3.0]), e_text([6.9075]), e_text([10.0]), e_text([2000.0]), e_text([])
    ('20.1', '1,000', '22,000', '10^869', '1')
    >>> e_text([0.0, 3.0, 1.0], alarm=1)
    'up to 20.1'
    """
    if alarm is not None:
        return f"up to {e_text([float(np.max(log_e_value))])}"
    last = float(log_e_value[-1]) if len(log_e_value) else 0.0
    if abs(last) >= math.log(1e6):
        return f"10^{last / math.log(10):.0f}"
    rounded = f"{math.exp(last):.3g}"
    return f"{float(rounded):,.0f}" if float(rounded) >= 1000 else rounded
