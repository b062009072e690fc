"""A resumable study: train the missing runs of its plan, derive the averages, write the results."""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import torch

from confrank.config import RunConfig
from confrank.data import default_root
from confrank.environment import default_device
from confrank.methods import average
from confrank.predictions import load_predictions
from confrank.research.exam import examine_run
from confrank.runs.folder import RunFolder
from confrank.runs.trained import save_weights_file
from confrank.study.cluster import train_on_ray
from confrank.study.detection import Detection, measure, missing_detectors
from confrank.study.group import Follower, Problems, Runs, Sharing, train_group, train_shared, tried
from confrank.study.plan import Average, Plan, has_result, is_complete, stored_as
from confrank.study.results import environment_of, export_average, finished_run, has_other_data, load_result
from confrank.training import Options

# Networks in the order of their time per step (benchmarks/training_h200_202611.md). A group of runs on a GPU lasts as
# long as its slowest run, so runs of like speed are trained together.
SLOWNESS = {"vgg16": 1, "resnet18": 2, "resnet110": 3, "densenet-bc": 4}


def run_plan(
    wanted: Plan,
    out: Path,
    results: Path,
    *,
    together: int = 4,
    weights: Path | None = None,
    shift: bool = False,
    root: Path | None = None,
    device: torch.device | None = None,
    ray: str | None = None,
    skip_held: bool = False,
    checkpoint_minutes: float = 5.0,
    worded: Callable[[Exception], str] = str,
    on_epoch: Callable[[RunConfig, dict[str, Any]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> list[str]:
    """Train the missing runs, `together` at once, and derive the averages; returns a line for each failure.

    After a kill at any time, the same call resumes: only unfinished runs are trained, each from its checkpoint.
    Several processes may work on the same folders: each trains what no other holds, then waits for the rest or, with
    `skip_held`, leaves it to them. `ray` is the address of a Ray cluster, or "local". The folder `weights` receives
    the trained networks in half precision. With `shift`, the results have further measurements of the networks, see
    `confrank.research.exam`; those of runs that were finished before are added if their folders are there. `worded`
    words the errors of the lines that are returned.
    """
    wanted.check(out, results, weights)
    for folder in filter(None, (out, results, weights)):
        folder.mkdir(parents=True, exist_ok=True)
    missing = {config.run_name for config in wanted.runs if not has_result(config, results)}
    note, needed = on_note or (lambda text: None), partial(_needed, wanted, out, results)
    follow = Follower(out, on_epoch).look if on_epoch else lambda runs: None
    sharing = Sharing(missing=needed, waits=not skip_held, note=note, follow=follow)
    to_train = needed(wanted.runs)
    options = Options(root=root, device=device, checkpoint_minutes=checkpoint_minutes)
    if ray is None or not to_train:
        device = device or default_device()
        options = {**options, "device": device, "on_epoch": on_epoch, "on_note": note}
        train = partial(train_group, out=out, results=results, options=options, shift=shift)
        outcome = train_shared(_groups(together, to_train, device.type), train, sharing)
    else:
        options["root"] = root or default_root()
        grouped = partial(_groups, together)
        outcome = train_on_ray(ray, to_train, grouped, out, results, options, shift, sharing)
    examine = partial(examine_run, results=results, root=root, device=device) if shift else None
    finished = [config for config in wanted.runs if has_result(config, results)]
    # Another process may have finished a run that failed here.
    solved = missing & {config.run_name for config in finished}
    problems = {name: error for name, error in outcome.problems.items() if name not in solved}
    problems |= _complete(finished, out, results, weights, examine)
    skipped = _skipped(outcome.held, needed([run for run in wanted.runs if run.run_name in outcome.held]), note)
    problems |= _derive_all(wanted.averages, {*skipped, *problems}, out, results)
    test = partial(measure, out=out, results=results, root=root, device=device or default_device(), on_note=note)
    problems |= _measure_all(missing_detectors(wanted.detections, results), {*skipped, *problems}, test)
    return [f"{name}: {worded(error)}" for name, error in problems.items()]


def _complete(
    finished: Runs, out: Path, results: Path, weights: Path | None, examine: Callable[[Path], object] | None
) -> Problems:
    """Check the data of the finished runs, write their weights, and examine those whose folders are there."""
    problems = tried("data", partial(_check_data, finished, results))
    if weights is not None:
        for config in finished:
            problems |= tried(f"weights of {config.run_name}", partial(_save_weights, config, out, weights))
    if examine is not None:
        for config in finished:
            if RunFolder(out / config.run_name).config.exists():
                problems |= tried(f"shift of {config.run_name}", partial(examine, out / config.run_name))
    return problems


def _skipped(holders: Mapping[str, str], runs: Runs, note: Callable[[str], None]) -> set[str]:
    """The names of the runs that are left to their holders; each is noted."""
    for config in runs:
        note(f"skipped {config.run_name}: {holders[config.run_name]} is training it")
    return {config.run_name for config in runs}


def _derive_all(averages: Iterable[Average], unavailable: Container[str], out: Path, results: Path) -> Problems:
    """Derive the averages, except those with an unavailable member."""
    problems: Problems = {}
    for item in averages:
        if not any(member.run_name in unavailable for member in item.members):
            problems |= tried(item.name, partial(_derive, item, out, results))
    return problems


def _measure_all(
    cells: Mapping[Detection, Sequence[str]],
    unavailable: Container[str],
    test: Callable[[Detection, Sequence[str]], None],
) -> Problems:
    """Test the networks of the cells with their missing detectors, except runs that are unavailable."""
    problems: Problems = {}
    for cell, detectors in cells.items():
        if cell.run.run_name not in unavailable:
            problems |= tried(cell.name, partial(test, cell, detectors))
    return problems


def _needed(wanted: Plan, out: Path, results: Path, runs: Runs) -> Runs:
    """Those of the runs that are still to train."""
    return replace(wanted, runs=tuple(runs)).to_train(out, results)


def _check_data(runs: Iterable[RunConfig], results: Path) -> None:
    """Raise if results of one data set are from different images, apart from those that were held out by the seed."""
    first: dict[tuple[str, float, int], tuple[str, str]] = {}
    for config in runs:
        digest = load_result(results / f"{config.run_name}.json").environment.get("data")
        if digest is None:  # early results have none
            continue
        images = config.dataset, config.holdout, config.seed if config.holdout else 0
        name, before = first.setdefault(images, (config.run_name, digest))
        if digest != before:
            raise ValueError(
                f"expected {config.dataset} to be the same images in every run, but those of {name} and"
                f" {config.run_name} differ; remove the results and folders of the older one"
            )


def _save_weights(config: RunConfig, out: Path, weights: Path) -> None:
    """Write the weights of a finished run, unless the file exists."""
    path = weights / f"{config.run_name}.safetensors"
    if not path.exists():
        save_weights_file(out / config.run_name, path)


def _groups(together: int, configs: Runs, device: str) -> list[list[RunConfig]]:
    """Groups of runs on one data set, which is read once for each; slow networks first, so that others fill gaps.

    On a CPU, runs are trained one after the other anyway, and other processes can take the next one.
    """
    together = together if device == "cuda" else 1
    ordered = sorted(configs, key=lambda config: (config.dataset, -SLOWNESS.get(config.model, 0)))
    sets = [list(same) for _, same in groupby(ordered, key=lambda config: config.dataset)]
    return [same[start : start + together] for same in sets for start in range(0, len(same), together)]


def _derive(item: Average, out: Path, results: Path) -> None:
    """Average the members' predictions, unless the result exists."""
    path = results / f"{item.name}.json"
    if is_complete(path):
        _check_fresh(item, stored_as(item, results), path, out)
        return
    environments = [environment_of(finished_run(out / member.run_name)[0]) for member in item.members]
    # Seeds hold out different images; `average` compares the test samples.
    held_out = any(member.holdout for member in item.members)
    if not held_out and len({str(environment.get("data")) for environment in environments}) > 1:
        raise ValueError(f"expected members trained on the same images, but those of {item.name} differ")
    predictions = average([load_predictions(source) for source in item.sources(out)])
    export_average(item.name, predictions, item.config(), environments[0], results)


def _check_fresh(wanted: Average, stored: Average, path: Path, out: Path) -> None:
    """Raise if the members of an average, planned or stored, have been trained on other data since."""
    # The result has the data of the first member; held-out images depend on the seed.
    members = (*wanted.members, *stored.members)
    for member in [member for member in members if not member.holdout] or stored.members[:1]:
        folder = RunFolder(out / member.run_name)
        if has_other_data(path, folder):
            raise ValueError(f"expected an average of {folder.path}, but {path} is from other data; remove it")
