"""One run and its folder: open or resume, write down each epoch, checkpoint, judge at the end."""

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
from confrank.environment import environment, versions
from confrank.folders import Lock, holder_path, is_lock
from confrank.method_facts import aes_epochs
from confrank.methods import get as get_method
from confrank.methods import predict_split
from confrank.metrics import Evaluation, evaluate
from confrank.models import OtherWeightsError
from confrank.predictions import Predictions, save_predictions
from confrank.provenance import Provenance
from confrank.run_folder import RunFolder, load_config
from confrank.trained import completed
from confrank.training.run import Run

Record = dict[str, Any]
Note = Callable[[str], None]


@dataclass
class Job:
    """A run on its way: what is trained, where it is written, and what has happened so far."""

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
        """Write down where and how the run is computed."""
        self.environment["path"] = path
        write_atomically(self.folder.environment, json.dumps(self.environment, indent=1) + "\n")

    def end_epoch(self) -> Record:
        """Write down an epoch that has just ended, with the test split's metrics where they were asked for."""
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
        """Checkpoint this very position, unless the run has diverged."""
        self.run.check_finite()
        state = {**self.run.state_dict(), "log": self.log, "environment": self.environment}
        position = self.run.epoch, self.run.next_step
        weights = dict(self.run.model.state_dict())
        save_checkpoint(self.folder.checkpoint, position, Checkpoint(weights, state, self.provenance.as_dict()))
        self.last_saved = time.monotonic()

    def judge(self) -> dict[str, Evaluation]:
        """Predict and evaluate the test split and the held-out one, and write down what history has seen."""
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
        mean, std, metadata = self.data.mean, self.data.std, self.provenance.of_predictions(name)
        return predict_split(self.run.method, self.run.model, split, mean, std, metadata=metadata)


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
    """A new run, or one that goes on where its newest whole checkpoint stands; `data` is asked once the folder is."""
    folder = RunFolder(out)
    made = [place for place in (holder_path(folder.lock), folder.lock, out, *out.parents) if not place.exists()]
    get_method(config.method)  # a misspelt one differs from what is there, too
    check_folder(folder, config)  # before anything is touched, and again when nobody else can
    out.mkdir(parents=True, exist_ok=True)
    lock = Lock(folder.lock)
    try:
        check_folder(folder, config)
        if folder.config.exists():  # what the run began to write down it goes on writing down
            there = load_config(out)
            every, snapshots = config.test_every or there.test_every, config.snapshots or there.snapshots
            config = replace(there, test_every=every, snapshots=snapshots)
        whole = data().augmented(config.padding, config.flip)
        used, held_out = hold_out(whole, config.holdout, config.seed)
        for name, split in (("training", used.train), ("test", used.test)):
            if not len(split):
                raise ValueError(f"expected {name} images, but {used.name} has none")
        run = Run(config, used, device, network=network)
        digests = {"data": used.digest(), "test_data": used.digest(test_only=True)}
        provenance = completed(Provenance(config, versions=versions(), digests=digests), used)
        remove_leftovers(out)
        if not folder.history.exists():  # a finished run stays what it was
            write_atomically(folder.config, yaml.safe_dump(config.as_dict(), sort_keys=False))
        now = {**environment(device, path), "data": digests["data"]}
        log = _resume(folder, run, digests, now, note)
    except BaseException:
        _remove_empty(made)
        lock.release()
        raise
    for text in () if run.finished else used.notes:
        note(text)
    return Job(run, folder, used, held_out, provenance, lock, log, now)


def _remove_empty(places: Sequence[Path]) -> None:
    """Remove a file and the folders around it, as far as nothing else is in them."""
    with suppress(OSError):
        for place in places:
            place.rmdir() if place.is_dir() else place.unlink()


def check_folder(folder: RunFolder, config: RunConfig) -> None:
    """Raise unless the folder is new or holds a run of this very config."""
    if folder.config.exists():
        there = load_config(folder.path)
        if differing := changed_settings(config.as_dict(), there.as_dict()):
            name, way_out = Path(there.dataset).name, "give another --out"
            if not same_data(config.dataset, there.dataset) and Path(config.dataset).name == name:
                way_out += f"; for moved data give --dataset {there.dataset} and --root, the folder that holds {name}"
            raise ValueError(
                f"expected a new folder or a run of the same settings, but {folder.path} differs in {differing};"
                f" {way_out}"
            )
    elif folder.path.exists() and any(not is_lock(path) and not is_leftover(path) for path in folder.path.iterdir()):
        raise ValueError(f"expected a new folder or a run, but {folder.path} holds other files; give another --out")


def _resume(folder: RunFolder, run: Run, digests: dict[str, str], now: Record, note: Note) -> list[Record]:
    """Load the newest whole checkpoint, if any, and write the epoch log as it was then."""
    log: list[Record] = []
    if saved(folder.checkpoint):
        checkpoint, problems = load_latest(folder.checkpoint)
        check_digests(folder.path, checkpoint.meta, or_else=", or another --out for a new run", **digests)
        for problem in problems:
            note(f"skipped a damaged checkpoint: {problem}")
        log = list(checkpoint.state["log"])
        try:
            run.load_state(checkpoint.weights, checkpoint.state)
        except OtherWeightsError as error:
            raise ValueError(
                f"expected a run of this network in {folder.path}, but: {error}; give another --out"
            ) from None
        set_newer_aside(folder.checkpoint, (run.epoch, run.next_step))
        then = checkpoint.state["environment"]
        if differing := [key for key in now if now[key] != then.get(key, now[key])]:
            moved = ", ".join(f"{key} {then.get(key)} -> {now[key]}" for key in differing)
            note(f"the result will not equal an uninterrupted run to the bit: {moved}")
        if not run.finished:
            note(f"going on after epoch {run.epoch}, step {run.next_step}")
    write_atomically(folder.log, "".join(json.dumps(record) + "\n" for record in log))
    return log
