"""The demo: trains, compares all seeds and ends with a guaranteed threshold."""

import json

import pytest
import torch

from confrank.decisions import OperatingPoint
from confrank.metrics import sample_values
from confrank.predictions import load_predictions
from confrank.runs.folder import RunFolder
from confrank.study.demo import COMPARED, DELTA, RISK, Threshold, fit_line, threshold_lines


@pytest.fixture(autouse=True)
def _on_the_cpu(monkeypatch):
    monkeypatch.setattr("confrank.training.loop.default_device", lambda: torch.device("cpu"))


def test_demo_compares_both_methods(tmp_path, capsys, command):
    command("demo", "--seeds", "2", "--epochs", "20", "--out", tmp_path / "demo")
    printed = capsys.readouterr().out
    assert printed.count("training eagerly in float32") == 1
    assert "crl-softmax - baseline" in printed
    assert all(
        name in printed for name in ("accuracy %", "AURC", "E-AURC", "AUPR-Err", "FPR-95", "ECE", "NLL", "Brier")
    )
    page = tmp_path / "demo" / "report.html"
    assert printed.splitlines()[-1] == f"report: {page}"
    assert "digits-mlp-crl-softmax-adamw-seed0" in page.read_text()
    assert page.read_text().count("data:image/png") == 24
    row = next(line for line in printed.splitlines() if "│ AURC" in line)
    one, other, difference = (cell.strip() for cell in row.strip("│ ").split("│")[1:])
    assert f"{other} against {one}, paired difference {difference}." in page.read_text()
    assert "Seed 0 of 2, test split." in page.read_text()
    assert (tmp_path / "demo" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_demo_ends_with_the_threshold_that_confrank_threshold_chooses(tmp_path, capsys, command):
    out = tmp_path / "demo"
    command("demo", "--seeds", "1", "--epochs", "20", "--out", out)
    printed = " ".join(capsys.readouterr().out.split())
    assert "digits, three-layer perceptron, 1 seed, test split" in printed
    run = out / "digits-mlp-crl-softmax-adamw-seed0"
    held_out, policy = run / "predictions" / "holdout.safetensors", tmp_path / "policy.json"
    command("threshold", held_out, "--risk", RISK, "--delta", DELTA, "--json", policy)
    chosen = json.loads(policy.read_text())
    test = load_predictions(run / "predictions" / "test.safetensors")
    samples = sample_values(**test.evaluation_inputs())
    accepted = samples.confidence >= chosen["threshold"]
    assert (
        f"seed 0, if its confidence is at least {chosen['threshold']:.6g}. This guarantees an error rate" in printed
    )
    assert (
        f"chosen on 180 images held out of training. On the 897 test images it accepts {accepted.mean():.1%}"
        in printed
    )
    assert f"{1 - samples.correct[accepted].mean():.1%} of the accepted ones are wrong." in printed
    share, wrong = f"{100 * accepted.mean():.2f}%", f"{1 - samples.correct[accepted].mean():.1%}"
    sentence = f"On average, a network accepts {share} of the test answers; {wrong} of the accepted ones are wrong"
    assert f"crl-softmax: 1 of 1 networks can guarantee it. {sentence}" in printed


def test_demo_says_whether_the_networks_fit(tmp_path, capsys, command):
    assert "until they fit every training image" in fit_line(0.9986)
    command("demo", "--seeds", "1", "--epochs", "2", "--out", tmp_path)
    logs = [RunFolder(tmp_path / f"digits-mlp-{method}-adamw-seed0").read_log() for method in COMPARED]
    share = f"{sum(log[-1]['acc'] for log in logs) / 2:.0%}"
    printed = " ".join(capsys.readouterr().out.split())
    assert f"classify {share} of the training images correctly" in printed and "every training image" not in printed


def test_demo_says_that_a_guarantee_is_out_of_reach():
    point = OperatingPoint(0.5, 50, 10, 100)
    (line,) = threshold_lines({"baseline": [Threshold(point, point)], "crl-softmax": [None, None]}, 180)
    assert line.startswith("Threshold: none on the 180 held-out images guarantees an error rate of at most 25%")
    lines = threshold_lines({"baseline": [None, None], "crl-softmax": [Threshold(point, point), None]}, 180)
    assert lines[1].startswith("  baseline: 0 of 2 networks can guarantee it. On average, a network accepts 0.00")
    assert "crl-softmax: 1 of 2 networks can guarantee it. On average" in lines[2]
    assert "accepts 25.00 ± 35.36% of the test answers (0% without a guarantee); 20.0% of the accepted" in lines[2]
