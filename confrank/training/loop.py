"""From a config to a finished run folder: train, checkpoint, predict, evaluate; resume where it stopped."""

import json
import platform
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
import yaml

from confrank import __version__
from confrank.checkpoint import Checkpoint, load_latest, save_checkpoint, saved
from confrank.config import RunConfig, RunFolder
from confrank.data import DataSet, Split, hold_out, load
from confrank.files import write_atomically
from confrank.methods import predict_split
from confrank.metrics import Evaluation, evaluate
from confrank.predictions import run_metadata, save_predictions
from confrank.training.run import Run

EpochListener = Callable[[dict[str, float]], None]


class InterruptedRunError(RuntimeError):
    """A signal stopped the run between two steps; its checkpoint is saved."""

    def __init__(self, signal_number: int, folder: Path, epoch: int) -> None:
        super().__init__(f"stopped after {epoch} whole epochs; the same command goes on from there ({folder})")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Finished:
    """What `train` leaves behind: the folder, and the evaluation of the test split (and of the held-out one)."""

    folder: RunFolder
    evaluations: dict[str, Evaluation]


def train(
    config: RunConfig,
    out: Path,
    *,
    root: Path | None = None,
    device: torch.device | None = None,
    data: DataSet | None = None,
    checkpoint_minutes: float = 2.0,
    on_epoch: EpochListener | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Finished:
    """Train to the end, or go on where an earlier call stopped, and evaluate. `data` replaces the named set."""
    folder = RunFolder(out)
    _check_folder(folder, config)
    full = load(config.dataset, root, image_size=config.image_size) if data is None else data
    used, held_out = hold_out(full, config.holdout, config.seed)
    run = Run(config, used, device or default_device())
    if not folder.config.exists():
        write_atomically(folder.config, yaml.safe_dump(config.as_dict(), sort_keys=False))
    log = _resume(folder, run, on_note or (lambda note: None))
    write_atomically(folder.environment, json.dumps(environment(run.device), indent=1) + "\n")
    for record in log:
        if on_epoch:
            on_epoch(record)
    with _stop_signals() as stopped:
        _train_epochs(run, folder, used, log, checkpoint_minutes, on_epoch, stopped)
    splits = {"test": used.test} | ({"holdout": held_out} if held_out else {})
    return Finished(folder, {name: _judge(run, folder, used, name, split) for name, split in splits.items()})


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def environment(device: torch.device) -> dict[str, Any]:
    """Versions and hardware, for the record."""
    return {
        "confrank": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
    }


def _train_epochs(
    run: Run,
    folder: RunFolder,
    data: DataSet,
    log: list[dict[str, float]],
    checkpoint_minutes: float,
    on_epoch: EpochListener | None,
    stopped: list[int],
) -> None:
    last_saved = last_epoch = time.monotonic()
    while not run.finished:
        run.step()
        if run.next_step == run.num_steps:
            now = time.monotonic()
            record = {**run.finish_epoch(), "seconds": now - last_epoch}
            last_epoch = now
            log.append(record)
            with folder.log.open("a") as file:
                file.write(json.dumps(record) + "\n")
            if on_epoch:
                on_epoch(record)
        if stopped or run.finished or time.monotonic() - last_saved > 60 * checkpoint_minutes:
            _save(run, folder, data, log)
            last_saved = time.monotonic()
        if stopped and not run.finished:
            raise InterruptedRunError(stopped[0], folder.path, run.epoch)


def _save(run: Run, folder: RunFolder, data: DataSet, log: list[dict[str, float]]) -> None:
    run.check_finite()
    height, width, channels = data.train.images.shape[1:]
    meta = {
        "config": run.config.as_dict(),
        "num_classes": data.num_classes,
        "image_shape": [height, width, channels],
        "mean": list(data.mean),
        "std": list(data.std),
    }
    state = {**run.state_dict(), "log": log, "environment": environment(run.device)}
    save_checkpoint(
        folder.checkpoint, (run.epoch, run.next_step), Checkpoint(dict(run.model.state_dict()), state, meta)
    )


def _check_folder(folder: RunFolder, config: RunConfig) -> None:
    """Raise unless the folder is new or holds a run of this very config."""
    if folder.config.exists():
        existing = yaml.safe_load(folder.config.read_text())
        wanted = config.as_dict()
        differing = [key for key in wanted if existing.get(key) != wanted[key]]
        if differing:
            changes = ", ".join(f"{key} {wanted[key]} (there: {existing.get(key)})" for key in differing)
            raise ValueError(
                f"expected a new folder or a run of the same settings, but {folder.path} differs in {changes};"
                " give another --out"
            )
    elif folder.path.exists() and any(folder.path.iterdir()):
        raise ValueError(f"expected a new folder or a run, but {folder.path} holds other files; give another --out")


def _resume(folder: RunFolder, run: Run, note: Callable[[str], None]) -> list[dict[str, float]]:
    """Load the newest whole checkpoint, if any, and write the epoch log as it was then."""
    log: list[dict[str, float]] = []
    if saved(folder.checkpoint):
        checkpoint, problems = load_latest(folder.checkpoint)
        for problem in problems:
            note(f"skipped a damaged checkpoint: {problem}")
        log = list(checkpoint.state["log"])
        run.load_state(checkpoint.weights, checkpoint.state)
        now, then = environment(run.device), checkpoint.state["environment"]
        if differing := [key for key in now if now[key] != then.get(key)]:
            changes = ", ".join(f"{key} {then.get(key)} -> {now[key]}" for key in differing)
            note(f"the result will not equal an uninterrupted run to the bit: {changes}")
        if not run.finished:
            note(f"going on after epoch {run.epoch}, step {run.next_step}")
    write_atomically(folder.log, "".join(json.dumps(record) + "\n" for record in log))
    return log


def _judge(run: Run, folder: RunFolder, data: DataSet, name: str, split: Split) -> Evaluation:
    """Predict a split, evaluate it, and write both down."""
    metadata = run_metadata(run.config, data.class_names, name)
    predictions = predict_split(run.method, run.model, split, data.mean, data.std, metadata=metadata)
    save_predictions(folder.predictions(name), predictions)
    evaluation = evaluate(**predictions.evaluation_inputs())
    path = folder.metrics if name == "test" else folder.metrics.with_name(f"metrics-{name}.json")
    write_atomically(path, json.dumps(evaluation.as_dict(), indent=1) + "\n")
    return evaluation


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that SIGINT and SIGTERM append to: handlers only set this flag, the loop looks at it."""
    stopped: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stopped.append(number)

    try:
        previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's business
        yield stopped
        return
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
