import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from confrank import methods
from confrank.confidence import margin, max_probability, negative_entropy
from confrank.config import RunConfig
from confrank.data import load
from confrank.history import CorrectnessHistory
from confrank.method_facts import FACTS, MethodFacts, aes_epochs, facts_of
from confrank.methods import average, predict_split
from confrank.methods.method import AleatoricLoss, aleatoric_loss, mc_predict
from confrank.models import create
from confrank.predictions import Predictions, save_predictions
from confrank.runs.trained import predict
from confrank.training import train

CPU = torch.device("cpu")


def test_aleatoric_loss_equals_a_naive_loop():
    generator = torch.Generator().manual_seed(0)
    logits, log_variance = (torch.randn(6, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    label = torch.tensor([0, 1, 2, 3, 0, 1])
    noise = torch.randn(50, 6, 4, dtype=torch.float64, generator=generator)
    expected = 0.0
    for i in range(6):
        mean = 0.0
        for t in range(50):
            sampled = [logits[i, k] + math.exp(log_variance[i, k] / 2) * noise[t, i, k] for k in range(4)]
            mean += math.exp(sampled[label[i]]) / sum(math.exp(value) for value in sampled) / 50
        expected -= math.log(mean) / 6
    assert aleatoric_loss(logits, log_variance, label, noise).item() == pytest.approx(expected, rel=1e-12)


def test_aleatoric_loss_of_mean_logits_equals_a_naive_loop():
    """The cross-entropy of the mean of 50 drawn logit vectors, by hand; the criterion of that name computes it."""
    generator = torch.Generator().manual_seed(0)
    logits, log_variance = (torch.randn(6, 4, dtype=torch.float64, generator=generator) for _ in range(2))
    log_variance[0, 1] = 300.0  # cut off at 10, as in the other form
    label = torch.tensor([0, 1, 2, 3, 0, 1])
    noise = torch.randn(50, 6, 4, dtype=torch.float64, generator=generator)
    expected = 0.0
    for i in range(6):
        deviation = [math.exp(min(log_variance[i, k], 10.0) / 2) for k in range(4)]
        mean = [sum(logits[i, k] + deviation[k] * noise[t, i, k] for t in range(50)) / 50 for k in range(4)]
        expected += (math.log(sum(math.exp(value) for value in mean)) - mean[label[i]]) / 6
    loss = aleatoric_loss(logits, log_variance, label, noise, mean_logits=True).item()
    assert loss == pytest.approx(float(expected), rel=1e-12)
    assert loss != pytest.approx(aleatoric_loss(logits, log_variance, label, noise).item(), rel=0.01)
    output = logits.float(), log_variance.float()
    for name, mean_logits in (("aleatoric-mc", False), ("aleatoric-mc-mean-logits", True)):
        torch.manual_seed(5)
        got = methods.get(name).criterion(CorrectnessHistory(6), 1.0)(output, label, torch.arange(6))
        torch.manual_seed(5)
        assert torch.equal(got, aleatoric_loss(*output, label, torch.randn(50, 6, 4), mean_logits=mean_logits))


def test_aleatoric_loss_does_not_underflow():
    logits = torch.tensor([[500.0, -500.0]], requires_grad=True)
    loss = aleatoric_loss(logits, torch.zeros(1, 2), torch.tensor([1]), torch.randn(50, 1, 2))
    loss.backward()
    assert 900 < loss.item() < 1010
    assert logits.grad.isfinite().all()


def test_aleatoric_loss_bears_any_log_variance():
    log_variance = torch.tensor([[300.0, 3e9, -300.0], [10.0, 9.0, -200.0]], requires_grad=True)
    noise = torch.randn(50, 2, 3, generator=torch.Generator().manual_seed(0))
    noise[:, 0, 2] = -noise[:, 0, :2].abs().amax(dim=1)  # no draw takes the first sample's label
    loss = aleatoric_loss(torch.zeros(2, 3), log_variance, torch.tensor([2, 0]), noise)
    loss.backward()
    assert 0 < loss.item() < 1000
    assert log_variance.grad.isfinite().all() and log_variance.grad.abs().max() < 1000
    assert log_variance.grad[0, :2].tolist() == [0, 0]  # what is cut off is driven no further
    cut = torch.tensor([[10.0, 10.0, -300.0], [10.0, 9.0, -200.0]])
    assert loss.item() == aleatoric_loss(torch.zeros(2, 3), cut, torch.tensor([2, 0]), noise).item()
    within = aleatoric_loss(torch.zeros(1, 3), log_variance[1:], torch.tensor([0]), noise[:, 1:])
    drawn = (log_variance[1:] / 2).exp() * noise[:, 1:]
    assert within.item() == pytest.approx(-drawn.softmax(dim=-1)[..., 0].mean().log().item(), rel=1e-5)


def test_aleatoric_criterion_records_events():
    history = CorrectnessHistory(5)
    output = torch.tensor([[3.0, 0.0], [3.0, 0.0], [torch.nan, 0.0]]), torch.zeros(3, 2)
    AleatoricLoss(history)(output, torch.tensor([0, 1, 0]), torch.tensor([4, 2, 1]))
    assert history.examined.tolist() == [0, 1, 1, 0, 1]
    assert history.correct.tolist() == [0, 0, 0, 0, 1]


def test_mc_dropout_equals_a_naive_loop():
    model = create("small", 5, dropout=True, in_channels=1).eval()
    image = torch.randn(7, 1, 8, 8)
    torch.manual_seed(3)
    output = mc_predict(model, image, passes=6)
    statistics = [module.running_mean.clone() for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    torch.manual_seed(3)
    for module in model.modules():
        module.train(isinstance(module, nn.Dropout))
    total = 0
    with torch.no_grad():
        for _ in range(6):
            total = total + torch.softmax(model(image).double(), dim=1)
    torch.testing.assert_close(output.probabilities.double(), total / 6, atol=1e-6, rtol=0)
    torch.testing.assert_close(output.confidence, negative_entropy((total / 6).log()))
    after = [module.running_mean for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert all(torch.equal(one, other) for one, other in zip(statistics, after, strict=True))
    with pytest.raises(ValueError, match="network with dropout layers"):
        mc_predict(create("resnet18", 5), torch.randn(1, 3, 32, 32))


@pytest.mark.parametrize("name", ["mcdropout", "aleatoric-mc"])
def test_fifty_passes_give_identical_files(tmp_path, name):
    digits = load("digits")
    few = digits.test.select(np.arange(50))
    data = replace(digits, name="few", train=digits.train.select(np.arange(200)), test=few)
    train(RunConfig(dataset="few", method=name, epochs=1), tmp_path / "run", device=CPU, data=data)
    first = (tmp_path / "run" / "predictions" / "test.safetensors").read_bytes()
    save_predictions(tmp_path / "again.safetensors", predict(tmp_path / "run", data=data))
    assert (tmp_path / "again.safetensors").read_bytes() == first
    model, before = create("small", 10, True, name == "aleatoric-mc", in_channels=1), torch.get_rng_state()
    other = predict_split(methods.get(name), model, few, (0.4,), (0.25,), seed=1)
    assert torch.equal(torch.get_rng_state(), before)
    assert other.probabilities.sum(1) == pytest.approx(1, abs=1e-5)


def test_facts_about_every_method():
    """Written out by hand: the names that prefixes used to be read from."""
    ranked = ["crl-softmax", "crl-entropy", "crl-margin"]
    trained = ["baseline", *ranked, *(f"{name}-stretched" for name in ranked), "mcdropout"]
    trained += ["aleatoric-mc", "aleatoric-mc-mean-logits"]
    assert list(methods.METHODS) == trained
    assert list(FACTS) == [*trained, "aes-10", "aes-30", *(f"ensemble-{name}" for name in trained)]
    assert all(methods.get(name).facts is FACTS[name] for name in trained)
    for name, facts in FACTS.items():
        assert facts.name == name and facts.ensemble == name.startswith("ensemble-")
        assert facts.weighted == ("crl-" in name)
        assert facts.stretched == name.endswith("-stretched")
        assert facts.snapshots == {"aes-10": 10, "aes-30": 30}.get(name, 0)
        assert facts.averaged == name.startswith(("ensemble-", "aes-", "mcdropout", "aleatoric"))
        assert (facts.confidence is None) == facts.averaged
        assert (facts.member or name) in trained
    assert FACTS["aes-30"].member == "baseline" and FACTS["ensemble-crl-margin"].member == "crl-margin"
    assert facts_of("mine").name == "mine" and not facts_of("mine").averaged


def test_facts_need_no_torch():
    code = "import sys, confrank.method_facts, confrank.config; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_aes_epochs_of_the_paper():
    assert aes_epochs(300, [10]) == [120, 140, 160, 180, 200, 220, 240, 260, 280, 300]
    assert aes_epochs(300, [30]) == [
        120, 126, 132, 139, 145, 151, 157, 163, 170, 176, 182, 188, 194, 201, 207,
        213, 219, 226, 232, 238, 244, 250, 257, 263, 269, 275, 281, 288, 294, 300,
    ]  # fmt: skip
    for count in (10, 30):
        assert aes_epochs(300, [count]) == np.rint(np.linspace(120, 300, count)).astype(int).tolist()


def members(count, seed=0):
    rng = np.random.default_rng(seed)
    label, index = rng.integers(0, 3, 20), np.arange(20)
    return [
        Predictions(logits=rng.standard_normal((20, 3)).astype(np.float32), label=label, index=index)
        for _ in range(count)
    ]


def test_average_is_the_mean_probability():
    group = members(3)
    result = average(group)
    softmax = [torch.softmax(torch.tensor(member.logits, dtype=torch.float64), 1).numpy() for member in group]
    assert result.probabilities == pytest.approx(np.mean(softmax, axis=0), abs=1e-15)
    assert result.confidence == pytest.approx(np.mean(softmax, axis=0).max(1), abs=1e-15)
    shuffled = replace(group[1], index=group[1].index[::-1])
    with pytest.raises(ValueError, match="same samples in the same order, but member 1 differs"):
        average([group[0], shuffled])
    named = [replace(group[0], key=np.arange(len(group[0]))[::step]) for step in (1, -1)]
    with pytest.raises(ValueError, match="same samples in the same order, but member 1 differs"):
        average(named)
    with pytest.raises(ValueError, match="at least one member"):
        average([])
    wider = replace(group[1], logits=np.pad(group[1].logits, ((0, 0), (0, 1))))
    with pytest.raises(
        ValueError, match="equal numbers of predictions and classes, but got 20 of 3 classes and 20 of 4 classes"
    ):
        average([group[0], wider])
    named = [replace(group[0], metadata={"class_names": names}) for names in ('["a", "b"]', '["b", "a"]')]
    with pytest.raises(ValueError, match="but member 1 has b, a, and the first a, b"):
        average(named)


@pytest.mark.parametrize(
    ("method", "function"),
    [("crl-entropy", negative_entropy), ("crl-margin-stretched", margin), ("mcdropout", max_probability)],
)
def test_an_ensemble_ranks_by_the_confidence_of_its_members(method, function):
    group = [replace(member, metadata={"method": method}) for member in members(3)]
    result = average(group)
    expected = function(torch.from_numpy(result.probabilities).log()).numpy()
    assert result.confidence == pytest.approx(expected, abs=1e-15)


def test_averages_divide_rounded_rows_by_their_sum():
    tables = np.array([[0.33, 0.33, 0.33]]), np.array([[1.0, 0.0, 0.0]])
    result = average([Predictions(probabilities=table, label=np.array([0])) for table in tables])
    assert result.probabilities == pytest.approx(np.array([[2 / 3, 1 / 6, 1 / 6]]), abs=1e-12)


def test_averages_take_arrays_that_torch_does_not():
    group = members(2)
    other = [replace(member, logits=member.logits[:, ::-1].astype(">f4")[:, ::-1]) for member in group]
    assert np.array_equal(average(other).probabilities, average(group).probabilities)


def test_crl_is_judged_by_the_confidence_it_was_trained_with():
    model = create("small", 10, in_channels=1)
    test = load("digits").test
    functions = {"crl-softmax": max_probability, "crl-entropy": negative_entropy, "crl-margin": margin}
    for name, function in functions.items():
        predictions = predict_split(methods.get(name), model, test, (0.4,), (0.25,))
        expected = function(torch.tensor(predictions.logits).double()).numpy()
        assert predictions.confidence == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="among baseline, crl-softmax.*but got 'dropout'"):
        methods.get("dropout")


def test_a_custom_method_need_not_disable_gradients():
    def plain(model, image):
        logits = model(image)
        return methods.Output(logits=logits, confidence=logits.double().softmax(dim=1).amax(dim=1))

    def by_gradient(model, image):
        with torch.enable_grad():
            logits = model(image.requires_grad_())
            (gradient,) = torch.autograd.grad(logits.logsumexp(dim=1).sum(), image)
        return methods.Output(logits=logits, confidence=gradient.flatten(1).norm(dim=1).double())

    model, test = create("small", 10, in_channels=1), load("digits").test
    expected = predict_split(methods.get("baseline"), model, test, (0.4,), (0.25,)).logits
    for predict_batch in (plain, by_gradient):
        custom = replace(methods.get("baseline"), facts=MethodFacts("mine"), predict=predict_batch)
        assert np.array_equal(predict_split(custom, model, test, (0.4,), (0.25,)).logits, expected)


def test_mc_dropout_knows_every_kind_of_dropout():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(4 * 36, 3)).eval()
    image = torch.randn(5, 1, 8, 8)
    torch.manual_seed(0)
    with torch.inference_mode():
        expected = torch.softmax(model(image).double(), dim=1)
    assert (mc_predict(model, image, passes=3).probabilities - expected).abs().max() > 1e-3


def test_dropout_is_off_again_after_an_error():
    class Fails(nn.Module):
        def __init__(self):
            super().__init__()
            self.dropout, self.calls = nn.Dropout(0.5), 0

        def forward(self, image):
            self.calls += 1
            if self.calls == 2:
                raise RuntimeError("no more")
            return self.dropout(image)

    model = Fails().eval()
    with pytest.raises(RuntimeError, match="no more"):
        mc_predict(model, torch.randn(2, 3))
    assert not model.dropout.training


def test_what_a_network_keeps_while_it_predicts_serves_its_training():
    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.head, self.scale = nn.Linear(64, 10), None

        def forward(self, image):
            if self.scale is None:
                self.scale = image.new_ones(64) * 2
            return self.head(image.flatten(1) * self.scale)

    for name in ("baseline", "mcdropout"):
        model = Keeps()
        model.dropout = nn.Dropout()
        predict_split(methods.get(name), model, load("digits").test, (0.4,), (0.25,))
        model(torch.randn(2, 1, 8, 8, requires_grad=True)).sum().backward()


PRECISIONS = (
    "pass",
    "torch.set_float32_matmul_precision('high')",
    "torch.backends.fp32_precision = 'tf32'",
    "torch.backends.cudnn.conv.fp32_precision = 'ieee'",
    "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "torch.backends.cudnn.allow_tf32 = False",
    "torch.backends.cudnn.fp32_precision = 'tf32'",
    "torch.set_float32_matmul_precision('high'); torch.backends.fp32_precision = 'tf32'",
    "torch.set_float32_matmul_precision('high'); torch.backends.cudnn.fp32_precision = 'tf32'",
    "torch.backends.fp32_precision = 'tf32'; torch.set_float32_matmul_precision('highest')",
    "torch.backends.cudnn.fp32_precision = 'tf32'; torch.backends.cuda.matmul.fp32_precision = 'ieee'",
)


def test_evaluation_is_in_full_float32_whatever_was_set():
    """Each setting in a process of its own, since none can be taken back; forked, since torch is slow to import."""
    code = """
import os, sys, torch
from confrank.methods import evaluating

def now():
    kinds = torch._C._get_fp32_precision_getter
    return [kinds("cuda", name) for name in ("conv", "rnn", "matmul")] + [torch.backends.cudnn.benchmark]

for setting in sys.argv[1:]:
    if not os.fork():
        exec(setting)
        torch.backends.cudnn.benchmark = True
        before = now()
        with evaluating(torch.nn.Linear(1, 1)):
            inside = now()
        assert {*inside} <= {"ieee", "none", False} and now() == before, (setting, before, inside, now())
        os._exit(0)  # torch takes half a second to tear down
    assert os.wait()[1] == 0, setting
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code, *PRECISIONS], check=True)


def test_a_network_is_left_as_it_was():
    data = load("digits")
    model = create("small", 10, in_channels=1)
    frozen = next(module for module in model.modules() if isinstance(module, torch.nn.BatchNorm2d)).eval()
    modes = [module.training for module in model.modules()]
    predict_split(methods.get("baseline"), model, data.test, data.mean, data.std)
    assert not frozen.training
    assert [module.training for module in model.modules()] == modes

    def fail(network, images):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        predict_split(replace(methods.get("baseline"), predict=fail), model, data.test, data.mean, data.std)
    assert [module.training for module in model.modules()] == modes
