"""The experiment that forms other averages at the end of a run."""

import json
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from programs import program

from confrank.data import load
from confrank.training import Run
from confrank.training.store import fetch

INGREDIENTS = program("experiments/ingredients.py")
with pytest.MonkeyPatch.context() as patch:
    patch.setitem(sys.modules, "ingredients", INGREDIENTS)
    AVERAGES = program("experiments/averages.py")


def test_averages_against_numpy():
    members = [[torch.randn(3, 2), torch.randn(4)] for _ in range(12)]
    shares = AVERAGES.averages(12)
    assert [*shares] == ["last 1", "last 5", "last 10", "all 12", "decay 0.8", "decay 0.95"]
    for name, wanted in {
        "last 5": [0.0] * 7 + [0.2] * 5,
        "all 12": [1 / 12] * 12,
        "decay 0.8": 0.8 ** np.arange(11, -1, -1) / sum(0.8 ** np.arange(12)),
    }.items():
        mean = AVERAGES.weighted(members, shares[name])
        for number, values in enumerate(mean):
            stacked = np.stack([member[number].numpy() for member in members])
            assert np.allclose(values.numpy(), np.average(stacked, axis=0, weights=wanted))


def test_kinds_of_images_are_those_of_training_without_a_part_of_it():
    run = Run(INGREDIENTS.config_of("swa+both+trivial", "digits", "mlp", 2, 0), load("digits"), torch.device("cpu"))
    changed, mixed = AVERAGES.as_trained(run)
    assert changed and mixed and len(AVERAGES.statistics(run)) == 4
    (_, passed), size = islice(run._passed_images(), 2), run.config.batch_size
    (_, second) = zip(*(islice(AVERAGES.images_of(run, *kind), 2) for kind in AVERAGES.KINDS.values()), strict=True)
    images = dict(zip(AVERAGES.KINDS, second, strict=True))
    assert torch.equal(images["changed and mixed"], passed)
    assert torch.equal(images["changed"], passed[:size])
    assert torch.equal(images["cropped"], images["cropped and mixed"][:size])
    assert torch.equal(images["cropped"], fetch(run.store, run.draws._replace(changes=None), size, size).image)
    assert not torch.equal(images["cropped"], images["changed"])


def test_a_run_with_other_averages_has_the_result_of_the_run_alone(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(AVERAGES, "EVERY", 1)
    given = {"dataset": "digits", "model": "mlp", "epochs": 5, "device": "cpu", "row": "swa+mixup"}
    given |= {"out": tmp_path / "runs", "results": tmp_path / "results", "json": tmp_path / "lines.jsonl"}
    AVERAGES.main([str(part) for name, value in given.items() for part in (f"--{name}", value)])
    lines = [json.loads(line) for line in given["json"].read_text().splitlines()]
    result = json.loads(next(given["results"].glob("*.json")).read_text())
    assert [line["log"]["epoch"] for line in lines if "log" in line] == [1, 2, 3, 4, 5]
    rows = [line for line in lines if "average" in line]
    assert [row["average"] for row in rows] == ["all until epoch 4", "the run's", *["all 1"] * 2, *["decay 0.8"] * 2,
                                                *["decay 0.95"] * 2]  # fmt: skip
    assert rows[1]["aurc"] == result["validation"]["aurc"]
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["rows"] == rows[1:]
    alone = INGREDIENTS.train_rows(
        [("swa+mixup", INGREDIENTS.config_of("swa+mixup", "digits", "mlp", 5, 0))],
        tmp_path / "alone", INGREDIENTS.Found(tmp_path / "other"), device="cpu",
    )  # fmt: skip
    assert alone == []
    assert json.loads(next((tmp_path / "other").glob("*.json")).read_text())["metrics"] == result["metrics"]
