"""Which epochs should an average of weights cover, and which images its batch norm statistics? Answers of one run.

    python experiments/averages.py --dataset cifar100 --root DATA [--row swa+both+cosine+trivial] [--epochs 200]
                                   [--seed 0] [--out runs/ingredients] [--results results/ingredients] [--json FILE]

Trains a row of experiments/ingredients.py, under its name, and writes the same result. Meanwhile it collects the
weights after each averaged epoch. From them it forms other averages, estimates their batch norm statistics over
several kinds of training images, and prints metrics on the held-out images alone: none of it needs more training. The
last epoch's weights are part of the average only. --json receives a line for each, as soon as it is measured.
"""

import argparse
import copy
import json
import platform
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from ingredients import METRICS, Found, config_of, name_of, train_rows
from torch import Tensor, nn

from confrank import evaluate
from confrank.config import RunConfig, first_averaged
from confrank.methods import predict_split
from confrank.report.scales import SHOWN, shown
from confrank.research.exam import examine_run
from confrank.training import estimate_statistics
from confrank.training.jobs import Job
from confrank.training.mixing import mix
from confrank.training.run import Run
from confrank.training.store import fetch

# How many of the last epochs to average, and how much the weight of an epoch falls with each later one.
LAST = (1, 5, 10, 20, 40, 60)
DECAYS = (0.8, 0.95)
# Steps whose images give the statistics: 100 of 128 images are enough for means and variances.
STEPS = 100
# Averaged epochs between two looks at the average so far.
EVERY = 20
# Images to estimate statistics over: whether TrivialAugment changes them, and whether mixed ones are among them.
Kind = tuple[bool, bool]
KINDS: dict[str, Kind] = {
    "changed and mixed": (True, True),
    "changed": (True, False),
    "cropped and mixed": (False, True),
    "cropped": (False, False),
}


@dataclass
class Members:
    """A job, the weights after each of its averaged epochs, and a network to try averages in."""

    job: Job
    network: nn.Module
    weights: list[list[Tensor]] = field(default_factory=list)

    @property
    def run(self) -> Run:
        return self.job.run

    def add(self) -> None:
        """Collect the current weights. Training writes to them on another stream, so wait."""
        self.weights.append([values.detach().clone() for values in self.run.model.parameters()])
        if self.run.device.type == "cuda":
            torch.cuda.synchronize(self.run.device)


def averages(num_members: int) -> dict[str, list[float]]:
    """The share of each member, the latest last, in every average to try."""
    shares = {f"last {n}": [0.0] * (num_members - n) + [1.0] * n for n in LAST if n < num_members}
    shares[f"all {num_members}"] = [1.0] * num_members
    ages = range(num_members - 1, -1, -1)
    return shares | {f"decay {decay:g}": [decay**age for age in ages] for decay in DECAYS}


def weighted(members: Sequence[Sequence[Tensor]], shares: Sequence[float]) -> list[Tensor]:
    """The mean of the members' weights by their shares, which need not add up to 1."""
    total = [torch.zeros_like(values, dtype=torch.float64) for values in members[0]]
    for weights, share in zip(members, shares, strict=True):
        if share:
            for mean, values in zip(total, weights, strict=True):
                mean.add_(values.double(), alpha=share / sum(shares))
    return total


def as_trained(run: Run) -> Kind:
    """The kind of images that training passes."""
    return run.draws.changes is not None, run.mixing is not None


def statistics(run: Run) -> dict[str, Kind]:
    """The kinds of images that statistics can be estimated over, by name."""
    changed, mixed = as_trained(run)
    return {name: kind for name, kind in KINDS.items() if kind[0] <= changed and kind[1] <= mixed}


def images_of(run: Run, changed: bool, mixed: bool) -> Iterator[Tensor]:
    """The images of each step of the epoch that the run has drawn, of one kind."""
    draws = run.draws if changed else run.draws._replace(changes=None)
    size = run.config.batch_size
    for step in range(run.num_samples // size):
        image = fetch(run.store, draws, step * size, size).image
        if mixed and run.mixing is not None:
            image = torch.cat((image, mix(image, run.mixing.at(torch.tensor([step], device=run.device)))[0]))
        yield image


@torch.no_grad()
def measured(members: Members, weights: Sequence[Tensor], kind: Kind) -> dict[str, float | None]:
    """The metrics of these weights on the held-out images, with statistics over images of a kind."""
    network, job = members.network, members.job
    for values, mean in zip(network.parameters(), weights, strict=True):
        values.copy_(mean)
    estimate_statistics(network.train(), islice(images_of(members.run, *kind), STEPS))
    return held_out_metrics(job, network)


def held_out_metrics(job: Job, network: nn.Module) -> dict[str, float | None]:
    """The metrics of a network on the held-out images, and the AURC with their mirror images."""
    assert job.held_out is not None
    plain, mirrored = (
        evaluate(
            **predict_split(
                job.run.method, network, job.held_out, job.data.mean, job.data.std, mirror=mirror
            ).evaluation_inputs()
        ).metrics
        for mirror in (False, True)
    )
    return {**{key: plain[key] for key in METRICS}, "mirrored_aurc": mirrored["aurc"]}


class Account:
    """Prints a line for each measurement, and appends it to a file if there is one."""

    def __init__(self, config: RunConfig, path: Path | None) -> None:
        self.config, self.path, self.start = config, path, time.monotonic()
        self.members: Members | None = None

    def began(self, job: Job) -> None:
        self.members = Members(job, copy.deepcopy(job.run.model))

    def ended(self, config: RunConfig, record: dict[str, Any]) -> None:
        """At the end of an epoch: log it, collect its weights, and look at the average so far now and then."""
        self.write({"log": record})
        members, epoch = self.members, record["epoch"]
        if epoch == 1 or epoch % EVERY == 0:
            step = 1000 * record["seconds"] / (members.run.num_steps if members else 1)
            print(f"epoch {epoch} of {config.epochs}: loss {record['loss']:.3f} acc {record['acc']:.3f}"
                  f" {step:.2f} ms per step, at {time.monotonic() - self.start:.0f} s", flush=True)  # fmt: skip
        collects = first_averaged(config) < epoch < config.epochs
        # The epochs before a restart are not collected.
        if members is None or not collects or members.run.epoch != epoch:
            return
        members.add()
        if len(members.weights) % EVERY == 0:
            mean = weighted(members.weights, [1.0] * len(members.weights))
            now = measured(members, mean, as_trained(members.run))
            self.show(f"all until epoch {epoch}", "as trained", now)

    def finish(self) -> list[dict[str, Any]]:
        """Measure the run's network, then each other average: with all statistics for all members, or with two."""
        members = self.members
        if members is None or not members.run.finished:
            return []
        kinds, usual = statistics(members.run), (as_trained(members.run), (False, False))
        rows = [self.show("the run's", "as trained, all steps", held_out_metrics(members.job, members.run.model))]
        tried = averages(len(members.weights)) if members.weights else {}
        for average, shares in sorted(tried.items(), key=lambda one: not one[0].startswith("all")):
            mean = weighted(members.weights, shares)
            for name, kind in kinds.items():
                if average.startswith("all") or kind in usual:
                    rows.append(self.show(average, name, measured(members, mean, kind)))
        return rows

    def show(self, average: str, name: str, metrics: dict[str, float | None]) -> dict[str, Any]:
        cells = [shown(key, metrics[key]) for key in METRICS] + [shown("aurc", metrics["mirrored_aurc"])]
        print(f"| {average} | {name} | {' | '.join(cells)} |", flush=True)
        row = {"average": average, "statistics": name, **metrics}
        self.write(row)
        return row

    def write(self, row: dict[str, Any]) -> None:
        if self.path is not None:
            with self.path.open("a") as file:
                file.write(json.dumps(row) + "\n")


def main(given: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="cifar100")
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--row", default="swa+both+cosine+trivial")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--root", type=Path, default=None)
    parser.add_argument("--device", default=None)
    parser.add_argument("--shift", action="store_true", help="then evaluate on corrupted and mirrored images")
    parser.add_argument("--out", type=Path, default=Path("runs/ingredients"), help="run folders")
    parser.add_argument("--results", type=Path, default=Path("results/ingredients"))
    parser.add_argument("--json", type=Path, default=None)
    arguments = parser.parse_args(given)
    row, where = arguments.row, {"root": arguments.root, "device": arguments.device}
    config = config_of(row, arguments.dataset, arguments.model, arguments.epochs, arguments.seed)
    account = Account(config, arguments.json)
    print(f"| average of epochs | statistics over | {' | '.join(SHOWN[key].heading for key in METRICS)} | mirrored |")
    listeners = {"on_start": account.began, "on_epoch": account.ended}
    found = Found(arguments.results)
    problems = train_rows([(row, config)], arguments.out, found, **where, **listeners)
    rows = account.finish()
    if arguments.shift and not problems:
        print(f"wrote {examine_run(arguments.out / name_of(row, config), arguments.results, **where)}", flush=True)
    for problem in problems:
        print(f"failed: {problem}")
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    print(json.dumps({"config": config.as_dict(), "versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()
