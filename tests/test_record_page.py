"""The account of the recipes: its tables are those of the result files."""

import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from programs import program

from confrank import evaluate
from confrank.config import RunConfig
from confrank.recipes import RECIPES, settings
from confrank.research.exam import CORRUPTIONS, STRENGTHS

ROOT = Path(__file__).parents[1]
INGREDIENTS = program("experiments/ingredients.py")
with pytest.MonkeyPatch.context() as patch:
    patch.setitem(sys.modules, "ingredients", INGREDIENTS)
    RECORD = program("experiments/record.py")
EPOCHS = 200


def write(path: Path, config: RunConfig, lift: float) -> dict[str, float]:
    """A made-up result; returns its metrics."""
    random = np.random.default_rng(config.seed)
    correct = random.random(300) < 0.7
    confidence = 1 / (1 + np.exp(-random.normal(0, 1, 300) - lift * correct))
    metrics = evaluate(confidence=confidence, correct=correct).metrics
    content = {
        "config": config.as_dict(), "environment": {"data": f"split {config.seed}"},
        "metrics": metrics, "undefined": {},
        "log": [{"epoch": epoch, "seconds": 1.5} for epoch in range(1, config.epochs + 1)],
        "validation": metrics, "mirrored": {"test": metrics, "validation": metrics},
        "scores": {"chosen": "margin", "test": {"margin": {"aurc": 0.0625}}},
        "shift": {name: {str(strength): metrics for strength in STRENGTHS} for name in CORRUPTIONS},
    }  # fmt: skip
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(content))
    arrays = {"confidence": confidence, "correct": correct}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"validation_{name}": values for name, values in arrays.items()})
    return metrics


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("record") / "results"
    metrics = {}
    for seed in (0, 1):
        for lift, row in enumerate(("swa", "swa+both", "swa+crl", "swa+both+crl"), start=1):
            config = INGREDIENTS.config_of(row, "cifar100", "resnet18", EPOCHS, seed)
            path = folder / "ingredients" / f"{INGREDIENTS.name_of(row, config)}.json"
            metrics[row, seed] = write(path, config, lift)
        config = settings("fmfp", dataset="cifar10", model="resnet18", seed=seed, holdout=0.1)
        metrics["fmfp", seed] = write(folder / f"{config.run_name}.json", config, 2)
    return folder, metrics


def row_of(table, *cells):
    (line,) = [line for line in table.splitlines() if line.startswith(f"| {' | '.join(cells)} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_exam_shows_means_over_seeds_next_to_what_is_published(results):
    folder, metrics = results
    table = RECORD.exam(folder)
    values = [1000 * metrics["fmfp", seed]["aurc"] for seed in (0, 1)]
    mean = f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    assert row_of(table, "cifar10", "`fmfp`")[3:11] == [
        "2", "2", "5.0", row_of(table, "cifar10", "`fmfp`")[6], mean, "3.56", mean, "62.50 ± 0.00",
    ]  # fmt: skip
    assert "sure" not in table
    missing = RECORD.missing(folder).splitlines()
    assert "- `fmfp`, baseline: cifar10, seeds 2; cifar100, seeds 0, 1, 2" in missing
    assert "- `paper`, crl-softmax: cifar10 and cifar100, seeds 0, 1, 2" in missing


def test_every_row_is_shown_with_the_images_that_choose_and_those_that_judge(results):
    folder, metrics = results
    table = RECORD.tried(RECORD.Found(folder / "ingredients", (folder,)))
    values = [1000 * metrics["swa+both", seed]["aurc"] for seed in (0, 1)]
    mean = f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    assert row_of(table, "cifar100", "200", "swa+both")[3:10] == ["2", "2", "5.0", *[mean] * 4]
    assert row_of(table, "cifar10", "200", "swa+sam")[3:6] == ["2", "2", "5.0"]
    assert len(table.splitlines()) == 2 + 5


def test_effects_are_those_of_rows_that_differ_in_one_ingredient(results, monkeypatch):
    monkeypatch.setattr(INGREDIENTS, "RESAMPLES", 100)
    folder, metrics = results
    table = RECORD.effects(RECORD.Found(folder / "ingredients", (folder,)))
    assert [line.split(" | ")[2:5] for line in table.splitlines()[2:]] == [
        ["both", "swa", "no"],
        ["both", "swa+crl", "yes"],
        ["crl", "swa", "itself"],
        ["crl", "swa+both", "itself"],
    ]
    gap = np.mean([metrics["swa+both", seed]["aurc"] - metrics["swa", seed]["aurc"] for seed in (0, 1)])
    assert row_of(table, "cifar100", "200", "both", "swa", "no")[6].startswith(f"{1000 * gap:+.2f} [")


def test_results_with_statistics_of_clean_images_are_marked_and_compared_with_none(results, tmp_path, monkeypatch):
    monkeypatch.setattr(INGREDIENTS, "RESAMPLES", 100)
    folder = tmp_path / "results"
    shutil.copytree(results[0] / "ingredients", folder / "ingredients")
    for path in (folder / "ingredients").glob("ingredients-swa+both-*.json"):
        content = json.loads(path.read_text())
        del content["config"]["augment"]
        path.write_text(json.dumps(content))
    found = RECORD.Found(folder / "ingredients", (folder,))
    assert len(row_of(RECORD.tried(found), "cifar100", "200", r"swa+both \*")) > 5
    assert [line.split(" | ")[2:4] for line in RECORD.effects(found).splitlines()[2:]] == [
        ["both", "swa+crl"],
        ["crl", "swa"],
    ]


def test_shift_is_averaged_over_strengths_and_figures_are_drawn(results, tmp_path, monkeypatch):
    folder, metrics = results
    found = RECORD.Found(folder / "ingredients", (folder,))
    assert RECORD.settings_in(found) == [("cifar10", 200), ("cifar100", 200)]
    monkeypatch.setattr(RECORD, "settings_in", lambda found: [("cifar100", 200)])
    values = [100 * metrics["swa+both", seed]["auroc"] for seed in (0, 1)]
    cells = row_of(RECORD.under_shift(found), "cifar100", "200", "swa+both", "2", "blur")
    assert cells[7] == f"{np.mean(values):.2f} ± {np.std(values, ddof=1):.2f}"
    names = [path.name for path in RECORD.draw(found, tmp_path)]
    assert names == ["record-cifar100-200epochs-curves.png", "record-cifar100-200epochs-shift.png"]
    shown = RECORD.curves(found) + RECORD.shift_curves(found)
    assert re.findall(r"figures/(\S+)\)", shown) == names
    assert all((tmp_path / name).stat().st_size > 1000 for name in names)


def test_the_page_shows_what_the_results_hold():
    page = (ROOT / "docs/evidence/record.md").read_text()
    assert RECORD.written_into(page, RECORD.tables_of(ROOT / "results")) == page
    with pytest.raises(ValueError, match="expected the marks begin: other"):
        RECORD.written_into(page, {"other": ""})


def test_other_pages_have_the_means_of_the_record():
    exam = RECORD.exam(ROOT / "results")
    means = [row_of(exam, dataset, "`best`")[7] for dataset in ("cifar10", "cifar100")]
    for name in ("README.md", "docs/guide.md", "docs/how-to/ingredients.md", "docs/evidence/record.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert all(mean in text for mean in means), name
    assert all(mean in RECIPES["best"].expected for mean in means)
