"""The plan of a study in words: what is done, and what is missing."""

from collections.abc import Container, Sequence
from itertools import product
from pathlib import Path

from confrank.active.records import stage_files
from confrank.config import RunConfig
from confrank.errors import counted
from confrank.method_facts import facts_of
from confrank.ood import DETECTORS
from confrank.report.runs import left_out_lines
from confrank.study.active import ActiveRecipe, missing_trials, stage_runs
from confrank.study.detection import missing_detectors
from confrank.study.plan import Average, Plan, has_result, stored_as


def plan_lines(wanted: Plan, out: Path, results: Path) -> list[str]:
    """What is done and what is missing, a line each, then a line for each data set and network."""
    to_train = {config.run_name: config for config in wanted.to_train(out, results)}
    lines = [_run_line(config, config.run_name in to_train, results) for config in wanted.runs]
    averages = [item.name for item in wanted.missing_averages(results)]
    for average in wanted.averages:
        seeds = [member.seed for member in stored_as(average, results).members]
        listed = f" (seeds {', '.join(map(str, seeds))})" if seeds != [one.seed for one in average.members] else ""
        lines.append(f"{'average' if average.name in averages else 'done':>9}  {average.name}{listed}")
    missing = missing_detectors(wanted.detections, results)
    for item in wanted.detections:
        names = missing.get(item, ())
        some = f": {', '.join(names)}" if 0 < len(names) < len(DETECTORS) else ""
        lines.append(f"{'measure' if names else 'done':>9}  {item.name}{some}")
    if any(has_result(config, results) for config in to_train.values()):
        lines.append("again: the result exists, but not the predictions or the network that another cell needs")
    lines += dict.fromkeys(line for config in wanted.runs for line in left_out_lines(config))
    lines += _group_lines(wanted.runs, to_train)
    lines += dict.fromkeys(line for item in wanted.averages for line in _fewer_snapshots(item))
    runs, derived = counted(len(wanted.runs), "run"), counted(len(wanted.averages), "average")
    lines.append(f"{runs}, {len(to_train)} to train, {derived}")
    if wanted.detections:
        lines[-1] += f", {counted(len(wanted.detections), 'detection')}, {len(missing)} to measure"
    return lines


def _fewer_snapshots(item: Average) -> list[str]:
    """A line if a run is too short for the number of snapshots in the name of its average."""
    wanted, epochs = facts_of(item.method).snapshots, item.members[0].epochs
    if not wanted or len(item.epochs) == wanted:
        return []
    averaged = f"{item.method} averages {counted(len(item.epochs), 'snapshot')} instead of {wanted}"
    return [f"{averaged}: the runs have {counted(epochs, 'epoch')}"]


def _run_line(config: RunConfig, missing: bool, results: Path) -> str:
    if not missing:
        return f"{'done':>9}  {config.run_name}"
    state = "again" if has_result(config, results) else "to train"
    return f"{state:>9}  {config.run_name}"


def _group_lines(runs: Sequence[RunConfig], to_train: Container[str]) -> list[str]:
    """How much of each data set and network is done."""
    groups: dict[tuple[str, str], list[RunConfig]] = {}
    for config in runs:
        groups.setdefault((config.dataset, config.model), []).append(config)
    lines = []
    for (dataset, model), members in groups.items():
        missing = sum(config.run_name in to_train for config in members)
        rest = f", {missing} to train" if missing else ""
        lines.append(f"{dataset} {model}: {len(members) - missing} of {counted(len(members), 'run')} done{rest}")
    return lines if len(groups) > 1 else []


def active_lines(parts: Sequence[ActiveRecipe], out: Path, results: Path) -> list[str]:
    """What is done and what is missing, a line for each trial of each strategy."""
    lines, runs = [], []
    for part in parts:
        missing, stages = missing_trials(part, results), part.experiment.stages
        for trial, name in product(part.trials, part.strategies):
            state = "done"
            if name in missing.get(trial, ()):
                files = stage_files(part.folder(out), trial, name, stages)
                state = f"{sum(stage.metrics.exists() for stage in files)} of {stages} stages"
            lines.append(f"{state:>14}  {part.name} trial {trial} {name}")
        runs += stage_runs(part, missing)
    return [*lines, f"{len(runs)} runs in the missing trials"]
