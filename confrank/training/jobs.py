"""One run and its folder: open or resume, log each epoch, checkpoint, evaluate at the end."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from torch import nn

from confrank.checkpoint import Checkpoint, load_latest, save_checkpoint, saved, set_newer_aside
from confrank.config import RunConfig
from confrank.data import DataSet, Split, changed_settings, check_digests, hold_out, same_data
from confrank.environment import VERSIONS, environment
from confrank.errors import InputError
from confrank.files import Lock, holder_path, is_leftover, is_lock, packed, remove_leftovers, write_atomically
from confrank.method_facts import aes_epochs
from confrank.methods import get as get_method
from confrank.methods import joined
from confrank.metrics import Evaluation, evaluate
from confrank.models import OtherWeightsError
from confrank.predictions import Predictions, save_predictions
from confrank.provenance import Provenance
from confrank.run_folder import RunFolder, load_config
from confrank.trained import Trained, completed
from confrank.training.processes import ALONE, Processes
from confrank.training.run import Run
from confrank.training.shared_run import SharedRun
from confrank.training.start import initial_weights, refuse_unused

Record = dict[str, Any]
Note = Callable[[str], None]


@dataclass
class Job:
    """A run in progress: what is trained, where it is written, and what has happened so far.

    With several processes, each has a job and calls its methods; the first one writes the files.
    """

    run: Run
    folder: RunFolder
    data: DataSet
    held_out: Split | None
    provenance: Provenance
    lock: Lock | None
    log: list[Record]
    environment: Record
    processes: Processes = ALONE
    last_saved: float = field(default_factory=time.monotonic)
    last_epoch: float = field(default_factory=time.monotonic)

    def write_environment(self, path: str) -> None:
        """Record the environment; `path` says how the run is computed."""
        self.environment["path"] = path
        content = json.dumps(self.environment, indent=1) + "\n"
        self.processes.lead(partial(write_atomically, self.folder.environment, content))

    def end_epoch(self) -> Record:
        """Log the epoch that has just ended, with test metrics if the config asks for them."""
        record: Record = self.run.finish_epoch()
        now = time.monotonic()
        record["seconds"], self.last_epoch = now - self.last_epoch, now
        config, epoch = self.run.config, self.run.epoch
        wants_metrics = bool(config.test_every) and epoch % config.test_every == 0
        wants_snapshot = config.snapshots and epoch in aes_epochs(config.epochs)
        if wants_metrics or wants_snapshot:
            predictions = self.predict("test", self.data.test)
            if wants_metrics:
                record["test"] = evaluate(**predictions.evaluation_inputs()).metrics
            if wants_snapshot:
                self.processes.lead(partial(save_predictions, self.folder.snapshot(epoch), predictions))
        self.log.append(record)
        self.processes.lead(partial(_append, self.folder.log, json.dumps(record) + "\n"))
        return record

    def save(self) -> None:
        """Write a checkpoint of this position, unless the run has diverged."""
        self.run.settle()
        self.run.check_finite()
        self.processes.lead(self._write_checkpoint)
        self.last_saved = time.monotonic()

    def _write_checkpoint(self) -> None:
        state = {**self.run.state_dict(), "log": self.log, "environment": self.environment}
        position = self.run.epoch, self.run.next_step
        weights = dict(self.run.model.state_dict())
        save_checkpoint(self.folder.checkpoint, position, Checkpoint(weights, state, self.provenance.as_dict()))

    def judge(self) -> dict[str, Evaluation]:
        """Predict and evaluate the test and held-out splits, and write the counts of the history."""
        splits = {"test": self.data.test} | ({"holdout": self.held_out} if self.held_out else {})
        predictions = {name: self.predict(name, split) for name, split in splits.items()}
        evaluations = {name: evaluate(**each.evaluation_inputs()) for name, each in predictions.items()}
        self.processes.lead(partial(self._write_results, predictions, evaluations))
        return evaluations

    def _write_results(self, predictions: dict[str, Predictions], evaluations: dict[str, Evaluation]) -> None:
        for name, evaluation in evaluations.items():
            save_predictions(self.folder.predictions(name), predictions[name])
            content = json.dumps(evaluation.as_dict(), indent=1) + "\n"
            write_atomically(self.folder.metrics_of(name), content)
        counts = {name: getattr(self.run.history, name).cpu().numpy() for name in ("examined", "correct")}
        write_atomically(self.folder.history, packed(index=self.data.train.index, **counts))

    def predict(self, name: str, split: Split) -> Predictions:
        """Predictions of the current network; with several processes, each predicts a part of the split."""
        processes, trained = self.processes, Trained(self.provenance, self.run.model)
        predict = partial(trained.predict, metadata=self.provenance.of_predictions(name))
        # A stochastic method draws for one image after the other.
        if processes.size == 1 or trained.method.facts.stochastic or len(split) < processes.size:
            return processes.lead(partial(predict, split))
        parts = processes.gathered(predict(split.select(np.array(processes.part(len(split))))))
        return replace(parts[0], **joined(parts), label=split.labels, index=split.index, key=split.path)

    def release(self) -> None:
        """Let other processes use the folder. Releasing twice is harmless."""
        if self.lock is not None:
            self.lock.release()


def _append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def open_job(
    config: RunConfig,
    out: Path,
    *,
    device: torch.device,
    path: Callable[[Run], str],
    data: Callable[[], DataSet],
    network: nn.Module | None,
    note: Note,
    processes: Processes = ALONE,
) -> Job:
    """A new run, or one resumed from its newest intact checkpoint; `data` is called once the folder is locked.

    `path` says how a run is going to be computed.
    """
    folder = RunFolder(out)
    with ExitStack() as on_failure:
        claimed = processes.together(
            partial(_claim, folder, config, on_failure) if processes.leads else lambda: (config, None)
        )
        config, lock = processes.shared(claimed[0]), claimed[1]
        used, held_out, run = processes.together(partial(_build, folder, config, device, data, network, processes))
        digests = {"data": used.digest(), "test_data": used.digest(test_only=True)}
        processes.together(partial(_check_same_data, processes.gathered(digests)))
        if isinstance(run, SharedRun):
            run.connect()
        now = {**environment(device, path(run)), "data": digests["data"]}
        log, trained_in = _resume(folder, run, digests, now, note, processes)
        versions = {name: trained_in[name] for name in VERSIONS}
        provenance = completed(Provenance(config, versions=versions, digests=digests), used)
        on_failure.pop_all()
    for text in () if run.finished else (*_start_notes(run), *used.notes):
        note(text)
    return Job(run, folder, used, held_out, provenance, lock, log, now, processes)


def _claim(folder: RunFolder, config: RunConfig, on_failure: ExitStack) -> tuple[RunConfig, Lock]:
    """Lock the folder; the config records what a resumed run began to record."""
    out = folder.path
    made = [path for path in (holder_path(folder.lock), folder.lock, out, *out.parents) if not path.exists()]
    get_method(config.method)  # reports a misspelt name before the folder is compared
    check_folder(folder, config)  # before anything is written, and again under the lock
    out.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.lock)
    on_failure.callback(lock.release)
    on_failure.callback(_remove_empty, made)
    check_folder(folder, config)
    if folder.config.exists():
        there = load_config(out)
        if config.snapshots and not there.snapshots:
            folder.check_snapshots(aes_epochs(config.epochs))
        every, snapshots = config.test_every or there.test_every, config.snapshots or there.snapshots
        config = replace(there, test_every=every, snapshots=snapshots)
    return config, lock


def _build(
    folder: RunFolder,
    config: RunConfig,
    device: torch.device,
    data: Callable[[], DataSet],
    network: nn.Module | None,
    processes: Processes,
) -> tuple[DataSet, Split | None, Run]:
    """The data without what is held out, the latter, and the run before its first step."""
    used, held_out = hold_out(data().augmented(config.padding, config.flip), config.holdout, config.seed)
    for name, split in (("training", used.train), ("test", used.test)):
        if not len(split):
            raise ValueError(f"expected {name} {'texts' if used.is_text else 'images'}, but {used.name} has none")
    if not folder.config.exists():
        refuse_unused(config, used)
    initial = initial_weights(config.init) if config.init and not saved(folder.checkpoint) else None
    make = Run if processes.size == 1 else partial(SharedRun, processes=processes)
    try:
        return used, held_out, make(config, used, device, network=network, initial=initial)
    except OtherWeightsError as error:
        raise InputError(
            f"expected weights of {config.model} in {config.init}, but: {error}",
            "give its {model}, its {head} and images of its shape, or another {init}",
        ) from None


def _start_notes(run: Run) -> list[str]:
    """What a run that starts from other weights starts from, and what it starts anew."""
    if not run.config.init or run.epoch or run.next_step:
        return []
    anew = f"; these start anew: {'; '.join(run.started_anew)}" if run.started_anew else ""
    return [f"starting from the weights in {run.config.init}{anew}"]


def _check_same_data(digests: Sequence[dict[str, str]]) -> None:
    if differing := [rank for rank, mine in enumerate(digests) if mine != digests[0]]:
        raise ValueError(
            f"expected the same data in every process, but those of process {differing[0]} differ from those of"
            " process 0; copy the data set to every machine"
        )


def _remove_empty(paths: Sequence[Path]) -> None:
    """Remove files and the folders around them, up to the first that holds anything else."""
    with suppress(OSError):
        for path in paths:
            path.rmdir() if path.is_dir() else path.unlink()


def check_folder(folder: RunFolder, config: RunConfig) -> None:
    """Raise unless the folder is new or holds a run of this config."""
    # Listed first: another process may write the config meanwhile.
    files = [*folder.path.iterdir()] if folder.path.exists() else []
    if folder.config.exists():
        there = load_config(folder.path)
        if differing := changed_settings(config.as_dict(), there.as_dict()):
            name, remedy = Path(there.dataset).name, "choose another {out}"
            if not same_data(config.dataset, there.dataset) and Path(config.dataset).name == name:
                remedy += (
                    f"; if the data have moved, give {{dataset}} {there.dataset} and the folder of {name} as {{root}}"
                )
            raise InputError(
                f"expected a new folder or a run of the same settings, but {folder.path} differs in {differing}",
                remedy,
            )
    elif any(not is_lock(path) and not is_leftover(path) for path in files):
        raise InputError(
            f"expected a new folder or a run, but {folder.path} holds other files", "choose another {out}"
        )


def _resume(
    folder: RunFolder, run: Run, digests: dict[str, str], now: Record, note: Note, processes: Processes
) -> tuple[list[Record], Record]:
    """Load the newest intact checkpoint, if any; its epoch log, and the environment that the weights come from."""
    checkpoint = processes.lead(partial(_read_checkpoint, folder, run.config, digests, note))
    log: list[Record] = []
    trained_in = now
    if checkpoint is not None:
        log = list(checkpoint.state["log"])
        processes.together(partial(_load_state, folder, run, checkpoint))
        processes.lead(partial(set_newer_aside, folder.checkpoint, (run.epoch, run.next_step)))
        then = checkpoint.state["environment"]
        # The predictions of a finished run do not depend on its path.
        compared = [key for key in now if not (run.finished and key == "path")]
        if differing := [key for key in compared if now[key] != then.get(key, now[key])]:
            moved = ", ".join(f"{key} {then.get(key)} -> {now[key]}" for key in differing)
            note(f"the result will not equal an uninterrupted run bit for bit: {moved}")
        if run.finished:
            trained_in = {**now, **then}
        else:
            note(f"resuming after epoch {run.epoch}, step {run.next_step}")
    content = "".join(json.dumps(record) + "\n" for record in log)
    processes.lead(partial(write_atomically, folder.log, content))
    return log, trained_in


def _read_checkpoint(folder: RunFolder, config: RunConfig, digests: dict[str, str], note: Note) -> Checkpoint | None:
    """Clear up after a crash, write the config, and read the newest intact checkpoint of the same data."""
    remove_leftovers(folder.path)
    if folder.snapshots.exists():
        remove_leftovers(folder.snapshots)
    if not folder.history.exists():  # a finished run stays as it is
        write_atomically(folder.config, yaml.safe_dump(config.as_dict(), sort_keys=False))
    if not saved(folder.checkpoint):
        return None
    checkpoint, problems = load_latest(folder.checkpoint)
    check_digests(folder.path, checkpoint.meta, or_else=", or choose another {out} for a new run", **digests)
    for problem in problems:
        note(f"skipped a damaged checkpoint: {problem}")
    return checkpoint


def _load_state(folder: RunFolder, run: Run, checkpoint: Checkpoint) -> None:
    try:
        run.load_state(checkpoint.weights, checkpoint.state)
    except OtherWeightsError as error:
        raise InputError(
            f"expected a run of this network in {folder.path}, but: {error}", "choose another {out}"
        ) from None
