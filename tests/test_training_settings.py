"""Settings that people expect of a trainer: warm-up, clipping, other people's weights, a log for TensorBoard."""

import re
import sys

import pytest
import torch

from confrank.config import RunConfig, learning_rate
from confrank.data import load
from confrank.models import create, start_from
from confrank.trained import load_trained, save_weights_file
from confrank.training import Run, TensorBoardLog, train

CPU = torch.device("cpu")


def test_the_rate_rises_to_the_schedule():
    config = RunConfig(epochs=10, lr=0.4, warm_up=3, schedule="constant")
    assert [learning_rate(config, epoch) for epoch in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    plain, warm = (RunConfig(epochs=10, warm_up=epochs, schedule="cosine") for epochs in (0, 3))
    assert learning_rate(warm, 2) == pytest.approx(0.75 * learning_rate(plain, 2))
    assert learning_rate(warm, 3) == learning_rate(plain, 3)


def test_a_long_gradient_is_scaled_down():
    """One step of SGD without momentum moves the weights by the rate times the clipped gradient."""
    settings = {"epochs": 1, "momentum": 0.0, "weight_decay": 0.0, "lr": 1.0, "method": "baseline"}
    moved = {}
    for clip in (0.0, 0.01):
        run = Run(RunConfig(**settings, clip=clip), load("digits"), CPU)
        before = torch.cat([values.detach().flatten().clone() for values in run.model.parameters()])
        run.step()
        moved[clip] = torch.cat([values.detach().flatten() for values in run.model.parameters()]) - before
    assert moved[0.01].norm().item() == pytest.approx(0.01, rel=1e-3)
    expected = moved[0.0] * 0.01 / moved[0.0].norm()
    assert torch.allclose(moved[0.01], expected, atol=1e-6)


def test_names_of_runs_show_the_settings():
    config = RunConfig(warm_up=5, clip=1.0, init="somewhere/cifar.safetensors")
    assert config.run_name == "digits-small-crl-softmax-warmup5-clip1-init-cifar-seed0"
    assert RunConfig().run_name == "digits-small-crl-softmax-seed0"


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pretrained")
    train(RunConfig(epochs=1), folder / "run", device="cpu")
    save_weights_file(folder / "run", folder / "weights.safetensors")
    return folder


@pytest.mark.parametrize("source", ["run", "weights.safetensors"])
def test_a_run_starts_from_the_weights_of_another(pretrained, tmp_path, source):
    notes = []
    config = RunConfig(epochs=1, lr=1e-12, weight_decay=0.0, momentum=0.0, init=str(pretrained / source))
    train(config, tmp_path / "run", device="cpu", on_note=notes.append)
    here, there = (load_trained(run).network.state_dict() for run in (tmp_path / "run", pretrained / "run"))
    weights = [name for name in here if not name.endswith(("running_mean", "running_var"))]
    assert all(torch.allclose(here[name], there[name], atol=1e-3) for name in weights)
    assert f"starting from the weights in {pretrained / source}" in notes
    # A resumed run does not need them any more.
    (tmp_path / "moved").mkdir()
    train(config, tmp_path / "run", device="cpu")


def test_other_classes_get_a_new_head():
    first, second = create("small", 10, in_channels=1), create("small", 4, in_channels=1)
    head = second.head.weight.clone()
    assert start_from(second, first.state_dict(), 4) == ["head.weight", "head.bias"]
    assert torch.equal(second.head.weight, head)
    assert torch.equal(second.state_dict()["blocks.0.0.weight"], first.state_dict()["blocks.0.0.weight"])


@pytest.mark.parametrize(
    ("init", "model", "message"),
    [
        ("missing", "small", "expected a run folder or a .safetensors file, but .*missing does not exist"),
        (".", "small", "expected a run folder or a .safetensors file, but .* is neither"),
        (
            "weights.safetensors",
            "mlp",
            "expected weights of mlp in .*weights.safetensors, but: .*; give its --model, its --head and",
        ),
    ],
)
def test_weights_that_do_not_fit(pretrained, tmp_path, capsys, command, init, model, message):
    out = tmp_path / "run"
    command("train", "--model", model, "--init", pretrained / init, "--epochs", 1, "--out", out, code=2)
    error = capsys.readouterr().err
    assert re.search(message, error), error
    assert not out.exists()


def test_tensorboard_reads_what_was_logged(tmp_path, command):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    flags = ("--epochs", 2, "--test-every", 1, "--device", "cpu", "--log", "tensorboard")
    command("train", *flags, "--out", tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {"loss", "acc", "lr", "test/aurc", "test/ece"} <= {*events.Tags()["scalars"]}
    assert [event.step for event in events.Scalars("loss")] == [1, 2]


def test_an_absent_tensorboard_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ValueError, match="expected the package tensorboard"):
        TensorBoardLog({})
