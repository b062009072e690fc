"""Runs that are killed at any moment end as if they had not been. CPU, one thread count."""

import json
import os
import random
import shutil
import socket
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from forked import SERVER
from test_ingredients import EVERYTHING

from confrank.config import RunConfig
from confrank.files import Lock
from confrank.runs.checkpoint import load_latest, saved
from confrank.runs.folder import RunFolder
from confrank.runs.trained import predict
from confrank.training import InterruptedRunError, train

CONFIG = RunConfig(epochs=120, batch_size=300, seed=2, test_every=40, snapshots=True)


def work(out, minutes, config=CONFIG):
    torch.set_num_threads(1)
    try:
        train(config, out, device=torch.device("cpu"), checkpoint_minutes=minutes)
    except InterruptedRunError as error:
        raise SystemExit(128 + error.signal_number) from None


def final_state(out):
    folder = RunFolder(out)
    checkpoint, _ = load_latest(folder.checkpoint)
    log = [{**json.loads(line), "seconds": None} for line in folder.log.read_text().splitlines()]
    with np.load(folder.history) as history:
        counts = {name: history[name] for name in history.files}
    snapshots = {path.name: path.read_bytes() for path in sorted((out / "snapshots").iterdir())}
    return checkpoint, log, counts, folder.metrics.read_text(), snapshots


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "epochs", "num_kills"),
    [({}, 480, 20), (EVERYTHING, 160, 6), ({**EVERYTHING, "averaging": "ema"}, 160, 6)],
)
def test_killed_many_times_equals_never_killed(tmp_path, settings, epochs, num_kills):
    config = replace(CONFIG, epochs=epochs, **settings)
    process = SERVER.Process(target=work, args=(tmp_path / "whole", 60, config))
    process.start()
    process.join()
    moments = random.Random(0)
    kills = during_save = 0
    while kills < num_kills:
        # A checkpoint after every step; every other kill waits for the next save and hits it.
        process = SERVER.Process(target=work, args=(tmp_path / "killed", 0, config))
        process.start()
        deadline = time.monotonic() + moments.uniform(0.1, 0.8)
        saving = False
        while process.exitcode is None and time.monotonic() < deadline + (20 if kills % 2 else 0) and not saving:
            saving = bool(kills % 2) and any((tmp_path / "killed" / "checkpoint").glob(".*.part"))
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
        during_save += saving
    process = SERVER.Process(target=work, args=(tmp_path / "killed", 60, config))
    process.start()
    process.join()
    assert process.exitcode == 0
    print(f"{kills} kills, {during_save} of them during a save")
    assert kills == num_kills
    assert during_save >= num_kills // 4
    (first, *rest), (second, *others) = final_state(tmp_path / "whole"), final_state(tmp_path / "killed")
    assert all(torch.equal(first.weights[name], second.weights[name]) for name in first.weights)
    for one, other in zip(first.state["optimizer"], second.state["optimizer"], strict=True):
        assert torch.equal(one, other)
    for name, value in first.state["criterion"].items():
        assert torch.equal(value, second.state["criterion"][name]), name
    assert ("average" in first.state) == ("average" in second.state) == bool(settings)
    for one, other in zip(*(run.state.get("average", {}).get("mean", ()) for run in (first, second)), strict=True):
        assert torch.equal(one, other)
    log, counts, metrics, snapshots = rest
    assert log == others[0]
    assert all(np.array_equal(counts[name], others[1][name]) for name in counts)
    assert metrics == others[2]
    assert snapshots == others[3]


def test_one_process_per_folder(tmp_path):
    lock = Lock(tmp_path / ".lock")
    with pytest.raises(ValueError, match=f"but process {os.getpid()} on {socket.gethostname()} is working in it"):
        train(replace(CONFIG, epochs=1), tmp_path, device=torch.device("cpu"))
    lock.release()
    train(replace(CONFIG, epochs=1), tmp_path, device=torch.device("cpu"))


def test_a_damaged_newest_checkpoint_falls_back(tmp_path):
    config = replace(CONFIG, epochs=3, snapshots=False)
    train(config, tmp_path / "whole", device=torch.device("cpu"))
    train(config, tmp_path / "run", device=torch.device("cpu"), checkpoint_epochs=1)
    newest = saved(tmp_path / "run" / "checkpoint")[-1]
    (newest / "weights.safetensors").write_bytes(b"gone")
    with pytest.raises(ValueError, match="expected an intact newest checkpoint .* to resume from the one before"):
        predict(tmp_path / "run")
    notes = []
    train(config, tmp_path / "run", device=torch.device("cpu"), on_note=notes.append)
    assert any("skipped a damaged checkpoint: expected sha256" in note for note in notes)
    assert any("resuming after epoch 2, step 0" in note for note in notes)
    whole, run = (json.loads((tmp_path / name / "metrics.json").read_text()) for name in ("whole", "run"))
    assert whole == run
    assert len(predict(tmp_path / "run")) == 897 and len(saved(newest.parent)) == 2
    assert (newest.parent / f"damaged-{newest.name}").is_dir()


def test_without_an_intact_checkpoint_the_error_says_what_to_do(tmp_path):
    config, out = replace(CONFIG, epochs=1, snapshots=False), tmp_path / "run"
    train(config, out, device=torch.device("cpu"))
    (only,) = saved(out / "checkpoint")
    (only / "state.pt").write_bytes(b"gone")
    way_out = f"expected sha256 .* but got .*; no intact checkpoint is left: remove {out} to start over"
    for use in (lambda: train(config, out, device=torch.device("cpu")), lambda: predict(out)):
        with pytest.raises(ValueError, match=way_out):
            use()
    shutil.rmtree(out)
    train(config, out, device=torch.device("cpu"))


def test_another_environment_is_named(tmp_path):
    config = replace(CONFIG, epochs=1, snapshots=False)
    train(config, tmp_path, device=torch.device("cpu"))
    threads, notes = torch.get_num_threads(), []
    try:
        torch.set_num_threads(threads + 1)
        train(config, tmp_path, device=torch.device("cpu"), on_note=notes.append)
    finally:
        torch.set_num_threads(threads)
    assert any(
        f"not equal an uninterrupted run bit for bit: threads {threads} -> {threads + 1}" in note for note in notes
    )
