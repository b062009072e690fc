"""Files that confrank 0.1.0 of November 2026 wrote must still load: a run folder, weights, a result, predictions."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from confrank import evaluate
from confrank.predictions import read
from confrank.study.results import load_result

OLD = Path(__file__).parent / "files" / "old"
METRICS = json.loads((OLD / "run" / "metrics.json").read_text())["metrics"]


def metrics_of(predictions):
    """The metrics that a run of then wrote; there are more now."""
    metrics = evaluate(**predictions.evaluation_inputs()).metrics
    return {key: metrics[key] for key in METRICS}


@pytest.fixture
def run(tmp_path):
    """A copy of the run folder: opening a run locks it."""
    return Path(shutil.copytree(OLD / "run", tmp_path / "run"))


def test_an_old_predictions_file_has_the_metrics_that_its_run_wrote():
    assert metrics_of(read(OLD / "predictions.safetensors")) == METRICS


def test_an_old_run_predicts_what_it_predicted_then(run, tmp_path, command):
    for split in ("test", "holdout"):
        command("predict", run, "--split", split, "--out", tmp_path / f"{split}.safetensors")
        now, then = read(tmp_path / f"{split}.safetensors"), read(run / "predictions" / f"{split}.safetensors")
        np.testing.assert_allclose(now.logits, then.logits, atol=1e-5)
        np.testing.assert_array_equal(now.label, then.label)


def test_training_recognises_an_old_run_as_finished(run, command, capsys):
    weights = (run / "checkpoint" / "000002-000000" / "weights.safetensors").read_bytes()
    command("train", "--config", run / "config.yaml", "--out", run)
    assert (run / "checkpoint" / "000002-000000" / "weights.safetensors").read_bytes() == weights
    metrics = json.loads((run / "metrics.json").read_text())["metrics"]
    assert {key: metrics[key] for key in METRICS} == pytest.approx(METRICS, abs=1e-5)


def test_old_weights_predict_like_their_run(tmp_path, command):
    weights = Path(shutil.copy(OLD / "weights.safetensors", tmp_path))
    command("predict", weights, "--out", tmp_path / "test.safetensors")
    now, then = read(tmp_path / "test.safetensors"), read(OLD / "predictions.safetensors")
    np.testing.assert_allclose(now.logits, then.logits, atol=0.02)  # weights in half precision


def test_an_old_result_is_read_with_its_samples():
    result = load_result(OLD / "run.json")
    assert result.metrics == METRICS
    assert len(result.log) == 2
    with np.load(OLD / "run.npz") as arrays:
        again = evaluate(confidence=arrays["confidence"], correct=arrays["correct"]).metrics
    assert again["aurc"] == pytest.approx(METRICS["aurc"], abs=1e-6)
