"""A resumable grid of runs: plan what a recipe needs, train what is missing, derive the averages, keep results."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch

from confrank.config import RunConfig, RunFolder, aes_epochs, changes, load_config
from confrank.methods import METHODS, average
from confrank.predict import save_weights_file
from confrank.predictions import load_predictions
from confrank.study.recipes import Recipe
from confrank.study.results import export_average, export_run, finished_run, load_result
from confrank.training import Failed, train_together

# Milliseconds a step and run, four side by side on one NVIDIA H200 (benchmarks/training_h200_202611.md).
STEP_MS = {"vgg16": 1.18, "resnet110": 4.34, "densenet-bc": 10.0}
# How many snapshots these average; runs that keep any keep those of both.
AES = {"aes-10": 10, "aes-30": 30}
TRAIN_SIZES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257}


@dataclass(frozen=True)
class Average:
    """A cell that is not trained but averaged: snapshots of one run, or the last predictions of several."""

    name: str
    method: str
    members: tuple[RunConfig, ...]
    epochs: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """The runs that a recipe trains, and the averages it derives from them."""

    runs: tuple[RunConfig, ...]
    averages: tuple[Average, ...]

    def missing(self, results: Path) -> list[RunConfig]:
        """The runs without a result of the same settings."""
        return [config for config in self.runs if not has_result(config, results)]


def plan(*recipes: Recipe) -> Plan:
    """Which runs and averages fill the recipes' cells; a run that several cells need stands once."""
    runs: dict[str, RunConfig] = {}
    averages: list[Average] = []
    for recipe in recipes:
        snapshots = any(name in recipe.methods for name in AES)
        for dataset, model, method in product(recipe.datasets, recipe.models, recipe.methods):
            base = RunConfig(dataset=dataset, model=model, epochs=recipe.epochs, weight=recipe.weight)
            members = [_member(base, method, seed, snapshots) for seed in recipe.seeds]
            for member in members:
                if member.run_name not in runs or member.snapshots:
                    runs[member.run_name] = member
            averages += _averages(base, method, members) if members else []
    return Plan(tuple(runs.values()), tuple(averages))


def _member(base: RunConfig, method: str, seed: int, snapshots: bool) -> RunConfig:
    """The run that a cell of this method trains for this seed."""
    trained = "baseline" if method in AES else method.removeprefix("ensemble-")
    if trained not in METHODS:
        raise ValueError(
            f"expected a method among {', '.join((*METHODS, *AES))}, ensemble-METHOD, but got {method!r}"
        )
    weight = base.weight if trained.startswith("crl-") else 1.0
    return replace(base, method=trained, seed=seed, weight=weight, snapshots=snapshots and trained == "baseline")


def _averages(base: RunConfig, method: str, members: Sequence[RunConfig]) -> list[Average]:
    if method in AES:
        epochs = tuple(aes_epochs(base.epochs, [AES[method]]))
        return [Average(replace(member, method=method).run_name, method, (member,), epochs) for member in members]
    if method.startswith("ensemble-"):
        first = members[0].run_name.rpartition("-seed")[0]
        name = first.replace(f"-{members[0].method}", f"-{method}", 1)
        return [Average(f"{name}-of{len(members)}", method, tuple(members))]
    return []


def estimated_hours(configs: Iterable[RunConfig]) -> float | None:
    """GPU hours at the measured speed; None where a network or data set has not been measured."""
    total = 0.0
    for config in configs:
        if config.model not in STEP_MS or config.dataset not in TRAIN_SIZES:
            return None
        steps = -(-TRAIN_SIZES[config.dataset] // config.batch_size) * config.epochs
        total += steps * STEP_MS[config.model] / 3.6e6
    return total


def has_result(config: RunConfig, results: Path) -> bool:
    """Whether a finished result with these very settings is there."""
    path = results / f"{config.run_name}.json"
    if not path.exists():
        return False
    kept = load_result(path)
    return not changes(config.as_dict(), kept.config) and len(kept.log) == config.epochs


def run_plan(
    wanted: Plan,
    out: Path,
    results: Path,
    *,
    together: int = 4,
    weights: Path | None = None,
    root: Path | None = None,
    device: torch.device | None = None,
    on_epoch: Callable[[RunConfig, dict[str, Any]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> list[str]:
    """Train what is missing, `together` runs at once, and derive the averages; returns a line for each failure.

    It can be killed at any time and called again: only unfinished runs are trained, each from its checkpoint.
    With `weights`, a folder, the trained networks are kept there in half precision.
    """
    note = on_note or (lambda text: None)
    problems: list[str] = []
    missing = wanted.missing(results)
    for config in missing:
        check_kept(config.as_dict(), results / f"{config.run_name}.json")
    for group in _groups(missing, together):
        try:
            outcome = train_together(
                group, [out / config.run_name for config in group], root=root, device=device, on_epoch=on_epoch,
                on_note=note, checkpoint_minutes=5,
            )  # fmt: skip
        except torch.OutOfMemoryError as error:
            problems += [f"{config.run_name}: {error}" for config in group]
            continue
        for config, result in zip(group, outcome, strict=True):
            if isinstance(result, Failed):
                problems.append(f"{config.run_name}: {result.error}")
            else:
                problems += _tried(config.run_name, partial(export_run, out / config.run_name, results))
    if weights is not None:
        for config in wanted.runs:
            if has_result(config, results):
                problems += _tried(f"weights of {config.run_name}", partial(_keep_weights, config, out, weights))
    for item in wanted.averages:
        problems += _tried(item.name, partial(_derive, item, out, results))
    return problems


def _tried(what: str, work: Callable[[], object]) -> list[str]:
    """Do one piece of work; a line that says what is wrong with it, if anything, so that the others go on."""
    try:
        work()
    except (ValueError, OSError) as error:
        return [f"{what}: {error}"]
    return []


def _keep_weights(config: RunConfig, out: Path, weights: Path) -> None:
    """Write the weights of a finished run, unless they are there."""
    path = weights / f"{config.run_name}.safetensors"
    if not path.exists():
        save_weights_file(_finished(config, out).path, path)


def check_kept(config: dict[str, Any], path: Path) -> None:
    """Raise if a kept result of other settings would be overwritten."""
    if not path.exists():
        return
    if differing := changes(config, load_result(path).config):
        raise ValueError(
            f"expected {path} to be a result of this run, but it differs in {differing}; give another --results"
        )


def _groups(configs: Sequence[RunConfig], together: int) -> Iterable[list[RunConfig]]:
    """Runs on one data set, a few at a time: they share it, and what a deep network leaves idle others can use."""

    ordered = sorted(configs, key=lambda config: (config.dataset, -STEP_MS.get(config.model, 0.0)))
    for _, same in groupby(ordered, key=lambda config: config.dataset):
        members = list(same)
        for start in range(0, len(members), together):
            yield members[start : start + together]


def _derive(item: Average, out: Path, results: Path) -> None:
    """Average the members' predictions, unless that is there."""
    path = results / f"{item.name}.json"
    config = {
        **item.members[0].as_dict(),
        "method": item.method,
        "members": [member.run_name for member in item.members],
        "member_epochs": list(item.epochs),
    }
    check_kept(config, path)
    if path.exists():
        _check_fresh(item, path, out)
        return
    folders = [_finished(member, out) for member in item.members]
    if item.epochs:
        sources = [folders[0].snapshot(epoch) for epoch in item.epochs]
    else:
        sources = [folder.predictions("test") for folder in folders]
    if absent := [source for source in sources if not source.exists()]:
        raise ValueError(
            f"expected {absent[0]}, but the run did not keep it; remove its folder and result to train it again"
        )
    environment = json.loads(folders[0].environment.read_text())
    predictions = average([load_predictions(source) for source in sources])
    export_average(item.name, predictions, config, environment, results)


def _check_fresh(item: Average, path: Path, out: Path) -> None:
    """Raise if the members of a kept average have been trained on other data since."""
    then = load_result(path).environment.get("data")
    for member in item.members:
        there = RunFolder(out / member.run_name).environment
        now = json.loads(there.read_text()).get("data") if there.exists() else None
        if None not in (now, then) and now != then:
            raise ValueError(f"expected an average of {there.parent}, but {path} is of other data; remove it")


def _finished(member: RunConfig, out: Path) -> RunFolder:
    """The folder of a member, which must be finished and of the member's own settings."""
    path = out / member.run_name
    if differing := changes(member.as_dict(), load_config(path).as_dict()):
        raise ValueError(f"expected {path} to be {member.run_name}, but it differs in {differing}")
    folder, _, _ = finished_run(path)
    return folder
