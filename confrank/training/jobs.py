"""One run and its folder: open or resume, log each epoch, checkpoint, evaluate at the end."""

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from confrank.atomic import is_leftover, packed, remove_leftovers, write_atomically
from confrank.checkpoint import Checkpoint, load_latest, save_checkpoint, saved, set_newer_aside
from confrank.config import RunConfig
from confrank.data import DataSet, Split, changed_settings, check_digests, hold_out, same_data
from confrank.environment import VERSIONS, environment
from confrank.folders import Lock, holder_path, is_lock
from confrank.method_facts import aes_epochs
from confrank.methods import get as get_method
from confrank.methods import predict_split
from confrank.metrics import Evaluation, evaluate
from confrank.models import OtherWeightsError
from confrank.phrasing import InputError
from confrank.predictions import Predictions, save_predictions
from confrank.provenance import Provenance
from confrank.run_folder import RunFolder, load_config
from confrank.trained import completed
from confrank.training.run import Run

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
                record["test"] = evaluate(**predictions.evaluation_inputs()).metrics
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
        evaluations = {}
        for name, split in splits.items():
            predictions = self.predict(name, split)
            save_predictions(self.folder.predictions(name), predictions)
            evaluations[name] = evaluate(**predictions.evaluation_inputs())
            content = json.dumps(evaluations[name].as_dict(), indent=1) + "\n"
            write_atomically(self.folder.metrics_of(name), content)
        counts = {name: getattr(self.run.history, name).cpu().numpy() for name in ("examined", "correct")}
        write_atomically(self.folder.history, packed(index=self.data.train.index, **counts))
        return evaluations

    def predict(self, name: str, split: Split) -> Predictions:
        mirror = self.run.config.mirror
        mean, std, metadata = self.data.mean, self.data.std, self.provenance.of_predictions(name)
        return predict_split(self.run.method, self.run.model, split, mean, std, metadata=metadata, mirror=mirror)


def open_job(
    config: RunConfig,
    out: Path,
    *,
    device: torch.device,
    path: str,
    data: Callable[[], DataSet],
    network: nn.Module | None,
    note: Note,
) -> Job:
    """A new run, or one resumed from its newest intact checkpoint; `data` is called once the folder is locked."""
    folder = RunFolder(out)
    made = [path for path in (holder_path(folder.lock), folder.lock, out, *out.parents) if not path.exists()]
    get_method(config.method)  # reports a misspelt name before the folder is compared
    check_folder(folder, config)  # before anything is written, and again under the lock
    out.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.lock)
    try:
        check_folder(folder, config)
        if folder.config.exists():  # a resumed run keeps writing what it began to write
            there = load_config(out)
            every, snapshots = config.test_every or there.test_every, config.snapshots or there.snapshots
            config = replace(there, test_every=every, snapshots=snapshots)
        augmented = data().augmented(config.padding, config.flip)
        used, held_out = hold_out(augmented, config.holdout, config.seed)
        for name, split in (("training", used.train), ("test", used.test)):
            if not len(split):
                raise ValueError(f"expected {name} images, but {used.name} has none")
        run = Run(config, used, device, network=network)
        digests = {"data": used.digest(), "test_data": used.digest(test_only=True)}
        remove_leftovers(out)
        if not folder.history.exists():  # a finished run stays as it is
            write_atomically(folder.config, yaml.safe_dump(config.as_dict(), sort_keys=False))
        now = {**environment(device, path), "data": digests["data"]}
        log, trained_in = _resume(folder, run, digests, now, note)
        versions = {name: trained_in[name] for name in VERSIONS}
        provenance = completed(Provenance(config, versions=versions, digests=digests), used)
    except BaseException:
        _remove_empty(made)
        lock.release()
        raise
    for text in () if run.finished else used.notes:
        note(text)
    return Job(run, folder, used, held_out, provenance, lock, log, now)


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
    log: list[Record] = []
    trained_in = now
    if saved(folder.checkpoint):
        checkpoint, problems = load_latest(folder.checkpoint)
        check_digests(folder.path, checkpoint.meta, or_else=", or choose another {out} for a new run", **digests)
        for problem in problems:
            note(f"skipped a damaged checkpoint: {problem}")
        log = list(checkpoint.state["log"])
        try:
            run.load_state(checkpoint.weights, checkpoint.state)
        except OtherWeightsError as error:
            raise InputError(
                f"expected a run of this network in {folder.path}, but: {error}", "choose another {out}"
            ) from None
        set_newer_aside(folder.checkpoint, (run.epoch, run.next_step))
        then = checkpoint.state["environment"]
        if differing := [key for key in now if now[key] != then.get(key, now[key])]:
            moved = ", ".join(f"{key} {then.get(key)} -> {now[key]}" for key in differing)
            note(f"the result will not equal an uninterrupted run bit for bit: {moved}")
        if run.finished:
            trained_in = {**now, **then}
        else:
            note(f"resuming after epoch {run.epoch}, step {run.next_step}")
    write_atomically(folder.log, "".join(json.dumps(record) + "\n" for record in log))
    return log, trained_in
