"""The account of the training recipes: the exam, what each ingredient does, and shift, from result files alone.

    python experiments/record.py --page docs/evidence/record.md --figures docs/evidence/figures [--results results]

Prints the tables in Markdown, then one JSON line. With --page, it also writes each table between its marks in the
page; with --figures, it draws risk-coverage curves and curves under shift. Run it again when results have arrived.
"""

import argparse
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ingredients import (
    INGREDIENTS,
    METRICS,
    ROWS,
    Found,
    compared,
    config_of,
    leaves_out_mixed_images,
    passes_of,
    read,
)
from matplotlib.figure import Figure

from confrank.analysis.repeats import summarise
from confrank.config import RunConfig
from confrank.metrics import Samples
from confrank.recipes import RECIPES
from confrank.report.colours import colours_of
from confrank.report.paper_table import markdown_table
from confrank.report.plots import comparison_figure, legend_below, save_figure, tidy
from confrank.report.scales import SHOWN, shown, with_spread
from confrank.research.exam import CORRUPTIONS, STRENGTHS
from confrank.study.catalogue import record
from confrank.study.plan import plan
from confrank.study.results import Result, read_run, samples_in

DATASETS, MODEL = ("cifar10", "cifar100"), "resnet18"
# Rows that hold out a fifth have other images than those without it.
FIFTH = "fifth"
CRL = tuple(name for name in INGREDIENTS if name.startswith(("crl", "stretched")))
SPLITS = ("validation", "test")
MISSING = "No run yet.\n"
# Marks a row whose networks have batch norm statistics of clean images alone.
OLD = " \\*"
Table = tuple[list[str], list[list[str]]]


def spread(key: str, values: Sequence[float | None]) -> str:
    """Mean and standard deviation of a metric over seeds."""
    defined = [value for value in values if value is not None]
    if not defined:
        return "-"
    summary = summarise(defined)
    return with_spread(summary.mean, summary.std, SHOWN[key].factor, mark=" ± ")


def exam(found: Path) -> str:
    """Every recipe of the record study that has results, next to the published AURC."""
    header = ["data set", "recipe", "method", "seeds", "passes", "minutes", "accuracy %", "AURC ×10³", "published",
              "mirrored", "by the chosen score", "E-AURC ×10³", "AUROC %", "ECE %"]  # fmt: skip
    rows = [
        [dataset, f"`{recipe}`", method, str(len(results)), *_exam_cells(dataset, recipe, results)]
        for dataset in DATASETS
        for recipe, method, results in recipes_of(dataset, found)
        if results
    ]
    return markdown_table(header, rows) if rows else MISSING


def recipes_of(dataset: str, found: Path) -> Iterator[tuple[str, str, list[Result]]]:
    """Each recipe and method of the study on a data set, with the results that there are."""
    runs: dict[tuple[str, str], list[Result]] = {}
    for config in plan(*record()).runs:
        path = found / f"{config.run_name}.json"
        if config.dataset == dataset:
            runs.setdefault((config.recipe, config.method), []).extend([read(path)] if path.exists() else [])
    for (recipe, method), results in runs.items():
        yield recipe, method, results


def _exam_cells(dataset: str, recipe: str, results: Sequence[Result]) -> list[str]:
    published = RECIPES[recipe].published.get(dataset)
    scores = [one.scores.get("test", {}).get(one.scores.get("chosen"), {}).get("aurc") for one in results]
    metrics = {key: spread(key, [one.metrics.get(key) for one in results]) for key in METRICS}
    return [
        str(RECIPES[recipe].passes), _minutes(results), metrics["acc"], metrics["aurc"],
        shown("aurc", published), spread("aurc", [one.mirrored.get("test", {}).get("aurc") for one in results]),
        spread("aurc", scores), metrics["e_aurc"], metrics["auroc"], metrics["ece"],
    ]  # fmt: skip


def settings_in(found: Found) -> list[tuple[str, int]]:
    """The data sets and numbers of epochs that rows of the experiment have results of."""
    paths = [path for folder in (found.results, *found.also) for path in sorted(folder.glob("*.json"))]
    configs = [read(path).config for path in paths]
    return sorted({(one["dataset"], one["epochs"]) for one in configs
                   if one["model"] == MODEL and one.get("holdout") and one.get("schedule") == "cosine"})  # fmt: skip


def rows_in(found: Found, dataset: str, epochs: int) -> dict[str, list[int]]:
    """The rows with results, and their seeds."""
    named = [match[1] for path in sorted(found.results.glob("ingredients-*.json"))
             if (match := re.match(r"ingredients-(.+)-\w+-\w+-\d+epochs-seed\d+$", path.stem))]  # fmt: skip
    rows: dict[str, list[int]] = {}
    for row in dict.fromkeys((*ROWS, "swa+sam+mixup0.5+stretched0.5+cosine", *named)):
        configs = [config_of(row, dataset, MODEL, epochs, seed) for seed in range(5)]
        if seeds := [config.seed for config in configs if found.path(row, config) is not None]:
            rows[row] = seeds
    return rows


def tried(found: Found) -> str:
    """Every row with results: the AURC of the held-out images, which choose, and the metrics of the test images."""
    header = ["data set", "epochs", "ingredients", "passes", "seeds", "minutes", "held-out AURC ×10³", "mirrored"]
    header += ["test AURC ×10³", "mirrored", *(SHOWN[key].heading for key in METRICS[1:])]
    rows = []
    for dataset, epochs in settings_in(found):
        for row, seeds in rows_in(found, dataset, epochs).items():
            configs = [config_of(row, dataset, MODEL, epochs, seed) for seed in seeds]
            results = [read(path) for config in configs if (path := found.path(row, config)) is not None]
            held_out, test = ([one.mirrored.get(split, {}).get("aurc") for one in results] for split in SPLITS)
            name = row + OLD * any(map(leaves_out_mixed_images, results))
            rows.append([
                dataset, str(epochs), name, str(passes_of(configs[0])), str(len(seeds)), _minutes(results),
                spread("aurc", [one.validation.get("aurc") for one in results]), spread("aurc", held_out),
                spread("aurc", [one.metrics["aurc"] for one in results]), spread("aurc", test),
                *(spread(key, [one.metrics[key] for one in results]) for key in METRICS[1:]),
            ])  # fmt: skip
    return markdown_table(header, rows) if rows else MISSING


def _minutes(results: Sequence[Result]) -> str:
    minutes = [sum(record["seconds"] for record in one.log) / 60 for one in results]
    return f"{np.mean(minutes):.1f}" if minutes else "-"


def additions(rows: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Pairs of rows that differ in one ingredient: (what is added, without it, with it), by ingredient."""
    sets = {row: frozenset(row.split("+")) - {"plain"} for row in rows}
    for added in (name for name in INGREDIENTS if name != FIFTH):
        for before in rows:
            for after in rows:
                if sets[after] - sets[before] == {added} and sets[before] < sets[after]:
                    yield added, before, after


def effects(found: Found) -> str:
    """What each ingredient changes on the test images, with CRL and without."""
    header = ["data set", "epochs", "ingredient", "added to", "CRL", "seeds"]
    header += [SHOWN[key].heading for key in METRICS]
    rows = []
    for dataset, epochs in settings_in(found):
        there = comparable(found, dataset, epochs)
        for added, before, after in additions([*there]):
            both = [seed for seed in there[after] if seed in there[before]]
            if not both:
                continue
            (one,) = compared([after], before, both, config_of("plain", dataset, MODEL, epochs, 0), found, "")
            has_crl = "yes" if {*before.split("+")} & {*CRL} else "itself" if added in CRL else "no"
            cells = [_effect(key, one["differences"][key]) for key in METRICS]
            rows.append([dataset, str(epochs), added, before, has_crl, str(len(both)), *cells])
    return markdown_table(header, rows) if rows else "No two runs to compare yet.\n"


def comparable(found: Found, dataset: str, epochs: int) -> dict[str, list[int]]:
    """The rows with results that were all made alike, and their seeds."""

    def is_alike(row: str, seed: int) -> bool:
        path = found.path(row, config_of(row, dataset, MODEL, epochs, seed))
        return path is not None and not leaves_out_mixed_images(read(path))

    rows = rows_in(found, dataset, epochs)
    return {row: [seed for seed in seeds if is_alike(row, seed)] for row, seeds in rows.items()}


def _effect(key: str, gap: Sequence[float]) -> str:
    value, low, high = (f"{SHOWN[key].factor * one:+.2f}" for one in gap)
    return f"{value} [{low}, {high}]"


def under_shift(found: Found) -> str:
    """Each row on corrupted test images, means over the five strengths."""
    keys = ("acc", "aurc", "auroc", "ece")
    header = ["data set", "epochs", "ingredients", "seeds", "shift", *(SHOWN[key].heading for key in keys)]
    rows = [
        [dataset, str(epochs), row, str(len(results)), name,
         *(spread(key, [_mean(one, name, key) for one in results]) for key in keys)]
        for dataset, epochs in settings_in(found)
        for name in CORRUPTIONS
        for row, results in shifted(found, dataset, epochs).items()
    ]  # fmt: skip
    return markdown_table(header, rows) if rows else MISSING


def shifted(found: Found, dataset: str, epochs: int) -> dict[str, list[Result]]:
    """The results of each row that have been measured under shift."""
    results = {}
    for row, seeds in rows_in(found, dataset, epochs).items():
        paths = [found.path(row, config_of(row, dataset, MODEL, epochs, seed)) for seed in seeds]
        if measured := [one for path in paths if path is not None and (one := read(path)).shift]:
            results[row] = measured
    return results


def _mean(result: Result, corruption: str, key: str) -> float:
    return float(np.mean([result.shift[corruption][str(strength)][key] or 0.0 for strength in STRENGTHS]))


def missing(results: Path) -> str:
    """The runs of the record study without a result, in a line for each recipe and method."""
    left: dict[tuple[str, str], dict[str, list[str]]] = {}
    for config in plan(*record()).runs:
        if not (results / f"{config.run_name}.json").exists():
            sets = left.setdefault((config.recipe, config.method), {})
            sets.setdefault(config.dataset, []).append(str(config.seed))
    lines = [f"- `{recipe}`, {method}: {_listed(sets)}" for (recipe, method), sets in left.items()]
    return "\n".join(lines or ["Nothing."]) + "\n"


def _listed(sets: dict[str, list[str]]) -> str:
    """Data sets and seeds in words, with those data sets together that lack the same seeds."""
    together: dict[tuple[str, ...], list[str]] = {}
    for dataset, seeds in sets.items():
        together.setdefault(tuple(seeds), []).append(dataset)
    return "; ".join(f"{' and '.join(names)}, seeds {', '.join(seeds)}" for seeds, names in together.items())


def curves(found: Found) -> str:
    """The risk-coverage curves that `draw` draws, in Markdown."""
    return _pictures("error rate by coverage, and reliability", "curves", settings_in(found))


def shift_curves(found: Found) -> str:
    """The curves under shift that `draw` draws, in Markdown."""
    return _pictures("AURC and AUROC by strength of shift", "shift",
                     [one for one in settings_in(found) if shifted(found, *one)])  # fmt: skip


def _pictures(what: str, kind: str, settings: Sequence[tuple[str, int]]) -> str:
    lines = [f"![{dataset}, {epochs} epochs: {what}](figures/record-{dataset}-{epochs}epochs-{kind}.png)"
             for dataset, epochs in settings]  # fmt: skip
    return "\n\n".join(lines or [MISSING.strip()]) + "\n"


def draw(found: Found, folder: Path) -> list[Path]:
    """Risk-coverage curves and curves under shift, for every data set and number of epochs with results."""
    written = []
    for dataset, epochs in settings_in(found):
        samples = {row: _samples(found, row, dataset, epochs, seeds)
                   for row, seeds in rows_in(found, dataset, epochs).items()}  # fmt: skip
        curves = folder / f"record-{dataset}-{epochs}epochs-curves.png"
        comparison_figure(samples, curves, f"{dataset}, {MODEL}, {epochs} epochs")
        written.append(curves)
        if results := shifted(found, dataset, epochs):
            written.append(folder / f"record-{dataset}-{epochs}epochs-shift.png")
            _draw_shift(results, written[-1], f"{dataset}, {MODEL}, {epochs} epochs")
    return written


def _samples(found: Found, row: str, dataset: str, epochs: int, seeds: Sequence[int]) -> list[Samples]:
    paths = [found.path(row, config_of(row, dataset, MODEL, epochs, seed)) for seed in seeds]
    return [samples_in(read_run(path)[1]) for path in paths if path is not None]


def _draw_shift(results: dict[str, list[Result]], path: Path, title: str) -> None:
    """AURC and AUROC by strength, a column for each corruption; strength 0 is the test set as it is."""
    figure = Figure(figsize=(10, 5.6), layout="constrained")
    panels = figure.subplots(2, len(CORRUPTIONS), sharex=True, sharey="row")
    for column, corruption in enumerate(CORRUPTIONS):
        for row, key in enumerate(("aurc", "auroc")):
            axes = panels[row, column]
            for colour, (name, runs) in zip(colours_of([*results]), results.items(), strict=True):
                values = [
                    [one.metrics[key], *(one.shift[corruption][str(s)][key] for s in STRENGTHS)] for one in runs
                ]
                axes.plot((0, *STRENGTHS), SHOWN[key].factor * np.mean(values, axis=0), color=colour, label=name)
            axes.set(ylabel=SHOWN[key].heading if column == 0 else "", xlabel="strength" if row else "")
            tidy(axes)
        panels[0, column].set_title(corruption)
    legend_below(figure, panels[0, 0].get_lines())
    figure.suptitle(title)
    save_figure(figure, path)


def written_into(page: str, tables: dict[str, str]) -> str:
    """The page with each table between its marks."""
    for name, table in tables.items():
        pattern = rf"(<!-- begin: {name} -->\n).*?(<!-- end: {name} -->)"
        if not re.search(pattern, page, re.DOTALL):
            raise ValueError(f"expected the marks begin: {name} and end: {name} in the page, but they are not there")
        page = re.sub(pattern, lambda match, table=table: f"{match[1]}\n{table}\n{match[2]}", page, flags=re.DOTALL)
    return page


def tables_of(results: Path) -> dict[str, str]:
    """All tables, by the names of their marks."""
    found = Found(results / "ingredients", (results,))
    return {
        "exam": exam(results),
        "tried": tried(found),
        "curves": curves(found),
        "effects": effects(found),
        "shift": under_shift(found),
        "shift curves": shift_curves(found),
        "missing": missing(results),
    }


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--page", type=Path, default=None)
    parser.add_argument("--figures", type=Path, default=None)
    arguments = parser.parse_args(given)
    tables = tables_of(arguments.results)
    for name, table in tables.items():
        print(f"## {name}\n\n{table}")
    if arguments.page is not None:
        arguments.page.write_text(written_into(arguments.page.read_text(), tables))
    found = Found(arguments.results / "ingredients", (arguments.results,))
    drawn: list[Any] = draw(found, arguments.figures) if arguments.figures is not None else []
    configs: list[RunConfig] = [
        config_of("plain", dataset, MODEL, epochs, 0) for dataset, epochs in settings_in(found)
    ]
    print(json.dumps({
        "figures": [path.name for path in drawn],
        "rows": {f"{one.dataset}-{one.epochs}epochs": rows_in(found, one.dataset, one.epochs) for one in configs},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
