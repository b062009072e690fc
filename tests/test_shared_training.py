"""One run in several processes, over gloo, against the same run in one process. CPU, one thread."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from every_ingredient import INGREDIENTS
from forked import SERVER
from torch import nn

from confrank.config import RunConfig
from confrank.data import load
from confrank.loss import ranking_loss, shared_ranking_loss
from confrank.predictions import load_predictions
from confrank.runs.checkpoint import load_latest, saved
from confrank.runs.folder import RunFolder
from confrank.training import (
    InterruptedRunError,
    LostPeerError,
    PeerError,
    Processes,
    connected,
    launched,
    local_device,
    train,
)
from confrank.training.processes import LAUNCHED

CPU = torch.device("cpu")
# The last batch of an epoch has one sample.
CONFIG = RunConfig(model="mlp", epochs=3, batch_size=20, seed=3, test_every=2, holdout=0.1, soft_labels=0.5)


def some_digits(num_samples=101):
    """The training split has this many samples after a tenth is held out."""
    data = load("digits")
    return replace(data, train=data.train.select(np.arange(round(num_samples / 0.9))))


class Flattened(nn.Module):
    """Normalises nothing, has a parameter that it does not use, and raises an error in one process on request."""

    def __init__(self, fails_in=None):
        super().__init__()
        self.layer, self.unused, self.fails_in = nn.Linear(64, 10), nn.Parameter(torch.ones(2)), fails_in

    def forward(self, image):
        if self.fails_in is not None and self.training and os.environ.get("RANK") == str(self.fails_in):
            raise ZeroDivisionError("this network fails here")
        return self.layer(image.view(len(image), -1))


def work(rank, size, port, out, config, options):
    """The life of one process."""
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    addresses = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), **addresses})
    notes = []
    try:
        with connected(CPU) as processes:  # over gloo, on a GPU too: nccl needs one GPU per process
            train(config, out, on_note=notes.append, processes=processes, **{"device": CPU, **options})
    except InterruptedRunError as error:
        sys.exit(128 + error.signal_number)
    except PeerError as error:
        sys.exit(error.exit_code + 10 * isinstance(error, LostPeerError))
    finally:
        if rank == 0:
            Path(f"{out}.notes").write_text("\n".join(notes))


def started(size, out, config=CONFIG, **options):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    options = {"data": some_digits(), "checkpoint_minutes": 60, **options}
    processes = [SERVER.Process(target=work, args=(rank, size, port, out, config, options)) for rank in range(size)]
    for process in processes:
        process.start()
    return processes


def ended(processes, seconds=60):
    for process in processes:
        process.join(seconds)
    codes = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    return codes


def final_state(out):
    folder = RunFolder(out)
    checkpoint, _ = load_latest(folder.checkpoint)
    with np.load(folder.history) as history:
        counts = {name: history[name] for name in history.files}
    return checkpoint, folder.read_log(), counts, load_predictions(folder.predictions("test"))


def assert_same(one, other, tolerance=1e-6):
    """Both runs are the same: weights, optimizer, average, counts, log and predictions."""
    (first, log, counts, predictions), (second, other_log, other_counts, others) = map(final_state, (one, other))
    tensors = {**first.weights, **dict(enumerate(first.state["optimizer"]))}
    twins = {**second.weights, **dict(enumerate(second.state["optimizer"]))}
    for name, values in tensors.items():
        torch.testing.assert_close(twins[name], values, rtol=0, atol=tolerance)
    for mean, twin in zip(*(run.state.get("average", {}).get("mean", ()) for run in (first, second)), strict=True):
        torch.testing.assert_close(twin, mean, rtol=0, atol=tolerance)
    for name, values in first.state["criterion"].items():
        assert torch.equal(second.state["criterion"][name], values), name
    for name, values in counts.items():
        assert np.array_equal(other_counts[name], values), name
    for record, twin in zip(log, other_log, strict=True):
        assert record["acc"] == twin["acc"] and record["lr"] == twin["lr"]
        assert twin["loss"] == pytest.approx(record["loss"], abs=10 * tolerance)
        assert twin.get("test") == pytest.approx(record.get("test"), abs=1000 * tolerance, nan_ok=True)
    assert np.array_equal(predictions.index, others.index) and np.array_equal(predictions.label, others.label)
    np.testing.assert_allclose(others.confidence, predictions.confidence, atol=10 * tolerance)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    """101 samples in batches of 20: the last batch has a single one, which both processes compute."""
    train(CONFIG, tmp_path / "one", data=some_digits(), device=CPU)
    assert ended(started(2, tmp_path / "two")) == [0, 0]
    assert_same(tmp_path / "one", tmp_path / "two")
    counts = final_state(tmp_path / "two")[2]
    assert (
        len(counts["index"]) == 101 and counts["examined"].tolist() == [3] * 101 and 0 < counts["correct"].mean() < 3
    )
    files = {path.relative_to(tmp_path / "one").as_posix() for path in (tmp_path / "one").rglob("*")}
    assert {path.relative_to(tmp_path / "two").as_posix() for path in (tmp_path / "two").rglob("*")} == files
    assert json.loads((tmp_path / "two/environment.json").read_text())["path"] == "eager float32 in 2 processes"


@pytest.mark.parametrize("sizes", [(1, 1), (3, 3), (5, 2, 4), (1, 0, 2), (0, 1)])
@pytest.mark.parametrize("ignored", [False, True])
def test_a_ring_over_processes_is_the_ring_of_the_batch(sizes, ignored):
    generator = torch.Generator().manual_seed(sum(sizes))
    rate = torch.randint(0, 4, (sum(sizes),), generator=generator) / 3
    confidence = torch.rand(sum(sizes), generator=generator, dtype=torch.float64, requires_grad=True)
    keep = torch.rand(sum(sizes), generator=generator) < 0.6 if ignored else None
    expected = ranking_loss(confidence, rate, keep)
    (gradient,) = torch.autograd.grad(expected, confidence)
    bounds = np.cumsum([0, *sizes])
    for rank, size in enumerate(sizes):
        part = slice(bounds[rank], bounds[rank + 1])
        mine = confidence[part].detach().clone().requires_grad_()

        def ring(values, part=part):
            rows = [confidence.detach(), rate.double(), *([] if keep is None else [keep.double()])]
            every = torch.stack(rows)
            assert torch.equal(values, every[:, part])
            return every, int(part.start)

        loss = shared_ranking_loss(mine, rate[part], None if keep is None else keep[part], ring)
        assert loss.item() == pytest.approx(expected.item(), abs=1e-12)
        loss.backward()
        share = size / sum(sizes)
        torch.testing.assert_close(mine.grad * share, gradient[part])


def test_processes_need_a_launcher_and_a_gpu_each(monkeypatch):
    for name in LAUNCHED:
        monkeypatch.delenv(name, raising=False)
    assert not launched()
    with pytest.raises(ValueError, match="expected a process that torchrun started, but RANK, .* is not set"):
        local_device("cuda")
    with pytest.raises(ValueError, match="start the program with torchrun"), connected(CPU):
        pass
    for name, value in zip(LAUNCHED, ("1", "1", "2", "127.0.0.1", "1"), strict=True):
        monkeypatch.setenv(name, value)
    assert launched() and local_device("cpu") == CPU
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(ValueError, match="but process 1 has none of the 1 here; start at most as many processes"):
        local_device("cuda")


@pytest.mark.parametrize("size", [1, 2, 3, 7])
@pytest.mark.parametrize("num_samples", [0, 1, 7, 20])
def test_parts_cover_a_batch_once(size, num_samples):
    parts = [Processes(rank, size).part(num_samples) for rank in range(size)]
    assert [sample for part in parts for sample in part] == list(range(num_samples))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"batch_size": 20},
        {"batch_size": 22, "method": "baseline", "optimizer": "adamw", "lr": 0.003},
        {"batch_size": 22, **INGREDIENTS},
        {"batch_size": 101, **INGREDIENTS, "averaging": "ema"},
        {"batch_size": 33, "method": "crl-softmax-stretched", "epochs": 5},
        {"batch_size": 50, "method": "crl-margin", "snapshots": True},
        {"batch_size": 21, "model": "small", "lr": 0.01},
        {"batch_size": 20, "model": "small", "lr": 0.01, **INGREDIENTS},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_four_processes_equal_one(tmp_path, settings):
    config = replace(CONFIG, **settings)
    train(config, tmp_path / "one", data=some_digits(), device=CPU)
    assert ended(started(4, tmp_path / "four", config)) == [0] * 4
    # Batch norm divides by small numbers. SAM moves along the gradient: without any augmentation, the momentum of
    # another seed differed by 4e-6.
    is_loose = config.model == "small" or config.sam
    assert_same(tmp_path / "one", tmp_path / "four", tolerance=1e-5 if is_loose else 1e-6)


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("settings", [{"lr": 0.01}, {"lr": 0.01, **INGREDIENTS}], ids=["plain", "ingredients"])
def test_two_processes_on_one_gpu_equal_one(tmp_path, settings, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    config = replace(CONFIG, model="small", **settings)
    options = {"device": torch.device("cuda", 0), "path": "plain"}
    train(config, tmp_path / "one", data=some_digits(), **options)
    assert ended(started(2, tmp_path / "two", config, **options), seconds=240) == [0, 0]
    assert_same(tmp_path / "one", tmp_path / "two", tolerance=1e-4)


@pytest.mark.slow
def test_unused_parameters_and_views_are_no_problem(tmp_path):
    train(CONFIG, tmp_path / "one", data=some_digits(), networks=[Flattened()], device=CPU)
    assert ended(started(3, tmp_path / "three", networks=[Flattened()])) == [0] * 3
    assert final_state(tmp_path / "three")[0].weights["unused"].tolist() == [1.0, 1.0]


@pytest.mark.slow
@pytest.mark.parametrize(("method", "soft_labels"), [("aleatoric-mc", 0.0), ("crl-entropy", 0.5)])
def test_a_network_with_dropout_or_batch_norm_resumes_exactly(tmp_path, method, soft_labels):
    config = replace(CONFIG, model="small", method=method, soft_labels=soft_labels, batch_size=30)
    assert ended(started(2, tmp_path / "whole", config)) == [0, 0]
    interrupt(2, tmp_path / "resumed", config, steps=5)
    assert ended(started(2, tmp_path / "resumed", config)) == [0, 0]
    assert_same(tmp_path / "whole", tmp_path / "resumed", tolerance=0)


def interrupt(size, out, config=CONFIG, *, steps, number=signal.SIGTERM, rank=None):
    """Train with a checkpoint after each step, and send a signal to a process when so many have been saved."""
    processes = started(size, out, config, checkpoint_minutes=0)
    seen, deadline = set(), time.monotonic() + 60
    while len(seen) < steps:
        assert time.monotonic() < deadline and processes[-1].exitcode is None
        time.sleep(0.002)
        seen |= {path.name for path in saved(out / "checkpoint")}
    begun = time.monotonic()
    os.kill(processes[-1 if rank is None else rank].pid, number)
    codes = ended(processes)
    assert time.monotonic() - begun < 30
    return codes


@pytest.mark.slow
@pytest.mark.parametrize(("size", "rank"), [(2, 0), (4, 2)])
def test_a_killed_process_ends_the_others_and_training_resumes_exactly(tmp_path, size, rank):
    """Kill -9 in the middle of an epoch, twice; each time the others must not wait for the process that is gone."""
    config = replace(CONFIG, epochs=8)
    assert ended(started(size, tmp_path / "whole", config)) == [0] * size
    for steps in (4, 9):
        codes = interrupt(size, tmp_path / "killed", config, steps=steps, number=signal.SIGKILL, rank=rank)
        assert codes[rank] == -signal.SIGKILL
        assert [code for other, code in enumerate(codes) if other != rank] == [11] * (size - 1)
    assert ended(started(size, tmp_path / "killed", config)) == [0] * size
    assert_same(tmp_path / "whole", tmp_path / "killed", tolerance=0)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_signal_to_any_process_stops_all_of_them(tmp_path, rank):
    config = replace(CONFIG, epochs=200)
    codes = interrupt(2, tmp_path / "run", config, steps=3, rank=rank)
    assert codes == [143, 143]
    assert not (tmp_path / "run/metrics.json").exists()


@pytest.mark.slow
def test_two_processes_then_one_then_two(tmp_path):
    config, data = replace(CONFIG, epochs=6), some_digits()
    train(config, tmp_path / "one", data=data, device=CPU)
    out, notes = tmp_path / "changing", []
    assert interrupt(2, out, config, steps=5) == [143, 143]
    stop_after = iter(range(100))

    def note_and_stop(config, record):
        if next(stop_after) == 3:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptedRunError):
        train(config, out, data=data, device=CPU, on_note=notes.append, on_epoch=note_and_stop)
    assert any("path eager float32 in 2 processes -> eager float32" in note for note in notes)
    assert ended(started(2, out, config)) == [0, 0]
    assert "eager float32 -> eager float32 in 2 processes" in Path(f"{out}.notes").read_text()
    assert_same(tmp_path / "one", out, tolerance=5e-6)


@pytest.mark.slow
def test_an_error_in_one_process_ends_the_others(tmp_path):
    codes = ended(started(3, tmp_path / "run", networks=[Flattened(fails_in=1)]))
    assert codes == [11, 1, 11]  # process 1 prints its error; the others have lost a peer


@pytest.mark.slow
def test_all_processes_diverge_together(tmp_path):
    codes = ended(started(3, tmp_path / "run", replace(CONFIG, lr=1e20)))
    assert codes == [1, 1, 1]  # a DivergedError in each


@pytest.mark.slow
def test_what_no_process_can_do_is_an_error_in_all(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "note.txt").write_text("mine")
    assert ended(started(2, tmp_path / "run")) == [1, 2]  # the first one raises, the others leave
    small = replace(CONFIG, batch_size=1)
    assert ended(started(2, tmp_path / "small", small)) == [1, 2]
    assert not (tmp_path / "small").exists()


def torchrun(*arguments, restarts=0):
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", 2, "--max-restarts", restarts]
    command = [sys.executable, *launcher, "-m", "confrank", *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([*map(str, command)], env={**os.environ, "OMP_NUM_THREADS": "1"}, **pipes)


def wait_for_epochs(running, folder, epochs):
    log, deadline = folder / "log.jsonl", time.monotonic() + 300
    while not (log.exists() and log.read_text().count("\n") >= epochs):
        assert time.monotonic() < deadline and running.poll() is None
        time.sleep(0.05)


@pytest.mark.slow
def test_torchrun_restarts_processes_after_a_kill(tmp_path):
    settings = ["train", "--model", "mlp", "--device", "cpu", "--epochs", 60, "--checkpoint-epochs", 1]
    running = torchrun(*settings, "--out", tmp_path / "run", restarts=1)
    wait_for_epochs(running, tmp_path / "run", 2)
    holder = int((tmp_path / "run/.lock.holder").read_text().split()[1])
    os.kill(holder, signal.SIGKILL)
    output, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    assert "resuming after epoch" in output
    assert len(RunFolder(tmp_path / "run").read_log()) == 60


@pytest.mark.slow
def test_torchrun(tmp_path):
    """From the command line: one process prints, mistakes are reported, Ctrl-C stops and the command resumes."""
    settings = ["train", "--model", "mlp", "--device", "cpu", "--out", tmp_path / "run", "--epochs", 60]
    refused = torchrun(*settings, "--batch-size", 1)
    _, errors = refused.communicate(timeout=300)
    assert refused.returncode == 1  # torchrun's own
    message = "confrank: error: expected batches of at least one sample per process, but got 1 for 2 processes"
    assert errors.count(message) == 1 and "increase --batch-size, or start fewer processes" in errors
    running, log = torchrun(*settings), tmp_path / "run/log.jsonl"
    wait_for_epochs(running, tmp_path / "run", 2)
    running.send_signal(signal.SIGINT)
    output, errors = running.communicate(timeout=300)
    assert output.count("training digits-mlp-crl-softmax-seed0 in") == 1
    assert errors.count("confrank: stopped; run the same command again to resume") == 1
    epochs = log.read_text().count("\n")
    finished = torchrun(*settings)
    output, errors = finished.communicate(timeout=300)
    assert finished.returncode == 0, errors
    assert f"resuming after epoch {epochs}" in output and output.count("accuracy %") == 1
    assert log.read_text().count("\n") == 60
    both = torchrun("train", "--model", "mlp", "--device", "cpu", "--out", tmp_path, "--epochs", 1, "--seeds", "0,1")
    output, errors = both.communicate(timeout=300)
    assert both.returncode == 0, errors
    assert {path.parent.name for path in tmp_path.glob("*/metrics.json")} == {
        "run",
        "digits-mlp-crl-softmax-seed0",
        "digits-mlp-crl-softmax-seed1",
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", ["bag-of-embeddings", "text-encoder"])
def test_torchrun_trains_on_texts_as_one_process_does(tmp_path, command, model):
    words = ["the", "film", "was", "a", "dull", "awful", "story", "with", "people", "fine", "great", "lovely"]
    rows = np.random.default_rng(0).choice(words, (125, 6))
    lines = [f"{' '.join(row)},{'good' if {*row[:3]} & {*words[9:12]} else 'bad'}\n" for row in rows]
    (tmp_path / "texts.csv").write_text("".join(["text,label\n", *lines]))
    settings = ["train", "--dataset", tmp_path / "texts.csv", "--model", model, "--optimizer", "adamw", "--lr", 0.01]
    settings += ["--epochs", 3, "--batch-size", 33, "--text-length", 8, "--holdout", 0.2, "--device", "cpu"]
    settings += ["--schedule", "cosine"]
    command(*settings, "--out", tmp_path / "one")
    running = torchrun(*settings, "--out", tmp_path / "two")
    _, errors = running.communicate(timeout=300)
    assert running.returncode == 0, errors
    if model == "bag-of-embeddings":
        assert_same(tmp_path / "one", tmp_path / "two", tolerance=1e-5)
    else:  # the encoder has dropout, whose draws differ
        counts = [final_state(tmp_path / name)[2] for name in ("one", "two")]
        assert all(np.array_equal(counts[0][name], counts[1][name]) for name in ("index", "examined"))
    assert len(load_predictions(RunFolder(tmp_path / "two").predictions("holdout")).label) == 20
