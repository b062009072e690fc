"""A study and what its folders already hold: other data, lost files, other settings, other processes."""

import csv
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from test_study_shared import hold
from torch import nn

from confrank.config import RunConfig
from confrank.models import TEXT_MODELS
from confrank.recipes import RECIPES as training_recipes
from confrank.runs.folder import RunFolder
from confrank.study.active import ACTIVE_RECIPES
from confrank.study.catalogue import RECIPES, TEXT_NETWORKS, Recipe, narrowed
from confrank.study.comparison import comparison_cells
from confrank.study.grid import run_plan
from confrank.study.group import Outcome, train_group
from confrank.study.plan import plan
from confrank.study.tables import load_results, table_cells
from confrank.training import train

CPU = torch.device("cpu")
ONE = Recipe(("digits",), ("small",), ("baseline",), seeds=(0,), epochs=1)
PAIR = replace(ONE, methods=("ensemble-baseline",), seeds=(0, 1))


def run(recipe, folder, **options):
    return run_plan(plan(recipe), folder / "runs", folder / "results", device=CPU, **options)


def study(command, folder, *switches, code=0, **changes):
    """`confrank study table-clf-perf` on digits, in the folders of `folder`."""
    cells = {"datasets": "digits", "models": "small", "methods": "baseline", "seeds": 0, "epochs": 1}
    given = {**cells, "device": "cpu", "out": folder / "runs", "results": folder / "results", **changes}
    flags = [part for name, value in given.items() for part in (f"--{name}", value)]
    command("study", "table-clf-perf", *flags, *switches, code=code)


def write_set(path, seed):
    """64 images of noise of two classes as an npz; the labels are the same for any seed."""
    images = np.random.default_rng(seed).integers(0, 255, (64, 8, 8, 1)).astype(np.uint8)
    labels = np.arange(64) % 2
    path.parent.mkdir(exist_ok=True)
    np.savez(path, train_images=images, train_labels=labels, test_images=images[:32], test_labels=labels[:32])


def test_two_data_sets_of_one_name_are_refused(tmp_path):
    paths = [tmp_path / folder / "own.npz" for folder in "ab"]
    with pytest.raises(ValueError, match=r"two own-small-baseline-seed0 differ in dataset .*b/own.npz"):
        plan(replace(ONE, datasets=tuple(map(str, paths))))


def test_a_link_in_the_working_folder_does_not_change_a_runs_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "disk").mkdir()
    Path("cifar10").symlink_to("disk")
    assert RunConfig(dataset="cifar10").run_name.startswith("cifar10-")
    assert RunConfig(dataset="./cifar10/").run_name.startswith("cifar10-")


def test_a_data_set_that_has_changed_is_noticed(tmp_path):
    own = tmp_path / "data" / "own.npz"
    write_set(own, seed=0)
    recipe = replace(ONE, datasets=(str(own),))
    assert run(recipe, tmp_path) == []
    write_set(own, seed=1)
    (problem, average) = run(replace(recipe, methods=("baseline", "ensemble-baseline"), seeds=(0, 1)), tmp_path)
    assert "to be the same images in every run, but those of own-small-baseline-seed0 and" in problem
    assert "expected members trained on the same images" in average


def test_runs_whose_predictions_are_gone_are_trained_again_for_an_average(tmp_path, capsys, command):
    assert run(replace(ONE, seeds=(0, 1)), tmp_path) == []
    shutil.rmtree(tmp_path / "runs")
    wanted = plan(replace(PAIR, seeds=(0, 1)))
    folders = tmp_path / "runs", tmp_path / "results"
    assert [config.seed for config in wanted.to_train(*folders)] == [0, 1]
    study(command, tmp_path, "--dry-run", methods="ensemble-baseline", seeds="0,1")
    told = capsys.readouterr().out
    assert "again  digits-small-baseline-seed0" in told and "but not the predictions" in told
    assert run_plan(wanted, *folders, device=CPU) == []
    assert (folders[1] / "digits-small-ensemble-baseline-of2.json").exists()
    assert wanted.to_train(*folders) == []


def test_a_run_that_is_trained_again_leaves_its_result_alone(tmp_path):
    notes, one = [], replace(ONE, epochs=5)
    assert run(one, tmp_path, shift=True) == []
    (path,) = (tmp_path / "results").glob("*.json")
    before, arrays = path.read_text(), path.with_suffix(".npz").read_bytes()
    assert json.loads(before)["shift"] and json.loads(before)["mirrored"]
    shutil.rmtree(tmp_path / "runs")
    assert run(replace(one, methods=("aes-10",)), tmp_path, shift=True, on_note=notes.append) == []
    assert (path.read_text(), path.with_suffix(".npz").read_bytes()) == (before, arrays)
    assert (tmp_path / "results" / "digits-small-aes-10-seed0.json").exists()
    (note,) = [note for note in notes if "stays" in note]
    assert note.startswith(f"{path} stays: it is of an earlier training of digits-small-baseline-seed0")
    # A call with nothing to train has nothing to say.
    notes.clear()
    assert run(replace(one, methods=("aes-10",)), tmp_path, on_note=notes.append) == notes == []


def test_a_result_gets_no_measurements_of_another_training_or_other_data(tmp_path):
    own = tmp_path / "data" / "own.npz"
    write_set(own, seed=0)
    pair = replace(PAIR, datasets=(str(own),))
    assert run(replace(pair, methods=("baseline",)), tmp_path) == []
    shutil.rmtree(tmp_path / "runs")
    problems = run(pair, tmp_path, shift=True)
    assert [problem.partition(":")[0] for problem in problems] == [
        f"shift of own-small-baseline-seed{seed}" for seed in (0, 1)
    ]
    assert all("but it was trained again; remove the result" in problem for problem in problems)
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "results" / "own-small-ensemble-baseline-of2.json").unlink()
    write_set(own, seed=1)
    problems = run(pair, tmp_path)
    assert len(problems) == 2
    assert all("is from other data; remove it" in problem for problem in problems)


def test_a_result_without_its_npz_is_made_again(tmp_path):
    assert run(ONE, tmp_path) == []
    (npz,) = (tmp_path / "results").glob("*.npz")
    npz.unlink()
    assert run(ONE, tmp_path) == []
    assert npz.exists()


def test_a_dry_run_refuses_what_the_run_would_refuse(tmp_path, capsys, command):
    assert run(ONE, tmp_path) == []
    study(command, tmp_path, "--dry-run", epochs=2, code=2)
    assert "differs in epochs 2 (there: 1); choose another --results" in capsys.readouterr().err


def test_a_resumed_run_still_stores_its_snapshots(tmp_path):
    config = RunConfig(epochs=4, seed=0, method="baseline", snapshots=True)

    class Stop(Exception):
        pass

    def stop(config, record):
        raise Stop

    def stop_at_2(config, record):
        if record["epoch"] == 2:
            raise Stop

    with pytest.raises(Stop):
        train(config, tmp_path / "run", device=CPU, on_epoch=stop, checkpoint_epochs=1)
    plain = replace(config, snapshots=False)
    with pytest.raises(Stop):
        train(replace(plain, test_every=1), tmp_path / "run", device=CPU, on_epoch=stop_at_2, checkpoint_epochs=1)
    train(plain, tmp_path / "run", device=CPU)
    folder = RunFolder(tmp_path / "run")
    assert len(list((folder.path / "snapshots").iterdir())) == 3  # epochs 2, 3 and 4
    assert [record["epoch"] for record in folder.read_log() if "test" in record] == [2, 3, 4]


class Flat(nn.Module):
    def __init__(self, num_classes, in_channels):
        super().__init__()
        self.layer = nn.Linear(64, num_classes)

    def forward(self, image):
        return self.layer(image.flatten(1))


class Raising(Flat):
    def forward(self, image):
        if self.training:
            raise RuntimeError("no such layer")
        return super().forward(image)


class RaisingAtTheEnd(Flat):
    def forward(self, image):
        if not self.training and len(image) > 500:  # more than a look whether the images fit
            raise AssertionError
        return super().forward(image)


class Large(Flat):
    """Runs out of memory once."""

    times = 1

    def forward(self, image):
        if self.training and Large.times:
            Large.times -= 1
            raise torch.OutOfMemoryError("out of memory")
        return super().forward(image)


class Endless(Flat):
    """A network whose loss is never finite."""

    def forward(self, image):
        return super().forward(image) + float("nan")


def test_a_network_that_raises_does_not_stop_the_others(tmp_path):
    models = (f"{__name__}:Raising", f"{__name__}:RaisingAtTheEnd", "small")
    training, judging = run(replace(ONE, models=models), tmp_path)
    assert training.endswith("Raising-baseline-seed0: RuntimeError: no such layer")
    assert judging.endswith("RaisingAtTheEnd-baseline-seed0: AssertionError")
    assert [result.config["model"] for result in load_results(tmp_path / "results")] == ["small"]
    with pytest.raises(RuntimeError, match="no such layer"):
        train(RunConfig(model=f"{__name__}:Raising", epochs=1), tmp_path / "alone", device=CPU)


def test_what_a_listener_raises_is_the_callers(tmp_path):
    def stop(config, record):
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        run(replace(ONE, seeds=(0, 1)), tmp_path, on_epoch=stop)


def test_kept_weights_of_other_settings_are_refused(tmp_path):
    assert run(ONE, tmp_path, weights=tmp_path / "weights") == []
    with pytest.raises(ValueError, match=r"differs in epochs 2 \(there: 1\); choose another `weights`"):
        run(replace(ONE, epochs=2), tmp_path / "longer", weights=tmp_path / "weights")
    assert not (tmp_path / "longer").exists()


def test_why_a_run_could_not_be_trained_again(tmp_path):
    """Its result is there, but an average needs its predictions, and now the network raises."""
    model = f"{__name__}:Large"
    Large.times = 0
    assert run(replace(ONE, models=(model,), seeds=(0, 1)), tmp_path) == []
    shutil.rmtree(tmp_path / "runs")
    Large.times = 10**9
    problems = run(replace(PAIR, models=(model,)), tmp_path)
    # The average, whose members failed, is not reported again.
    assert [problem.partition(": ")[2] for problem in problems] == ["out of memory"] * 2


def test_own_data_are_the_same_however_their_path_is_written(tmp_path, monkeypatch):
    write_set(tmp_path / "own.npz", seed=0)
    monkeypatch.chdir(tmp_path)
    assert run(replace(ONE, datasets=("own.npz",)), tmp_path) == []
    for written in ("./own.npz", f"{tmp_path}/own.npz"):
        wanted = plan(replace(ONE, datasets=(written,)))
        wanted.check(tmp_path / "runs", tmp_path / "results")
        assert wanted.to_train(tmp_path / "runs", tmp_path / "results") == []


def test_own_data_are_found_where_they_have_been_moved(tmp_path, monkeypatch):
    write_set(tmp_path / "moved" / "own.npz", seed=0)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"or a path, but got 'own.npz'"):
        narrowed("table-clf-perf", datasets=["own.npz"])
    (found,) = narrowed("table-clf-perf", datasets=["own.npz"], root=tmp_path / "moved")
    assert found.datasets == ("own.npz",)


def test_folders_that_are_not_used_may_be_of_other_settings(tmp_path):
    assert run(ONE, tmp_path) == []
    shutil.rmtree(tmp_path / "runs")
    train(RunConfig(method="baseline", epochs=2), tmp_path / "runs" / "digits-small-baseline-seed0", device=CPU)
    assert run(ONE, tmp_path) == []
    with pytest.raises(ValueError, match=r"to be of this run, but it differs in epochs 1 \(there: 2\)"):
        run(PAIR, tmp_path)


def test_an_average_without_its_npz_or_snapshots_is_an_error_before_training(tmp_path):
    assert run(ONE, tmp_path / "without") == []
    with pytest.raises(ValueError, match="the run did not store it; remove its folder to train it again"):
        run(replace(ONE, methods=("baseline", "aes-10")), tmp_path / "without")
    assert run(replace(ONE, methods=("aes-10",)), tmp_path) == []
    (tmp_path / "results" / "digits-small-aes-10-seed0.npz").unlink()
    shutil.rmtree(tmp_path / "runs" / "digits-small-baseline-seed0" / "snapshots")
    with pytest.raises(ValueError, match="the run did not store it; remove its folder"):
        run(replace(ONE, methods=("aes-10",)), tmp_path)


def test_other_files_among_the_results_do_not_hide_what_went_wrong(tmp_path, capsys, command):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "notes.json").write_text("{}")
    study(command, tmp_path, models=f"{__name__}:Raising", code=2)
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith("Raising-baseline-seed0: RuntimeError: no such layer")
    assert "notes.json, but it lacks config" in second


def test_a_run_that_another_process_finished_is_no_problem(tmp_path):
    """Another study holds the folder when this one comes to it, and is done when this one ends."""
    assert run(ONE, tmp_path / "other") == []
    name = "digits-small-baseline-seed0"
    lock = hold(tmp_path, name)

    def finish(config, record):
        assert config.seed == 1
        for suffix in (".json", ".npz"):
            shutil.copy(tmp_path / "other" / "results" / f"{name}{suffix}", tmp_path / "results")

    try:
        assert run(replace(ONE, seeds=(0, 1)), tmp_path, on_epoch=finish) == []
    finally:
        lock.release()


def test_runs_too_large_together_are_trained_one_by_one(tmp_path):
    Large.times, notes = 1, []
    group = plan(replace(ONE, models=(f"{__name__}:Large",), seeds=(0, 1))).runs
    options = {"device": CPU, "on_note": notes.append}
    assert train_group(group, tmp_path / "runs", tmp_path / "results", options) == Outcome()
    assert len(load_results(tmp_path / "results")) == 2
    assert "2 runs side by side do not fit into memory: training them one by one" in notes


def test_folders_that_cannot_be_made_are_an_error_before_training(tmp_path):
    (tmp_path / "results").write_text("a file")
    trained = []
    with pytest.raises(OSError, match="results"):
        run(ONE, tmp_path, on_epoch=lambda config, record: trained.append(record))
    assert trained == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": []}, "expected at least one of methods, but got none"),
        (
            {"datasets": ["digits"], "methods": ["ensemble-baseline"], "seeds": [0]},
            "two seeds or more for an ensemble",
        ),
        ({"datasets": ["digitz"]}, "expected data sets among digits, .* but got 'digitz'"),
        ({"models": ["smal"]}, "expected networks among .* but got 'smal'"),
    ],
)
def test_selections_that_make_no_study(options, message):
    with pytest.raises(ValueError, match=message):
        narrowed("table-clf-perf", **options)


def test_a_recipe_in_parts_is_cut_down():
    with pytest.raises(ValueError, match="no part has all of these"):
        narrowed("reproduction", datasets=["svhn"], models=["resnet110"])
    alone = plan(*narrowed("reproduction", datasets=["cifar10"], models=["vgg16"], seeds=[0]))
    assert [item.name for item in alone.averages] == ["cifar10-vgg16-aes-10-seed0", "cifar10-vgg16-aes-30-seed0"]
    twice = plan(*narrowed("table-clf-perf", methods=["aes-10", "aes-10"], seeds=[0]))
    assert len({item.name for item in twice.averages}) == len(twice.averages)


def write_result(folder, name, metrics=None, environment=None, **settings):
    config = RunConfig(dataset="cifar10", model="vgg16", method="baseline").as_dict() | settings
    content = {"config": config, "environment": environment or {}, "log": [], "metrics": metrics or {"acc": 0.9}}
    (folder / f"{name}.json").write_text(json.dumps(content | {"undefined": {}}))


def test_a_copy_of_a_result_does_not_count_twice(tmp_path):
    write_result(tmp_path, "one")
    write_result(tmp_path, "copy")
    with pytest.raises(ValueError, match="expected one result per run, but copy and one are of the same"):
        table_cells("table-clf-perf", load_results(tmp_path))


def test_other_ensembles_are_in_the_tables_that_they_belong_to(tmp_path):
    members = {"members": ["a", "b", "c"]}
    for count in (3, 5):
        config = {"method": "ensemble-baseline", "members": [f"run{k}" for k in range(count)]}
        write_result(tmp_path, f"of{count}", metrics={"acc": 0.9 + count / 100}, **config)
    write_result(tmp_path, "entropy", method="ensemble-crl-entropy", weight=0.5, **members)
    write_result(tmp_path, "digits", method="ensemble-baseline", dataset="digits", **members)
    ours = {cell.method: cell for cell in comparison_cells("table-clf-ensemble-perf", tmp_path) if cell.ours}
    assert set(ours) == {"ensemble-baseline", "ensemble-baseline of 3"}  # one of another size has a row of its own
    assert ours["ensemble-baseline"].ours.mean == pytest.approx(0.95) and ours["ensemble-baseline"].paper
    assert ours["ensemble-baseline of 3"].ours.mean == pytest.approx(0.93)
    assert ours["ensemble-baseline of 3"].paper is None
    variants = {cell.method for cell in comparison_cells("stable-clf-ensemble-weight0.5", tmp_path) if cell.ours}
    assert variants == {*ours, "ensemble-crl-entropy-weight0.5 of 3"}


def test_a_custom_study_names_a_table_that_shows_it(tmp_path, capsys, command):
    results = tmp_path / ("results" * 20)  # longer than a line: the command must stay whole
    study(command, tmp_path, seeds="0,1", results=results)
    assert f"confrank table all --results {results}\n" in capsys.readouterr().out
    command("table", "all", "--results", results, "--format", "markdown")
    assert "| digits | small | baseline-1epochs | 2 |" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["all"], "expected results in .*, but there are none; `confrank study` writes them"),
        (["al"], "expected a table among .*, all, .* but got 'al'; did you mean all"),
        (["record", "--paper-only"], "expected a table of the paper for --paper-only, but got record"),
        (["all", "--paper-only"], "expected a table of the paper for --paper-only, but got all"),
    ],
)
def test_tables_that_cannot_be_shown(tmp_path, capsys, arguments, message, command):
    command("table", *arguments, "--results", tmp_path, code=2)
    assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": []}, "its config is not a mapping"),
        ({"config": {}}, "its config lacks dataset"),
        ({"metrics": None}, "its metrics is not a mapping"),
        ({"metrics": {"acc": "0.9"}}, "its acc is '0.9'"),
        ({"metrics": {"acc": float("nan")}}, "its acc is nan"),
        ({"log": {}}, "its log is not a list"),
        ({"config": {"dataset": "d", "model": "m", "method": "ensemble-baseline"}}, "its config lacks members"),
    ],
)
def test_results_that_are_none(tmp_path, change, message):
    write_result(tmp_path, "run")
    path = tmp_path / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=f"in .*run.json, but {message}; if it is damaged, remove it"):
        load_results(tmp_path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(ValueError, match=r"run.json, but it cannot be read .*; if it is damaged, remove it"):
        load_results(tmp_path)


def test_files_of_a_run_that_cannot_be_read_are_named(tmp_path, capsys, command):
    def error(source):
        command("report", "curves", source, "--out", tmp_path / "curves.png", code=2)
        return capsys.readouterr().err

    assert run(ONE, tmp_path) == []
    path = tmp_path / "results" / "digits-small-baseline-seed0.json"
    for content in (b"", b"PK\x03\x04 not whole", b"version https://git-lfs"):
        path.with_suffix(".npz").write_bytes(content)
        assert "expected an npz archive in" in (told := error(path)) and told.count("\n") == 1
    np.savez(path.with_suffix(".npz"), correct=[True])
    assert "expected confidence, correct in" in (told := error(path)) and "lacks confidence;" in told
    (tmp_path / "runs" / path.stem / "log.jsonl").write_text('{"epoch": 1, "lo\n')
    assert "expected one JSON record per line in" in error(tmp_path / "runs" / path.stem)


def test_the_command_words_the_failure_of_one_run(tmp_path, capsys, command):
    """As flags, not as parameters of Python; a study does not have them all."""
    study(command, tmp_path, models=f"{__name__}:Endless", code=1)
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("confrank: error: digits-")
    assert line.endswith("; lower --lr of confrank train, or inspect these samples")


def test_an_environment_that_is_none(tmp_path):
    assert run(replace(ONE, seeds=(0, 1)), tmp_path) == []
    (tmp_path / "runs" / "digits-small-baseline-seed0" / "environment.json").write_text("[]")
    (problem,) = run(PAIR, tmp_path)
    assert "expected a JSON object in" in problem and "environment.json, but got something else" in problem


def test_texts_get_the_networks_and_the_training_of_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reviews.csv").write_text("text,label\ngood,1\nbad,0\n")
    planned = plan(*narrowed("table-clf-perf", datasets=["reviews.csv", "digits"], methods=["baseline"], seeds=[0]))
    assert (*TEXT_MODELS,) == TEXT_NETWORKS
    assert [(run.dataset, run.model) for run in planned.runs] == [
        *(("digits", model) for model in ("vgg16", "resnet110", "densenet-bc")),
        *(("reviews.csv", model) for model in TEXT_NETWORKS),
    ]
    assert planned.runs[-2] == RunConfig(
        dataset="reviews.csv", model="bag-of-embeddings", method="baseline", optimizer="adamw", lr=0.003, epochs=20
    )
    for dataset, model in (("reviews.csv", "vgg16"), ("digits", "text-encoder")):
        with pytest.raises(ValueError, match=f"expected networks for {dataset} among .*, but got '{model}'"):
            narrowed("table-clf-perf", datasets=[dataset], models=[model])


def test_our_studies_are_tables_too(tmp_path, command, capsys):
    command("table", "list")
    names = capsys.readouterr().out.split()
    assert {*RECIPES, *ACTIVE_RECIPES} <= {*names} and len({*names}) == len(names)
    command("table", "record", "--format", "csv")
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    aurc = {(row["method"], row["dataset"]): row for row in rows if row["metric"] == "aurc"}
    assert len(aurc) == 10
    for (method, dataset), row in aurc.items():
        recipe = training_recipes[method.partition(":")[0]]
        published = recipe.published.get(dataset)
        assert row["paper_mean"] == ("" if published is None else str(published))
        assert published is None or f"{1000 * published:.3g}" in recipe.expected
    seeds = sorted(Path("results").glob("cifar100-resnet18-baseline-best-holdout0.1-seed*.json"))
    stored = [json.loads(path.read_text())["metrics"]["aurc"] for path in seeds]
    assert len(stored) == 3
    assert float(aurc["best: baseline", "cifar100"]["mean"]) == pytest.approx(sum(stored) / 3)
    command("table", "reproduction", "--format", "csv")
    rows = [*csv.DictReader(capsys.readouterr().out.splitlines())]
    keys = [(row["dataset"], row["model"], row["method"], row["metric"]) for row in rows]
    assert len({*keys}) == len(keys) and ("cifar100", "vgg16", "aes-30", "aurc") in keys
    command("table", "record", "--ours-only", "--results", tmp_path)
    printed = capsys.readouterr()
    assert printed.out == "" and "belongs to record" in printed.err
