import copy
import json
import os
import pty
import signal
import time
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from forked import start_command
from PIL import Image
from torch import nn
from torch._dynamo.utils import counters

from confrank import evaluate
from confrank.cli import main
from confrank.config import RunConfig, changes, learning_rate
from confrank.data import Split, load
from confrank.methods import penultimate
from confrank.models import create
from confrank.predictions import load_predictions
from confrank.runs.checkpoint import load_checkpoint, load_latest, save_checkpoint, saved
from confrank.runs.folder import RunFolder, load_config
from confrank.runs.trained import load_run, load_trained, predict, save_weights_file
from confrank.training import DivergedError, Failed, Finished, InterruptedRunError, Run, train, train_together
from confrank.training.captured import _compiled, compiled_forward
from confrank.training.jobs import Job, open_job
from confrank.training.loop import CAPTURED, FUSED, _Training
from confrank.training.start import check_smallest_batch
from confrank.training.step import PLAIN, StepFunctions

CPU = torch.device("cpu")


def tiny(**settings):
    return replace(RunConfig(epochs=3, seed=5), **settings)


def plainly(run):
    return "plain"


def test_two_runs_of_one_seed_are_identical(tmp_path):
    for name in ("a", "b"):
        train(tiny(), tmp_path / name, device=CPU)
    first, second = (load_latest(tmp_path / name / "checkpoint")[0] for name in ("a", "b"))
    assert all(torch.equal(first.weights[key], second.weights[key]) for key in first.weights)
    train(tiny(seed=6), tmp_path / "c", device=CPU)
    other = load_latest(tmp_path / "c" / "checkpoint")[0]
    assert not torch.equal(first.weights["head.weight"], other.weights["head.weight"])


def test_run_folder_holds_what_is_promised(tmp_path):
    records = []
    finished = train(
        tiny(holdout=0.1), tmp_path / "run", device=CPU, on_epoch=lambda config, record: records.append(record)
    )
    folder = RunFolder(tmp_path / "run")
    assert RunConfig.from_dict(yaml.safe_load(folder.config.read_text())) == tiny(holdout=0.1)
    log = [json.loads(line) for line in folder.log.read_text().splitlines()]
    assert [entry["epoch"] for entry in log] == [1, 2, 3]
    assert log == records
    metrics = json.loads(folder.metrics.read_text())
    assert metrics["metrics"] == finished.evaluations["test"].metrics
    predictions = load_predictions(folder.predictions("test"))
    assert evaluate(**predictions.evaluation_inputs()).metrics == metrics["metrics"]
    assert predictions.metadata["method"] == "crl-softmax"
    assert len(load_predictions(folder.predictions("holdout"))) == 90
    assert json.loads(folder.environment.read_text())["torch"] == torch.__version__
    history = load_latest(folder.checkpoint)[0].state["criterion"]
    assert history["history.examined"].tolist() == [3] * 810
    again = predict(tmp_path / "run")
    assert np.array_equal(again.logits, predictions.logits)
    assert np.array_equal(
        predict(tmp_path / "run", "holdout").index, load_predictions(folder.predictions("holdout")).index
    )
    before, checkpoints = folder.log.read_text(), saved(folder.checkpoint)
    train(tiny(holdout=0.1), tmp_path / "run", device=CPU)  # finished: nothing is trained again
    assert folder.log.read_text() == before and saved(folder.checkpoint) == checkpoints


@pytest.mark.parametrize(
    ("settings", "plain_optimizer"),
    [
        ({"lr": 0.1}, partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4)),
        (
            {"lr": 0.01, "optimizer": "adamw", "weight_decay": 0.1},
            partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1),
        ),
    ],
)
def test_losses_equal_a_plain_loop(settings, plain_optimizer):
    """The run's step against the same thing written with nothing but torch."""
    data = load("digits")
    run = Run(tiny(method="baseline", batch_size=300, **settings), data, CPU)
    twin = Run(tiny(method="baseline", batch_size=300, **settings), data, CPU)
    optimizer = plain_optimizer(twin.model.parameters())
    order = twin.draws.order.clone()
    for step in range(3):
        rows = order[300 * step : 300 * (step + 1)].numpy()
        image = torch.tensor((data.train.images[rows].transpose(0, 3, 1, 2) / 255 - 0.4) / 0.25, dtype=torch.float32)
        loss = torch.nn.functional.cross_entropy(twin.model(image), torch.tensor(data.train.labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step()
        assert run.step_loss[step].item() == pytest.approx(loss.item(), rel=1e-5)


def test_the_partial_last_batch_is_used():
    run = Run(tiny(batch_size=128), load("digits"), CPU)
    sizes, start = [], torch.zeros_like(run.history.examined)
    while run.next_step < run.num_steps:
        sizes.append(run.next_size)
        run.step()
    assert sizes == [128] * 7 + [4]
    assert torch.equal(run.history.examined, start + 1)
    assert run.history.audit(epochs=1).ok


def test_learning_rate_of_short_runs_and_of_the_paper():
    rates = [learning_rate(RunConfig(), epoch) for epoch in range(300)]
    assert rates == [0.1] * 150 + [0.01] * 100 + [0.001] * 50
    assert [learning_rate(RunConfig(epochs=3), epoch) for epoch in range(3)] == pytest.approx([0.1, 0.1, 0.01])
    assert learning_rate(RunConfig(epochs=1), 0) == 0.1


def test_numbers_of_any_kind_are_written_down_as_plain_ones(tmp_path):
    given = tiny(dataset=Path("digits"), seed=np.int64(3), batch_size=np.int16(64), lr=np.float64(0.1))
    given = replace(given, epochs=torch.tensor(1), weight=1, lr_drops=np.array([0.5]), flip=np.False_)
    assert given == tiny(dataset="digits", seed=3, batch_size=64, epochs=1, weight=1.0, lr_drops=(0.5,), flip=False)
    train(given, tmp_path / "run", device=CPU)
    assert load_config(tmp_path / "run") == given


def own_set(path, images, labels):
    np.savez(path, train_images=images, train_labels=labels, test_images=images[:20], test_labels=labels[:20])


def test_augmentation_is_the_data_sets_unless_it_is_given(tmp_path, command):
    """Settings of runs that were written before they had these are read as before."""
    generator = np.random.default_rng(0)
    images, labels = generator.integers(0, 256, (40, 8, 8, 3), dtype=np.uint8), np.arange(40) % 2
    own_set(tmp_path / "a.npz", images, labels)

    def weights(out, *flags):
        arguments = ["--dataset", tmp_path / "a.npz", "--epochs", 1, "--lr", 0.01, "--device", "cpu", "--out", out]
        command("train", *arguments, *flags)
        return load_trained(out).network.state_dict()["head.weight"]

    usual, off = weights(tmp_path / "usual"), weights(tmp_path / "off", "--flip", "false", "--padding", 0)
    again = weights(tmp_path / "again", "--flip", "true", "--padding", 4)
    assert torch.equal(usual, again)
    assert not torch.equal(usual, off)
    assert not torch.equal(off, weights(tmp_path / "flipped", "--flip", "--padding", 0))
    written = tmp_path / "off" / "config.yaml"
    assert yaml.safe_load(written.read_text())["flip"] is False
    assert torch.equal(off, weights(tmp_path / "repeated", "--config", written))
    settings = yaml.safe_load((tmp_path / "usual" / "config.yaml").read_text())
    old = {name: value for name, value in settings.items() if name not in ("flip", "padding")}
    (tmp_path / "usual" / "config.yaml").write_text(yaml.safe_dump(old))
    assert torch.equal(usual, weights(tmp_path / "usual"))
    assert RunConfig.from_dict(old).run_name == RunConfig.from_dict(settings).run_name


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("batch_size", 64.0, "expected batch_size to be a whole number, but got 64.0"),
        ("seed", "3", "expected seed to be a whole number, but got '3'"),
        ("epochs", None, "expected epochs to be a whole number, but got None"),
        ("flip", "false", "expected flip to be true or false, but got 'false'"),
        ("flip", 5, "expected flip to be true or false, but got 5"),
        ("padding", 1000, "expected padding to be at most 256, but got 1000"),
        ("padding", -1, "expected padding to be at least 0, but got -1"),
        ("weight", float("inf"), "expected weight to be at least 0 and finite, but got inf"),
        ("weight", float("nan"), "expected weight to be at least 0 and finite, but got nan"),
        ("weight_decay", float("inf"), "expected weight_decay to be at least 0 and finite, but got inf"),
        ("image_size", 8.5, "expected image_size to be a whole number, but got 8.5"),
        ("lr", "fast", "expected lr to be a number, but got 'fast'"),
        ("lr_drops", 0.5, "expected lr_drops to be several numbers, but got 0.5"),
        ("dataset", 3, "expected dataset to be a name or a path, but got 3"),
        ("model", 7, "expected model to be a name, but got 7"),
        ("method", None, "expected method to be a name, but got None"),
        ("optimizer", "adam", "expected an optimizer among sgd, adamw, but got 'adam'"),
        ("averaging_start", 1.0, r"expected averaging_start to be a share in \[0, 1\)"),
        ("averaging_lr", 0, "expected averaging_lr to be positive"),
        ("sam", -1, "expected sam to be a finite number of at least 0"),
        ("mix", "cut", "expected a mix among none, mixup, cutmix, both, but got 'cut'"),
        ("augment", "strong", "expected an augment among none, trivial, trivial-half, but got 'strong'"),
        ("soft_labels", 1.5, r"expected soft_labels to be a share in \[0, 1\], but got 1.5"),
        ("schedule", "linear", "expected a schedule among step, cosine, constant"),
        ("mirror", "yes", "expected mirror to be true or false, but got 'yes'"),
    ],
)
def test_settings_that_cannot_be(tmp_path, name, value, message):
    with pytest.raises(ValueError, match=message):
        tiny(**{name: value})
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tiny().as_dict() | {name: value}))
    with pytest.raises(ValueError, match=f"run settings in {tmp_path}.* but they cannot be read: {message}"):
        load_config(tmp_path)


def test_a_diverging_run_names_the_step_and_leaves_the_checkpoint(tmp_path):
    with pytest.raises(DivergedError, match=r"epoch 1, step \d+ of 8, on training samples \[\d+"):
        train(tiny(lr=1e20), tmp_path / "run", device=CPU)
    train(tiny(), tmp_path / "good", device=CPU)
    before = saved(tmp_path / "good" / "checkpoint")
    with pytest.raises(ValueError, match=r"differs in lr 1e\+20 \(there: 0.1\); choose another `out`"):
        train(tiny(lr=1e20), tmp_path / "good", device=CPU)
    assert saved(tmp_path / "good" / "checkpoint") == before


def test_a_path_of_computation_that_is_none(tmp_path):
    with pytest.raises(ValueError, match="expected a path among auto, compiled, plain, but got 'fast'"):
        train(tiny(), tmp_path / "run", device=CPU, path="fast")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_files_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files"):
        train(tiny(), tmp_path, device=CPU)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def start(folder, errors, output=os.devnull, **options):
    """A training of many epochs, of which two are over."""
    flags = ["train", "--epochs", "400", "--device", "cpu", "--out", folder]
    process = start_command(*flags, output=output, errors=errors, **options)
    wait_for_epochs(process, folder)
    return process


def wait_for_epochs(process, folder, number=2):
    log, deadline = folder / "log.jsonl", time.monotonic() + 60
    while not (log.exists() and log.read_text().count("\n") >= number):
        assert process.is_alive() and time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_signals_leave_a_checkpoint_and_no_trace(tmp_path, number, code):
    process = start(tmp_path / "run", tmp_path / "errors.txt")
    os.kill(process.pid, number)
    process.join(60)
    errors = (tmp_path / "errors.txt").read_text()
    assert process.exitcode == code
    assert "Traceback" not in errors
    assert "stopped; run the same command again to resume (" in errors
    checkpoint, problems = load_latest(tmp_path / "run" / "checkpoint")
    assert problems == []
    assert len(checkpoint.state["log"]) == checkpoint.state["epoch"] >= 2
    (newest,) = saved(tmp_path / "run" / "checkpoint")  # stopped within the next step
    assert int(newest.name.partition("-")[0]) == (tmp_path / "run" / "log.jsonl").read_text().count("\n") < 400


def test_a_closed_terminal_leaves_a_checkpoint_except_under_nohup(tmp_path):
    """The shell passes on the signal that the system has sent already: it comes twice, and nobody can be told."""
    terminal, end = pty.openpty()
    name = os.ttyname(end)
    closed = start(tmp_path / "run", name, output=name)
    os.close(end)
    os.close(terminal)
    os.kill(closed.pid, signal.SIGHUP)
    closed.join(60)
    assert closed.exitcode == 129
    assert load_latest(tmp_path / "run" / "checkpoint")[0].state["epoch"] >= 2
    lasting = start(tmp_path / "nohup", os.devnull, hangups=signal.SIG_IGN)
    os.kill(lasting.pid, signal.SIGHUP)
    num_epochs = (tmp_path / "nohup" / "log.jsonl").read_text().count("\n")
    wait_for_epochs(lasting, tmp_path / "nohup", num_epochs + 2)
    lasting.terminate()
    lasting.join(60)
    assert lasting.exitcode == 143


@pytest.mark.parametrize("settings", [{}, {"optimizer": "adamw", "lr": 0.003}])
def test_resumed_run_equals_an_uninterrupted_one(tmp_path, settings):
    """Stop in the middle of an epoch, load the checkpoint, go on: bit for bit the same."""
    data, config = load("digits"), tiny(method="crl-margin", **settings)
    first = Run(config, data, CPU)
    for _ in range(11):
        first.step()
        if first.next_step == first.num_steps:
            first.finish_epoch()
    weights, state = first.snapshot()
    torch.save(state, tmp_path / "state.pt")
    whole, second = Run(config, data, CPU), Run(replace(config), data, CPU)
    second.load_state(weights, torch.load(tmp_path / "state.pt", weights_only=True))
    for run in (whole, second):
        while not run.finished:
            run.step()
            if run.next_step == run.num_steps:
                record = run.finish_epoch()
        run.last_record = record
    assert whole.last_record == second.last_record
    for one, other in zip(whole.state_dict()["optimizer"], second.state_dict()["optimizer"], strict=True):
        assert one.any() and torch.equal(one, other)
    for key, value in whole.model.state_dict().items():
        assert torch.equal(value, second.model.state_dict()[key]), key
    assert torch.equal(whole.history.correct, second.history.correct)


class GpuGenerator:
    """A stand-in for the generator of a GPU: its state has 16 bytes, and it takes no other."""

    def __init__(self):
        self.state = torch.arange(16, dtype=torch.uint8)

    def get_state(self):
        return self.state.clone()

    def set_state(self, state):
        assert state.shape == self.state.shape, "expected 16 bytes"
        self.state = state.clone()


@pytest.mark.parametrize("from_gpu", [False, True])
def test_the_random_state_of_another_kind_of_device_is_left_out(from_gpu):
    first, second = (Run(tiny(), load("digits"), CPU) for _ in range(2))
    (first if from_gpu else second).random = GpuGenerator()
    first.step()
    before = second.random.get_state()
    second.load_state(*first.snapshot())
    assert torch.equal(second.random.get_state(), before)
    assert (second.next_step, second.step_loss[0]) == (1, first.step_loss[0])


def test_a_finished_run_of_a_gpu_opens_on_a_cpu(tmp_path):
    notes = []
    train(tiny(epochs=1), tmp_path, device="cpu")
    (path,) = saved(tmp_path / "checkpoint")
    there = load_checkpoint(path)
    there.state["random"] = GpuGenerator().get_state()
    there.state["environment"] |= {"device": "NVIDIA H200"}
    save_checkpoint(tmp_path / "checkpoint", (1, 0), there)
    train(tiny(epochs=1), tmp_path, device="cpu", on_note=notes.append)
    assert any("not equal an uninterrupted run bit for bit: device NVIDIA H200 -> " in note for note in notes)


def test_the_optimizer_is_part_of_what_a_run_is(tmp_path):
    plain, adaptive = tiny(), tiny(optimizer="adamw", lr=0.003)
    assert plain.run_name == "digits-small-crl-softmax-seed5"
    assert adaptive.run_name == "digits-small-crl-softmax-adamw-seed5"
    assert replace(adaptive, weight=0.5).run_name == "digits-small-crl-softmax-weight0.5-adamw-seed5"
    older = {key: value for key, value in plain.as_dict().items() if key != "optimizer"}
    assert RunConfig.from_dict(older) == plain
    assert changes(plain.as_dict(), older) == ""
    assert changes(replace(plain, optimizer="adamw").as_dict(), older) == "optimizer adamw (there: sgd)"
    train(adaptive, tmp_path, device=CPU)
    with pytest.raises(ValueError, match=r"differs in optimizer sgd \(there: adamw\)"):
        train(replace(adaptive, optimizer="sgd"), tmp_path, device=CPU)


def test_an_unfinished_run_is_not_used(tmp_path, capsys, command):
    def stop_after_two(config, record):
        if record["epoch"] == 2:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(InterruptedRunError):
        train(tiny(), tmp_path / "run", device=CPU, on_epoch=stop_after_two)
    run, pool = tmp_path / "run", tmp_path / "pool.npz"
    np.savez(pool, images=load("digits").test.images)
    for arguments in (
        ["predict", run],
        ["ood", run, "--against", pool, "--tuning", "none"],
        ["active", "query", run, "--pool", pool, "--out", tmp_path / "to_label.csv"],
    ):
        command(*arguments, "--device", "cpu", code=2)
        assert f"expected a finished run in {run}, but it has 2 of 3 epochs" in capsys.readouterr().err
    command("evaluate", run, code=2)
    message = f"expected a finished run in {run}, but it has no predictions yet; resume it with the same command"
    assert message in capsys.readouterr().err
    assert not RunFolder(tmp_path / "run").predictions("test").exists()
    assert not (tmp_path / "to_label.csv").exists()


def test_any_module_can_be_trained(tmp_path):
    def network():
        torch.manual_seed(1)
        return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))

    finished = train(tiny(model="linear"), tmp_path / "run", device=CPU, networks=[network()])
    assert finished.evaluations["test"].metrics["acc"] > 0.2
    again = predict(tmp_path / "run", network=network())
    assert np.array_equal(again.logits, load_predictions(finished.folder.predictions("test")).logits)
    with pytest.raises(ValueError, match="expected a model among .* but got 'linear'"):
        predict(tmp_path / "run")
    save_weights_file(tmp_path / "run", tmp_path / "w.safetensors", network=network())
    halved = predict(tmp_path / "w.safetensors", network=network())
    assert np.allclose(halved.logits, again.logits, atol=0.02)
    assert not np.array_equal(halved.logits, again.logits)


def test_a_data_set_without_a_name_can_be_predicted(tmp_path):
    digits = load("digits")
    mine, other = (replace(digits, name="mine", class_names=tuple(names)) for names in ("abcdefghij", "jihgfedcba"))
    finished = train(tiny(dataset="mine", holdout=0.2), tmp_path / "run", device=CPU, data=mine)
    save_weights_file(tmp_path / "run", tmp_path / "w.safetensors")
    again = predict(tmp_path / "run", data=mine)
    assert np.array_equal(again.logits, load_predictions(finished.folder.predictions("test")).logits)
    held_out = predict(tmp_path / "run", "holdout", data=mine)
    assert np.array_equal(held_out.logits, load_predictions(finished.folder.predictions("holdout")).logits)
    assert len(predict(tmp_path / "run", "train", data=mine)) == len(load_run(tmp_path / "run", data=mine).data.train)
    assert predict(tmp_path / "w.safetensors", data=mine).logits == pytest.approx(again.logits, abs=0.01)
    for source in ("run", "w.safetensors"):
        with pytest.raises(ValueError, match=r"data of .* at mine, but nothing is there.*the data set as `data`"):
            predict(tmp_path / source)
        with pytest.raises(
            ValueError, match=r"have changed since; restore the old data \(in Python, you can pass them as `data`\)$"
        ):
            predict(tmp_path / source, data=other)


def test_images_and_labels_of_any_layout_are_trained_and_predicted(tmp_path):
    def turned(split):
        return Split(split.images[:, :, ::-1], split.labels[::-1], split.index)

    def copied(split):
        return Split(*(np.ascontiguousarray(part) for part in (split.images, split.labels, split.index)))

    digits = load("digits")
    views = replace(digits, train=turned(digits.train), test=turned(digits.test))
    copies = replace(views, train=copied(views.train), test=copied(views.test))
    logits = [
        load_predictions(train(tiny(), tmp_path / name, device=CPU, data=data).folder.predictions("test")).logits
        for name, data in (("views", views), ("copies", copies))
    ]
    assert np.array_equal(*logits)
    network = create("small", 10, in_channels=1)
    features = [penultimate(network, data.test, data.mean, data.std) for data in (views, copies)]
    assert torch.equal(*features)


def test_paths_and_devices_may_be_strings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finished = train(tiny(epochs=1), "runs/mine", device="cpu", root="data")
    assert finished.folder.path == Path("runs/mine")
    save_weights_file("runs/mine", "kept/w.safetensors")
    for source in ("runs/mine", "kept/w.safetensors"):
        assert load_run(source, root="data", device="cpu").config == tiny(epochs=1)
        assert len(predict(source, device="cpu")) == 897


@pytest.mark.parametrize(("path", "infer"), [("auto", print), ("auto", None), ("compiled", print)])
def test_fused_kernels_come_first_and_what_cannot_be_captured_is_trained_plainly(path, infer, monkeypatch):
    run, tried, notes = Run(tiny(), load("digits"), CPU), [], []

    def refuse(run, **options):
        tried.append(options)
        raise RuntimeError("data-dependent branch\nand a long trace")

    monkeypatch.setattr("confrank.training.loop.CapturedRun", refuse)
    monkeypatch.setattr("confrank.training.loop.fused", lambda network, height, width: infer)
    training = _Training(torch.device("cuda"), path, None, 60, 0, print, print, notes.append, [])
    assert training.stepper(run) is run
    has_kernels = path == "auto" and infer is not None
    ways = ["computed in fused kernels"] * has_kernels + ["compiled and captured", "captured"]
    assert tried == [{"compiled": way != "captured", "kernels": "kernels" in way} for way in ways]
    assert notes == [
        *(f"digits-small-crl-softmax-seed5 cannot be {way}: data-dependent branch" for way in ways),
        "digits-small-crl-softmax-seed5 is trained eagerly in float32",
    ]
    assert training.path_of(run) == (FUSED if has_kernels else CAPTURED)


def test_without_triton_nothing_is_compiled_and_said(monkeypatch):
    notes = []
    monkeypatch.setattr("confrank.training.loop.find_spec", lambda name: None)
    _Training(torch.device("cuda"), "auto", None, 60, 0, print, print, notes.append, []).explain()
    assert notes == ["training without compiled code and fused kernels: they need Triton, which is not installed"]


def test_a_run_resumed_on_another_path_says_so(tmp_path):
    notes = []
    options = {"device": CPU, "data": lambda: load("digits"), "network": None, "note": notes.append}
    job = open_job(tiny(), tmp_path / "run", path=lambda run: CAPTURED, **options)
    job.run.step()
    job.save()
    job.release()
    open_job(tiny(), tmp_path / "run", path=lambda run: CAPTURED, **options).release()
    assert notes == ["resuming after epoch 0, step 1"]
    open_job(tiny(), tmp_path / "run", path=lambda run: FUSED, **options).release()
    assert notes[1] == f"the result will not equal an uninterrupted run bit for bit: path {CAPTURED} -> {FUSED}"


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # the compiler looks, and then forgets
def test_compiled_functions_serve_all_sizes_and_methods():
    functions = StepFunctions(
        *(torch.compile(each, dynamic=False, fullgraph=True, backend="aot_eager") for each in PLAIN)
    )
    torch._dynamo.reset()
    counters.clear()
    data = load("digits")
    for num_samples in (100, 237, 500):
        for method in ("baseline", "crl-softmax"):
            used = replace(data, train=data.train.select(np.arange(num_samples)))
            compiled, plain = (Run(tiny(method=method), used, CPU) for _ in range(2))
            loss, right = compiled_forward(compiled, 32, functions)
            expected, right_too = plain.forward(32, bf16=True)
            assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
            assert right == right_too
            assert torch.equal(compiled.history.correct, plain.history.correct)
    # One to fetch, one for the network, and one for each of the two losses.
    assert counters["stats"]["unique_graphs"] == 4


@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize(
    ("settings", "num_graphs", "bf16"),
    [
        ({"method": "baseline"}, 3, True),
        ({"method": "crl-entropy-stretched"}, 3, True),
        ({"method": "aleatoric-mc"}, 3, True),
        ({"sam": 0.05, "mix": "both", "soft_labels": 0.8, "augment": "trivial", "head": "cosine"}, 6, True),
        ({"sam": 0.05, "mix": "both", "soft_labels": 0.8, "augment": "trivial", "head": "cosine"}, 6, False),
    ],
)
def test_compiled_steps_equal_plain_ones(settings, num_graphs, bf16, monkeypatch):
    """Compiled as the captured path does, except that Python runs the graphs."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    torch._dynamo.reset()
    counters.clear()
    functions = _compiled.__wrapped__()
    compiled, plain = (Run(tiny(**settings), load("digits"), CPU) for _ in range(2))
    forwards = partial(compiled_forward, compiled, 128, functions), partial(plain.forward, 128)
    for step in range(3):
        for run, forward in zip((compiled, plain), forwards, strict=True):
            torch.manual_seed(step)  # of the dropout
            run.advance(128, partial(forward, bf16=bf16))
    assert counters["stats"]["unique_graphs"] == num_graphs
    assert compiled.step_loss.tolist() == plain.step_loss.tolist() and plain.step_loss[2] > 0
    assert torch.equal(compiled.history.correct, plain.history.correct)
    tensors = [(*run.model.parameters(), *run.mean_predictions) for run in (compiled, plain)]
    assert all(map(torch.equal, *tensors))


def test_a_signal_while_judging_ends_what_follows(tmp_path, monkeypatch):
    judge = Job.judge

    def interrupted(job):
        os.kill(os.getpid(), signal.SIGTERM)
        return judge(job)

    monkeypatch.setattr(Job, "judge", interrupted)
    configs = [tiny(seed=seed, epochs=1) for seed in (0, 1)]
    with pytest.raises(InterruptedRunError):
        train_together(configs, [tmp_path / "a", tmp_path / "b"], device=CPU)
    assert RunFolder(tmp_path / "a").metrics.exists()
    assert not (tmp_path / "b").exists()


def test_a_diverged_run_does_not_keep_others_from_being_saved(tmp_path, monkeypatch):
    # Side by side as on a GPU, but plain: one run is broken when the signal comes.
    jobs = {}
    for number, name in enumerate("ab"):
        options = {"device": CPU, "path": plainly, "data": lambda: load("digits"), "network": None}
        jobs[number] = open_job(tiny(), tmp_path / name, note=print, **options)
    with torch.no_grad():
        jobs[0].run.model.head.bias.fill_(float("nan"))
    training = _Training(CPU, "plain", None, 60, 0, print, print, print, [signal.SIGTERM])
    with pytest.raises(InterruptedRunError):
        training.step_through(jobs)
    for job in jobs.values():
        job.lock.release()
    assert not saved(RunFolder(tmp_path / "a").checkpoint)
    assert len(saved(RunFolder(tmp_path / "b").checkpoint)) == 1


def test_runs_are_announced_when_nothing_is_wrong_with_them(tmp_path, monkeypatch, capsys, command):
    def run(*flags, code=0):
        command("train", "--epochs", "1", "--device", "cpu", *flags, code=code)
        return capsys.readouterr()

    monkeypatch.chdir(tmp_path)
    name = "digits-small-crl-softmax-seed"
    lines = [line for line in run("--seeds", "0,1").out.splitlines() if "training" in line]
    assert lines == [
        f"training {name}0 in runs/{name}0",
        "training eagerly in float32: graphs and bfloat16 need a CUDA device",
        f"training {name}1 in runs/{name}1",
    ]
    out = run("--seed", "0").out
    assert f"already finished: {name}0 in runs/{name}0\n" in out and "eagerly" not in out
    for flags, message in (
        (("--epochs", "2"), "differs in epochs 2 (there: 1)"),
        (("--dataset", "digitz"), "but got 'digitz'; did you mean digits?"),
        (("--model", "smal"), "but got 'smal'; did you mean small?"),
        (("--method", "crl-sofmax"), "but got 'crl-sofmax'; did you mean crl-softmax?"),
    ):
        out, error = run(*flags, code=2)
        assert out == "" and message in error and error.count("\n") == 1
    out = run("--epochs", "2", "--seeds", "1,2", code=2).out  # the folder of seed 1 is of one epoch
    assert "finished" not in out and f"training {name}2 in runs/{name}2" in out
    assert RunFolder(tmp_path / "runs" / f"{name}2").metrics.exists()


def test_a_folder_is_taken_before_it_is_looked_at(tmp_path):
    """Between the look and the first write somebody else could otherwise begin a run of other settings there."""
    second, options = [], {"device": CPU, "path": plainly, "network": None, "note": print}

    def slow_data():
        with pytest.raises(ValueError, match="is working in it"):
            open_job(tiny(lr=0.5), tmp_path / "run", data=lambda: load("digits"), **options)
        second.append("refused")
        return load("digits")

    open_job(tiny(), tmp_path / "run", data=slow_data, **options).lock.release()
    assert second == ["refused"] and load_config(tmp_path / "run") == tiny()


def test_a_run_that_cannot_start_leaves_nothing(tmp_path):
    def no_data():
        raise ValueError("expected data, but there are none")

    with pytest.raises(ValueError, match="expected data"):
        open_job(tiny(), tmp_path / "run" / "one", device=CPU, path=plainly, data=no_data, network=None, note=print)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="expected data"):
        open_job(tiny(), tmp_path, device=CPU, path=plainly, data=no_data, network=None, note=print)
    assert list(tmp_path.iterdir()) == []


def test_weights_of_another_network_are_an_error_in_words(tmp_path):
    train(tiny(epochs=1), tmp_path, device=CPU)
    with pytest.raises(ValueError, match="expected weights of its network in .*, but: Error.* in loading"):
        load_run(tmp_path, network=create("vgg16", 10, in_channels=1))
    with pytest.raises(ValueError, match="expected a run of this network in .*, but: Error.* choose another `out`"):
        train(tiny(epochs=1), tmp_path, device=CPU, networks=[nn.Sequential(nn.Flatten(), nn.Linear(64, 10))])


def test_half_a_line_of_the_log_is_no_record(tmp_path):
    train(tiny(), tmp_path, device=CPU)
    folder = RunFolder(tmp_path)
    log = folder.read_log()
    with folder.log.open("a") as file:
        file.write('{"epoch": 4, "lr": 0.1, "loss": 2.114')
    assert folder.read_log() == log
    folder.log.write_text(folder.log.read_text()[: -len('{"epoch": 4, "lr": 0.1, "loss": 2.114') - 1])
    assert folder.read_log() == log  # whole, but for the end of its last line
    with folder.log.open("a") as file:
        file.write('\n{"epoch": 4, "lr"')
    with folder.log.open("a") as file:
        file.write("\n")
    with pytest.raises(ValueError, match="expected one JSON record per line"):
        folder.read_log()


def test_leftovers_of_a_killed_writer_are_no_other_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".config.yaml.123.part").write_text("half")
    train(tiny(epochs=1), tmp_path / "a", device=CPU)
    assert not list((tmp_path / "a").glob(".*.part"))
    leftover = tmp_path / "a" / "snapshots" / ".epoch-0001.safetensors.123.part"
    leftover.parent.mkdir()
    leftover.write_text("half")
    train(tiny(epochs=1), tmp_path / "a", device=CPU)
    assert not leftover.exists()


@pytest.mark.parametrize("finished", [False, True])
def test_snapshots_of_epochs_that_have_passed_are_refused(tmp_path, finished):
    config = tiny(epochs=5)

    def stop(config, record):
        if not finished and record["epoch"] == 2:
            raise KeyboardInterrupt

    def resume(**settings):
        return train(replace(config, **settings), tmp_path, device=CPU, checkpoint_epochs=1)

    with nullcontext() if finished else pytest.raises(KeyboardInterrupt):
        train(config, tmp_path, device=CPU, checkpoint_epochs=1, on_epoch=stop)
    with pytest.raises(ValueError, match=r"expected .*epoch-0002.safetensors, but the run did not store it; remove"):
        resume(snapshots=True)
    assert not load_config(tmp_path).snapshots
    assert resume().evaluations


def test_data_that_change_between_two_calls_are_noticed(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (100, 8, 8, 1), dtype=np.uint8), np.arange(100) % 3
    own_set(tmp_path / "own.npz", images, labels)
    config = tiny(dataset=str(tmp_path / "own.npz"), epochs=1)
    train(config, tmp_path / "run", device=CPU)
    before = RunFolder(tmp_path / "run").metrics.read_text()
    changed = images.copy()
    changed[0, 0, 0, 0] ^= 1
    save_weights_file(tmp_path / "run", tmp_path / "w.safetensors")
    message = "expected the data that .* comes from, but images, labels or classes have changed since"
    for there in ((changed, labels), (images, (labels + 1) % 3)):
        own_set(tmp_path / "own.npz", *there)
        with pytest.raises(ValueError, match=message):
            train(config, tmp_path / "run", device=CPU)
        for source in ("run", "w.safetensors"):
            with pytest.raises(ValueError, match=message):
                predict(tmp_path / source)
    own_set(tmp_path / "own.npz", images[:90], labels[:90])  # the test split is the same
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path / "run", device=CPU)
    assert len(predict(tmp_path / "run")) == 20
    for source in ("run", "w.safetensors"):
        with pytest.raises(ValueError, match=message):
            predict(tmp_path / source, "train")
    assert RunFolder(tmp_path / "run").metrics.read_text() == before


def test_data_are_the_same_however_their_path_is_written(tmp_path, monkeypatch, capsys):
    data = load("digits")
    for split, part in (("train", data.train), ("test", data.test)):
        for place in range(60):
            folder = tmp_path / "own" / split / str(part.labels[place])
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(part.images[place, :, :, 0]).save(folder / f"{place}.png")

    def run(*arguments):
        with pytest.raises(SystemExit) as stop:
            main([*map(str, arguments), *(() if arguments[0] == "report" else ("--device", "cpu"))])
        return stop.value.code, " ".join(capsys.readouterr().err.split())

    monkeypatch.chdir(tmp_path)
    for name in ("own", "own/", tmp_path / "own", "./own"):
        assert run("train", "--dataset", name, "--epochs", 1, "--out", "run") == (0, "")
    assert run("ood", "run", "--against", "own/")[1].endswith("other than the network's own data, but got own")
    (tmp_path / "other").mkdir()
    error = run("train", "--dataset", "other", "--epochs", 1, "--out", "run")[1]
    assert "differs in dataset other (there: own)" in error
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for command in ("predict", "report events"):
        code, error = run(*command.split(), tmp_path / "run")
        assert (
            code == 2 and f"at own, but nothing is there (relative to {tmp_path / 'elsewhere'}); set --root" in error
        )
        assert run(*command.split(), tmp_path / "run", "--root", tmp_path) == (0, "")
    again = ("train", "--config", tmp_path / "run" / "config.yaml", "--out", tmp_path / "run")
    assert run(*again, "--root", tmp_path) == (0, "")
    error = run(*again, "--dataset", tmp_path / "own")[1]
    assert error.endswith("if the data have moved, give --dataset own and the folder of own as --root")


def test_a_bad_folder_or_a_full_disk_under_one_run_does_not_stop_the_others(tmp_path, monkeypatch):
    save = Job.save

    def failing(job):
        if job.folder.path.name == "b":
            raise OSError(28, "No space left on device")
        save(job)

    monkeypatch.setattr(Job, "save", failing)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "thesis.txt").write_text("mine")
    bad, full, good = train_together([tiny(epochs=1)] * 3, [tmp_path / name for name in "abc"], device=CPU)
    assert isinstance(bad, Failed) and "holds other files" in str(bad.error)
    assert isinstance(full, Failed) and isinstance(full.error, OSError)
    assert isinstance(good, Finished)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_many_networks_are_compiled():
    functions = StepFunctions(
        *(torch.compile(each, dynamic=False, fullgraph=True, backend="eager") for each in PLAIN)
    )
    torch._dynamo.reset()
    for width in range(1, 12):
        network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, width), torch.nn.Linear(width, 10))
        run = Run(tiny(), load("digits"), CPU, network=network)
        compiled_forward(run, 32, functions)  # would raise at the ninth under torch's own limit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "vgg16"}, "expected a network for images of 8x8x1, but vgg16 does not take them"),
        ({"model": "tests.test_training:CPU"}, "to be a function that builds a network, but got device"),
        (
            {"model": "tests.test_training:three_channels"},
            "three_channels to take num_classes, in_channels, but it does",
        ),
        ({"model": "tests.test_training:mapping"}, "one for each class of digits, but got dict for one image"),
        ({"model": "tests.test_training:too_few"}, "expected tests.test_training:too_few to return 10 logits"),
    ],
)
def test_networks_that_do_not_fit(tmp_path, change, message):
    with pytest.raises(ValueError, match=message):
        train(tiny(**change), tmp_path / "run", device=CPU)


@pytest.mark.parametrize("batch_size", [899, 1])
def test_a_batch_of_one_sample_is_refused_before_training(tmp_path, batch_size):
    """The last maps of resnet18 are 1x1 for digits: batch norm has one value per channel."""
    wide = tiny(model="resnet18", batch_size=batch_size)
    message = f"but 900 in batches of {batch_size} give a batch of one: Expected more than 1 value .*; choose another"
    with pytest.raises(ValueError, match=message):
        train(wide, tmp_path / "run", device=CPU)
    assert not (tmp_path / "run").exists()
    for fitting in (replace(wide, batch_size=898), replace(wide, mix="mixup"), replace(wide, model="small")):
        Run(fitting, load("digits"), CPU)


def test_the_look_at_a_batch_of_one_sample_changes_nothing():
    network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten(), nn.Linear(144, 10))
    network.eval()
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    check_smallest_batch(network, tiny(batch_size=899), load("digits"))
    assert all(torch.equal(values, before[name]) for name, values in network.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state) and not network.training


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_networks_in_another_precision(tmp_path, kind):
    class Casting(torch.nn.Linear):
        def forward(self, image):
            return super().forward(image.flatten(1).to(self.weight.dtype))

    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)).to(kind)
    with pytest.raises(ValueError, match=f"takes float32 images, but mine has weights in {kind} .* call .float()"):
        train(tiny(model="mine"), tmp_path / "run", device=CPU, networks=[network])
    assert not (tmp_path / "run").exists()
    finished = train(tiny(model="mine"), tmp_path / "run", device=CPU, networks=[Casting(64, 10).to(kind)])
    assert finished.evaluations["test"].num_samples == 897


def three_channels(num_classes):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(num_classes))


def too_few(num_classes, in_channels=3):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64 * in_channels, num_classes - 1))


def mapping(num_classes, in_channels=3):
    class Mapping(torch.nn.Linear):
        def forward(self, image):
            return {"logits": super().forward(image.flatten(1))}

    return Mapping(64 * in_channels, num_classes)
