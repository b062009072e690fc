"""The experiment that chooses ingredients: its rows, its results, and its paired intervals."""

import json

import numpy as np
import pytest
from programs import program
from scipy.stats import norm, skew

from confrank.config import changes
from confrank.metrics import bootstrap
from confrank.recipes import settings
from confrank.study.plan import has_result
from confrank.study.results import load_result, read_run, samples_in

INGREDIENTS = program("experiments/ingredients.py")
BEST = "swa-cool+both+cosine+soft0.8"


@pytest.mark.parametrize(
    ("row", "dataset", "recipe", "passes"),
    [
        ("swa+sam", "cifar10", "fmfp", 2),
        ("swa+sam+mixup+stretched+cosine", "cifar100", "sure", 4),
        ("swa+sam+mixup0.5+stretched0.5+cosine", "cifar10", "sure", 4),
        *((BEST, dataset, "best", 2) for dataset in ("cifar10", "cifar100", "svhn")),
    ],
)
def test_rows_with_the_ingredients_of_a_recipe_are_trained_like_it(row, dataset, recipe, passes):
    mine = INGREDIENTS.config_of(row, dataset, "resnet18", 200, 1)
    other = settings(recipe, dataset=dataset, model="resnet18", seed=1, holdout=0.1)
    assert changes(mine.as_dict(), other.as_dict()) == f"recipe paper (there: {recipe})"
    assert INGREDIENTS.passes_of(mine) == passes


def test_every_row_can_be_trained_and_an_unknown_ingredient_is_refused():
    configs = [INGREDIENTS.config_of(row, "cifar10", "resnet18", 200, 0) for row in INGREDIENTS.ROWS]
    assert len({str(config.as_dict()) for config in configs}) == len(INGREDIENTS.ROWS)
    with pytest.raises(ValueError, match="expected ingredients among plain, swa, .*but got swag"):
        INGREDIENTS.config_of("swag+crl", "cifar10", "resnet18", 200, 0)


def test_rows_are_trained_once_and_compared_by_held_out_image(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(INGREDIENTS, "RESAMPLES", 100)
    results, rows = tmp_path / "results", ["swa", "swa+crl"]
    given = {"dataset": "digits", "model": "mlp", "epochs": 2, "device": "cpu", "out": tmp_path / "runs"}
    flags = [str(part) for name, value in given.items() for part in (f"--{name}", value)]
    flags += ["--results", str(results), "--also", str(tmp_path), "--seeds", "0", "1", "--rows", *rows]
    INGREDIENTS.main(flags)
    first, *others = sorted(results.glob("*.json"))
    stamps = [path.stat().st_mtime_ns for path in others]
    assert len(others) == 3
    # A run of a study counts if only its recipe is another one.
    content = json.loads(first.read_text())
    (tmp_path / "study.json").write_text(json.dumps({**content, "config": {**content["config"], "recipe": "best"}}))
    first.with_suffix(".npz").rename(tmp_path / "study.npz")
    first.unlink()
    capsys.readouterr()
    INGREDIENTS.main(flags)
    assert sorted(results.glob("*.json")) == others
    assert [path.stat().st_mtime_ns for path in others] == stamps
    printed = capsys.readouterr().out
    assert "test" not in printed
    swa, crl = json.loads(printed.splitlines()[-1])["validation"]
    assert [swa["differences"], crl["paired_seeds"]] == [{}, [0, 1]]
    resamples, values = [], []
    for seed in (0, 1):
        names = [f"ingredients-{row}-digits-mlp-2epochs-seed{seed}.json" for row in rows]
        paths = [results / name if (results / name).exists() else tmp_path / "study.json" for name in names]
        one, two = bootstrap([samples_in(read_run(path)[1], "validation_") for path in paths], 100, seed)
        resamples.append(two["aurc"] - one["aurc"])
        before, after = (load_result(path).validation["aurc"] for path in paths)
        values.append(after - before)
    value, mean = np.mean(values), np.mean(resamples, axis=0)
    limits = np.quantile(mean, [0.025, 0.975], method="weibull") - mean.mean() + value
    assert limits[0] < value < limits[1] and value > 0
    limits[1] += max(0, (2 + norm.isf(0.025) ** 2) / 6 * skew(mean) * mean.std())
    assert crl["differences"]["aurc"] == pytest.approx([value, *limits])


def test_results_that_are_trained_like_a_recipe_become_those_of_the_study(tmp_path):
    results, records = tmp_path / "ingredients", tmp_path / "results"
    for folder in (results, records):
        folder.mkdir()
    # The last is trained like `best`, but before statistics had mixed images in them.
    for row in ("swa+sam", "swa", BEST):
        config = INGREDIENTS.config_of(row, "cifar10", "resnet18", 200, 1)
        old = ("augment",) if row == BEST else ()
        name = INGREDIENTS.name_of(row, config)
        log = [{"epoch": epoch} for epoch in range(1, 201)]
        content = {
            "config": {key: value for key, value in config.as_dict().items() if key not in old},
            "environment": {},
            "log": log,
            "metrics": {"acc": 0.9},
            "undefined": {},
        }
        (results / f"{name}.json").write_text(json.dumps(content))
        (results / f"{name}.npz").write_bytes(b"arrays")
    (moved,) = INGREDIENTS.adopt(results, records)
    fmfp = settings("fmfp", dataset="cifar10", model="resnet18", seed=1, holdout=0.1)
    assert moved == records / f"{fmfp.run_name}.json"
    assert moved.with_suffix(".npz").read_bytes() == b"arrays"
    assert has_result(fmfp, records)
    left = sorted(path.stem for path in results.glob("*.json"))
    assert left == [f"ingredients-{row}-cifar10-resnet18-200epochs-seed1" for row in ("swa", BEST)]
    found = INGREDIENTS.Found(results, (records,))
    assert found.path("swa+sam", INGREDIENTS.config_of("swa+sam", "cifar10", "resnet18", 200, 1)) == moved
    assert INGREDIENTS.adopt(results, records) == []
