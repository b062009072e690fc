"""When does the correctness ranking loss help? Epochs x weight x warm-up of the weight, paired over seeds.

    python experiments/when.py RESULTS.jsonl [--data digits] [--model NAME] [--root DATA] [--device cpu]
                               [--epochs 5 10 20 40 100 200 300] [--weights 0.1 0.5 1] [--seeds 5] [--figure FILE]

Trains the baseline (weight 0) and each combination for each seed, from 200 on, and appends a line per run to the
results. A rerun trains only what is missing; `--seeds 0` trains nothing. Runs of one seed share the training images,
the held-out images, the initial weights and the order of the samples, so their difference is a paired one. `digits`
has the settings of `confrank demo`; other data have the paper's protocol, with a fifth of the training images held
out. Use one results file for each data set and network.

Warm-up of the weight: `none`; `linear`, which rises over the first half of the epochs and is constant from there on;
`late`, which is 0 in the first half. The learning rate drops after the same half, and after 5/6 of the epochs.

Prints two tables: each combination minus the baseline, and each warm-up minus `none` at the same weight. Differences
are means over n seeds with 95% intervals of Student's t. The metrics are those of the test split, on which nothing
is chosen. Whether a warm-up is worth an option is read from the AURC of the held-out images. The rule was set before
the runs: at weight 1, where `none` is worse than the baseline, the warm-up must be better than `none`; nowhere may it
be worse than `none`, each beyond its interval.
"""

import argparse
import itertools
import json
import math
import platform
import time
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.special import stdtrit

from confrank.config import RunConfig
from confrank.data import DataSet, Split, hold_out, load
from confrank.methods import predict_split
from confrank.metrics import evaluation_of, sample_values
from confrank.metrics.repeats import paired_difference, summarise
from confrank.report.colours import COLOURS
from confrank.report.plots import legend_below, save_figure, tidy
from confrank.report.scales import SHOWN
from confrank.study.demo import SETTINGS as DEMO
from confrank.training import Run

FIRST_SEED = 200
METRICS = ("aurc", "e_aurc", "auroc", "ece", "acc")
WARM_UPS = ("none", "linear", "late")
TITLES = {"none": "constant weight", "linear": "linear over the first half", "late": "second half only"}
Row = dict[str, Any]


class Setting(NamedTuple):
    """One combination; weight 0 is the baseline, which has no warm-up."""

    epochs: int
    weight: float
    warm_up: str = "none"


class Gap(NamedTuple):
    """Mean of n paired differences, its standard error, and its 95% interval."""

    mean: float
    error: float
    low: float
    high: float
    n: int


def weight_at(setting: Setting, epoch: int) -> float:
    """The weight of the ranking loss in epoch 0..epochs-1.

    In a linear warm-up over h epochs it is 1/(h + 1), 2/(h + 1), ... of the full one, as for the learning rate.
    """
    half = math.floor(setting.epochs / 2 + 0.5)
    if setting.warm_up == "linear":
        return setting.weight * min(1.0, (epoch + 1) / (half + 1))
    return setting.weight * (setting.warm_up == "none" or epoch >= half)


def settings_of(epochs: Iterable[int], weights: Sequence[float]) -> Iterator[Setting]:
    """The baseline of each number of epochs, followed by its combinations."""
    for count in epochs:
        yield Setting(count, 0.0)
        yield from itertools.starmap(Setting, itertools.product([count], weights, WARM_UPS))


def trained(setting: Setting, config: RunConfig, data: DataSet, device: torch.device) -> tuple[Run, float]:
    """A finished run and the training error of its last epoch."""
    run, record = Run(config, data, device), {"acc": math.nan}
    while not run.finished:
        run.criterion.weight = weight_at(setting, run.epoch)
        for _ in range(run.num_steps):
            run.step()
        record = run.finish_epoch()
    return run, 1 - record["acc"]


def measured(run: Run, data: DataSet, split: Split) -> dict[str, float | None]:
    predictions = predict_split(run.method, run.model, split, data.mean, data.std)
    metrics = evaluation_of(sample_values(**predictions.evaluation_inputs())).metrics
    return {key: None if metrics[key] is None else round(metrics[key], 6) for key in METRICS}  # type: ignore[arg-type]


def row_of(setting: Setting, base: Row, seed: int, data: DataSet, device: torch.device) -> Row:
    """Train and measure one run."""
    start, method = time.process_time(), "crl-softmax" if setting.weight else "baseline"
    config = RunConfig(**base, method=method, epochs=setting.epochs, weight=setting.weight, seed=seed)
    data, held = hold_out(data, config.holdout, seed)
    assert held is not None
    run, error = trained(setting, config, data, device)
    return {
        "data": config.dataset, "model": config.model, **setting._asdict(), "seed": seed,
        "train_error": round(error, 6), **measured(run, data, data.test),
        "held_out_aurc": measured(run, data, held)["aurc"], "cpu_s": round(time.process_time() - start, 2),
    }  # fmt: skip


def complete_lines(path: Path) -> bytes:
    """What a results file has, without a last line that was not written to its end."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in complete_lines(path).splitlines()]


def key_of(row: Row) -> tuple[Setting, int]:
    return Setting(row["epochs"], row["weight"], row["warm_up"]), row["seed"]


def check_same(rows: Sequence[Row], config: RunConfig) -> None:
    """Refuse to mix data sets or networks in one file."""
    wanted = config.dataset, config.model
    others = {(row["data"], row["model"]) for row in rows} - {wanted}
    if others:
        raise SystemExit(f"expected results of {wanted}, but got {others.pop()}; choose another results file")


def train_missing(path: Path, wanted: Sequence[Setting], seeds: range, arguments: argparse.Namespace) -> None:
    """Train what is not in the file, seed by seed, so that an interrupted grid has complete pairs."""
    base = DEMO if arguments.data == "digits" else {"dataset": arguments.data, "holdout": 0.2}
    base = {**base, "model": arguments.model} if arguments.model else base
    rows = read(path)
    check_same(rows, RunConfig(**base))
    done = {key_of(row) for row in rows}
    missing = [(setting, seed) for seed in seeds for setting in wanted if (setting, seed) not in done]
    if not missing:
        return
    data, device = load(arguments.data, arguments.root), torch.device(arguments.device)
    with path.open("a") as file:
        file.truncate(len(complete_lines(path)))
        for setting, seed in missing:
            file.write(json.dumps(row_of(setting, base, seed, data, device)) + "\n")
            file.flush()


def gap_of(rows: Sequence[Row], first: Setting, second: Setting, key: str) -> Gap | None:
    """Second minus first, over the seeds that both have; None with fewer than two."""
    values: dict[Setting, dict[int, float]] = {first: {}, second: {}}
    for row in rows:
        setting, seed = key_of(row)
        if setting in values and row[key] is not None:
            values[setting][seed] = row[key]
    seeds = sorted(values[first].keys() & values[second].keys())
    if len(seeds) < 2:
        return None
    gap = paired_difference(*([values[setting][seed] for seed in seeds] for setting in (first, second)))
    assert gap.standard_error is not None
    reach = float(stdtrit(gap.n - 1, 0.975)) * gap.standard_error
    return Gap(gap.mean, gap.standard_error, gap.mean - reach, gap.mean + reach, gap.n)


def verdict(gap: Gap, key: str) -> str:
    """Whether the interval of a difference excludes 0, and on which side."""
    if gap.low <= 0 <= gap.high:
        return "-"
    return "better" if (gap.mean < 0) == SHOWN[key].lower_is_better else "worse"


def present(rows: Sequence[Row]) -> list[Setting]:
    return sorted({key_of(row)[0] for row in rows}, key=lambda s: (s.epochs, WARM_UPS.index(s.warm_up), s.weight))


def text_of(gap: Gap | None, key: str, *, interval: bool = False) -> str:
    if gap is None:
        return "-"
    factor = SHOWN[key].factor
    limits = f" [{factor * gap.low:+.1f}, {factor * gap.high:+.1f}]" if interval else ""
    return f"{factor * gap.mean:+.1f} ± {factor * gap.error:.1f}{limits}"


def baseline_table(rows: Sequence[Row]) -> list[str]:
    lines = [
        f"| epochs | n | training error % | {' | '.join(SHOWN[key].heading for key in METRICS)} |",
        "|---" * 8 + "|",
    ]
    for setting in present(rows):
        mine = [row for row in rows if key_of(row)[0] == setting]
        if not setting.weight:
            means = [summarise([row[key] for row in mine if row[key] is not None]) for key in METRICS]
            shown = [
                f"{SHOWN[key].factor * m.mean:.1f} ± {SHOWN[key].factor * (m.std or 0):.1f}"
                for key, m in zip(METRICS, means, strict=True)
            ]
            error = 100 * summarise([row["train_error"] for row in mine]).mean
            lines.append(f"| {setting.epochs} | {len(mine)} | {error:.1f} | {' | '.join(shown)} |")
    return lines


def difference_table(rows: Sequence[Row]) -> list[str]:
    """Each combination minus the baseline, on the test split."""
    headings = ["AURC ×10³ [95% interval]", "verdict", *(SHOWN[key].heading for key in METRICS[1:])]
    lines = [f"| epochs | warm-up | weight | n | {' | '.join(headings)} |", "|---" * 10 + "|"]
    for setting in present(rows):
        gaps = {key: gap_of(rows, Setting(setting.epochs, 0.0), setting, key) for key in METRICS}
        if setting.weight and (gap := gaps["aurc"]):
            cells = [text_of(gap, "aurc", interval=True), verdict(gap, "aurc")]
            cells += [text_of(gaps[key], key) for key in METRICS[1:]]
            head = f"| {setting.epochs} | {setting.warm_up} | {setting.weight:g} | {gap.n} |"
            lines.append(f"{head} {' | '.join(cells)} |")
    return lines


def warm_up_table(rows: Sequence[Row]) -> list[str]:
    """Each warm-up minus `none` at the same weight: AURC of the held-out images, then of the test split."""
    lines = ["| epochs | warm-up | weight | n | held-out AURC ×10³ | verdict | test AURC ×10³ | verdict |"]
    lines.append("|---" * 8 + "|")
    for setting in present(rows):
        constant = setting._replace(warm_up="none")
        gaps = [gap_of(rows, constant, setting, key) for key in ("held_out_aurc", "aurc")]
        if setting.warm_up != "none" and gaps[0] and gaps[1]:
            cells = [f"{text_of(gap, 'aurc', interval=True)} | {verdict(gap, 'aurc')}" for gap in gaps if gap]
            head = f"| {setting.epochs} | {setting.warm_up} | {setting.weight:g} | {gaps[0].n} |"
            lines.append(f"{head} {' | '.join(cells)} |")
    return lines


def tables(rows: Sequence[Row]) -> list[str]:
    """What is printed: the baseline, differences to it, and what the warm-ups change."""
    return ["\n".join(table(rows)) for table in (baseline_table, difference_table, warm_up_table)]


def over_epochs(rows: Sequence[Row], columns: dict[str, tuple[float, str, str]]) -> str:
    """A row for each number of epochs: differences to the baseline by heading, for a weight, warm-up and metric.

    Each has its 95% interval, and is bold if that excludes 0.
    """
    lines = [f"| epochs | n | {' | '.join(columns)} |", "|---" * (2 + len(columns)) + "|"]
    for epochs in sorted({row["epochs"] for row in rows}):
        cells, n = [], 0
        for weight, warm_up, key in columns.values():
            gap = gap_of(rows, Setting(epochs, 0.0), Setting(epochs, weight, warm_up), key)
            assert gap is not None
            mark, factor, n = "" if verdict(gap, key) == "-" else "**", SHOWN[key].factor, gap.n
            cells.append(f"{mark}{factor * gap.mean:+.1f}{mark} [{factor * gap.low:+.1f}, {factor * gap.high:+.1f}]")
        lines.append(f"| {epochs} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def page_tables(rows: Sequence[Row]) -> list[str]:
    """The tables of docs/when-to-use.md: by weight, by metric, by warm-up."""
    weights = sorted({row["weight"] for row in rows} - {0.0})
    return [
        over_epochs(rows, {f"weight {weight:g}": (weight, "none", "aurc") for weight in weights}),
        over_epochs(rows, {SHOWN[key].heading: (1.0, "none", key) for key in METRICS}),
        over_epochs(rows, {TITLES[warm_up]: (1.0, warm_up, "aurc") for warm_up in WARM_UPS}),
    ]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Differences in AURC and ECE over the epochs, a column for each warm-up, with their 95% intervals."""
    figure = Figure(figsize=(9, 5), layout="constrained")
    panels = figure.subplots(2, len(WARM_UPS), sharex=True, sharey="row")
    weights = sorted({row["weight"] for row in rows} - {0.0})
    counts = sorted({row["epochs"] for row in rows})
    for (line, key), (column, warm_up) in itertools.product(enumerate(("aurc", "ece")), enumerate(WARM_UPS)):
        axes = panels[line, column]
        axes.axhline(0, color="grey", linewidth=0.8)
        for number, weight in enumerate(weights):
            pairs = [(e, gap_of(rows, Setting(e, 0.0), Setting(e, weight, warm_up), key)) for e in counts]
            shown = [(e * 1.07 ** (number - 1), gap) for e, gap in pairs if gap]
            x, gaps = [e for e, _ in shown], np.array([gap for _, gap in shown]) * SHOWN[key].factor
            axes.errorbar(
                x, gaps[:, 0], yerr=gaps[:, 3] - gaps[:, 0], color=COLOURS[number], marker="o", markersize=3.5,
                linewidth=1.2, elinewidth=1, capsize=2, label=f"weight {weight:g}",
            )  # fmt: skip
        axes.set_xscale("log")
        axes.set_xticks(counts, [str(count) for count in counts], fontsize=7.5)
        axes.minorticks_off()
        tidy(axes)
        if line == 0:
            axes.set_title(TITLES[warm_up], fontsize=10)
        else:
            axes.set_xlabel("epochs")
        if column == 0:
            axes.set_ylabel(f"{SHOWN[key].heading}, minus baseline")
    legend_below(figure, panels[0, 0].get_legend_handles_labels()[0])
    save_figure(figure, path)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model")
    parser.add_argument("--root")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--epochs", type=int, nargs="+", default=[5, 10, 20, 40, 100, 200, 300])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.1, 0.5, 1.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--figure", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    train_missing(arguments.results, list(settings_of(arguments.epochs, arguments.weights)), seeds, arguments)
    rows = read(arguments.results)
    print("\n\n".join(tables(rows)))
    if arguments.figure:
        draw(rows, arguments.figure)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": version("numpy")}
    print(json.dumps({"versions": versions, "runs": len(rows), "cpu_s": round(sum(row["cpu_s"] for row in rows))}))


if __name__ == "__main__":
    main()
