"""Settings that people expect of a trainer: warm-up, clipping, other people's weights, a log for TensorBoard."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file
from torch import nn

from confrank import recipes
from confrank.config import RunConfig, learning_rate
from confrank.data import hold_out, load
from confrank.errors import InputError
from confrank.models import OtherWeightsError, create, start_from
from confrank.runs.trained import load_trained, save_weights_file
from confrank.training import Run, TensorBoardLog, train
from confrank.training.start import InitialWeights, refuse_unused
from confrank.training.start import start_from as start_with_data

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
    assert RunConfig(augment="trivial").run_name == "digits-small-crl-softmax-augmenttrivial-seed0"
    assert RunConfig.from_dict({"dataset": "digits"}).augment == "none"
    assert RunConfig(method="baseline", weight=0.5).run_name == "digits-small-baseline-seed0"
    half = RunConfig(method="ensemble-crl-margin", weight=0.5)
    assert half.run_name == "digits-small-ensemble-crl-margin-weight0.5-seed0"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"soft_labels": 0.5}, "two epochs or more for soft labels, .* but got 1; leave out `soft_labels`"),
        ({"weight": 5.0}, "a crl-\\* method for a weight of the ranking loss, but got baseline; leave out `weight`"),
        ({"text_length": 9}, "texts to cut, but digits holds images; leave out `text_length`"),
        ({"vocabulary_size": 9}, "texts with words to know, but digits holds images; leave out `vocabulary_size`"),
    ],
)
def test_settings_without_effect_are_refused_in_new_runs(settings, message, tmp_path):
    config = RunConfig(epochs=1, method="baseline", **settings)
    with pytest.raises(ValueError, match=message):
        train(config, tmp_path / "run", device="cpu")
    (tmp_path / "there").mkdir()  # a run from before this check
    (tmp_path / "there" / "config.yaml").write_text(yaml.safe_dump(config.as_dict()))
    train(config, tmp_path / "there", device="cpu")


def test_a_recipe_and_a_study_may_set_what_has_no_effect():
    soft = recipes.settings("best", dataset="cifar100", model="mlp", epochs=1)
    weighted = recipes.settings("sure", dataset="cifar10", model="mlp", epochs=1, method="baseline")
    assert (soft.soft_labels, weighted.weight) == (0.8, 0.5)
    for config in (soft, weighted, replace(weighted, weight=1.0), replace(weighted, weight=0.0)):
        refuse_unused(config, load("digits"))


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
    train(config, tmp_path / "run", device="cpu")  # finished


def test_other_classes_of_the_same_number_get_a_new_head(pretrained, tmp_path):
    notes, still = [], {"epochs": 1, "lr": 1e-12, "weight_decay": 0.0, "momentum": 0.0}
    data = load("digits")
    data = replace(data, class_names=data.class_names[::-1])
    config = RunConfig(**still, init=str(pretrained / "run"))
    train(config, tmp_path / "run", device="cpu", data=data, on_note=notes.append)
    train(RunConfig(**still), tmp_path / "fresh", device="cpu")
    runs = (tmp_path / "run", tmp_path / "fresh", pretrained / "run")
    here, fresh, there = (load_trained(run).network.state_dict() for run in runs)
    assert torch.allclose(here["head.weight"], fresh["head.weight"], atol=1e-6)
    assert torch.allclose(here["blocks.0.0.weight"], there["blocks.0.0.weight"], atol=1e-6)
    assert any(note.endswith("start anew: head.weight, head.bias: a row per class") for note in notes)


def test_weights_with_as_many_rows_as_classes_are_no_head():
    """A stem of 16 maps has no row per class; its weights for grey images do not fit colour images."""
    grey, colour = create("small", 10, in_channels=1), create("small", 16, in_channels=3)
    with pytest.raises(OtherWeightsError, match=r"blocks\.0"):
        start_from(colour, grey.state_dict(), 16)


@pytest.mark.parametrize(("there", "other_classes"), [(5, False), (5, True), (4, True)])
@pytest.mark.parametrize("head_first", [False, True])
def test_a_custom_network_gets_a_new_head(there, other_classes, head_first):
    def network(classes):
        layers = [("hidden", nn.Linear(3, 4)), ("wide", nn.Linear(4, 7)), ("out", nn.Linear(7, classes))]
        return nn.ModuleDict([layers[2], layers[1]] if head_first else layers)

    here, source = network(4), network(there).state_dict()
    head = here["out"].weight.clone()
    assert start_from(here, source, 4, other_classes=other_classes) == ["out.weight", "out.bias"]
    assert torch.equal(here["out"].weight, head)
    assert all(torch.equal(values, source[name]) for name, values in here.state_dict().items() if "out" not in name)


@pytest.fixture(scope="module")
def pretrained_texts(tmp_path_factory):
    """A run on texts, and other texts with some of its words, which get other numbers there."""
    folder = tmp_path_factory.mktemp("texts")
    for name, words in (("a", "one one one two two three"), ("b", "three three three two two one new new rare")):
        rows = "".join(f"{words},{label}\n" for label in "xyxyxyxyxy")
        (folder / f"{name}.csv").write_text(f"text,label\n{rows}")
    train(_texts(folder / "a.csv", lr=0.1), folder / "run", device="cpu")
    save_weights_file(folder / "run", folder / "weights.safetensors")
    save_file(load_file(folder / "weights.safetensors"), folder / "plain.safetensors")
    return folder


def _texts(data, **settings):
    return RunConfig(dataset=str(data), model="bag-of-embeddings", method="baseline", epochs=1, **settings)


@pytest.mark.parametrize("source", ["run", "weights.safetensors"])
def test_words_take_over_their_vectors(pretrained_texts, tmp_path, source):
    notes = []
    config = _texts(pretrained_texts / "b.csv", lr=1e-12, weight_decay=0.0, init=str(pretrained_texts / source))
    train(config, tmp_path / "run", device="cpu", on_note=notes.append)
    train(replace(config, init=""), tmp_path / "fresh", device="cpu")
    vectors = []
    for run in (tmp_path / "run", pretrained_texts / "run", tmp_path / "fresh"):
        trained = load_trained(run)
        words = ("padding", "unknown", *trained.provenance.vocabulary)
        vectors.append(dict(zip(words, trained.network.embedding.weight, strict=True)))
    here, there, fresh = vectors
    assert [*here] == ["padding", "unknown", "three", "new", "two", "one", "rare"]
    assert [*there] == ["padding", "unknown", "one", "two", "three"]
    for word, vector in here.items():
        assert torch.allclose(vector, there.get(word, fresh[word]), atol=1e-3), word
    assert any(note.endswith("these start anew: the vectors of 2 words that it does not have") for note in notes)


def test_vectors_without_their_words_are_refused(pretrained_texts, tmp_path):
    config = _texts(pretrained_texts / "b.csv", init=str(pretrained_texts / "plain.safetensors"))
    with pytest.raises(InputError, match="expected the words of the network in .*plain.*, but it does not name them"):
        train(config, tmp_path / "run", device="cpu")


def test_words_of_a_custom_network_need_a_row_each(pretrained_texts):
    class Hashed(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(3, 2)

    data, _ = hold_out(load(str(pretrained_texts / "b.csv")), 0)
    initial = InitialWeights(Path("a"), Hashed().state_dict(), data.class_names, ("one", "two", "three"))
    with pytest.raises(OtherWeightsError, match="its words are other ones"):
        start_with_data(Hashed(), initial, data)
    assert start_with_data(Hashed(), replace(initial, vocabulary=data.vocabulary), data) == []


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
