"""One run and its folder: open or resume, log each epoch, checkpoint, evaluate at the end."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from confrank.config import RunConfig
from confrank.data import DataSet, Split, changed_settings, check_digests, hold_out, same_data
from confrank.environment import VERSIONS, environment
from confrank.errors import InputError
from confrank.files import Lock, holder_path, is_leftover, is_lock, packed, remove_leftovers, write_atomically
from confrank.method_facts import aes_epochs
from confrank.methods import get as get_method
from confrank.metrics import Evaluation, evaluation_of, sample_values
from confrank.models import OtherWeightsError
from confrank.predictions import Predictions, save_predictions
from confrank.provenance import Provenance
from confrank.runs.checkpoint import Checkpoint, load_latest, save_checkpoint, saved, set_newer_aside
from confrank.runs.folder import RunFolder, load_config
from confrank.runs.trained import Trained, completed
from confrank.training.run import Run
from confrank.training.start import initial_weights, refuse_unused

Record = dict[str, Any]
Note = Callable[[str], None]


@dataclass
class Job:
    """A run in progress: what is trained, where it is written, and what has happened so far."""

    run: Run
    folder: RunFolder
    data: DataSet
    held_out: Split | None
    provenance: Provenance
    lock: Lock
    log: list[Record]
    environment: Record
    last_saved: float = field(default_factory=time.monotonic)
    last_epoch: float = field(default_factory=time.monotonic)

    def write_environment(self, path: str) -> None:
        """Record the environment; `path` says how the run is computed."""
        self.environment["path"] = path
        write_atomically(self.folder.environment, json.dumps(self.environment, indent=1) + "\n")

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
                record["test"] = evaluation_of(sample_values(**predictions.evaluation_inputs())).metrics
            if wants_snapshot:
                save_predictions(self.folder.snapshot(epoch), predictions)
        self.log.append(record)
        with self.folder.log.open("a") as file:
            file.write(json.dumps(record) + "\n")
        return record

    def save(self) -> None:
        """Write a checkpoint of this position, unless the run has diverged."""
        self.run.check_finite()
        state = {**self.run.state_dict(), "log": self.log, "environment": self.environment}
        position = self.run.epoch, self.run.next_step
        weights = dict(self.run.model.state_dict())
        save_checkpoint(self.folder.checkpoint, position, Checkpoint(weights, state, self.provenance.as_dict()))
        self.last_saved = time.monotonic()

    def judge(self) -> dict[str, Evaluation]:
        """Predict and evaluate the test and held-out splits, and write the counts of the history."""
        splits = {"test": self.data.test} | ({"holdout": self.held_out} if self.held_out else {})
        predictions = {name: self.predict(name, split) for name, split in splits.items()}
        samples = {name: sample_values(**each.evaluation_inputs()) for name, each in predictions.items()}
        evaluations = {name: evaluation_of(each) for name, each in samples.items()}
        for name, evaluation in evaluations.items():
            save_predictions(self.folder.predictions(name), predictions[name])
            content = json.dumps(evaluation.as_dict(), indent=1) + "\n"
            write_atomically(self.folder.metrics_of(name), content)
        counts = {name: getattr(self.run.history, name).cpu().numpy() for name in ("examined", "correct")}
        write_atomically(self.folder.history, packed(index=self.data.train.index, **counts))
        return evaluations

    def predict(self, name: str, split: Split) -> Predictions:
        """Predictions of the current network."""
        trained = Trained(self.provenance, self.run.model)
        return trained.predict(split, metadata=self.provenance.of_predictions(name))

    def release(self) -> None:
        """Let other processes use the folder. Releasing twice is harmless."""
        self.lock.release()


def open_job(
    config: RunConfig,
    out: Path,
    *,
    device: torch.device,
    path: Callable[[Run], str],
    data: Callable[[], DataSet],
    network: nn.Module | None,
    note: Note,
) -> Job:
    """A new run, or one resumed from its newest intact checkpoint; `data` is called once the folder is locked.

    `path` says how a run is going to be computed.
    """
    folder = RunFolder(out)
    with ExitStack() as on_failure:
        config, lock = _claim(folder, config, on_failure)
        used, held_out, run = _build(folder, config, device, data, network)
        digests = {"data": used.digest(), "test_data": used.digest(test_only=True)}
        now = {**environment(device, path(run)), "data": digests["data"]}
        log, trained_in = _resume(folder, run, digests, now, note)
        versions = {name: trained_in[name] for name in VERSIONS}
        provenance = completed(Provenance(config, versions=versions, digests=digests), used)
        on_failure.pop_all()
    for text in () if run.finished else (*_start_notes(run), *used.notes):
        note(text)
    return Job(run, folder, used, held_out, provenance, lock, log, now)


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
) -> tuple[DataSet, Split | None, Run]:
    """The data without what is held out, the latter, and the run before its first step."""
    used, held_out = hold_out(data().augmented(config.padding, config.flip), config.holdout, config.seed)
    for name, split in (("training", used.train), ("test", used.test)):
        if not len(split):
            raise ValueError(f"expected {name} {'texts' if used.is_text else 'images'}, but {used.name} has none")
    if not folder.config.exists():
        refuse_unused(config, used)
    initial = initial_weights(config.init) if config.init and not saved(folder.checkpoint) else None
    try:
        return used, held_out, Run(config, used, device, network=network, initial=initial)
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
    folder: RunFolder, run: Run, digests: dict[str, str], now: Record, note: Note
) -> tuple[list[Record], Record]:
    """Load the newest intact checkpoint, if any; its epoch log, and the environment that the weights come from."""
    checkpoint = _read_checkpoint(folder, run.config, digests, note)
    log: list[Record] = []
    trained_in = now
    if checkpoint is not None:
        log = list(checkpoint.state["log"])
        _load_state(folder, run, checkpoint)
        set_newer_aside(folder.checkpoint, (run.epoch, run.next_step))
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
    write_atomically(folder.log, "".join(json.dumps(record) + "\n" for record in log))
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
