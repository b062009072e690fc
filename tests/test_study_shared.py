"""Several processes on the folders of one study: each takes what the others do not hold."""

import json
import os
import signal
import socket
import time

import pytest
import torch
import yaml
from counting import STEPS_PER_EPOCH, start_study, steps, steps_per_run

from confrank.files import Lock
from confrank.runs.folder import RunFolder
from confrank.study.catalogue import Recipe
from confrank.study.grid import run_plan
from confrank.study.plan import plan
from confrank.study.tables import load_results

PAIR = Recipe(("digits",), ("mlp",), ("ensemble-baseline",), seeds=(0, 1), epochs=1)
NAME = "digits-mlp-baseline-seed0"
HOLDER = f"process {os.getpid()} on {socket.gethostname()}"


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


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "flags"), [(2, []), (3, []), (3, ["--skip-held"])])
def test_processes_that_share_a_folder_train_every_run_once_and_succeed(tmp_path, processes, flags):
    seeds, epochs = range(6), 12
    started = [start_study(tmp_path, seeds, epochs, *flags) for _ in range(processes)]
    printed = [process.communicate(timeout=400)[0] for process in started]
    assert [process.returncode for process in started] == [0] * processes, printed
    assert list(steps_per_run(tmp_path).values()) == [epochs * STEPS_PER_EPOCH] * len(seeds)
    assert len(names(tmp_path)) == len(seeds) + 1


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_a_process_that_waits_takes_over_the_run_of_one_that_ends(tmp_path, end):
    """The holder is suspended, so that it still holds its run when the other one has nothing else to do."""
    epochs = 20
    first = start_study(tmp_path, [0, 1], epochs)
    while len(steps(tmp_path)) < 3 * STEPS_PER_EPOCH:
        assert first.poll() is None
        time.sleep(0.05)
    first.send_signal(signal.SIGSTOP)
    second = start_study(tmp_path, [0, 1], epochs)
    line = next(line for line in second.stdout if line.startswith("waiting"))
    assert f"process {first.pid} on {socket.gethostname()} is training it" in line
    first.send_signal(end)
    first.send_signal(signal.SIGCONT)
    first.communicate(timeout=400)
    printed, _ = second.communicate(timeout=400)
    assert second.returncode == 0, printed
    assert len(names(tmp_path)) == 3
    if end == signal.SIGTERM:  # the holder saved a checkpoint, so that no step is repeated
        assert first.returncode == 128 + signal.SIGTERM and "resuming after epoch" in printed
        assert list(steps_per_run(tmp_path).values()) == [epochs * STEPS_PER_EPOCH] * 2
