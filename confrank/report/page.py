"""The page: one self-contained HTML file for deciding which answers to accept."""

import base64
import io
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup
from PIL import Image

from confrank import __version__
from confrank.analysis import CLEAR, COVERAGE, Analysis, Comparison, Histogram, Mistake, Repeats, p_text
from confrank.analysis.comparison import resampled_clusters
from confrank.errors import counted
from confrank.files import write_atomically
from confrank.metrics import ClassSummary, RiskCoverageCurve
from confrank.report import svg
from confrank.report.colours import colour_numbers
from confrank.report.content_policy import content_policy
from confrank.report.groups import groups_section
from confrank.report.names import shortened, with_short_names
from confrank.report.repeats import repeats_charts, repeats_rows, repeats_verdict
from confrank.report.scales import GROUP_METRICS, SHOWN, keys_of, metric_cell, shown
from confrank.report.verdict import comparisons, ece_note, footnotes, inversion_warning, percent, verdict

FOLDER = Path(__file__).parent / "template"
MAX_CLASS_ROWS = 2000
# What an error costs if a rejection costs 1: the steps of the cost slider, and the top of the axis of costs.
COST_RATIOS = [
    1, 1.5, 2, 3, 4, 5, 7, 10, 15, 20, 30, 40, 50, 70, 100, 150, 200, 300, 500, 700, 1000, 2000, 5000, 10000
]  # fmt: skip
COST_LIMIT = 1.25


def write_report(
    comparison: Comparison,
    path: str | Path,
    *,
    note: str | None = None,
    repeats: Repeats | None = None,
    decision: Mapping[str, Any] | None = None,
) -> None:
    """Write the report on one or more models, as `confrank evaluate --report` does: one self-contained HTML file.

    `note` introduces the predictions; `repeats` and `decision` are further sections, as for `page`.
    """
    if not isinstance(comparison, Comparison):
        got = type(comparison).__name__
        raise ValueError(f"expected what compare returns, but got {got}; compare takes one model, too")
    models = with_short_names(comparison.models)
    content = page(models, seed=comparison.seed, note=note, repeats=repeats, decision=decision)
    write_atomically(Path(path), content)


def page(
    models: Sequence[Analysis],
    seed: int = 0,
    note: str | None = None,
    repeats: Repeats | None = None,
    decision: Mapping[str, Any] | None = None,
) -> str:
    """The finished page for one or more sets of predictions.

    With `repeats`, a section on all seeds comes first. `note` introduces the predictions below it. `decision` is a
    section on a policy, as `policy_section` gives it.
    """
    limit = svg.risk_limit(item.curve for item in models)
    colours = colour_numbers([item.name for item in models])
    return template("page.html").render(
        title="Which answers can be trusted?",
        names=[item.name for item in models],
        note=note,
        repeats=None if repeats is None else _repeats(repeats),
        decision=decision,
        seed=seed,
        script=Markup((FOLDER / "page.js").read_text(encoding="utf-8")),
        models=[_model(item, colour, limit, len(models)) for colour, item in zip(colours, models, strict=True)],
        comparisons=comparisons(models),
        metrics=[_metric_row(key, models) for key in keys_of(*(item.evaluation for item in models))],
        group_headings=[SHOWN[key].heading for key in GROUP_METRICS],
        footnotes=footnotes([(shortened(item.name), item.evaluation) for item in models]),
        risk_ticks=svg.ticks(limit),
        cost_ticks=svg.ticks(COST_LIMIT, percent=False),
        cost_ratios=COST_RATIOS,
        cost_start=COST_RATIOS.index(10),
        shares=svg.ticks(1.0),
        class_headings=["answers", "accuracy", "mean confidence", SHOWN["aurc"].heading, "share of errors"],
        data={
            "limit": limit,
            "cost_limit": COST_LIMIT,
            "cost_ratios": COST_RATIOS,
            "models": [_points(item, colour) for colour, item in zip(colours, models, strict=True)],
        },
        num_samples=sorted({item.curve.num_samples for item in models}),
        weighted_by=next((item.weighted_by for item in models if item.weighted_by), ""),
        clusters=resampled_clusters(models),
        has_intervals=any(item.intervals for item in models),
        ece_note=ece_note(models),
    )


def _repeats(repeats: Repeats) -> dict[str, Any]:
    return {
        "num_seeds": repeats.num_seeds,
        "verdict": repeats_verdict(repeats),
        "rows": repeats_rows(repeats),
        **repeats_charts(repeats),
    }


def template(name: str) -> Template:
    """A template by name, with values escaped."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = Markup((FOLDER / "page.css").read_text(encoding="utf-8"))
    environment.globals |= {"content_policy": content_policy, "style": style, "version": __version__}
    environment.filters |= {"percent": percent, "short": shortened, "count": counted, "unbroken": _unbroken}
    return environment


def _unbroken(text: str) -> str:
    """Text with intervals and p-values that a narrow column does not tear apart.

    >>> _unbroken("1.5 to 2, p = 0.3")
    '1.5 to\xa02, p\xa0=\xa00.3'
    """
    return re.sub(r"(?<= to) |(?<=\bp) (?=[=<] )|(?<=\bp [=<]) ", "\N{NO-BREAK SPACE}", text)


def _points(item: Analysis, colour: int) -> dict[str, Any]:
    """What the slider chooses from: exact thresholds and counts."""
    curve = item.curve
    return {
        "name": shortened(item.name),
        "colour": colour,
        "n": curve.num_samples,
        "wrong": curve.num_wrong,
        "threshold": curve.threshold.tolist(),
        "accepted": curve.accepted.tolist(),
        "errors": curve.wrong.tolist(),
        "start": curve.at_coverage(COVERAGE),
        "coverage": None if curve.accepted_weight is None else curve.coverage.tolist(),
        "risk": None if curve.accepted_weight is None else curve.risk.tolist(),
        "cheapest": _cheapest(item.cheapest),
    }


def _cheapest(curve: RiskCoverageCurve) -> dict[str, Any]:
    """What the cost slider chooses from: the thresholds that are cheapest for some costs, in numbers or weights."""
    accepted, wrong = curve.amounts
    points = {"threshold": curve.threshold.tolist(), "accepted": accepted.tolist(), "wrong": wrong.tolist()}
    return {**points, "total": accepted[-1].item()}  # the lowest threshold accepts everything


def _model(item: Analysis, colour: int, limit: float, num_models: int) -> dict[str, Any]:
    sentences, warning = verdict(item), inversion_warning(item)
    rows = sorted(item.classes, key=lambda one: (-(one.error_share or 0), one.label))
    listed = rows[: MAX_CLASS_ROWS // num_models]
    most = rows[0].error_share if rows else None
    return {
        "name": item.name,
        "colour": colour,
        "source": item.source,
        "verdict": sentences[:3],
        "warning": warning,
        "details": [one for one in sentences[3:] if one != warning],
        "curve": svg.curve_path(item.curve, limit),
        "start": _readout(item.curve, limit),
        "bins": item.bins is not None and (svg.reliability_path(item.bins), svg.reliability_dots(item.bins)),
        **histogram_chart(item.histogram, is_share=item.confidence_is_share),
        "num_right": item.curve.num_samples - item.curve.num_wrong,
        "num_wrong": item.curve.num_wrong,
        "classes": [_class_row(item, one, most) for one in sorted(listed, key=lambda one: one.label)],
        "classes_left_out": len(rows) - len(listed),
        "mistakes": [_mistake(item, one) for one in item.mistakes],
        "num_resamples": item.num_resamples,
        "pairing": item.pairing,
        "groups": groups_section(item),
    }


def histogram_chart(histogram: Histogram, *, is_share: bool) -> dict[str, Any]:
    """Mirrored bars and the ticks below them, in per cent if the horizontal axis `is_share`."""
    up, down, top = svg.mirrored_bars(histogram)
    ticks = svg.ticks(float(histogram.edges[-1]), float(histogram.edges[0]), percent=is_share)
    return {"bars": {"up": up, "down": down, "top": percent(top)}, "bar_ticks": ticks}


def _readout(curve: RiskCoverageCurve, limit: float) -> dict[str, Any]:
    """What the page shows before the slider moves, and where its marker is in the chart, in per cent."""
    position = curve.at_coverage(COVERAGE)
    coverage, risk = float(curve.coverage[position]), float(curve.risk[position])
    accepted, wrong = int(curve.accepted[position]), int(curve.wrong[position])
    rejected_wrong = curve.num_wrong - wrong
    return {
        "share": coverage,
        "left": 100 * coverage,
        "bottom": 100 * min(1.0, risk / limit),
        "threshold": f"{curve.threshold[position]:.6g}",
        "coverage": percent(coverage, 2),
        "risk": percent(risk, 2),
        "accepted_right": f"{accepted - wrong:,}",
        "accepted_wrong": f"{wrong:,}",
        "rejected_right": f"{curve.num_samples - accepted - rejected_wrong:,}",
        "rejected_wrong": f"{rejected_wrong:,}",
        "accepted": f"{accepted:,}",
    }


def _class_row(item: Analysis, one: ClassSummary, most: float | None) -> dict[str, Any]:
    """A row of the table of classes, with a bar for its share of errors; `most` is the largest share."""
    return {
        "name": item.class_name(one.label),
        "count": one.num_samples,
        "accuracy": one.accuracy,
        "confidence": one.confidence,
        "is_share": item.confidence_is_share,
        "aurc": one.aurc,
        "aurc_text": shown("aurc", one.aurc),
        "error_share": one.error_share,
        "bar": 100 * (one.error_share or 0) / (most or 1),
    }


def _mistake(item: Analysis, one: Mistake) -> dict[str, Any]:
    return {
        "row": one.row,
        "key": one.key,
        "confidence": percent(one.confidence, 2) if item.confidence_is_share else f"{one.confidence:.6g}",
        "label": None if one.label is None else item.class_name(one.label),
        "prediction": None if one.prediction is None else item.class_name(one.prediction),
        "image": None if one.image is None else data_uri(one.image),
    }


def data_uri(image: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
    """An image [h, w, 1 or 3] as a PNG in a data URL, at most 96 pixels wide and high."""
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    picture.thumbnail((96, 96))
    stream = io.BytesIO()
    picture.save(stream, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()


def _metric_row(key: str, models: Sequence[Analysis]) -> dict[str, Any]:
    how = SHOWN[key]
    return {
        "heading": how.heading,
        "lower": how.lower_is_better,
        "meaning": how.meaning,
        "cells": [metric_cell(key, item.evaluation, item.intervals) for item in models],
        "gaps": [_gap(key, item) for item in models[1:]],
    }


def _gap(key: str, item: Analysis) -> dict[str, str] | None:
    gap, how = item.differences.get(key), SHOWN[key]
    if gap is None:
        return None
    better = (gap.value < 0) == how.lower_is_better
    return {
        "value": f"{gap.value * how.factor:+.2f}",
        "limits": f"{gap.low * how.factor:+.2f} to {gap.high * how.factor:+.2f}",
        "p": p_text(gap.p, item.num_resamples),
        "kind": "even" if gap.p > CLEAR else "better" if better else "worse",
    }
