"""Several processes on the folders of one study: each takes what the others do not hold."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import torch
import yaml

from confrank.folders import Lock
from confrank.run_folder import RunFolder
from confrank.study.catalogue import Recipe
from confrank.study.grid import run_plan
from confrank.study.plan import plan
from confrank.study.tables import load_results

PAIR = Recipe(("digits",), ("mlp",), ("ensemble-baseline",), seeds=(0, 1), epochs=1)
NAME = "digits-mlp-baseline-seed0"
HOLDER = f"process {os.getpid()} on {socket.gethostname()}"
# A network that notes each of its training steps in a file: one line per step, with the seed of its run.
COUNTING = """
import os, torch
from confrank.models import create

def network(num_classes, in_channels=3, **options):
    built, seed = create("mlp", num_classes, in_channels=in_channels), torch.initial_seed()
    def note(module, inputs):
        if module.training:
            with open(os.environ["STEPS"], "a") as file:
                file.write(f"{seed}\\n")
    built.register_forward_pre_hook(note)
    return built
"""


def run(folder, **options):
    return run_plan(plan(PAIR), folder / "runs", folder / "results", device=torch.device("cpu"), **options)


def hold(folder, name=NAME):
    path = RunFolder(folder / "runs" / name)
    path.path.mkdir(parents=True)
    return Lock(path.lock)


def names(folder):
    return {result.name for result in load_results(folder / "results")}


def test_what_another_process_holds_is_waited_for(tmp_path):
    notes, lock = [], hold(tmp_path)

    def note(text):
        notes.append(text)
        if text.startswith("waiting"):
            lock.release()

    assert run(tmp_path, on_note=note) == []
    assert f"waiting for {NAME}: {HOLDER} is training it" in notes
    assert names(tmp_path) == {NAME, NAME.replace("seed0", "seed1"), "digits-mlp-ensemble-baseline-of2"}


def test_what_another_process_holds_is_skipped_on_request(tmp_path):
    notes, lock = [], hold(tmp_path)
    assert run(tmp_path, skip_held=True, on_note=notes.append) == []
    assert f"skipped {NAME}: {HOLDER} is training it" in notes
    assert names(tmp_path) == {NAME.replace("seed0", "seed1")}  # and no ensemble of one
    lock.release()
    assert run(tmp_path, skip_held=True) == []
    assert len(names(tmp_path)) == 3


def test_progress_of_what_others_train_is_shown(tmp_path):
    """Another process logs an epoch while this one waits, then it ends."""
    lock, folder, shown = hold(tmp_path), RunFolder(tmp_path / "runs" / NAME), []
    theirs = {"epoch": 1, "loss": 2.0, "acc": 0.25}

    def note(text):
        if text.startswith("waiting"):
            folder.config.write_text(yaml.safe_dump(plan(PAIR).runs[0].as_dict()))
            folder.log.write_text(f'{json.dumps(theirs)}\n{{"epoch": 2, "lo')

    def on_epoch(config, record):
        shown.append((config.seed, record["epoch"]))
        if record == theirs:
            lock.release()

    assert run(tmp_path, on_note=note, on_epoch=on_epoch) == []
    assert shown == [(1, 1), (0, 1), (0, 1)]


def start_study(folder, seeds, epochs, *flags):
    """A process that runs `confrank study` on the shared folders, and notes the steps it trains."""
    (folder / "counting.py").write_text(COUNTING)
    source = str(Path(__file__).parents[1])
    paths = [str(folder), *filter(None, [source, os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STEPS": str(folder / "steps")}
    cells = {"datasets": "digits", "models": "counting:network", "methods": "ensemble-baseline"}
    study = ["table-clf-perf", *(part for name, value in cells.items() for part in (f"--{name}", value))]
    given = ["--seeds", ",".join(map(str, seeds)), "--epochs", str(epochs), "--device", "cpu"]
    return subprocess.Popen(
        [sys.executable, "-m", "confrank", "study", *study, *given, *flags],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def steps(folder):
    """The number of training steps of each run."""
    path = folder / "steps"
    return Counter(path.read_text().split()) if path.exists() else Counter()


STEPS_PER_EPOCH = 8  # 900 digits in batches of 128


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "flags"), [(2, []), (3, []), (3, ["--skip-held"])])
def test_processes_that_share_a_folder_train_every_run_once_and_succeed(tmp_path, processes, flags):
    seeds, epochs = range(6), 12
    started = [start_study(tmp_path, seeds, epochs, *flags) for _ in range(processes)]
    printed = [process.communicate(timeout=200)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes, printed
    assert set(steps(tmp_path).values()) == {epochs * STEPS_PER_EPOCH}
    assert len(steps(tmp_path)) == len(seeds)
    assert len(names(tmp_path)) == len(seeds) + 1


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_waits_takes_over_the_run_of_one_that_ends(tmp_path, end):
    """The holder is suspended, so that it still holds its run when the other one has nothing else to do."""
    epochs = 20
    first = start_study(tmp_path, [0, 1], epochs)
    while sum(steps(tmp_path).values()) < 3 * STEPS_PER_EPOCH:
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGSTOP)
    second = start_study(tmp_path, [0, 1], epochs)
    line = next(line for line in second.stdout if line.startswith("waiting"))
    assert f"process {first.pid} on {socket.gethostname()} is training it" in line
    first.send_signal(end)
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=100)
    printed, _ = second.communicate(timeout=100)
    assert second.returncode == 0, printed
    assert len(names(tmp_path)) == 3
    if end == signal.SIGTERM:  # the holder saved a checkpoint, so that no step is repeated
        assert first.returncode == 128 + signal.SIGTERM and "resuming after epoch" in printed
        assert list(steps(tmp_path).values()) == [epochs * STEPS_PER_EPOCH] * 2
