"""Detection and active learning as studies: plan, run, stop, resume, and the tables they fill."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from confrank.active.records import Experiment, load_arrays, load_curves
from confrank.ood import DETECTORS
from confrank.ood.results import read_results
from confrank.runs.trained import save_weights_file
from confrank.study.active import (
    ACTIVE_RECIPES,
    ActiveRecipe,
    missing_trials,
    narrowed_active,
    run_active,
    stage_runs,
)
from confrank.study.catalogue import Recipe, narrowed
from confrank.study.comparison import comparison_cells
from confrank.study.detection import measure, missing_detectors, network_of
from confrank.study.grid import run_plan
from confrank.study.plan import plan

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A data set with enough test images for the paper's tuning, and an out-set."""
    folder = tmp_path_factory.mktemp("detection")
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (1100, 4, 4, 1), dtype=np.uint8), np.arange(1100) % 2
    images[labels == 1] //= 2
    arrays = {"train_images": images[:64], "train_labels": labels[:64], "test_images": images, "test_labels": labels}
    np.savez(folder / "own.npz", **arrays)
    np.savez(folder / "noise.npz", images=rng.integers(0, 128, (1050, 4, 4, 1), dtype=np.uint8))
    return folder


def recipe_in(place):
    return Recipe((str(place / "own.npz"),), ("mlp",), ("baseline",), (0,), 1, out_sets=(str(place / "noise.npz"),))


def test_detection_is_planned_measured_and_resumed(place, tmp_path):
    out, results = folders = tmp_path / "runs", tmp_path / "results"
    wanted = plan(recipe_in(place))
    (item,) = wanted.detections
    assert run_plan(replace(wanted, detections=()), *folders, device=CPU) == []
    assert network_of(item.run, *folders) == out / item.run.run_name
    measure(item, ["max-probability", "energy"], *folders, device=CPU)  # a study that was stopped
    (file,) = (results / "ood").iterdir()
    first = {one.detector: one.metrics for one in read_results(file)}
    assert missing_detectors([item], results)[item] == ("odin", "mahalanobis", "max-logit", "negative-entropy", "knn")
    # The folder is gone: without weights the run is trained again, with weights it is not.
    weights = results / "weights" / f"{item.run.run_name}.safetensors"
    weights.parent.mkdir()
    save_weights_file(out / item.run.run_name, weights)
    shutil.rmtree(out)
    assert wanted.to_train(*folders) == []
    weights.rename(tmp_path / "away")
    assert wanted.to_train(*folders) == [item.run]
    (tmp_path / "away").rename(weights)
    # Another machine's results stay in their file; here it has measured the two slow detectors, too.
    content = json.loads(file.read_text())
    outcomes = content["runs"][0]["outcomes"]
    outcomes += [outcomes[0] | {"detector": name} for name in ("odin", "mahalanobis")]
    first |= dict.fromkeys(("odin", "mahalanobis"), first["max-probability"])
    file.write_text(json.dumps(content | {"environment": content["environment"] | {"device": "another"}}))
    assert run_plan(wanted, *folders, device=CPU) == []
    assert missing_detectors(wanted.detections, results) == {} and not (out / item.run.run_name).exists()
    assert {one.detector: one.metrics for one in read_results(file)} == first
    added = read_results(file.with_stem(f"{file.stem}-2"))
    assert [one.detector for one in added] == ["max-logit", "negative-entropy", "knn"]
    rows = {cell.method for cell in comparison_cells("table-ood-perf", results) if cell.ours}
    assert rows == {f"baseline-1epochs/{name}" for name in DETECTORS}


def test_an_out_set_that_is_missing_does_not_stop_the_others(place, tmp_path):
    wanted = plan(replace(recipe_in(place), out_sets=("lsun",)))
    (problem,) = run_plan(wanted, tmp_path / "runs", tmp_path / "results", root=tmp_path, device=CPU)
    assert problem.startswith("own-mlp-baseline-seed0-against-lsun: expected LSUN_resize.tar.gz")
    assert (tmp_path / "results" / "own-mlp-baseline-seed0.json").exists()
    with pytest.raises(
        ValueError, match="expected methods of one network for detection, but got 'ensemble-baseline'"
    ):
        plan(replace(recipe_in(place), methods=("ensemble-baseline",), seeds=(0, 1)))
    with pytest.raises(ValueError, match="expected the network of own-mlp-baseline-seed0, but it is not trained"):
        measure(wanted.detections[0], ["energy"], tmp_path / "none", tmp_path / "none", device=CPU)


def test_detection_studies_name_what_is_measured(capsys, command):
    flags = ["--datasets", "cifar10", "--models", "resnet110", "--against", "tinyimagenet", "--seeds", "0"]
    command("study", "ood", *flags, "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    assert "     done  cifar10-resnet110-crl-softmax-seed0-against-tinyimagenet" in lines
    assert "0 to measure" in lines[-1]
    command("study", "table-ood-perf", "--datasets", "svhn", "--dry-run")
    printed = capsys.readouterr().out
    assert "  measure  svhn-densenet-bc-baseline-seed4-against-lsun\n" in printed
    assert "svhn resnet110: 0 of 10 runs done, 10 to train\n" in printed
    assert "40 detections, 40 to measure" in printed
    command("study", "ood", "--against", "places", "--dry-run", code=2)
    assert "expected out-sets among tinyimagenet" in capsys.readouterr().err
    (part,) = narrowed("ood", out_sets=["svhn"])  # no network of SVHN is trained for nothing
    assert part.datasets == ("cifar10",) and part.out_sets == ("svhn",)


TINY = Experiment("digits", "mlp", stages=2, per_stage=20, subset=50, epochs=1)


def test_active_learning_is_resumed_from_its_results(tmp_path):
    part = ActiveRecipe(TINY, trials=(0, 1), strategies=("random", "entropy", "least-confidence"))
    assert part.name == "digits-mlp-per_stage20-subset50-epochs1"
    assert len(stage_runs(part, missing_trials(part, tmp_path))) == 2 * (2 + 3)
    run_active(replace(part, trials=(1,), strategies=("entropy",)), tmp_path / "one", tmp_path, device=CPU)
    before = load_curves(part.file(tmp_path))
    assert missing_trials(part, tmp_path) == {0: [*part.strategies], 1: ["random", "least-confidence"]}
    # Another machine has the results, but not the runs.
    run_active(part, tmp_path / "two", tmp_path, device=CPU)
    after = load_curves(part.file(tmp_path))
    assert missing_trials(part, tmp_path) == {} and after.config["trials"] == [0, 1]
    assert {name: len(trials) for name, trials in after.curves.items()} == dict.fromkeys(part.strategies, 2)
    assert after.curves["entropy"][1] == before.curves["entropy"][0]
    arrays = load_arrays(part.file(tmp_path))
    assert len({tuple(arrays[f"{name}-trial1"][:20]) for name in part.strategies}) == 1
    assert not (tmp_path / "two" / "active-digits-mlp-per_stage20-subset50-epochs1/trial1/entropy").exists()


def test_the_command_runs_active_learning(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setitem(ACTIVE_RECIPES, "active", lambda: (ActiveRecipe(TINY, (0,), ("random",)),))
    flags = ["--out", tmp_path / "runs", "--results", tmp_path, "--device", "cpu"]
    command("study", "active", *flags)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == " 0 of 2 stages  digits-mlp-per_stage20-subset50-epochs1 trial 0 random"
    assert lines[-1] == f"results: {tmp_path}; table: confrank table stable-al-perf --results {tmp_path}"
    command("study", "active", *flags)
    assert capsys.readouterr().out.startswith(
        "          done  digits-mlp-per_stage20-subset50-epochs1 trial 0 random\n0 runs"
    )


def test_curves_with_fewer_stages_are_replaced_by_all_of_them_only(tmp_path):
    part = ActiveRecipe(TINY, trials=(0, 1), strategies=("random",))
    run_active(part, tmp_path / "runs", tmp_path, device=CPU)
    longer = replace(part, experiment=replace(TINY, stages=3))
    with pytest.raises(ValueError, match="trials 0, 1 of 2 stages with random, and this study does not have all"):
        missing_trials(replace(longer, trials=(0,)), tmp_path)
    run_active(longer, tmp_path / "runs", tmp_path, device=CPU)
    assert load_curves(part.file(tmp_path)).labelled() == [20, 40, 60]
    other = part.file(tmp_path).read_text().replace('"lr":0.1', '"lr":0.2')
    part.file(tmp_path).write_text(other)
    with pytest.raises(ValueError, match=r"differs in lr 0.1 \(there: 0.2\)"):
        missing_trials(longer, tmp_path)


def test_chosen_settings_are_next_to_the_papers_numbers(tmp_path):
    """In rows after the paper's table; experiments that differ in more than these settings do not."""
    stage = [{"labelled": 2000, "metrics": {"acc": 0.63}}]
    (tmp_path / "active").mkdir()
    for name, changed in {"chosen": {"lr": 0.05, "weight_decay": 5e-4}, "short": {"lr": 0.05, "epochs": 10}}.items():
        config = Experiment(**changed).settings() | {"trials": [0]}
        content = {"config": config, "environment": {}, "curves": {"random": [stage]}}
        (tmp_path / "active" / f"{name}.json").write_text(json.dumps(content))
    cells = comparison_cells("stable-al-perf", tmp_path)
    assert len(cells) == 101 and not any(cell.ours for cell in cells[:100])
    assert cells[100].method == "random, lr 0.05, weight decay 0.0005"
    assert (cells[100].ours.mean, cells[100].paper.mean) == (0.63, 0.6486)


def test_active_studies_name_what_is_missing(tmp_path, capsys, command):
    command("study", "active", "--datasets", "cifar10", "--methods", "random,mc-entropy", "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 of 10 stages  cifar10-resnet18-lr0.05-weight_decay0.0005 trial 0 random"
    assert lines[-1] == "40 runs in the missing trials"
    command("study", "stable-al-perf", "--dry-run")
    assert capsys.readouterr().out.splitlines()[-1] == "480 runs in the missing trials"
    assert [part.experiment.lr for part in narrowed_active("stable-al-perf")] == [0.1, 0.1]
    for flags, message in (
        (["--datasets", "digits"], "expected data sets of active among cifar10, cifar100, but got digits;"),
        (["--methods", "rand"], "expected a strategy among random,"),
        (["--models", "vgg16"], "but active is active learning; leave out --models"),
    ):
        command("study", "active", *flags, "--dry-run", code=2)
        assert message in capsys.readouterr().err


@pytest.mark.parametrize("name", [*ACTIVE_RECIPES])
def test_every_active_recipe_names_its_command_and_expectation(name):
    parts = ACTIVE_RECIPES[name]()
    runs = [run for part in parts for run in stage_runs(part, {trial: [*part.strategies] for trial in part.trials})]
    for words in (f"Command: confrank study {name} ({len(runs)} runs).", "Expected"):
        assert words in ACTIVE_RECIPES[name].__doc__
