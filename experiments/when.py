"""When does the correctness ranking loss help? Epochs x weight x warm-up of the weight, paired over seeds.

    python experiments/when.py RESULTS.jsonl [--data digits] [--model NAME] [--root DATA] [--samples N] [--plain]
                               [--epochs 5 10 20 40 100 200 300] [--weights 0.1 0.5 1] [--warm-ups none linear late]
                               [--seeds 5] [--first-seed 200] [--device cpu] [--together N] [--figure FILE]

Trains the baseline (weight 0) and each combination for each seed, and appends a line per run to the results. A rerun
trains only what is missing; `--seeds 0` trains nothing. Runs of one seed share the training samples, the held-out
samples, the initial weights and the order of the samples, so their difference is a paired one. `digits` has the
settings of `confrank demo`, a file of texts those of `experiments/text.py`, and other data the paper's protocol. A
fifth of the training samples is held out. `--samples` limits the training split to a stratified part, the same for
every seed; `--plain` leaves out the augmentation of images. On a GPU, steps are captured, and N runs train side by
side. Use one results file for each data set, network, number of samples and augmentation.

Warm-up of the weight: `none`; `linear`, which rises over the first half of the epochs and is constant from there on;
`late`, which is 0 in the first half. In the paper's protocol and for `digits`, the learning rate drops after the same
half, and after 5/6 of the epochs.

Prints two tables: each combination minus the baseline, and each warm-up minus `none` at the same weight. Differences
are means over n seeds with 95% intervals of Student's t. The metrics are those of the test split, on which nothing
is chosen. Whether a warm-up is worth an option is read from the AURC of the held-out samples. The rule was set before
the runs on digits: at weight 1, where `none` is worse than the baseline, the warm-up must be better than `none`;
nowhere may it be worse than `none`, each beyond its interval.
"""

import argparse
import itertools
import json
import math
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import stdtrit
from torch import Tensor, nn
from torch.nn import functional

from confrank.analysis.repeats import paired_difference, summarise
from confrank.config import RunConfig
from confrank.data import DataSet, hold_out, load
from confrank.loss import CorrectnessRanking
from confrank.metrics import Evaluation
from confrank.report.scales import SHOWN
from confrank.study.demo import SETTINGS as DEMO
from confrank.training import Failed, train_together

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


def settings_of(epochs: Iterable[int], weights: Sequence[float], warm_ups: Sequence[str]) -> Iterator[Setting]:
    """The baseline of each number of epochs, followed by its combinations."""
    for count in epochs:
        yield Setting(count, 0.0)
        yield from itertools.starmap(Setting, itertools.product([count], weights, warm_ups))


class Scheduled(nn.Module):
    """Cross-entropy + weight x ranking term, with a weight that is a tensor, so that a captured step follows it."""

    weight: Tensor

    def __init__(self, ranking: CorrectnessRanking, device: torch.device) -> None:
        super().__init__()
        self.ranking = ranking
        self.register_buffer("weight", torch.zeros((), device=device))

    def forward(self, output: Tensor, label: Tensor, index: Tensor) -> Tensor:
        cross_entropy = functional.cross_entropy(output.float(), label)
        return torch.addcmul(cross_entropy, self.weight, self.ranking(output, label, index))

    def set_weight(self, weight: float) -> None:
        self.weight.fill_(weight)
        if self.weight.is_cuda:  # the steps run on another stream
            torch.cuda.synchronize(self.weight.device)


def settings_for(data: str, model: str | None, plain: bool) -> dict[str, Any]:
    """What all runs on a data set share."""
    base: dict[str, Any] = {"dataset": data, "holdout": 0.2}
    if data == "digits":
        base = DEMO
    elif data.endswith((".csv", ".jsonl")):
        base |= {"model": "bag-of-embeddings", "text_length": 400, "lr": 0.003, "schedule": "cosine"}
        base |= {"optimizer": "adamw", "weight_decay": 0.0}
    base = {**base, "padding": 0, "flip": False} if plain else base
    return {**base, "model": model} if model else base


def limited(data: DataSet, samples: int | None) -> DataSet:
    """The data set with a stratified part of its training split."""
    if samples is None:
        return data
    _, part = hold_out(data, samples / len(data.train))
    assert part is not None
    rows = np.isin(data.train.index, part.index)
    return replace(data, train=data.train.select(np.flatnonzero(rows)))


def trained(
    pairs: Sequence[tuple[Setting, int]], base: Row, data: DataSet, device: torch.device
) -> list[tuple[dict[str, Evaluation], float]]:
    """Evaluations and last training error of runs that share a warm-up, each a setting with a seed."""
    configs = [
        RunConfig(
            **base,
            method="crl-softmax" if one.weight else "baseline",
            epochs=one.epochs,
            weight=one.weight,
            seed=seed,
        )
        for one, seed in pairs
    ]
    numbers = {(config.epochs, config.weight, config.seed): number for number, config in enumerate(configs)}
    schedules: dict[int, Scheduled] = {}
    errors = [math.nan] * len(pairs)

    def number_of(config: RunConfig) -> int:
        return numbers[config.epochs, config.weight, config.seed]

    def start(job: Any) -> None:
        number = number_of(job.run.config)
        if pairs[number][0].warm_up != "none":
            ranking = CorrectnessRanking(job.run.history, ignore_index=None)
            schedules[number] = job.run.criterion = Scheduled(ranking, device)
            schedules[number].set_weight(weight_at(pairs[number][0], 0))

    def follow(config: RunConfig, record: Row) -> None:
        number = number_of(config)
        errors[number] = 1 - record["acc"]
        if number in schedules:
            schedules[number].set_weight(weight_at(pairs[number][0], record["epoch"]))

    with tempfile.TemporaryDirectory() as folder:
        outs = [Path(folder) / str(number) for number in range(len(pairs))]
        results = train_together(configs, outs, data=data, device=device, on_start=start, on_epoch=follow)
    for result in results:
        if isinstance(result, Failed):
            raise result.error
    return [(result.evaluations, error) for result, error in zip(results, errors, strict=True)]  # type: ignore[union-attr]


def rows_of(
    pairs: Sequence[tuple[Setting, int]], base: Row, facts: Row, data: DataSet, device: torch.device
) -> list[Row]:
    """Train and measure runs side by side; the time is shared equally."""
    start = time.process_time()
    results = trained(pairs, base, data, device)
    seconds = round((time.process_time() - start) / len(pairs), 2)
    return [
        {
            **facts, **setting._asdict(), "seed": seed, "train_error": round(error, 6),
            **{key: rounded(evaluations["test"].metrics[key]) for key in METRICS},
            "held_out_aurc": rounded(evaluations["holdout"].metrics["aurc"]), "cpu_s": seconds,
        }
        for (setting, seed), (evaluations, error) in zip(pairs, results, strict=True)
    ]  # fmt: skip


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def complete_lines(path: Path) -> bytes:
    """What a results file has, without a last line that was not written to its end."""
    content = path.read_bytes() if path.exists() else b""
    return content[: content.rfind(b"\n") + 1]


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in complete_lines(path).splitlines()]


def key_of(row: Row) -> tuple[Setting, int]:
    return Setting(row["epochs"], row["weight"], row["warm_up"]), row["seed"]


def check_same(rows: Sequence[Row], facts: Row) -> None:
    """Refuse to mix data sets, networks or numbers of samples in one file."""
    for row in rows:
        if (there := {key: row.get(key) for key in facts}) != facts:
            raise SystemExit(f"expected results of {facts}, but got {there}; choose another results file")


def grouped(pairs: Sequence[tuple[Setting, int]], together: int) -> Iterator[Sequence[tuple[Setting, int]]]:
    """Runs to train side by side: of one number of epochs and one warm-up, in the order of their first ones."""

    def kind(pair: tuple[Setting, int]) -> tuple[int, str]:
        return pair[0].epochs, pair[0].warm_up

    if together > 1:
        order = [*dict.fromkeys(map(kind, pairs))]
        pairs = sorted(pairs, key=lambda pair: order.index(kind(pair)))
    for _, members in itertools.groupby(pairs, kind):
        rest = list(members)
        yield from (rest[start : start + together] for start in range(0, len(rest), together))


def train_missing(path: Path, wanted: Sequence[Setting], seeds: range, arguments: argparse.Namespace) -> None:
    """Train what is not in the file, seed by seed, so that an interrupted grid has complete pairs."""
    base = settings_for(arguments.data, arguments.model, arguments.plain)
    facts = {"data": Path(arguments.data).stem, "model": RunConfig(**base).model}
    facts |= {"samples": arguments.samples} if arguments.samples else {}
    facts |= {"plain": True} if arguments.plain else {}
    rows = read(path)
    check_same(rows, facts)
    done = {key_of(row) for row in rows}
    missing = [(setting, seed) for seed in seeds for setting in wanted if (setting, seed) not in done]
    if not missing:
        return
    data = limited(load(arguments.data, arguments.root, **RunConfig(**base).reading), arguments.samples)
    with path.open("a") as file:
        file.truncate(len(complete_lines(path)))
        for pairs in grouped(missing, arguments.together):
            start = time.monotonic()
            for row in rows_of(pairs, base, facts, data, torch.device(arguments.device)):
                file.write(json.dumps(row) + "\n")
            file.flush()
            print(f"{len(pairs)} runs, {pairs[0][0]}: {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


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
            if gap is None:
                cells.append("-")
                continue
            mark, factor, n = "" if verdict(gap, key) == "-" else "**", SHOWN[key].factor, gap.n
            cells.append(f"{mark}{factor * gap.mean:+.1f}{mark} [{factor * gap.low:+.1f}, {factor * gap.high:+.1f}]")
        lines.append(f"| {epochs} | {n} | {' | '.join(cells)} |")
    return "\n".join(lines)


def overview(rows: Sequence[Row]) -> list[str]:
    """A line for each number of epochs: the baseline, and the gain at weight 1, for a table of several files."""
    lines = []
    for epochs in sorted({row["epochs"] for row in rows}):
        base = Setting(epochs, 0.0)
        gap = gap_of(rows, base, Setting(epochs, 1.0), "aurc")
        assert gap is not None
        mine = [row for row in rows if key_of(row)[0] == base]
        error, ece, aurc = (summarise([row[key] for row in mine]).mean for key in ("train_error", "ece", "aurc"))
        mark = "" if verdict(gap, "aurc") == "-" else "**"
        start = f"| {rows[0]['data']}, {rows[0]['model']} | {epochs} | {gap.n}"
        cells = f"{100 * error:.1f} | {100 * ece:.1f} | {1000 * aurc:.1f}"
        change = f"{mark}{1000 * gap.mean:+.1f}{mark} [{1000 * gap.low:+.1f}, {1000 * gap.high:+.1f}]"
        lines.append(f"{start} | {cells} | {change} |")
    return lines


def page_tables(rows: Sequence[Row]) -> list[str]:
    """The tables of docs/evidence/crl-grids.md: by weight, by metric, by warm-up."""
    weights = sorted({row["weight"] for row in rows} - {0.0})
    warm_ups = [name for name in WARM_UPS if any(row["warm_up"] == name and row["weight"] for row in rows)]
    columns = [
        {f"weight {weight:g}": (weight, "none", "aurc") for weight in weights},
        {SHOWN[key].heading: (1.0, "none", key) for key in METRICS},
        {TITLES[warm_up]: (1.0, warm_up, "aurc") for warm_up in warm_ups},
    ]
    return [over_epochs(rows, each) for each in columns]


def draw(rows: Sequence[Row], path: Path) -> None:
    """Differences in AURC and ECE over the epochs, a column for each warm-up, with their 95% intervals."""
    # Imported here: a machine that only trains need not have matplotlib.
    from matplotlib.figure import Figure

    from confrank.report.colours import COLOURS
    from confrank.report.plots import legend_below, save_figure, tidy

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
    parser.add_argument("--warm-ups", nargs="+", choices=WARM_UPS, default=WARM_UPS)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--samples", type=int)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--figure", type=Path)
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    wanted = list(settings_of(arguments.epochs, arguments.weights, arguments.warm_ups))
    if seeds:
        train_missing(arguments.results, wanted, seeds, arguments)
    rows = read(arguments.results)
    print("\n\n".join(tables(rows)))
    if arguments.figure:
        draw(rows, arguments.figure)
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": version("numpy")}
    print(json.dumps({"versions": versions, "runs": len(rows), "cpu_s": round(sum(row["cpu_s"] for row in rows))}))


if __name__ == "__main__":
    main()
