"""Do soft labels help on small data, and do they replace or complement CRL? Rows of ingredients, paired over seeds.

    python experiments/soft_labels.py RESULTS.jsonl [--data digits] [--model small] [--samples N] [--padding N]
                                      [--rows plain ...] [--epochs 10 40 200] [--seeds 12] [--first-seed 200]
                                      [--minutes 25]

A row is a set of the ingredients of `experiments/ingredients.py`. Trains each row for each seed and appends a line
per run to the results. A rerun trains only what is missing; `--seeds 0` trains nothing. One file can have several
data sets and networks. Runs of one seed share the training samples, the held-out fifth, the initial weights and the
order of the samples.

The network `small` on `digits` is trained as in `experiments/ranking_with_averaging.py` (SGD, cosine schedule,
images shifted by up to one pixel; SWA from 60% of the epochs on at learning rate 0.05); other networks and data as in
`experiments/when.py`, whose runs with weight 0 and 1 are repeated as `plain` and `crl`. `--padding` shifts the
training images by other distances. Rows with SWA are for `small` only.

Prints an overview, the metrics of each row (mean ± standard deviation) and the differences of the pairs in COMPARED,
with 95% intervals of Student's t over n seeds. All metrics are those of the test split. Nothing is chosen: the rows,
the pairs and the numbers of epochs were set before the runs, and the shares are those tried on CIFAR-100. `--padding`
and `swa-cool` (SWA at 0.02) were added after the first results.
"""

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from ingredients import COMMON, METRICS, settings_of
from overconfidence import overconfidence
from ranking_with_averaging import interval
from when import limited, read, rounded, settings_for

from confrank.analysis.repeats import summarise
from confrank.config import RunConfig
from confrank.data import DataSet, load
from confrank.predictions import load_predictions
from confrank.report.scales import SHOWN
from confrank.training import train

WITHOUT_AVERAGING = ("plain", "crl", "soft0.5", "soft0.8", "crl+soft0.8")
ROWS = (
    *WITHOUT_AVERAGING, "swa", "swa+crl", "swa+soft0.5", "swa+soft0.8", "swa+crl+soft0.8",
    "swa+both", "swa+both+crl", "swa+both+soft0.8",
    "swa-cool", "swa-cool+soft0.8", "swa-cool+both", "swa-cool+both+soft0.8",
)  # fmt: skip
# Each row minus another one: on their own, against each other, on top of each other, and after averaging.
COMPARED = (
    ("crl", "plain"), ("soft0.5", "plain"), ("soft0.8", "plain"), ("crl+soft0.8", "plain"), ("soft0.8", "crl"),
    ("crl+soft0.8", "crl"), ("crl+soft0.8", "soft0.8"), ("swa", "plain"), ("swa+crl", "swa"), ("swa+soft0.5", "swa"),
    ("swa+soft0.8", "swa"), ("swa+crl+soft0.8", "swa+crl"), ("swa+crl+soft0.8", "swa+soft0.8"), ("swa+both", "swa"),
    ("swa+both+crl", "swa+both"), ("swa+both+soft0.8", "swa+both"),
    ("swa-cool+soft0.8", "swa-cool"), ("swa-cool+both+soft0.8", "swa-cool+both"),
)  # fmt: skip
Row = dict[str, Any]
KEYS = ("data", "model", "epochs", "row", "seed")


def base_of(data: str, model: str, padding: int | None) -> Row:
    """What all rows of a data set and network share."""
    base = {**settings_for(data, model, plain=False), "method": COMMON["method"]}
    if (data, model) == ("digits", "small"):
        base = {**COMMON, "dataset": data, "model": model, "holdout": 0.2, "padding": 1}
    return base if padding is None else {**base, "padding": padding}


@cache
def data_of(config: RunConfig, samples: int | None) -> DataSet:
    return limited(load(config.dataset, **config.reading), samples)


def measured(config: RunConfig, data: DataSet) -> Row:
    """Test metrics of one run, its overconfidence there in points, and the training error of its last epoch."""
    errors: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        finished = train(
            config, folder, data=data, device="cpu", on_epoch=lambda _, record: errors.append(1 - record["acc"])
        )
        metrics = finished.evaluations["test"].metrics
        gap = overconfidence(load_predictions(finished.folder.predictions("test")))
    return {
        **{key: rounded(metrics[key]) for key in METRICS},
        "overconfidence": round(gap, 4),
        "train_error": rounded(errors[-1]),
    }


def train_missing(path: Path, arguments: argparse.Namespace) -> None:
    """Train what is not in the file, seed by seed, so that an interrupted grid has complete pairs."""
    start, name = time.monotonic(), Path(arguments.data).stem
    name += "" if arguments.padding is None else f" shifted by {arguments.padding}"
    done = {tuple(row[key] for key in KEYS) for row in read(path)}
    base = base_of(arguments.data, arguments.model, arguments.padding)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for epochs in arguments.epochs:
            for row in arguments.rows:
                facts = dict(zip(KEYS, (name, arguments.model, epochs, row, seed), strict=True))
                if tuple(facts.values()) in done or time.monotonic() - start > 60 * arguments.minutes:
                    continue
                begin = time.process_time()
                config = RunConfig(**base | settings_of(row), epochs=epochs, seed=seed)
                values = measured(config, data_of(RunConfig(**base), arguments.samples))
                line = {**facts, **values, "cpu_s": round(time.process_time() - begin, 2)}
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(line, file=sys.stderr, flush=True)


def groups(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, dict[int, Row]]]]:
    """The runs of each data set, network and number of epochs: a heading, and by row and seed."""
    keys = sorted({(row["data"], row["model"], row["epochs"]) for row in rows})
    for key in keys:
        mine = [row for row in rows if (row["data"], row["model"], row["epochs"]) == key]
        names = [name for name in ROWS if any(row["row"] == name for row in mine)]
        yield (
            f"{key[0]}, {key[1]}, {key[2]} epochs",
            {name: {row["seed"]: row for row in mine if row["row"] == name} for name in names},
        )


def level_table(found: dict[str, dict[int, Row]]) -> list[str]:
    """The metrics of each row: means and standard deviations over seeds."""
    headings = ["training error %", *(SHOWN[key].heading for key in METRICS), "overconfidence, points"]
    factors = {"train_error": 100.0, **{key: SHOWN[key].factor for key in METRICS}, "overconfidence": 1.0}
    lines = [f"| row | n | {' | '.join(headings)} |", "|---" * (2 + len(headings)) + "|"]
    for name, runs in found.items():
        summaries = [summarise([factor * run[key] for run in runs.values()]) for key, factor in factors.items()]
        cells = [f"{one.mean:.1f} ± {one.std or 0:.1f}" for one in summaries]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(cells)} |")
    return lines


def difference_table(found: dict[str, dict[int, Row]]) -> list[str]:
    """The differences of the pairs that both have at least two seeds, bold if the interval excludes 0."""
    headings = [SHOWN[key].heading for key in METRICS]
    lines = [f"| row | minus | n | {' | '.join(headings)} |", "|---" * (3 + len(headings)) + "|"]
    for second, first in COMPARED:
        seeds = sorted(found.get(first, {}).keys() & found.get(second, {}).keys())
        if len(seeds) > 1:
            cells = [difference(found, first, second, seeds, key) for key in METRICS]
            lines.append(f"| {second} | {first} | {len(seeds)} | {' | '.join(cells)} |")
    return lines


def difference(found: dict[str, dict[int, Row]], first: str, second: str, seeds: Sequence[int], key: str) -> str:
    one, two = ([SHOWN[key].factor * found[name][seed][key] for seed in seeds] for name in (first, second))
    mean, low, high = interval(one, two)
    mark = "" if low <= 0 <= high else "**"
    return f"{mark}{mean:+.1f}{mark} [{low:+.1f}, {high:+.1f}]"


def overview(rows: Sequence[Row]) -> str:
    """The table of docs/evidence/soft-labels.md: a line for each group, without averaging, differences in AURC."""
    pairs = (("soft0.8", "plain"), ("crl", "plain"), ("soft0.8", "crl"), ("crl+soft0.8", "crl"))
    headings = ["n", "training error %", "overconfidence", "AURC", *(f"{two} minus {one}" for two, one in pairs)]
    lines = [f"| data, network | {' | '.join(headings)} |", "|---" * (1 + len(headings)) + "|"]
    for heading, found in groups(rows):
        seeds = sorted(set.intersection(*(set(found.get(name, ())) for pair in pairs for name in pair)))
        if len(seeds) < 2:
            continue
        error, gap, aurc = (
            summarise([found["plain"][seed][key] for seed in seeds]).mean
            for key in ("train_error", "overconfidence", "aurc")
        )
        cells = [f"{len(seeds)}", f"{100 * error:.1f}", f"{gap:+.1f}", f"{1000 * aurc:.1f}"]
        cells += [difference(found, one, two, seeds, "aurc") for two, one in pairs]
        lines.append(f"| {heading} | {' | '.join(cells)} |")
    return "\n".join(lines)


def tables(rows: Sequence[Row]) -> list[str]:
    """What is printed after the overview: for each group its heading, the levels and the differences."""
    return [
        part
        for heading, found in groups(rows)
        for part in (f"### {heading}", "\n".join(level_table(found)), "\n".join(difference_table(found)))
    ]


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--data", default="digits")
    parser.add_argument("--model", default="small")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--padding", type=int, help="shift training images by up to this many pixels")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=ROWS)
    parser.add_argument("--epochs", type=int, nargs="+", default=[10, 40, 200])
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=25.0, help="start no run after this time")
    return parser.parse_args()


def main() -> None:
    arguments = parsed()
    torch.set_num_threads(1)
    train_missing(arguments.results, arguments)
    rows = read(arguments.results)
    print("\n\n".join([overview(rows), *tables(rows)]))
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": version("numpy")}
    print(json.dumps({"versions": versions, "runs": len(rows), "cpu_s": round(sum(row["cpu_s"] for row in rows))}))


if __name__ == "__main__":
    main()
