"""Corrupted images against loops, and what the exam of a run adds to its result."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from confrank import evaluate
from confrank.config import RunConfig
from confrank.data import load
from confrank.methods import predict_split
from confrank.metrics.evaluation import KEYS, evaluation_of
from confrank.research.exam import BLUR_STD, CONTRAST_SHARE, CORRUPTIONS, NOISE_STD, STRENGTHS, corrupted, examine_run
from confrank.runs.trained import load_run, load_trained, predict
from confrank.scores import score
from confrank.study.results import export_run, load_result, read_run, samples_in
from confrank.training import train

IMAGES = np.random.default_rng(0).integers(0, 256, (3, 6, 5, 3)).astype(np.uint8)


def rounded(value):
    """To the nearest byte, halves to even."""
    return round(min(max(value, 0), 255))


def naive_noise(images, strength, seed):
    random = np.random.default_rng([seed, strength])
    flat = [rounded(value + 255 * NOISE_STD[strength - 1] * random.standard_normal()) for value in images.ravel()]
    return np.array(flat).reshape(images.shape)


def naive_blur(images, strength, seed):
    std = BLUR_STD[strength - 1]
    reach = int(4 * std + 0.5)
    result = np.zeros(images.shape)
    _, height, width, _ = images.shape
    for number, row, column, channel in np.ndindex(images.shape):
        total = weights = 0.0
        for down in range(-reach, reach + 1):
            for right in range(-reach, reach + 1):
                weight = math.exp(-(down**2 + right**2) / (2 * std**2))
                there = min(max(row + down, 0), height - 1), min(max(column + right, 0), width - 1)
                total, weights = total + weight * images[number, *there, channel], weights + weight
        result[number, row, column, channel] = total / weights
    return result


def naive_contrast(images, strength, seed):
    result = np.zeros(images.shape)
    for number, channel in np.ndindex(len(images), images.shape[3]):
        values = images[number, :, :, channel].astype(float)
        mean = sum(values.ravel()) / values.size
        result[number, :, :, channel] = mean + CONTRAST_SHARE[strength - 1] * (values - mean)
    return result


NAIVE = {"noise": naive_noise, "blur": naive_blur, "contrast": naive_contrast}


@pytest.mark.parametrize("strength", STRENGTHS)
@pytest.mark.parametrize("name", CORRUPTIONS)
def test_corrupted_images_equal_those_of_loops(name, strength):
    before = IMAGES.copy()
    got = corrupted(IMAGES, name, strength, seed=3)
    assert got.dtype == np.uint8
    # Half a level for rounding; the weights of a blur are multiples of 2^-16.
    tolerance = 0 if name == "noise" else 0.5 + 255 * 2**-12
    assert np.abs(got - NAIVE[name](IMAGES, strength, 3)).max() <= tolerance
    assert (got != IMAGES).any()
    assert (before == IMAGES).all()


def test_blocks_of_images_do_not_change_them(monkeypatch):
    images = np.random.default_rng(1).integers(0, 256, (7, 8, 8, 1)).astype(np.uint8)
    together = [corrupted(images, name, 2) for name in CORRUPTIONS]
    monkeypatch.setattr("confrank.research.exam.BLOCK", 3)
    for name, whole in zip(CORRUPTIONS, together, strict=True):
        assert (corrupted(images, name, 2) == whole).all()
        others = corrupted(images, name, 2, seed=1)
        assert (others != whole).any() if name == "noise" else (others == whole).all()


@pytest.mark.parametrize(
    ("images", "name", "strength", "problem"),
    [
        (IMAGES, "fog", 1, "expected a corruption among noise, blur, contrast, but got 'fog'"),
        (IMAGES, "blur", 6, "expected a strength among 1, 2, 3, 4, 5, but got 6"),
        (IMAGES / 255, "blur", 1, "expected uint8 images .* but got float64"),
        (IMAGES[0], "blur", 1, "expected uint8 images .* but got uint8 of shape"),
    ],
)
def test_other_corruptions_and_images_are_refused(images, name, strength, problem):
    with pytest.raises(ValueError, match=problem):
        corrupted(images, name, strength)


@pytest.fixture(scope="module")
def examined(tmp_path_factory):
    folder = tmp_path_factory.mktemp("exam")
    config = RunConfig(dataset="digits", model="mlp", method="crl-softmax", epochs=2, holdout=0.2, averaging="swa")
    run = folder / "run"
    train(config, run, device="cpu")
    export_run(run, folder / "results")
    plain = (folder / "results" / "run.json").read_text()
    examine_run(run, folder / "results")
    return run, folder / "results" / "run.json", plain


def test_a_result_has_the_metrics_of_the_held_out_images(examined):
    run, path, plain = examined
    result, arrays = read_run(path)
    assert result.validation == evaluate(**predict(run, "holdout").evaluation_inputs()).metrics
    again = evaluation_of(samples_in(arrays, "validation_")).metrics
    assert again["aurc"] == pytest.approx(result.validation["aurc"], rel=1e-12)
    assert len(arrays["validation_correct"]) == 180
    # The exam adds to a result and changes nothing else in it.
    before, after = json.loads(plain), json.loads(path.read_text())
    assert {*after} - {*before} == {"mirrored", "shift"}
    assert all(after[key] == before[key] for key in before)


def test_scores_are_chosen_on_the_held_out_images_and_judged_on_the_test_images(examined):
    run, path, _ = examined
    scores, test = load_result(path).scores, predict(run)
    assert scores["chosen"] in scores["test"]
    assert {*scores["validation"]} == {*scores["test"]} >= {"max-probability", "margin", "p-norm"}
    for name in ("margin", "max-probability-temperature"):
        values = score(name, logits=test.logits, **scores["parameters"].get(name, {}))
        correct = test.logits.argmax(1) == test.label
        expected = evaluate(confidence=values, correct=correct).metrics
        assert scores["test"][name] == {key: expected[key] for key in ("aurc", "auroc", "fpr95")}


def test_mirrored_and_shifted_metrics_are_those_of_predictions_for_such_images(examined):
    run, path, _ = examined
    result, data = load_result(path), load("digits")
    assert {*result.mirrored} == {"test", "validation"}
    assert {name: [*strengths] for name, strengths in result.shift.items()} == {
        name: [*"12345"] for name in CORRUPTIONS
    }
    assert {*result.shift["blur"]["3"]} == {*KEYS}
    flipped = replace(data, test=replace(data.test, images=data.test.images[:, :, ::-1].copy()))
    mean = (_probabilities(run, data) + _probabilities(run, flipped)) / 2
    assert result.mirrored["test"]["nll"] == pytest.approx(
        evaluate(probabilities=mean, label=data.test.labels).metrics["nll"], rel=1e-5
    )
    noisy = replace(data, test=replace(data.test, images=corrupted(data.test.images, "noise", 4)))
    expected = evaluate(probabilities=_probabilities(run, noisy), label=data.test.labels).metrics
    assert result.shift["noise"]["4"]["acc"] == expected["acc"] != result.metrics["acc"]


def test_the_exam_uses_the_device_that_training_would_use(examined, tmp_path, monkeypatch):
    run, path, plain = examined
    used = []

    def load(run, *, device, **options):
        used.append(str(device))
        return load_run(run, device="cpu", **options)

    monkeypatch.setattr("confrank.research.exam.load_run", load)
    monkeypatch.setattr("confrank.research.exam.default_device", lambda: "cuda:3")
    for device in (None, "cpu"):
        (tmp_path / path.name).write_text(plain)
        examine_run(run, tmp_path, device=device)
    assert used == ["cuda:3", "cpu"]


def test_a_study_adds_the_shift_to_new_results_and_to_those_that_lack_it(tmp_path, monkeypatch, command, capsys):
    monkeypatch.chdir(tmp_path)
    part = {"recipes": "best", "datasets": "digits", "models": "small", "seeds": 0, "epochs": 1, "device": "cpu"}
    study = ["study", "record", *(text for name, value in part.items() for text in (f"--{name}", value))]
    command(*study)
    (path,) = (tmp_path / "results").glob("*.json")
    before = load_result(path)
    assert path.stem == "digits-small-baseline-best-epochs1-holdout0.1-seed0"
    assert before.validation
    assert not before.shift
    command(*study, "--shift")
    after = load_result(path)
    assert replace(after, shift={}, mirrored={}) == before
    stamp = path.stat().st_mtime_ns
    command(*study, "--shift")
    assert path.stat().st_mtime_ns == stamp
    path.unlink()
    command(*study, "--shift")
    assert load_result(path).shift == after.shift
    capsys.readouterr()
    command("study", "record", "--recipes", "worst", "--dry-run", code=2)
    assert "expected recipes of record among paper, fmfp, sure, best, but got worst" in capsys.readouterr().err


def _probabilities(run, data):
    """Of a run's network, for the test images."""
    trained = load_trained(run)
    predictions = predict_split(trained.method, trained.network, data.test, data.mean, data.std)
    return np.exp(predictions.logits - np.logaddexp.reduce(predictions.logits, axis=1, keepdims=True))
