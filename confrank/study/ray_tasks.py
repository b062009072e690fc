"""The runs of a study as tasks on a Ray cluster, whose nodes share its folders."""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from confrank.cluster import Ray, StoppedTaskError, Tasks, reason_of
from confrank.environment import keep_freed_memory
from confrank.errors import InputError
from confrank.study.group import LONGEST_PAUSE, Outcome, Runs, Sharing, train_group
from confrank.training import InterruptedRunError, Options
from confrank.training.signals import stop_signals

# A network file system may show a new file to another host with a delay.
VISIBLE_SECONDS = 60.0


@dataclass(frozen=True)
class Settings:
    """What all tasks share. Relative paths start at `folder`, which every node must have, as the others."""

    folder: Path
    out: Path
    results: Path
    root: Path
    device: str
    threads: int
    checkpoint_minutes: float
    shift: bool = False


def train_task(group: Runs, settings: Settings) -> tuple[Outcome, list[str]]:
    """Train a group on a node; the outcome and the notes. After a signal, the task can be started again."""
    os.chdir(settings.folder)
    torch.set_num_threads(settings.threads)
    if settings.device == "cpu":
        keep_freed_memory()
    notes: list[str] = []
    options = Options(
        root=settings.root,
        device=settings.device,
        checkpoint_minutes=settings.checkpoint_minutes,
        on_note=notes.append,
    )
    try:
        return train_group(group, settings.out, settings.results, options, settings.shift), notes
    except InterruptedRunError as error:
        raise StoppedTaskError(str(error)) from None


def train_on_ray(ray: Ray, groups: Sequence[Runs], settings: Settings, sharing: Sharing) -> Outcome:
    """`train_shared` with each group as one task.

    SIGINT, SIGTERM and SIGHUP stop the tasks, which save checkpoints first, and raise `InterruptedRunError`.
    """
    study = _Study(Tasks(ray, train_task, settings.device, settings.threads), settings, sharing)
    with stop_signals() as stopped:
        for group in groups:
            study.submit(group)
        while study.is_busy:
            study.advance()
            if stopped:
                study.tasks.stop()
                raise InterruptedRunError(stopped[0], [settings.out])
        return study.checked([config for group in groups for config in group])


class _Study:
    """Groups that are waiting or running as tasks, groups that other processes hold, and the outcome so far."""

    def __init__(self, tasks: Tasks[Runs], settings: Settings, sharing: Sharing) -> None:
        self.tasks, self.settings, self.sharing = tasks, settings, sharing
        self.outcome = Outcome()
        self.later: list[tuple[float, Runs]] = []

    @property
    def is_busy(self) -> bool:
        return bool(self.tasks.keys or self.later)

    def submit(self, group: Runs) -> None:
        if needed := self.sharing.missing(group):
            self.tasks.submit(needed, needed, self.settings)

    def advance(self) -> None:
        """Collect what has ended, submit what may be free by now, and show the progress of the rest."""
        due = [group for when, group in self.later if when <= time.monotonic()]
        self.later = [item for item in self.later if item[1] not in due]
        for group in due:
            self.submit(group)
        for group, result in self.tasks.collect():
            self.end(group, result)
        waiting = [*self.tasks.keys, *(group for _, group in self.later)]
        self.sharing.follow([config for group in waiting for config in group])

    def end(self, group: Runs, result: Any) -> None:
        self.sharing.follow(group)
        if isinstance(result, Exception):
            self.outcome.problems.update({config.run_name: RuntimeError(reason_of(result)) for config in group})
            return
        outcome, notes = result
        for text in notes:
            self.sharing.note(text)
        self.outcome.problems.update(outcome.problems)
        held = [config for config in group if config.run_name in outcome.held]
        if held and self.sharing.waits:
            for name, holder in outcome.held.items():
                self.sharing.note(f"waiting for {name}: {holder} is training it")
            self.later.append((time.monotonic() + LONGEST_PAUSE, held))
        else:
            self.outcome.held.update(outcome.held)

    def checked(self, runs: Runs) -> Outcome:
        """The outcome, with a problem for each run whose files do not arrive in our folders."""
        unfinished = {*self.outcome.problems, *self.outcome.held}
        ended = [config for config in runs if config.run_name not in unfinished]
        give_up = time.monotonic() + VISIBLE_SECONDS
        while (left := self.sharing.missing(ended)) and time.monotonic() < give_up:
            time.sleep(1)
        where = f"{self.settings.out} and {self.settings.results}"
        why = f"expected its files in {where}, but a node wrote them elsewhere"
        problem = InputError(why, "let all nodes share these folders")
        self.outcome.problems.update({config.run_name: problem for config in left})
        return self.outcome
