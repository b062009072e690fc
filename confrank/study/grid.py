"""A resumable grid of runs: plan what a recipe needs, train what is missing, derive the averages, keep results."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

import torch

from confrank.config import AES, RunConfig, RunFolder, aes_epochs, changes, load_config
from confrank.methods import METHODS, average
from confrank.predict import config_of_weights, save_weights_file
from confrank.predictions import load_predictions
from confrank.study.recipes import Recipe, is_ensemble
from confrank.study.results import export_average, export_run, finished_run, load_result
from confrank.training import Failed, train_together

# Milliseconds a step and run, four side by side on one NVIDIA H200 (benchmarks/training_h200_202611.md).
STEP_MS = {"vgg16": 1.18, "resnet110": 4.34, "densenet-bc": 10.0}
TRAIN_SIZES = {"cifar10": 50_000, "cifar100": 50_000, "svhn": 73_257}


@dataclass(frozen=True)
class Average:
    """A cell that is not trained but averaged: snapshots of one run, or the last predictions of several."""

    name: str
    method: str
    members: tuple[RunConfig, ...]
    epochs: tuple[int, ...] = ()

    def config(self) -> dict[str, Any]:
        """The settings of its result, which name the members."""
        names = [member.run_name for member in self.members]
        settings = self.members[0].as_dict()
        return {**settings, "method": self.method, "members": names, "member_epochs": list(self.epochs)}

    def sources(self, out: Path) -> dict[Path, RunConfig]:
        """The predictions it averages, each with the run that they are of."""
        if self.epochs:
            (member,) = self.members
            folder = RunFolder(out / member.run_name)
            return {folder.snapshot(epoch): member for epoch in self.epochs}
        return {RunFolder(out / member.run_name).predictions("test"): member for member in self.members}


@dataclass(frozen=True)
class Plan:
    """The runs that a recipe trains, and the averages it derives from them."""

    runs: tuple[RunConfig, ...]
    averages: tuple[Average, ...]

    def to_train(self, out: Path, results: Path) -> list[RunConfig]:
        """The runs without a result of the same settings, or without the predictions that an absent average needs."""
        absent = [item for item in self.averages if not _is_whole(results / f"{item.name}.json")]
        needed = {run.run_name for item in absent for path, run in item.sources(out).items() if not path.exists()}
        return [config for config in self.runs if not has_result(config, results) or config.run_name in needed]

    def check(self, out: Path, results: Path) -> None:
        """Raise if what is there is in the way: results or runs of other settings, or a run without its snapshots."""
        for config in self.runs:
            _check_kept(config.as_dict(), results / f"{config.run_name}.json")
            if RunFolder(out / config.run_name).config.exists():
                _check_folder(config, out)
        for item in self.averages:
            kept = results / f"{item.name}.json"
            _check_kept(item.config(), kept)
            if item.epochs and not kept.exists():
                _check_snapshots(item, out)


def plan(*recipes: Recipe) -> Plan:
    """Which runs and averages fill the recipes' cells; a run that several cells need stands once."""
    runs: dict[str, RunConfig] = {}
    averages: dict[str, Average] = {}
    for recipe in recipes:
        snapshots = any(name in recipe.methods for name in AES)
        for dataset, model, method in product(recipe.datasets, recipe.models, recipe.methods):
            base = RunConfig(dataset=dataset, model=model, epochs=recipe.epochs, weight=recipe.weight)
            members = [_member(base, method, seed, snapshots) for seed in recipe.seeds]
            for member in members:
                known = runs.setdefault(member.run_name, member)
                if differing := changes(member.as_dict(), known.as_dict()):
                    raise ValueError(f"expected a name for each run, but two {member.run_name} differ in {differing}")
                runs[member.run_name] = replace(known, snapshots=known.snapshots or member.snapshots)
            averages |= {item.name: item for item in _averages(method, members)}
    return Plan(tuple(runs.values()), tuple(averages.values()))


def _member(base: RunConfig, method: str, seed: int, snapshots: bool) -> RunConfig:
    """The run that a cell of this method trains for this seed."""
    trained = "baseline" if method in AES else method.removeprefix("ensemble-")
    if trained not in METHODS:
        raise ValueError(
            f"expected a method among {', '.join((*METHODS, *AES))}, ensemble-METHOD, but got {method!r}"
        )
    weight = base.weight if trained.startswith("crl-") else 1.0
    return replace(base, method=trained, seed=seed, weight=weight, snapshots=snapshots and trained == "baseline")


def _averages(method: str, members: Sequence[RunConfig]) -> list[Average]:
    if method in AES:
        epochs = tuple(aes_epochs(members[0].epochs, [AES[method]]))
        return [Average(replace(member, method=method).run_name, method, (member,), epochs) for member in members]
    if is_ensemble(method):
        name = f"{replace(members[0], method=method).name_without_seed}-of{len(members)}"
        return [Average(name, method, tuple(members))]
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
    if not _is_whole(path):
        return False
    kept = load_result(path)
    return not changes(config.as_dict(), kept.config) and len(kept.log) == config.epochs


def _is_whole(path: Path) -> bool:
    return path.exists() and path.with_suffix(".npz").exists()


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
    problems: dict[str, str] = {}
    wanted.check(out, results)
    for folder in (out, results, weights):
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
    waiting = list(_groups(wanted.to_train(out, results), together))
    while waiting:
        group = waiting.pop(0)
        try:
            outcome = train_together(
                group, [out / config.run_name for config in group], root=root, device=device, on_epoch=on_epoch,
                on_note=note, checkpoint_minutes=5,
            )  # fmt: skip
        except torch.OutOfMemoryError as error:
            if len(group) == 1:
                problems[group[0].run_name] = str(error)
            else:
                note(f"{len(group)} runs side by side need more memory than there is: one after the other")
                waiting[:0] = [[config] for config in group]
            continue
        for config, result in zip(group, outcome, strict=True):
            if isinstance(result, Failed):
                problems[config.run_name] = str(result.error)
            else:
                problems |= _tried(config.run_name, partial(export_run, out / config.run_name, results))
    # Another process may have had what this one could not get.
    there = [config for config in wanted.runs if has_result(config, results)]
    problems = {name: why for name, why in problems.items() if name not in {config.run_name for config in there}}
    problems |= _tried("data", partial(_check_data, there, results))
    if weights is not None:
        for config in there:
            problems |= _tried(f"weights of {config.run_name}", partial(_keep_weights, config, out, weights))
    for item in wanted.averages:
        problems |= _tried(item.name, partial(_derive, item, out, results))
    return [f"{name}: {why}" for name, why in problems.items()]


def _tried(what: str, work: Callable[[], object]) -> dict[str, str]:
    """Do one piece of work; what is wrong with it, if anything, so that the others go on."""
    try:
        work()
    except (ValueError, OSError) as error:
        return {what: str(error)}
    return {}


def _check_data(runs: Iterable[RunConfig], results: Path) -> None:
    """Raise if kept results of one data set are of different images."""
    first: dict[str, tuple[str, str]] = {}
    for config in runs:
        digest = load_result(results / f"{config.run_name}.json").environment.get("data")
        if digest is None:  # the first results did not tell
            continue
        name, before = first.setdefault(config.dataset, (config.run_name, digest))
        if digest != before:
            raise ValueError(
                f"expected {config.dataset} to be the same images in every run, but those of {name} and"
                f" {config.run_name} differ; remove the results and folders of the older one"
            )


def _keep_weights(config: RunConfig, out: Path, weights: Path) -> None:
    """Write the weights of a finished run, unless they are there."""
    path = weights / f"{config.run_name}.safetensors"
    if not path.exists():
        save_weights_file(_finished(config, out).path, path)
    elif differing := changes(config.as_dict(), config_of_weights(path)):
        raise ValueError(f"expected {path} to be of this run, but it differs in {differing}; give another --weights")


def _check_kept(config: dict[str, Any], path: Path) -> None:
    """Raise if a kept result of other settings would be overwritten."""
    if not path.exists():
        return
    if differing := changes(config, load_result(path).config):
        raise ValueError(
            f"expected {path} to be a result of this run, but it differs in {differing}; give another --results"
        )


def _check_folder(config: RunConfig, out: Path) -> None:
    """Raise if the run's folder holds another run."""
    path = out / config.run_name
    if differing := changes(config.as_dict(), load_config(path).as_dict()):
        raise ValueError(f"expected {path} to be of this run, but it differs in {differing}; give another --out")


def _check_snapshots(item: Average, out: Path) -> None:
    """Raise if the run has passed an epoch whose predictions the average needs, without keeping them."""
    (member,) = item.members
    folder = RunFolder(out / member.run_name)
    done = len(folder.read_log())
    absent = [path for path, epoch in zip(item.sources(out), item.epochs, strict=True)
              if epoch <= done and not path.exists()]  # fmt: skip
    if absent:
        raise ValueError(f"expected {absent[0]}, but the run did not keep it; remove its folder to train it again")


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
    if _is_whole(path):
        _check_fresh(item, path, out)
        return
    told = [json.loads(_finished(member, out).environment.read_text()) for member in item.members]
    if len({str(environment.get("data")) for environment in told}) > 1:
        raise ValueError(f"expected members trained on the same images, but those of {item.name} differ")
    predictions = average([load_predictions(source) for source in item.sources(out)])
    export_average(item.name, predictions, item.config(), told[0], results)


def _check_fresh(item: Average, path: Path, out: Path) -> None:
    """Raise if the members of a kept average have been trained on other data since."""
    then = load_result(path).environment.get("data")
    for member in item.members:
        there = RunFolder(out / member.run_name).environment
        now = json.loads(there.read_text()).get("data") if there.exists() else None
        if None not in (now, then) and now != then:
            raise ValueError(f"expected an average of {there.parent}, but {path} is of other data; remove it")


def _finished(member: RunConfig, out: Path) -> RunFolder:
    """The folder of a member, which must be finished."""
    folder, _, _ = finished_run(out / member.run_name)
    return folder
