"""The captured path against the plain one. Needs a CUDA device; skipped elsewhere."""

import numpy as np
import pytest
import torch
from test_kernels_densenet import random_set

from confrank import evaluate, models
from confrank.config import RunConfig
from confrank.data import DataSet, load, split_of
from confrank.training import Run, train, train_together
from confrank.training.captured import CapturedRun

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="the captured path needs a CUDA device"),
    pytest.mark.filterwarnings("ignore"),
]
CUDA = torch.device("cuda", 0)


@pytest.fixture
def deterministic(monkeypatch):
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def full_float32(monkeypatch):
    """Convolutions without TF32, which alone moves the soft labels of three compiled steps by more than 1e-3."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


def epoch_of(*steppers):
    for _ in range(steppers[0].run.num_steps):
        for stepper in steppers:
            stepper.step()
    torch.cuda.synchronize()
    return [{name: value.clone() for name, value in s.run.model.state_dict().items()} for s in steppers]


ADAPTIVE = {"optimizer": "adamw", "lr": 0.001}
INGREDIENTS = {
    "sam": 0.05, "mix": "both", "augment": "trivial",
    "averaging": "ema", "averaging_start": 0.0, "schedule": "cosine",
}  # fmt: skip


def vgg(seed, **settings):
    config = RunConfig(**{"dataset": "random", "model": "vgg16", "seed": seed, "lr": 0.01, "epochs": 2, **settings})
    return CapturedRun(Run(config, random_set(700, 32), CUDA))


@pytest.mark.parametrize("settings", [{"lr": 0.01}, ADAPTIVE])
def test_first_epoch_agrees_with_the_plain_path(settings):
    plain = Run(RunConfig(epochs=2, **settings), load("digits"), CUDA)
    captured = CapturedRun(Run(RunConfig(epochs=2, **settings), load("digits"), CUDA))
    while plain.next_step < plain.num_steps:
        plain.step()
        captured.step()
    torch.cuda.synchronize()
    expected, got = plain.step_loss.cpu(), captured.run.step_loss.cpu()
    print("plain", expected.tolist(), "captured", got.tolist())
    assert got.tolist() == pytest.approx(expected.tolist(), rel=0.01)
    assert torch.equal(plain.history.examined, captured.run.history.examined)
    assert captured.run.history.audit(epochs=1).ok


def assert_three_steps_equal(plain, run, compiled):
    captured = CapturedRun(run, compiled=compiled, bf16=False)
    for _ in range(3):
        plain.step()
        captured.step()
    torch.cuda.synchronize()
    assert run.step_loss.tolist() == pytest.approx(plain.step_loss.tolist(), rel=1e-3)
    assert torch.equal(run.history.examined, plain.history.examined)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("model", models.TEXT_MODELS)
def test_texts_in_float32_equal_plain_steps(full_float32, model, compiled):
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, 52, (300, 16), dtype=np.int32) * (np.arange(16) < rng.integers(1, 17, (300, 1)))
    split = split_of(tokens.astype(np.int32), rng.integers(0, 2, 300))
    words = tuple(f"word{number}" for number in range(50))
    data = DataSet("texts", split, split, ("a", "b"), (), (), vocabulary=words, vocabulary_size=50)
    config = RunConfig(dataset="texts", model=model, method="crl-softmax", epochs=2, batch_size=100, **ADAPTIVE)
    plain, run = (Run(config, data, CUDA) for _ in range(2))
    for each in (plain, run):  # its draws differ between the two paths
        each.model.apply(lambda layer: setattr(layer, "p", 0.0) if isinstance(layer, torch.nn.Dropout) else None)
    assert_three_steps_equal(plain, run, compiled)


def test_side_by_side_is_bit_for_bit_alone(deterministic):
    (alone,) = epoch_of(vgg(1))
    together = epoch_of(vgg(0), vgg(1), vgg(2))
    assert all(torch.equal(alone[name], together[1][name]) for name in alone)
    assert not torch.equal(alone["head.weight"], together[2]["head.weight"])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    "settings",
    [
        {}, {"sam": 0.05}, {"mix": "mixup"}, {"mix": "cutmix"}, {"mix": "both", "soft_labels": 0.8},
        {"augment": "trivial"}, {"head": "cosine"}, {**INGREDIENTS, "head": "cosine"},
    ],
)  # fmt: skip
def test_three_steps_in_float32_equal_plain_ones(deterministic, full_float32, settings, compiled):
    config = RunConfig(dataset="random", model="resnet18", method="crl-softmax", lr=0.01, epochs=2, **settings)
    plain, run = (Run(config, random_set(700, 32), CUDA) for _ in range(2))
    assert_three_steps_equal(plain, run, compiled)
    if run.average is not None:
        for one, other in zip(run.average.mean, plain.average.mean, strict=True):
            assert torch.allclose(one, other, atol=1e-3)
    if run.soft_labels is not None:
        assert torch.allclose(run.soft_labels.mean, plain.soft_labels.mean, atol=1e-3)


@pytest.mark.parametrize("settings", [{}, ADAPTIVE, INGREDIENTS])
def test_resumed_in_the_middle_of_an_epoch(deterministic, settings):
    whole, first = vgg(3, **settings), vgg(3, **settings)
    (expected,) = epoch_of(whole)
    for _ in range(3):
        first.step()
    torch.cuda.synchronize()
    weights, state = first.run.snapshot()
    second = Run(first.run.config, random_set(700, 32), CUDA)
    second.load_state(weights, state)
    second = CapturedRun(second)
    while second.run.next_step < second.run.num_steps:
        second.step()
    torch.cuda.synchronize()
    got = second.run.model.state_dict()
    assert all(torch.equal(expected[name], got[name]) for name in expected)
    assert torch.equal(whole.run.history.correct, second.run.history.correct)


def test_averaged_networks_side_by_side(tmp_path):
    """With TrivialAugment, averages of ten epochs are still at chance; 30 end at 0.35 and 0.36 on a CPU."""
    configs = [
        RunConfig(epochs=30, seed=seed, **{**INGREDIENTS, "averaging": kind}, averaging_lr=0.02, lr=0.05)
        for seed, kind in enumerate(("swa", "ema"))
    ]
    accuracies = {}
    for path in ("auto", "plain"):
        outs = [tmp_path / path / config.run_name for config in configs]
        results = train_together(configs, outs, device=CUDA, path=path)
        accuracies[path] = [result.evaluations["test"].metrics["acc"] for result in results]
    print(accuracies)
    assert min(accuracies["auto"]) > 0.2
    assert accuracies["auto"] == pytest.approx(accuracies["plain"], abs=0.1)


def test_train_together_writes_complete_runs(tmp_path):
    configs = [
        RunConfig(epochs=3, seed=seed, method=method) for seed in (0, 1) for method in ("baseline", "crl-margin")
    ]
    results = train_together(configs, [tmp_path / config.run_name for config in configs], device=CUDA)
    assert [result.folder.path.name for result in results] == [config.run_name for config in configs]
    assert all(result.evaluations["test"].metrics["acc"] > 0.1 for result in results)
    again = train(configs[0], tmp_path / configs[0].run_name, device=CUDA)
    assert again.evaluations == results[0].evaluations


def test_metrics_take_tensors_on_the_device():
    logits, label = torch.randn(100, 10), torch.randint(0, 10, (100,))
    assert evaluate(logits=logits.to(CUDA), label=label.to(CUDA)) == evaluate(logits=logits, label=label)


def test_plain_steps_resume_with_the_masks_of_the_run(deterministic):
    def run():
        config = RunConfig(dataset="random", model="vgg16", method="crl-softmax", seed=3, lr=0.01, epochs=2)
        return Run(config, random_set(700, 32), CUDA)

    whole, first, second = run(), run(), run()
    for _ in range(4):
        whole.step()
    for _ in range(2):
        first.step()
    torch.cuda.manual_seed(99)  # whatever else draws from the device must not matter
    second.load_state(*first.snapshot())
    for _ in range(2):
        second.step()
    assert torch.equal(whole.step_loss[:4], second.step_loss[:4])


def test_different_networks_side_by_side(tmp_path):
    configs = [RunConfig(epochs=2), RunConfig(epochs=2, method="mcdropout"), RunConfig(epochs=2, seed=1)]
    results = train_together(configs, [tmp_path / str(place) for place in range(3)], device=CUDA)
    alone = train(configs[0], tmp_path / "alone", device=CUDA)
    assert all(result.evaluations["test"].metrics["acc"] > 0.05 for result in results)
    assert alone.evaluations["test"].metrics["nll"] == pytest.approx(
        results[0].evaluations["test"].metrics["nll"], rel=0.1
    )
