"""Why can the correctness ranking loss harm once weights are averaged? Small networks, paired by seed.

    python experiments/ranking_with_averaging.py RESULTS.jsonl [--models small mlp] [--seeds 10] [--epochs 100]
                                                 [--rates 0.05 0.01] [--variants none crl ...]
    python experiments/ranking_with_averaging.py RESULTS.jsonl --dataset cifar10 --root DATA --models resnet8
                                                 --epochs 30 150 --mixes none both --variants none crl

Trains each variant of the ranking loss with SWA from 60% of the epochs on (cosine schedule, then a constant learning
rate) and measures two networks of the same run: the last weights, and the averaged ones. Runs of one seed share
images, initial weights and the order of the samples. Appends a line per run; a rerun trains only what is missing, and
`--seeds 0` trains nothing. Sets other than digits are reduced to a stratified draw of `--images` training images.
`resnet8` is a pre-activation ResNet with one block per stage and a stem of stride 2, small enough for a CPU.

Variants: `none`; `crl`, weight 1; `crl0.5`, `crl0.1`; `stretched`, with the published code's rates; `before`, weight
1 only until averaging starts; `after`, only from there on; `teacher`, weight 1 with rates that the running average
earns, judged once an epoch, from the start of averaging on.

Prints the differences from `none` for both networks, means over n seeds with 95% intervals of Student's t, and how
the confidences of the training images agree with the rates (Spearman's correlation), how sure they are on average,
and the ranking loss that is left. The metrics are those of the test images, on which nothing is chosen.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from importlib.metadata import version
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.special import stdtrit
from scipy.stats import spearmanr
from torch import nn

from confrank.analysis.repeats import paired_difference
from confrank.config import RunConfig, first_averaged
from confrank.data import DataSet, hold_out, load
from confrank.loss import ranking_loss
from confrank.methods import predict_split
from confrank.metrics import evaluation_of, sample_values
from confrank.models.images import PreActivationBlock
from confrank.models.network import Network, SpatialMean, conv, norm
from confrank.report.scales import SHOWN
from confrank.training import Run
from confrank.training.averaging import estimate_statistics
from confrank.training.store import fetch

FIRST_SEED = 300
METRICS = ("aurc", "e_aurc", "auroc", "ece", "acc")
COMMON: dict[str, Any] = {"weight_decay": 5e-4, "schedule": "cosine", "averaging": "swa"}
Row = dict[str, Any]


class Variant(NamedTuple):
    """The weight of the ranking loss before and from the start of averaging on, and its rates."""

    before: float
    after: float
    rates: str = "plain"


VARIANTS = {
    "none": Variant(0, 0),
    "crl": Variant(1, 1),
    "crl0.5": Variant(0.5, 0.5),
    "crl0.1": Variant(0.1, 0.1),
    "stretched": Variant(1, 1, "stretched"),
    "before": Variant(1, 0),
    "after": Variant(0, 1),
    "teacher": Variant(1, 1, "teacher"),
}


def trained(variant: Variant, config: RunConfig, data: DataSet, judge: Callable[[Run], Row]) -> tuple[Row, Row]:
    """What `judge` says of the last weights and of the averaged ones."""
    run, start = Run(config, data, torch.device("cpu")), first_averaged(config)
    last: Row = {}
    while not run.finished:
        run.criterion.weight = variant.after if run.epoch >= start else variant.before
        averaging = run.epoch > start
        if variant.rates == "teacher" and averaging:
            counts = [values.clone() for values in run.history.buffers()]
        for _ in range(run.num_steps):
            run.step()
        if variant.rates == "teacher" and averaging:
            for values, before in zip(run.history.buffers(), counts, strict=True):
                values.copy_(before)
            _record_average(run)
        if run.epoch == config.epochs - 1:
            last = judge(run)
        run.finish_epoch()
    return last, judge(run)


def _record_average(run: Run) -> None:
    """Count the training images that the average so far gets right, on the crops of this epoch."""
    assert run.average is not None
    position, size = run.snapshot(), run.config.batch_size
    starts = range(0, run.num_samples, size)
    batches = [fetch(run.store, run.draws, start, min(size, run.num_samples - start)) for start in starts]
    run.average.apply()
    estimate_statistics(run.model, (batch.image for batch in batches))
    run.model.eval()
    with torch.no_grad():
        right = [run.model(batch.image).argmax(1) == batch.label for batch in batches]
    run.model.train()
    run.load_state(*position)
    for batch, correct in zip(batches, right, strict=True):
        run.history.update(batch.index, correct)


def measured(run: Run, data: DataSet) -> Row:
    """Test metrics, and how the confidences of the training images agree with their rates."""
    parts = {name: getattr(data, name) for name in ("test", "train")}
    samples = {
        name: sample_values(**predict_split(run.method, run.model, split, data.mean, data.std).evaluation_inputs())
        for name, split in parts.items()
    }
    metrics = evaluation_of(samples["test"]).metrics
    rate = run.history.rate(torch.arange(len(data.train))).double()
    confidence = torch.from_numpy(np.array(samples["train"].confidence))
    return {
        **{key: round(metrics[key] or 0.0, 6) for key in METRICS},
        "agreement": round(float(spearmanr(confidence, rate).statistic), 4),
        "train_confidence": round(float(confidence.mean()), 4),
        "test_confidence": round(float(np.mean(samples["test"].confidence)), 4),
        "train_accuracy": round(float(np.mean(samples["train"].correct)), 4),
        "rate": round(float(rate.mean()), 4),
        "ranking_loss": round(float(ranking_loss(confidence, rate)), 4),
    }


def resnet8(num_classes: int) -> Network:
    """A pre-activation ResNet of three stages with one block each, for 32x32 images on a CPU."""
    widths = (16, 32, 64)
    stages = [
        PreActivationBlock(before, width, 1 if before == width else 2, 0.0)
        for before, width in zip((16, *widths), widths, strict=False)
    ]
    neck = nn.Sequential(norm(64), nn.ReLU(), SpatialMean())
    return Network([conv(3, 16, stride=2), *stages], neck, 64, num_classes)


@cache
def drawn(dataset: str, root: Path | None, images: int, crops: bool, seed: int) -> DataSet:
    """The training images of a seed: four fifths of the digits, or a stratified draw of another data set."""
    if dataset == "digits":
        return hold_out(load(dataset).augmented(int(crops), None), 0.2, seed)[0]
    whole = load(dataset, root)
    data = whole if crops else whole.augmented(0, False)
    return hold_out(data, 1 - images / len(whole.train), seed)[0]


@dataclass(frozen=True)
class Case:
    """What a run is: the columns that tell it from the others."""

    dataset: str
    images: int
    crops: bool
    model: str
    averaging_lr: float
    epochs: int
    mix: str
    variant: str
    seed: int


def row_of(case: Case, root: Path | None) -> Row:
    """Train and measure one run."""
    start, variant = time.process_time(), VARIANTS[case.variant]
    data = drawn(case.dataset, root, case.images, case.crops, case.seed)
    config = RunConfig(
        dataset=case.dataset,
        model="ranking_with_averaging:resnet8" if case.model == "resnet8" else case.model,
        method="crl-softmax-stretched" if variant.rates == "stretched" else "crl-softmax",
        epochs=case.epochs,
        averaging_lr=case.averaging_lr,
        mix=case.mix,
        seed=case.seed,
        holdout=0.2,
        **COMMON,
    )
    last, averaged = trained(variant, config, data, lambda run: measured(run, data))
    return {**asdict(case), "last": last, "averaged": averaged, "cpu_s": round(time.process_time() - start, 2)}


def case_of(row: Row) -> Case:
    """The case of a stored row; rows from before other data sets and mixing have the defaults of that time."""
    former = {"dataset": "digits", "images": 720, "crops": True, "mix": "none"}
    return Case(**{field.name: (former | row)[field.name] for field in fields(Case)})


def interval(first: Sequence[float], second: Sequence[float]) -> tuple[float, float, float]:
    """The mean of paired differences, and its 95% interval of Student's t."""
    gap = paired_difference(first, second)
    width = float(stdtrit(gap.n - 1, 0.975)) * (gap.standard_error or 0.0) if gap.n > 1 else float("nan")
    return gap.mean, gap.mean - width, gap.mean + width


def lines_of(rows: Iterable[Row]) -> list[str]:
    """The tables of each data set, network, mixing, length and learning rate."""
    groups: dict[Case, list[Row]] = {}
    for row in rows:
        groups.setdefault(replace(case_of(row), variant="", seed=0), []).append(row)
    lines = []
    for case, group in groups.items():
        mixing = f", mixing {case.mix}" if case.mix != "none" else ""
        images = f"{case.images} images{'' if case.crops else ' without crops and flips'}"
        title = f"{case.dataset}, {images}, {case.model}, {case.epochs} epochs{mixing}"
        lines += [f"\n{title}, learning rate {case.averaging_lr:g} while averaging\n", *_table(group)]
    return lines


def _table(group: Sequence[Row]) -> list[str]:
    found = {(row["variant"], row["seed"]): row for row in group}
    variants = [name for name in VARIANTS if any(row["variant"] == name for row in group)]
    headings = " | ".join(SHOWN[key].heading for key in METRICS)
    more = "agreement | train conf. | test conf. | train acc. | rate | ranking loss"
    lines = [f"| weights | variant | n | {headings} | {more} |", "|---" * (9 + len(METRICS)) + "|"]
    for which in ("last", "averaged"):
        for name in variants:
            seeds = sorted(seed for one, seed in found if one == name and ("none", seed) in found)
            cells = []
            for key in METRICS:
                factor = SHOWN[key].factor
                mine, none = ([factor * found[one, seed][which][key] for seed in seeds] for one in (name, "none"))
                gap = interval(none, mine)
                cells.append(
                    f"{np.mean(mine):.2f}" if name == "none" else f"{gap[0]:+.2f} [{gap[1]:+.2f}, {gap[2]:+.2f}]"
                )
            others = ("agreement", "train_confidence", "test_confidence", "train_accuracy", "rate", "ranking_loss")
            cells += [f"{np.mean([found[name, seed][which][key] for seed in seeds]):.3f}" for key in others]
            lines.append(f"| {which} | {name} | {len(seeds)} | {' | '.join(cells)} |")
    return lines


def read(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=Path)
    parser.add_argument("--dataset", default="digits")
    parser.add_argument("--root", type=Path, help="folder of the data sets")
    parser.add_argument("--images", type=int, default=5000, help="training images, except of digits")
    parser.add_argument("--no-crops", action="store_true", help="neither crop nor flip the training images")
    parser.add_argument("--models", nargs="+", default=["small"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--epochs", type=int, nargs="+", default=[100])
    parser.add_argument("--mixes", nargs="+", default=["none"])
    parser.add_argument("--rates", type=float, nargs="+", default=[0.05])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--minutes", type=float, default=15.0, help="start no run after this time")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start, done = time.monotonic(), {case_of(row) for row in read(arguments.results)}
    images = 720 if arguments.dataset == "digits" else arguments.images
    for seed, *choice in product(
        range(FIRST_SEED, FIRST_SEED + arguments.seeds),
        arguments.models, arguments.rates, arguments.epochs, arguments.mixes, arguments.variants,
    ):  # fmt: skip
        case = Case(arguments.dataset, images, not arguments.no_crops, *choice, seed)
        if case not in done and time.monotonic() - start < 60 * arguments.minutes:
            row = row_of(case, arguments.root)
            with arguments.results.open("a") as file:
                file.write(json.dumps(row) + "\n")
    rows = read(arguments.results)
    print("\n".join(lines_of(rows)))
    print(json.dumps({
        "runs": len(rows), "cpu_s": round(sum(row["cpu_s"] for row in rows)),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("torch", "numpy")}},
    }))  # fmt: skip


if __name__ == "__main__":
    main()
