"""Committed results are complete, and the committed weights still give them."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from confrank.config import RunConfig
from confrank.metrics import evaluation_of, sample_values
from confrank.ood import read_results
from confrank.recipes import values
from confrank.runs.trained import predict
from confrank.study.results import load_result, read_run, samples_in

REAL = os.environ.get("CONFRANK_TEST_DATA")
RESULTS = Path(__file__).parents[1] / "results"
KEPT = sorted(RESULTS.glob("*.json"))
WEIGHTS = sorted((RESULTS / "weights").glob("*.safetensors"))


def test_there_are_results():
    assert KEPT and WEIGHTS
    assert {path.stem for path in WEIGHTS} <= {path.stem for path in KEPT}


@pytest.mark.parametrize("path", sorted((RESULTS / "ood").glob("*.json")), ids=lambda path: path.stem)
def test_committed_detection_is_of_committed_networks_without_the_tuning_images(path):
    content = json.loads(path.read_text())
    left_out = content["protocol"]["num_tuning"]
    sizes = {"cifar10": 10_000, "tinyimagenet": 10_000, "svhn": 26_032}
    assert {run["name"] for run in content["runs"]} <= {weights.name for weights in WEIGHTS}
    for run in content["runs"]:
        for one in run["outcomes"]:
            assert one["num_in"] == sizes[run["config"]["dataset"]] - left_out
            assert one["num_out"] == sizes[one["out_set"]] - left_out
    written = [(run["config"]["seed"], one["metrics"]) for run in content["runs"] for one in run["outcomes"]]
    results = read_results(path)
    assert [(result.config["seed"], result.metrics) for result in results] == written
    assert {result.protocol.num_tuning for result in results} == {left_out}


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
def test_a_committed_result_is_a_complete_run(path):
    result, arrays = read_run(path)
    if "members" in result.config:
        assert result.config["members"]
    else:
        config = RunConfig.from_dict(result.config)
        assert config.run_name == path.stem
        assert config.epochs == RunConfig.from_dict(values(config.recipe, config.dataset)).epochs
        assert [record["epoch"] for record in result.log] == list(range(1, config.epochs + 1))
        assert set(arrays["history_examined"].tolist()) == {config.epochs}
    if "validation_correct" in arrays:
        again = evaluation_of(samples_in(arrays, "validation_")).metrics
        for name in ("acc", "aurc", "auroc", "ece"):
            assert again[name] == pytest.approx(result.validation[name], rel=1e-9), name
    assert len(arrays["correct"]) == 10_000
    told = evaluation_of(samples_in(arrays)).metrics
    # The first results keep float32 confidences, whose rounding to 1 makes ties; right and wrong are exact.
    exact = arrays["confidence"].dtype == np.float64
    assert arrays["correct"].mean() == pytest.approx(result.metrics["acc"], rel=1e-9)
    for name in ("aurc", "e_aurc", "augrc", "aupr_error", "fpr95", "auroc", "ece"):
        tolerance = 1e-9 if exact else 2e-3 if name == "aurc" else 5e-3
        assert told[name] == pytest.approx(result.metrics[name], rel=tolerance), name


@pytest.mark.skipif(REAL is None, reason="CONFRANK_TEST_DATA names no folder with the real sets")
@pytest.mark.parametrize("path", WEIGHTS, ids=lambda path: path.stem)
def test_reloaded_weights_give_the_committed_metrics(path):
    kept = load_result(RESULTS / f"{path.stem}.json").metrics
    told = evaluation_of(sample_values(**predict(path, root=Path(REAL)).evaluation_inputs())).metrics
    # Weights in half precision on another processor: a handful of images in 10,000 may change places.
    places = {"acc": 5e-4, "aurc": 5e-5, "e_aurc": 5e-5, "augrc": 5e-5}
    for name, value in kept.items():
        assert told[name] == pytest.approx(value, abs=places.get(name, 1e-3)), name
