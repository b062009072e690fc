"""Exported networks and decisions, against torch itself."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import nn

from confrank.confidence import negative_entropy
from confrank.decisions import Policy, SelectiveClassifier, export_onnx, export_program
from confrank.decisions.policy import CalibratorPart, ScorePart, ThresholdPart
from confrank.models import TEXT_MODELS, create
from confrank.predictions import Predictions

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


def check_decisions(network, images, path, classifier=None):
    """Label and confidence to 1e-5, and accepted too, except within 1e-5 of the threshold."""
    with torch.no_grad():
        sure = SelectiveClassifier(network, 0.0).decide(images)[1]
        classifier = classifier or SelectiveClassifier(network, sure.median().item())
        label, sure, accepted = (values.numpy() for values in classifier.decide(images))
    export_onnx(classifier, path, images[:1])
    onnx_label, onnx_sure, onnx_accepted = run_onnx(path, images)
    assert sure.std() > 0.04 and 0.4 < accepted.mean() < 0.6
    assert (onnx_label.dtype, onnx_sure.dtype, onnx_accepted.dtype) == (np.int64, np.float64, np.bool_)
    assert np.array_equal(onnx_label, label)
    assert np.abs(onnx_sure - sure).max() < 1e-5
    clear = np.abs(sure - classifier.threshold) > 1e-5
    assert np.array_equal(onnx_accepted[clear], accepted[clear])


@pytest.mark.parametrize(("score", "temperature"), [
    ("max-probability", 1.0), ("margin", 1.7), ("negative-entropy", 0.6),
])  # fmt: skip
def test_onnx_decides_as_torch_and_its_policy_do_on_1000_images(score, temperature, tmp_path):
    images, path = smooth_images(1000, size=8, channels=1), tmp_path / "small.onnx"
    network = prepared("small", images)
    with torch.no_grad():
        predictions = Predictions(logits=network(images).numpy())
    policy = Policy.of(predictions).with_part(CalibratorPart("temperature", {"temperature": temperature}))
    policy = policy.with_part(ScorePart(score))
    policy = policy.with_part(ThresholdPart(float(np.median(policy.confidence(predictions)))))
    check_decisions(network, images, path, SelectiveClassifier.from_policy(network, policy))
    answers, (label, sure, accepted) = policy.apply(predictions), run_onnx(path, images)
    assert np.array_equal(label, answers.prediction) and np.abs(sure - answers.confidence).max() < 1e-5
    clear = np.abs(sure - policy.threshold.threshold) > 1e-5
    assert np.array_equal(accepted[clear], answers.accepted[clear]) and clear.mean() > 0.99
    stored = onnxruntime.InferenceSession(path).get_modelmeta().custom_metadata_map
    (tmp_path / "again.json").write_text(stored["confrank_policy"])
    assert Policy.load(tmp_path / "again.json") == policy


def policy_of(*parts, **changes):
    policy = replace(Policy.of({"logits": np.zeros((2, 3))}), **changes)
    for part in parts:
        policy = policy.with_part(part)
    return policy


def test_a_classifier_from_a_policy(tmp_path):
    logits = torch.tensor([[4.0, 0.0, 0.0], [0.0, 0.5, 0.0]])
    policy_of(ThresholdPart(0.8)).save(tmp_path / "p.json")
    classifier = SelectiveClassifier.from_policy(nn.Identity(), tmp_path / "p.json")
    assert classifier(logits).tolist() == [0, -1]
    with pytest.raises(ValueError, match="expected a model with the 3 classes of the policy, but got 2"):
        classifier(logits[:, :2])
    divided = replace(policy_of().input, temperature="2.0")  # the file's logits were divided before
    policy = policy_of(CalibratorPart("temperature", {"temperature": 1.5}), ThresholdPart(0.8), input=divided)
    assert SelectiveClassifier.from_policy(nn.Identity(), policy).temperature == 3.0
    ranked = replace(policy_of().input, ranked=True)
    entropy = {"config": {"method": "crl-entropy"}}
    policy = policy_of(ThresholdPart(0.8), input=ranked, model=entropy)
    sure = SelectiveClassifier.from_policy(nn.Identity(), policy).confidence(logits)
    assert torch.equal(sure, negative_entropy(logits.double()))


def test_onnx_decides_by_a_threshold_for_each_class_as_the_policy_does(tmp_path):
    logits = torch.randn(500, 3) * 2
    policy = policy_of(ThresholdPart(None, per="class", thresholds={"0": 0.5, "1": 0.9, "2": None}))
    classifier = SelectiveClassifier.from_policy(nn.Identity(), policy)
    answers = policy.apply({"logits": logits.numpy()})
    label, _, accepted = classifier.decide(logits)
    assert np.array_equal(label, answers.prediction) and np.array_equal(accepted, answers.accepted)
    shares = [accepted[label == number].double().mean().item() for number in range(3)]
    assert shares[0] > shares[1] > shares[2] == 0
    export_onnx(classifier, tmp_path / "c.onnx", logits[:1])
    onnx_label, _, onnx_accepted = run_onnx(tmp_path / "c.onnx", logits)
    assert np.array_equal(onnx_label, label) and np.array_equal(onnx_accepted, accepted)
    with pytest.raises(ValueError, match="expected a threshold for each of 3 classes, but got 2"):
        SelectiveClassifier(nn.Identity(), [0.5, 0.6])(logits)


@pytest.mark.parametrize(("parts", "changes", "message"), [
    ([], {}, "a threshold for all answers or for each class"),
    ([ThresholdPart(None, per="group", column="site", thresholds={"a": 0.5})], {}, "answers or for each class"),
    ([CalibratorPart("isotonic"), ThresholdPart(0.5)], {}, "this one has a calibrator of confidence"),
    ([ScorePart("relu"), ThresholdPart(0.5)], {}, "a score among max-probability, margin, negative-entropy"),
    ([ThresholdPart(0.5)], {"input": replace(policy_of().input, ranked=True)}, "that of an unknown method"),
    (
        [ThresholdPart(0.5)],
        {"input": replace(policy_of().input, ranked=True), "model": {"config": {"method": "mcdropout"}}},
        "that of mcdropout",
    ),
])  # fmt: skip
def test_policies_that_a_network_cannot_carry_out(parts, changes, message):
    with pytest.raises(ValueError, match=message):
        SelectiveClassifier.from_policy(nn.Identity(), policy_of(*parts, **changes))


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


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXT_MODELS)
def test_networks_for_texts_are_exported(name, tmp_path):
    torch.manual_seed(0)
    network, again = (create(name, 3, in_channels=50).eval() for _ in range(2))
    safetensors.torch.save_file(network.state_dict(), tmp_path / "network.safetensors")
    again.load_state_dict(safetensors.torch.load_file(tmp_path / "network.safetensors"))
    texts, path = torch.randint(0, 50, (1000, 12), dtype=torch.int32), tmp_path / "texts.onnx"
    with torch.no_grad():
        threshold = SelectiveClassifier(network, 0.0).decide(texts)[1].median().item()
        label, sure, accepted = (values.numpy() for values in SelectiveClassifier(network, threshold).decide(texts))
    export_onnx(SelectiveClassifier(again, threshold), path, texts[:1])
    onnx_label, onnx_sure, onnx_accepted = run_onnx(path, texts)
    assert np.array_equal(onnx_label, label) and np.abs(onnx_sure - sure).max() < 1e-5
    clear = np.abs(sure - threshold) > 1e-5
    assert np.array_equal(onnx_accepted[clear], accepted[clear]) and clear.mean() > 0.9


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
    for example, kind in (([[1.0, 2.0]], "list"), ((torch.zeros(1, 3), torch.zeros(1, 3)), "tuple")):
        with pytest.raises(ValueError, match=f"example to be one tensor.*but got {kind}; wrap a model with several"):
            export_onnx(nn.Identity(), tmp_path / "m.onnx", example)
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"but onnxscript is missing: pip install 'confrank\[onnx\]'"):
        export_onnx(nn.Identity(), tmp_path / "m.onnx", torch.zeros(1, 3))
