"""Several seeds of each method: rows of a table, the sentence above it, and curves for the page."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from confrank.analysis import CLAIMS, Repeats
from confrank.analysis.repeats import GRID, Difference
from confrank.report import svg
from confrank.report.colours import colour_numbers
from confrank.report.scales import PAPER_METRICS, SHOWN, with_spread

# A difference beyond this many standard errors is called one.
CLEAR_ERRORS = 2


@dataclass(frozen=True)
class Gap:
    """A difference as text, whether it is an improvement, and whether it is beyond two standard errors."""

    text: str
    is_better: bool
    is_clear: bool


@dataclass(frozen=True)
class RepeatsRow:
    """A metric: mean ± std of each method, and the difference of each later method to the first."""

    heading: str
    arrow: str
    values: list[str]
    gaps: list[Gap]


def repeats_rows(repeats: Repeats) -> list[RepeatsRow]:
    """One row for each of the paper's eight metrics."""
    return [_row(repeats, key) for key in PAPER_METRICS]


def _row(repeats: Repeats, key: str) -> RepeatsRow:
    how = SHOWN[key]
    gaps = [repeats.difference(name, key) for name in list(repeats.evaluations)[1:]]
    arrow = "↓" if how.lower_is_better else "↑"
    return RepeatsRow(how.heading, arrow, _means(repeats, key), [_gap(key, one) for one in gaps])


def _means(repeats: Repeats, key: str) -> list[str]:
    summaries = [repeats.summary(name, key) for name in repeats.evaluations]
    factor = SHOWN[key].factor
    return ["-" if one is None else with_spread(one.mean, one.std, factor, mark=" ± ") for one in summaries]


def _gap(key: str, gap: Difference | None) -> Gap:
    if gap is None:
        return Gap("-", False, False)
    how, error = SHOWN[key], gap.standard_error
    text = with_spread(gap.mean, error, how.factor, mark=" ± ", sign="+")
    is_better = (gap.mean < 0) == how.lower_is_better and gap.mean != 0
    return Gap(text, is_better, error is not None and abs(gap.mean) > CLEAR_ERRORS * error)


def repeats_verdict(repeats: Repeats) -> list[str]:
    """Which of each two methods has fewer errors among the accepted, and which separates right from wrong better."""
    names, sentences = [*repeats.evaluations], []
    for number, name in enumerate(names):
        for before, other in enumerate(names[:number]):
            for key, (less, more) in CLAIMS.items():
                difference, means = repeats.difference(name, key, other), _means(repeats, key)
                gap, heading = _gap(key, difference), SHOWN[key].heading
                said = f"no clear difference in {heading} between {name} and {other}"
                if difference is not None and gap.is_clear:
                    said = f"{name} {less if difference.mean < 0 else more} than {other}"
                values = f"{heading} {means[number]} against {means[before]}, paired difference {gap.text}"
                sentences.append(f"Over {repeats.num_seeds} seeds, {said}: {values}.")
    return sentences


def repeats_charts(repeats: Repeats) -> dict[str, Any]:
    """For the page: each method's mean risk-coverage curve as a path, a thin one for each seed, and the axis."""
    # As on other charts, the first 2% of coverage may leave the chart at the top.
    tops = [float(risks[:, GRID >= 0.02].max()) for risks in repeats.risks.values()]
    limit = svg.risk_axis_limit(tops)
    names = list(repeats.evaluations)
    methods = [
        {
            "name": name,
            "colour": colour,
            "mean": _path(repeats.risks[name].mean(axis=0), limit),
            "seeds": [_path(risks, limit) for risks in repeats.risks[name]],
        }
        for name, colour in zip(names, colour_numbers(names), strict=True)
    ]
    return {"methods": methods, "risk_ticks": svg.ticks(limit)}


def _path(risks: np.ndarray[Any, np.dtype[np.float64]], limit: float) -> str:
    return svg.line(GRID, np.minimum(risks, 2 * limit), y_limit=limit)
