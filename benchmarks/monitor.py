"""False alarms and delays of the monitor's two tests, simulated.

    python benchmarks/monitor.py [--repeats 2000]

- risk, false alarms: 10,000 accepted answers, each wrong with probability exactly r.
- risk, noticed: a risk of 5% (the guarantee) doubles after some answers; alarms within the next 1,000 answers, of the
  repetitions without an alarm before it.
- groups: five groups of 2,000 answers each, at risk exactly r, each tested at a fifth of alpha; an alarm in any.
- sets: a conformal threshold on 1,000 calibration rows, then 10,000 new answers from the same distribution.
- drift, false alarms: 10,000 new confidences with the distribution of the calibration ones, also rounded to two
  digits (many ties).
- drift, noticed: the logit of the confidence moves down by a part of its standard deviation.

Prints a table, then one JSON line.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Iterator
from itertools import chain

import numpy as np
import scipy
from numpy.typing import NDArray

from confrank.decisions.betting import log_e_values
from confrank.decisions.drift import drift_test, reference_of
from confrank.decisions.monitor import miscoverage_bound

Positions = NDArray[np.int64]
ALPHA, STEPS, WITHIN, NEVER = 0.05, 10_000, 1000, -1
CHUNK = 50  # repetitions at a time, which bounds the memory


def first_above(log_e: NDArray[np.float64], line: float) -> Positions:
    """The first position at which each row reaches the line, or NEVER."""
    above = log_e >= np.log(line)
    return np.where(above.any(axis=1), above.argmax(axis=1), NEVER)


def risk_alarms(
    rate: NDArray[np.float64], risk: float, repeats: int, seed: int, line: float = 1 / ALPHA
) -> Positions:
    """The first alarm of each repetition, for answers that are wrong with these probabilities."""
    rng = np.random.default_rng(seed)
    parts = [
        first_above(log_e_values(rng.random((min(CHUNK, repeats - done), len(rate))) < rate, risk), line)
        for done in range(0, repeats, CHUNK)
    ]
    return np.concatenate(parts)


def set_alarms(level: float, num_calibration: int, repeats: int, seed: int) -> Positions:
    """First alarms for sets whose threshold is a quantile of uniform nonconformities."""
    rng = np.random.default_rng(seed)
    bound = miscoverage_bound(num_calibration, level, ALPHA / 2)
    rank = int(np.ceil((num_calibration + 1) * level))
    alarms = []
    for _ in range(repeats):
        limit = np.sort(rng.random(num_calibration))[rank - 1]
        alarms.append(first_above(log_e_values(rng.random((1, STEPS)) > limit, bound), 2 / ALPHA))
    return np.concatenate(alarms)


def drift_alarms(size: int, before: int, after: int, shift: float, repeats: int, seed: int, digits: int) -> Positions:
    """The first alarm of each repetition; the logit confidence moves down by `shift` after `before` answers."""
    rng = np.random.default_rng(seed)
    alarms = []
    for _ in range(repeats):
        logit = rng.normal(2, 1, size + before + after)
        logit[size + before :] -= shift
        confidence = np.round(1 / (1 + np.exp(-logit)), digits)
        alarm = drift_test(confidence[size:], reference_of(confidence[:size]), alpha=ALPHA).alarm
        alarms.append(NEVER if alarm is None else alarm)
    return np.array(alarms)


def false_row(name: str, alarms: Positions, allowed: float = ALPHA) -> dict[str, object]:
    limit = allowed + 3 * np.sqrt(allowed * (1 - allowed) / len(alarms))
    rate = float((alarms != NEVER).mean())
    return {"case": name, "kind": "false alarms", "rate": rate, "limit": float(limit), "ok": bool(rate <= limit)}


def noticed_row(name: str, alarms: Positions, before: int, least: float | None = 0.95) -> dict[str, object]:
    """How many of the repetitions without an earlier alarm notice the change, and after how many answers."""
    open_ = alarms[(alarms == NEVER) | (alarms >= before)]
    delays = open_[open_ != NEVER] - before + 1
    rate = float((delays <= WITHIN).sum() / len(open_))
    quantiles = np.quantile(delays, [0.5, 0.95]).round().astype(int).tolist() if len(delays) else [None, None]
    delay = {"median_delay": quantiles[0], "delay_95": quantiles[1]}
    return {
        "case": name,
        "kind": "noticed",
        "rate": rate,
        "limit": least,
        "ok": least is None or rate >= least,
        **delay,
    }


def risk_rows(repeats: int) -> Iterator[dict[str, object]]:
    for risk in (0.01, 0.05, 0.2):
        name = f"risk exactly {risk:g}, {STEPS:,} answers"
        yield false_row(name, risk_alarms(np.full(STEPS, risk), risk, repeats, seed=1))
    groups = [risk_alarms(np.full(2000, 0.05), 0.05, repeats, seed, 5 / ALPHA) for seed in range(11, 16)]
    yield false_row("five groups at risk exactly 0.05, 2,000 answers each", np.max(groups, axis=0))
    for before in (0, 1000, 5000, 10_000):
        rate = np.repeat([0.05, 0.10], [before, WITHIN])
        yield noticed_row(f"risk 0.05 doubles after {before:,} answers", risk_alarms(rate, 0.05, repeats, 2), before)
    rate = np.repeat([0.03, 0.10], [5000, WITHIN])
    yield noticed_row(
        "risk 0.03 rises to 0.10 after 5,000 (guarantee 0.05)", risk_alarms(rate, 0.05, repeats, 3), 5000
    )
    rate = np.repeat([0.05, 0.075], [5000, WITHIN])
    yield noticed_row("risk 0.05 rises to 0.075 after 5,000", risk_alarms(rate, 0.05, repeats, 4), 5000, None)
    yield false_row(
        f"sets at level 0.9, 1,000 calibration rows, {STEPS:,} answers", set_alarms(0.9, 1000, repeats, 5)
    )


def drift_rows(repeats: int) -> Iterator[dict[str, object]]:
    for size, digits in ((500, 15), (5000, 15), (1000, 2)):
        name = f"no drift, {size:,} calibration rows, {STEPS:,} answers" + ", two digits" * (digits == 2)
        yield false_row(name, drift_alarms(size, 0, STEPS, 0.0, repeats, 6, digits))
    for before, shift in ((0, 0.3), (0, 0.5), (3000, 0.3), (3000, 0.5)):
        alarms = drift_alarms(1000, before, WITHIN, shift, repeats, 7, 15)
        name = f"drift of {shift:g} s.d. after {before:,} answers, 1,000 calibration rows"
        yield noticed_row(name, alarms, before, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=2000)
    repeats = parser.parse_args().repeats
    start, rows = time.perf_counter(), []
    print(f"{repeats:,} repetitions, alpha = {ALPHA:g}")
    for row in chain(risk_rows(repeats), drift_rows(repeats)):
        rows.append(row)
        word = "at least" if row["kind"] == "noticed" else "at most"
        limit = "" if row["limit"] is None else f" ({word} {row['limit']:.4f})"
        delay = f", delay {row['median_delay']} (95%: {row['delay_95']})" if "median_delay" in row else ""
        print(f"{row['case']:<66} {row['kind']:<13} {row['rate']:.4f}{limit}{delay}", flush=True)
    versions = {"python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}
    seconds, load = time.perf_counter() - start, os.getloadavg()[0]
    print(json.dumps({"versions": versions, "repeats": repeats, "seconds": seconds, "load": load, "rows": rows}))


if __name__ == "__main__":
    main()
