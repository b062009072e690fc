"""The page on out-of-distribution detection: ROC curves, score histograms and the table in one HTML file."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from confrank import axes
from confrank.metrics.repeats import Cell
from confrank.metrics.separation import DETECTION_METRICS
from confrank.ood.results import Group, Groups, OodResult, pairs_by_detector
from confrank.report.colours import colour_numbers
from confrank.report.detection import GRID, MeanCurve, Runs, detection_verdict, mean_roc, score_histogram, title_of
from confrank.report.names import shortened
from confrank.report.page import histogram_chart, template
from confrank.report.paper_table import cell_text
from confrank.report.scales import ALL_SHOWN
from confrank.report.verdict import percent


def detection_page(
    groups: Groups, cells: Sequence[Cell], protocol: str, notes: Sequence[str], tuned: Collection[str] = ()
) -> str:
    """The finished page; `protocol` says how settings were chosen, `tuned` names detectors tuned on an out-set."""
    values = {cell.key: cell for cell in cells}
    return template("detection.html").render(
        title="Does it detect out-of-distribution images?",
        names=list(map(title_of, groups)),
        script=None,
        protocol=protocol,
        notes=notes,
        shares=axes.ticks(1.0),
        headings=[(ALL_SHOWN[key].heading, ALL_SHOWN[key].lower_is_better) for key in DETECTION_METRICS],
        sections=[_section(group, results, values, tuned) for group, results in groups.items()],
    )


def _section(
    group: Group,
    results: Sequence[OodResult],
    values: Mapping[tuple[str, str, str, str, str], Cell],
    tuned: Collection[str],
) -> dict[str, Any]:
    detectors, pairs = [], pairs_by_detector(results)
    curves = {name: mean_roc(runs) for name, runs in pairs.items()}
    for colour, (name, runs) in zip(colour_numbers([*pairs]), pairs.items(), strict=True):
        key = group._replace(method=f"{group.method}/{name}")
        row = [cell_text(values[(*key, metric)]) for metric in DETECTION_METRICS]
        detectors.append({"name": name, "colour": colour, "row": row, **_charts(curves[name], runs)})
    first = next(iter(pairs.values()))
    return {
        "title": title_of(group),
        "verdict": detection_verdict(curves, shortened(group.out_set, 40), tuned),
        "detectors": detectors,
        "num_runs": len(first),
        "sizes": tuple(map(len, first[0])),
    }


def _charts(curve: MeanCurve, runs: Runs) -> dict[str, Any]:
    return {
        "curve": axes.line(GRID, curve.heights.mean(axis=0)),
        "auroc": percent(curve.auroc, 1),
        **histogram_chart(score_histogram(*runs[0]), is_share=False),
    }
