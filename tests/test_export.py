"""Exported networks and decisions, against torch itself."""

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import nn

from confrank.decisions import SelectiveClassifier, export_onnx, export_program
from confrank.models import create

WEIGHTS = Path(__file__).parents[1] / "results/weights/cifar10-resnet110-crl-softmax-seed0.safetensors"
LARGE = ["vgg16", "resnet18", "resnet110", "densenet-bc"]


def smooth_images(count, size=32, channels=3):
    """Images of random blobs: networks answer them with many different confidences."""
    generator = torch.Generator().manual_seed(0)
    coarse = torch.randn(count, channels, 4, 4, generator=generator)
    contrast = torch.rand(count, 1, 1, 1, generator=generator) * 3
    return nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=False) * contrast


def prepared(name, images, **form):
    """A network with realistic batch statistics, and a head scaled so that confidences vary."""
    torch.manual_seed(0)
    network = create(name, 10, in_channels=images.shape[1], **form)
    if name == "resnet110" and not form:
        network.load_state_dict(safetensors.torch.load_file(WEIGHTS))
        return network.eval()
    with torch.no_grad():
        network(images[:32])
        logits = network.eval()(images[:32])
        logits = logits[0] if isinstance(logits, tuple) else logits
        network.head.bias -= logits.mean(dim=0)
        for part in (network.head.weight, network.head.bias):
            part *= 1.5 / (logits - logits.mean(dim=0)).std()
    return network


def run_onnx(path, images):
    return onnxruntime.InferenceSession(path).run(None, {"input": images.numpy()})


def check_decisions(network, images, path, confidence="max_probability", temperature=1.0):
    """Label and confidence to 1e-5, and accepted too, except within 1e-5 of the threshold."""
    with torch.no_grad():
        sure = SelectiveClassifier(network, 0.0, confidence, temperature).decide(images)[1]
        classifier = SelectiveClassifier(network, sure.median().item(), confidence, temperature)
        label, sure, accepted = (values.numpy() for values in classifier.decide(images))
    export_onnx(classifier, path, images[:1])
    onnx_label, onnx_sure, onnx_accepted = run_onnx(path, images)
    assert sure.std() > 0.04 and 0.4 < accepted.mean() < 0.6
    assert (onnx_label.dtype, onnx_sure.dtype, onnx_accepted.dtype) == (np.int64, np.float64, np.bool_)
    assert np.array_equal(onnx_label, label)
    assert np.abs(onnx_sure - sure).max() < 1e-5
    clear = np.abs(sure - classifier.threshold) > 1e-5
    assert np.array_equal(onnx_accepted[clear], accepted[clear])


@pytest.mark.parametrize(("confidence", "temperature"), [
    ("max_probability", 1.0), ("margin", 1.7), ("negative_entropy", 0.6),
])  # fmt: skip
def test_onnx_decides_as_torch_does_on_1000_images(confidence, temperature, tmp_path):
    images = smooth_images(1000, size=8, channels=1)
    check_decisions(prepared("small", images), images, tmp_path / "small.onnx", confidence, temperature)


def test_onnx_of_a_larger_network(tmp_path):
    images = smooth_images(48)
    check_decisions(prepared("vgg16", images), images, tmp_path / "network.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_onnx_of_large_networks_on_1000_images(name, tmp_path):
    images = smooth_images(1000)
    check_decisions(prepared(name, images), images, tmp_path / "network.onnx")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", *LARGE])
def test_networks_with_dropout_and_variance_head_are_exported(name, tmp_path):
    images = smooth_images(8, *((8, 1) if name == "mlp" else ()))
    check_network(prepared(name, images, dropout=True, variance_head=True), images, tmp_path / "network.onnx")


@pytest.mark.parametrize("form", [{}, {"dropout": True, "variance_head": True}], ids=["plain", "dropout-head"])
def test_a_small_network_is_exported(form, tmp_path):
    images = smooth_images(8, 8, 1)
    check_network(prepared("small", images, **form), images, tmp_path / "network.onnx")


def check_network(network, images, path):
    network.train()  # must neither change nor be exported
    export_onnx(network, path, images)
    program = export_program(network, images[:1])
    assert network.training
    with torch.no_grad():
        expected = network.eval()(images)
        same = program.module()(images)
    expected, same = (output if isinstance(output, tuple) else (output,) for output in (expected, same))
    names = [output.name for output in onnxruntime.InferenceSession(path).get_outputs()]
    assert names == ["logits", "log_variance"][: len(expected)]
    for ours, exported, onnx in zip(expected, same, run_onnx(path, images), strict=True):
        scale = max(1.0, float(ours.abs().max()))  # untrained networks return logits in the hundreds
        assert torch.allclose(exported, ours, atol=1e-6 * scale)
        assert np.abs(onnx - ours.numpy()).max() < 1e-5 * scale


def test_thresholds_are_exported_in_full_precision(tmp_path):
    """In float32 the threshold would be 1."""
    path = tmp_path / "identity.onnx"
    logits = torch.tensor([[0.0, 18.0], [0.0, 18.8], [300.0, -5000.0], [-np.inf, 0.0]])
    classifier = SelectiveClassifier(nn.Identity(), 1 - 1e-8, temperature=1.0123456789)
    export_onnx(classifier, path, logits[:1])
    assert run_onnx(path, logits)[2].tolist() == classifier.decide(logits)[2].tolist() == [False, True, True, True]
    assert np.abs(run_onnx(path, logits)[1] - classifier.confidence(logits).numpy()).max() < 1e-14
    export_onnx(SelectiveClassifier(nn.Identity(), 0.5, "negative_entropy"), path, logits[:1])
    assert run_onnx(path, logits)[1].tolist() == pytest.approx([1.0] * 4, abs=1e-6)  # with p = 0, too


def test_a_row_within_the_tolerance_of_the_threshold_is_accepted():
    logits = torch.tensor([[0.0, 1.0]])
    exact = torch.softmax(logits.double(), 1).max().item()
    for threshold, accepted in ((exact + 5e-13, True), (exact + 5e-12, False)):
        classifier = SelectiveClassifier(nn.Identity(), threshold)
        assert classifier.decide(logits)[2].item() is accepted
        assert classifier(logits).item() == (1 if accepted else -1)


def test_torch_exports_the_forward_of_a_selective_classifier():
    images = smooth_images(8, 8, 1)
    classifier = SelectiveClassifier(prepared("small", images), 0.3).eval()
    program = torch.export.export(classifier, (images,))
    assert torch.equal(program.module()(images), classifier(images))


def test_errors_in_words(monkeypatch, tmp_path):
    with pytest.raises(ValueError, match=r"expected a batch of example inputs, but got shape \[0, 3\]"):
        export_program(nn.Identity(), torch.zeros(0, 3))
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"but onnxscript is missing: pip install 'confrank\[onnx\]'"):
        export_onnx(nn.Identity(), tmp_path / "m.onnx", torch.zeros(1, 3))
