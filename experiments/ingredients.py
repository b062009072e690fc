"""Which ingredients of training earn their cost? Chosen on held-out training images, paired by image.

    python experiments/ingredients.py --dataset cifar100 --root DATA [--rows swa swa+cutmix swa+cutmix+crl]
                                      [--epochs 200] [--seeds 0 1] [--against swa] [--together 2] [--shift]
    python experiments/ingredients.py --dataset cifar100 --show [--judge] [--adopt]

A row is a set of INGREDIENTS joined by "+", for example swa+both+cosine. Every run holds out a tenth of the training
images, the same ones for all rows of a seed. Runs without a result are trained, `--together` side by side on a GPU,
and each result is written as soon as its run ends; the same command resumes. A run of `confrank study` with the same
settings counts as well (--also). The table shows metrics on the held-out images alone, the differences from the row
--against, and their 95% intervals from resamples of these images, averaged over the seeds that both rows have.
Test metrics are in the files; --judge prints the same table of them, after the choice. --adopt moves the results that
are trained like a recipe to the results of `confrank study record`, under its names.
"""

import argparse
import json
import platform
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confrank.config import RunConfig, changes
from confrank.files import write_atomically
from confrank.metrics import Samples, bootstrap, evaluation_of, paired_differences
from confrank.recipes import RECIPES, settings
from confrank.report.scales import SHOWN, shown
from confrank.research.exam import examine_run
from confrank.study.results import Result, export_run, load_result, read_run, samples_in
from confrank.training import Failed, train_together
from confrank.training.jobs import Job
from confrank.training.trivial_augment import SHARES

# How every row is trained, except for its ingredients: as FMFP and SURE.
COMMON: dict[str, Any] = {"method": "baseline", "weight_decay": 5e-4, "schedule": "cosine", "holdout": 0.1}
SWA = {"averaging": "swa", "averaging_start": 0.6, "averaging_lr": 0.05}
INGREDIENTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "swa": SWA,
    "swa-late": SWA | {"averaging_start": 0.75},
    "swa-cool": SWA | {"averaging_lr": 0.02},
    "swa-cosine": SWA | {"averaging_lr": None},
    "ema": {"averaging": "ema"},
    "sam": {"sam": 0.05},
    **{name: {"mix": name} for name in ("mixup", "cutmix", "both")},
    **{f"{name}0.5": {"mix": name, "mix_weight": 0.5} for name in ("mixup", "cutmix", "both")},
    **{name: {"augment": name} for name in SHARES},
    **{f"soft{share}": {"soft_labels": share} for share in (0.5, 0.8)},
    "cosine": {"head": "cosine"},
    "fifth": {"holdout": 0.2},  # twice as many images to choose by
    **{f"crl{weight or ''}": {"method": "crl-softmax", "weight": weight or 1.0} for weight in (0, 0.1, 0.5)},
    **{
        f"stretched{weight or ''}": {"method": "crl-softmax-stretched", "weight": weight or 1.0}
        for weight in (0, 0.1, 0.5)
    },
}
# The mixed and the clean images of a step are passed through the network together, and twice with SAM.
PASSES = {"sam": 2, "mix": 2}
ROWS = (
    "plain", "crl", "swa", "swa+crl", "swa+crl0.5", "swa+crl0.1", "swa+stretched", "swa+sam",
    "swa+mixup", "swa+mixup+crl", "swa+mixup+crl0.1", "swa+cutmix", "swa+cutmix+crl", "swa+cutmix+crl0.1",
    "swa+both", "swa+both+crl0.1", "swa+mixup+cosine", "swa+cutmix+cosine", "swa+both+cosine", "ema", "ema+both",
    "swa+sam+mixup+stretched+cosine", "swa-cool+both+cosine", "swa-cool+both+cosine+soft0.8",
)  # fmt: skip
METRICS = ("aurc", "e_aurc", "auroc", "ece", "acc")
RESAMPLES = 1000
# Settings that are compared first: most results differ in one of them.
QUICK = ("model", "method", "seed")
# Epochs between two lines of progress.
EVERY = 20


def settings_of(row: str) -> dict[str, Any]:
    """The settings that a row's ingredients change."""
    if unknown := [name for name in row.split("+") if name not in INGREDIENTS]:
        raise ValueError(f"expected ingredients among {', '.join(INGREDIENTS)}, but got {', '.join(unknown)}")
    return {key: value for name in row.split("+") for key, value in INGREDIENTS[name].items()}


def config_of(row: str, dataset: str, model: str, epochs: int, seed: int) -> RunConfig:
    """The run of a row."""
    return RunConfig(dataset=dataset, model=model, epochs=epochs, seed=seed, **(COMMON | settings_of(row)))


def name_of(row: str, config: RunConfig) -> str:
    """The name of a row's run: its results never share a name with those of a study."""
    return f"ingredients-{row}-{Path(config.dataset).stem}-{config.model}-{config.epochs}epochs-seed{config.seed}"


def passes_of(config: RunConfig) -> int:
    """Forward and backward passes of a step, in units of a plain step."""
    return PASSES["sam"] ** bool(config.sam) * PASSES["mix"] ** (config.mix != "none")


@dataclass(frozen=True)
class Found:
    """Where the results of rows are: in the experiment's folder, or in others for runs of the same settings."""

    results: Path
    also: tuple[Path, ...] = ()

    def path(self, row: str, config: RunConfig) -> Path | None:
        """The result of a row, None if there is none."""
        mine = self.results / f"{name_of(row, config)}.json"
        others = (path for folder in self.also for path in sorted(folder.glob("*.json")))
        return next((path for path in (mine, *others) if path.exists() and _is_of(read(path), config)), None)


def read(path: Path) -> Result:
    """A result, read once for each time that it is written."""
    return _read(path, path.stat().st_mtime_ns)


@cache
def _read(path: Path, written: int) -> Result:
    return load_result(path)


def _is_of(result: Result, config: RunConfig) -> bool:
    """Whether a result is of a finished run that is trained like this, under whichever recipe's name."""
    if len(result.log) != config.epochs or any(result.config.get(key) != getattr(config, key) for key in QUICK):
        return False
    return not changes({key: value for key, value in config.as_dict().items() if key != "recipe"}, result.config)


def leaves_out_mixed_images(result: Result) -> bool:
    """Whether mixed images trained an averaged network, but are missing from its batch norm statistics.

    So they were before `augment` was a setting. Such a result is shown, but neither compared with others nor adopted.
    """
    mixed, averaged = (result.config.get(key, "none") != "none" for key in ("mix", "averaging"))
    return mixed and averaged and "augment" not in result.config


def train_rows(
    wanted: Sequence[tuple[str, RunConfig]],
    out: Path,
    found: Found,
    *,
    together: int = 1,
    root: Path | None = None,
    device: str | None = None,
    shift: bool = False,
    on_start: Callable[[Job], None] | None = None,
    on_epoch: Callable[[RunConfig, dict[str, Any]], None] | None = None,
) -> list[str]:
    """Train the runs that have no result, side by side, and write each result; returns a line for each failure."""
    listeners = {"on_start": on_start, "on_epoch": on_epoch or _progress, "on_note": print}
    missing = [(row, config) for row, config in wanted
               if (path := found.path(row, config)) is None or leaves_out_mixed_images(read(path))]  # fmt: skip
    problems = []
    for start in range(0, len(missing), together):
        group = missing[start : start + together]
        configs, runs = [config for _, config in group], [out / name_of(*one) for one in group]
        trained = train_together(configs, runs, root=root, device=device, **listeners)
        for run, result in zip(runs, trained, strict=True):
            if isinstance(result, Failed):
                problems.append(f"{run.name}: {result.why}")
                continue
            path = export_run(run, found.results)
            print(f"wrote {path}", flush=True)
            if shift:
                examine_run(run, found.results, root=root, device=device)
    return problems


def _progress(config: RunConfig, record: dict[str, Any]) -> None:
    if record["epoch"] % EVERY == 0:
        values = " ".join(f"{key} {record[key]:.3f}" for key in ("loss", "acc", "seconds"))
        print(f"epoch {record['epoch']} of {config.epochs}, seed {config.seed}: {values}", flush=True)


def adopt(results: Path, records: Path) -> list[Path]:
    """Move results that are trained like a recipe to the results of the study; returns the new files."""
    moved = []
    for path in sorted(results.glob("*.json")):
        result = load_result(path)
        if leaves_out_mixed_images(result):
            continue
        shared = {key: result.config[key] for key in ("dataset", "model", "seed", "holdout")}
        for recipe in RECIPES:
            config = settings(recipe, **shared)
            target = records / f"{config.run_name}.json"
            if not _is_of(result, config) or target.exists():
                continue
            content = {**json.loads(path.read_text()), "config": config.as_dict()}
            # The result comes last: a half-moved one is moved again.
            shutil.copyfile(path.with_suffix(".npz"), target.with_suffix(".npz"))
            write_atomically(target, json.dumps(content, separators=(",", ":")) + "\n")
            path.unlink()
            path.with_suffix(".npz").unlink()
            moved.append(target)
            break
    return moved


def resampled(path: Path, prefix: str, seed: int) -> tuple[dict[str, Any], dict[str, float | None]]:
    """The metrics of one run on resamples of a split's images, and on all of them.

    `prefix` is that of the split's arrays. Runs with the same `seed` have the same resamples. The AURC with mirrored
    images is not resampled.
    """
    result, arrays = read_run(path)
    samples: Samples = samples_in(arrays, prefix)
    (values,) = bootstrap([samples], RESAMPLES, seed)
    mirrored = result.mirrored.get("validation" if prefix else "test", {}).get("aurc")
    return values, {**evaluation_of(samples).metrics, "mirrored_aurc": mirrored}


def compared(
    rows: Sequence[str], against: str, seeds: Sequence[int], config: RunConfig, found: Found, prefix: str
) -> list[dict[str, Any]]:
    """For each row with results: its mean metrics, and its paired differences from another row.

    A difference is a mean over the seeds that both rows have. Its interval is from resamples of the images: the
    held-out ones differ between seeds and are resampled independently, the test images are the same. With few seeds
    it does not cover how much seeds differ.
    """
    parts: dict[tuple[str, int], Any] = {}
    digests: dict[tuple[str, int], Any] = {}
    for row in dict.fromkeys((*rows, against)):
        for seed in seeds:
            one = config_of(row, config.dataset, config.model, config.epochs, seed)
            if (path := found.path(row, one)) is not None:
                parts[row, seed] = resampled(path, prefix, seed if prefix else 0)
                digests[row, seed] = read(path).environment.get("data")
    table = []
    for row in rows:
        there = [seed for seed in seeds if (row, seed) in parts]
        if not there:
            continue
        both = [seed for seed in there if (against, seed) in parts]
        for seed in both:
            assert digests[row, seed] == digests[against, seed], f"{row} and {against} are of other images"
        table.append({
            "row": row,
            "passes": passes_of(config_of(row, config.dataset, config.model, config.epochs, 0)),
            "seeds": there,
            "metrics": _means([parts[row, seed][1] for seed in there]),
            "paired_seeds": both,
            "differences": _differences([parts[against, seed] for seed in both], [parts[row, seed] for seed in both])
            if both and row != against else {},
        })  # fmt: skip
    return table


def _means(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    defined = {key for key in values[0] if all(one.get(key) is not None for one in values)}
    return {key: np.mean([one[key] for one in values], axis=0) for key in values[0] if key in defined}


def _differences(first: Sequence[Any], second: Sequence[Any]) -> dict[str, Any]:
    (one, first_metrics), (two, second_metrics) = (
        (_means([values for values, _ in part]), {**dict.fromkeys(SHOWN), **_means([whole for _, whole in part])})
        for part in (first, second)
    )
    gaps = paired_differences(one, two, first_metrics, second_metrics)
    return {key: [gap.value, gap.low, gap.high] for key, gap in gaps.items() if gap is not None and key in METRICS}


def lines_of(table: Iterable[dict[str, Any]], against: str) -> list[str]:
    """The table in Markdown: means, and differences with their intervals."""
    headings = [SHOWN[key].heading for key in METRICS]
    lines = [
        f"| ingredients | passes | seeds | {' | '.join(headings)} | mirrored {SHOWN['aurc'].heading} |",
        "|---|---|---|" + "---|" * (len(METRICS) + 1),
    ]
    for one in table:
        cells = []
        for key in METRICS:
            gap = [f"{value * SHOWN[key].factor:+.2f}" for value in one["differences"].get(key, ())]
            text = f" ({gap[0]}; {gap[1]} to {gap[2]})" if gap else ""
            cells.append(shown(key, one["metrics"].get(key)) + text)
        cells.append(shown("aurc", one["metrics"].get("mirrored_aurc")))
        lines.append(f"| {one['row']} | {one['passes']} | {len(one['seeds'])} | {' | '.join(cells)} |")
    return [*lines, "", f"In brackets: difference from {against} and its 95% interval."]


def parsed(given: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar100")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--rows", nargs="+", default=list(ROWS), metavar="ROW")
    parser.add_argument("--against", default="swa", metavar="ROW")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--together", type=int, default=1, help="runs to train side by side on a GPU")
    parser.add_argument("--shift", action="store_true", help="also evaluate on corrupted and mirrored images")
    parser.add_argument("--show", action="store_true", help="train nothing")
    parser.add_argument("--judge", action="store_true", help="also print the table of the test images")
    parser.add_argument("--adopt", action="store_true", help="move the results of recipes to the first of --also")
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--out", type=Path, default=Path("runs/ingredients"), help="run folders")
    parser.add_argument("--results", type=Path, default=Path("results/ingredients"))
    parser.add_argument("--also", type=Path, nargs="*", default=[Path("results")], help="results of other runs")
    return parser.parse_args(given)


def main(given: Sequence[str] | None = None) -> None:
    arguments = parsed(given)
    common = arguments.dataset, arguments.model, arguments.epochs
    found = Found(arguments.results, tuple(arguments.also))
    wanted = [(row, config_of(row, *common, seed)) for seed in arguments.seeds for row in arguments.rows]
    problems = []
    if not arguments.show:
        where = {"root": arguments.root, "device": arguments.device, "shift": arguments.shift}
        problems = train_rows(wanted, arguments.out, found, together=arguments.together, **where)
    for path in adopt(arguments.results, arguments.also[0]) if arguments.adopt else ():
        print(f"moved {path}")
    splits = {"validation": "validation_"} | ({"test": ""} if arguments.judge else {})
    tables = {
        split: compared(
            arguments.rows, arguments.against, arguments.seeds, config_of("plain", *common, 0), found, prefix
        )
        for split, prefix in splits.items()
    }
    for split, table in tables.items():
        print(f"\n{arguments.dataset}, {arguments.model}, {arguments.epochs} epochs, {split} images\n")
        print("\n".join(lines_of(table, arguments.against)))
    for problem in problems:
        print(f"failed: {problem}")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    print(json.dumps({"settings": common, "against": arguments.against, "versions": versions, **tables}))


if __name__ == "__main__":
    main()
