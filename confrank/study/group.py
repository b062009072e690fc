"""A group of runs trained side by side, and groups that several processes share by one folder."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch

from confrank.config import RunConfig
from confrank.files import HeldError
from confrank.research.exam import examine_run
from confrank.runs.folder import RunFolder
from confrank.study.plan import has_result
from confrank.study.results import export_run, has_other_data, is_of_run
from confrank.training import Failed, Options, train_together
from confrank.training.jobs import Note, Record

Runs = Sequence[RunConfig]
Problems = dict[str, Exception]
# How long a process waits before it asks again whether another one has left a run.
FIRST_PAUSE, LONGEST_PAUSE = 0.25, 8.0


@dataclass(frozen=True)
class Outcome:
    """The runs that are not finished, by name: why they failed, or which process holds them."""

    problems: Problems = field(default_factory=dict)
    held: dict[str, str] = field(default_factory=dict)


def train_group(group: Runs, out: Path, results: Path, options: Options, shift: bool = False) -> Outcome:
    """Train runs side by side and write their results; one by one if they do not fit into memory together.

    With `shift`, the results have further measurements of the networks, see `confrank.research.exam`.
    """
    try:
        trained = train_together(group, [out / config.run_name for config in group], **options)
    except torch.OutOfMemoryError as error:
        if len(group) == 1:
            return Outcome({group[0].run_name: RuntimeError(str(error))})
        trained = None  # the memory is free only after this block
    if trained is None:
        if note := options.get("on_note"):
            note(f"{len(group)} runs side by side do not fit into memory: training them one by one")
        parts = [train_group([config], out, results, options, shift) for config in group]
        problems = {name: why for part in parts for name, why in part.problems.items()}
        return Outcome(problems, {name: who for part in parts for name, who in part.held.items()})
    outcome = Outcome()
    for config, result in zip(group, trained, strict=True):
        if not isinstance(result, Failed):
            write = partial(_write_results, config, out / config.run_name, results, options, shift)
            outcome.problems.update(tried(config.run_name, write))
        elif isinstance(result.error, HeldError):
            outcome.held[config.run_name] = result.error.holder
        else:
            outcome.problems[config.run_name] = result.reason
    return outcome


def _write_results(config: RunConfig, run: Path, results: Path, options: Options, shift: bool) -> None:
    """Write the result of a finished run, unless there is one: an earlier training stays what was measured."""
    path = results / f"{run.name}.json"
    if not has_result(config, results):
        export_run(run, results)
    elif has_other_data(path, RunFolder(run)):
        raise ValueError(f"expected a result of the same images as {run}, but {path} is from other data; remove it")
    elif not is_of_run(path, run):
        if note := options.get("on_note"):
            note(f"{path} stays: it is of an earlier training of {run.name}, which was trained again for other cells")
        return
    if shift:
        examine_run(run, results, root=options.get("root"), device=options.get("device"))


def tried(what: str, work: Callable[[], object]) -> Problems:
    """Do one piece of work; its failure is returned, so that the others continue."""
    try:
        work()
    except (ValueError, OSError) as error:
        return {what: error}
    return {}


@dataclass(frozen=True)
class Sharing:
    """How to share runs with other processes.

    `missing` are the runs of a group that are still needed. With `waits`, training ends once every run is finished or
    has failed here: a process that ends or dies leaves its runs to those that wait. Without, held runs are returned.
    `follow` is called with the runs that others train, to show their progress.
    """

    missing: Callable[[Runs], Runs]
    waits: bool
    note: Note
    follow: Callable[[Runs], None]


def train_shared(groups: Sequence[Runs], train: Callable[[Runs], Outcome], sharing: Sharing) -> Outcome:
    """Train groups of runs that other processes may be training too: take what they do not hold, then the rest."""
    problems: Problems = {}
    known: dict[str, str] = {}
    left, pause = list(groups), FIRST_PAUSE
    while True:
        held: dict[str, str] = {}
        for group in left:
            outcome = train(needed) if (needed := sharing.missing(group)) else Outcome()
            problems |= outcome.problems
            held |= outcome.held
        sharing.follow([config for group in left for config in group if config.run_name in known])
        left = [kept for group in left if (kept := [config for config in group if config.run_name in held])]
        if not left or not sharing.waits:
            return Outcome(problems, held)
        for name, holder in held.items():
            if known.get(name) != holder:
                sharing.note(f"waiting for {name}: {holder} is training it")
        known |= held
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


class Follower:
    """Reports the epochs that other processes log in the folders of runs, each once."""

    def __init__(self, out: Path, on_epoch: Callable[[RunConfig, Record], None]) -> None:
        self._out, self._on_epoch = out, on_epoch
        self._seen: dict[str, int] = {}

    def look(self, runs: Runs) -> None:
        for config in runs:
            with suppress(ValueError, OSError):  # written at this moment
                log = RunFolder(self._out / config.run_name).read_log()
                for record in log[self._seen.get(config.run_name, 0) :]:
                    self._on_epoch(config, record)
                self._seen[config.run_name] = len(log)
