"""What a study needs: the runs and averages of its recipes, which of them exist, and what conflicts with them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from confrank.config import RunConfig
from confrank.data import IMAGE_SETS, PUBLISHED, changed_settings
from confrank.data.published import present_files
from confrank.errors import InputError
from confrank.method_facts import FACTS, aes_epochs, facts_of
from confrank.recipes import settings
from confrank.runs.folder import RunFolder, load_config
from confrank.study.catalogue import Recipe
from confrank.study.detection import Detection, missing_detectors, network_of
from confrank.study.results import load_result


@dataclass(frozen=True)
class Average:
    """A cell that averages predictions: snapshots of one run, or the last predictions of several."""

    name: str
    method: str
    members: tuple[RunConfig, ...]
    epochs: tuple[int, ...] = ()

    def config(self) -> dict[str, Any]:
        """The settings of its result, which list the members."""
        names = [member.run_name for member in self.members]
        settings = self.members[0].as_dict()
        return {**settings, "method": self.method, "members": names, "member_epochs": list(self.epochs)}

    def sources(self, out: Path) -> dict[Path, RunConfig]:
        """The files of predictions it averages, each with its run."""
        if self.epochs:
            (member,) = self.members
            folder = RunFolder(out / member.run_name)
            return {folder.snapshot(epoch): member for epoch in self.epochs}
        return {RunFolder(out / member.run_name).predictions("test"): member for member in self.members}


@dataclass(frozen=True)
class Plan:
    """The runs that recipes train, and the averages and detections that they derive from them."""

    runs: tuple[RunConfig, ...]
    averages: tuple[Average, ...]
    detections: tuple[Detection, ...] = ()

    def to_train(self, out: Path, results: Path) -> list[RunConfig]:
        """The runs without a result of the same settings, or without what a missing average or detection needs."""
        sources = [source for item in self.missing_averages(results) for source in item.sources(out).items()]
        needed = {run.run_name for path, run in sources if not path.exists()}
        examined = [item.run for item in missing_detectors(self.detections, results)]
        needed |= {run.run_name for run in examined if network_of(run, out, results) is None}
        return [config for config in self.runs if not has_result(config, results) or config.run_name in needed]

    def check(self, out: Path, results: Path, weights: Path | None = None) -> None:
        """Raise if the folders hold results, runs or weights of other settings, or a run without its snapshots."""
        for config in self.runs:
            _check_result(config.as_dict(), results / f"{config.run_name}.json")
            if weights is not None and (path := weights / f"{config.run_name}.safetensors").exists():
                _check_weights(config, path)
        for item in self.averages:
            _check_result(stored_as(item, results).config(), results / f"{item.name}.json")
        missing = self.missing_averages(results)
        averaged = [member for item in missing for member in item.members]
        for config in (*self.to_train(out, results), *averaged):
            path = out / config.run_name
            if RunFolder(path).config.exists():
                _check_same(config.as_dict(), load_config(path).as_dict(), f"{path} to be of this run", "out")
        for item in missing:
            if item.epochs:
                RunFolder(out / item.members[0].run_name).check_snapshots(item.epochs)

    def missing_averages(self, results: Path) -> list[Average]:
        """The averages without a result."""
        return [item for item in self.averages if not is_complete(results / f"{item.name}.json")]


def stored_as(item: Average, results: Path) -> Average:
    """The average that fills a cell: a stored ensemble of as many other seeds takes the place of the planned one."""
    path, first = results / f"{item.name}.json", item.members[0]
    if item.epochs or not is_complete(path):
        return item
    start = f"{first.name_without_seed}-seed"
    names = [str(name) for name in load_result(path).config.get("members", ())]
    seeds = [int(name.removeprefix(start)) for name in names if re.fullmatch(rf"{re.escape(start)}\d+", name)]
    if not len({*seeds}) == len(names) == len(item.members):
        return item
    return replace(item, members=tuple(replace(first, seed=seed) for seed in seeds))


def missing_data(wanted: Plan, out: Path, results: Path, root: Path | None) -> list[str]:
    """The published data sets that the plan still needs and that are not in `root`."""
    # Of a labelled set, detection needs the test images alone.
    examined = [item.out_set for item in missing_detectors(wanted.detections, results) if item.out_set in IMAGE_SETS]
    needed = [*(config.dataset for config in wanted.to_train(out, results)), *examined]
    return [name for name in dict.fromkeys(needed) if name in PUBLISHED and not present_files(name, root)]


def plan(*recipes: Recipe) -> Plan:
    """The runs and averages that fill the cells of the recipes; a run that several cells need is listed once."""
    runs: dict[str, RunConfig] = {}
    averages: dict[str, Average] = {}
    detections: dict[Detection, None] = {}
    for recipe in recipes:
        snapshots = any(facts_of(method).snapshots for method in recipe.methods)
        for dataset, model, method in product(recipe.datasets, recipe.models, recipe.methods):
            given = {"epochs": recipe.epochs, "weight": recipe.weight, "holdout": recipe.holdout}
            changes = {name: value for name, value in given.items() if value is not None}
            base = settings(recipe.training, dataset=dataset, model=model, **changes)
            members = [_member(base, method, seed, snapshots) for seed in recipe.seeds]
            for member in members:
                known = runs.setdefault(member.run_name, member)
                if differing := changed_settings(member.as_dict(), known.as_dict()):
                    raise ValueError(
                        f"expected distinct names of runs, but two {member.run_name} differ in {differing}"
                    )
                runs[member.run_name] = replace(known, snapshots=known.snapshots or member.snapshots)
            averages |= {item.name: item for item in _averages(method, members)}
            detections |= dict.fromkeys(_detections(method, members, recipe.out_sets))
    return Plan(tuple(runs.values()), tuple(averages.values()), tuple(detections))


def _member(base: RunConfig, method: str, seed: int, snapshots: bool) -> RunConfig:
    """The run that a cell of this method trains for this seed."""
    if method not in FACTS:
        names = ", ".join(facts.name for facts in FACTS.values() if not facts.ensemble)
        raise ValueError(f"expected a method among {names}, ensemble-METHOD, but got {method!r}")
    trained = FACTS[method].member or method
    weight = base.weight if FACTS[trained].weighted else 1.0
    return replace(base, method=trained, seed=seed, weight=weight, snapshots=snapshots and trained == "baseline")


def _averages(method: str, members: Sequence[RunConfig]) -> list[Average]:
    facts = FACTS[method]
    if facts.snapshots:
        epochs = tuple(aes_epochs(members[0].epochs, [facts.snapshots]))
        return [Average(replace(member, method=method).run_name, method, (member,), epochs) for member in members]
    if facts.ensemble:
        name = f"{replace(members[0], method=method).name_without_seed}-of{len(members)}"
        return [Average(name, method, tuple(members))]
    return []


def _detections(method: str, members: Sequence[RunConfig], out_sets: Sequence[str]) -> list[Detection]:
    if out_sets and FACTS[method].member is not None:
        raise ValueError(f"expected methods of one network for detection, but got {method!r}, which averages several")
    return [Detection(member, out_set) for member in members for out_set in out_sets]


def has_result(config: RunConfig, results: Path) -> bool:
    """Whether there is a finished result with exactly these settings."""
    path = results / f"{config.run_name}.json"
    if not is_complete(path):
        return False
    result = load_result(path)
    return not changed_settings(config.as_dict(), result.config) and len(result.log) == config.epochs


def is_complete(path: Path) -> bool:
    """Whether the JSON and the npz of a result both exist."""
    return path.exists() and path.with_suffix(".npz").exists()


def _check_result(config: dict[str, Any], path: Path) -> None:
    """Raise if a result of other settings would be overwritten."""
    if path.exists():
        _check_same(config, load_result(path).config, f"{path} to be a result of this run", "results")


def _check_weights(config: RunConfig, path: Path) -> None:
    """Raise if weights of other settings would stay in place of this run's."""
    from confrank.runs.trained import read_provenance  # imports torch, which a plan does not need

    stored = read_provenance(path)
    if stored is None:
        raise InputError(f"expected {path} to be of this run, but it has no config", "choose another {weights}")
    _check_same(config.as_dict(), stored.config.as_dict(), f"{path} to be of this run", "weights")


def _check_same(wanted: dict[str, Any], stored: dict[str, Any], what: str, parameter: str) -> None:
    """Raise if the stored settings differ; another value of the parameter avoids the conflict."""
    if differing := changed_settings(wanted, stored):
        raise InputError(f"expected {what}, but it differs in {differing}", f"choose another {{{parameter}}}")
