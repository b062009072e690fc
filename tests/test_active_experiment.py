"""The experiment on embedded data, tiny: who is asked when, and what a kill changes (nothing)."""

import json
import random
import time
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import SERVER

from confrank.active import STRATEGIES, covering_radius
from confrank.active.experiment import ask, run_experiment
from confrank.active.records import (
    Curves,
    Experiment,
    StageFiles,
    collect,
    load_arrays,
    load_curves,
    merged,
    save_curves,
)
from confrank.data import load
from confrank.files import write_atomically
from confrank.methods import penultimate, predict_split
from confrank.report.paper_table import render
from confrank.runs.folder import load_config
from confrank.runs.trained import load_trained
from confrank.study.comparison import comparison_cells, of_the_paper
from confrank.study.tables import active_cells, active_means

SETTINGS = {"model": "small", "stages": 3, "per_stage": 30, "subset": 80, "epochs": 2, "batch_size": 30, "lr": 0.05}
# As flags of `confrank active run`.
SMALL = "--dataset digits --model small --stages 2 --per-stage 20 --subset 50 --epochs 1 --device cpu"
CPU = torch.device("cpu")
NAMES, KILLED = tuple(STRATEGIES), ("core-set", "mc-entropy", "least-confidence")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """300 digits to learn from and 60 to test with."""
    data, path = load("digits"), tmp_path_factory.mktemp("data") / "tiny.npz"
    train, test = data.train.select(np.arange(300)), data.test.select(np.arange(60))
    np.savez(
        path, train_images=train.images, train_labels=train.labels, test_images=test.images, test_labels=test.labels
    )
    return Experiment(dataset=str(path), **SETTINGS)


@pytest.fixture(scope="module")
def finished(tiny, tmp_path_factory):
    out = tmp_path_factory.mktemp("active") / "run"
    run_experiment(tiny, NAMES, (0, 1), out, device=CPU)
    return out


def places(out, trial, name):
    return [StageFiles(out, trial, name, STRATEGIES[name].method, stage) for stage in (1, 2, 3)]


def test_no_sample_is_asked_twice_and_stages_grow_by_the_same_number(finished):
    for trial in (0, 1):
        for name in NAMES:
            sets = [place.read_labelled().tolist() for place in places(finished, trial, name)]
            assert [len(set(rows)) for rows in sets] == [30, 60, 90]
            assert [len(rows) for rows in sets] == [30, 60, 90]
            assert sets[1][:30] == sets[0] and sets[2][:60] == sets[1]


def test_strategies_share_the_first_set_and_the_seeds_but_trials_do_not(finished):
    firsts = {
        trial: {tuple(places(finished, trial, name)[0].read_labelled().tolist()) for name in NAMES}
        for trial in (0, 1)
    }
    assert len(firsts[0]) == len(firsts[1]) == 1
    assert firsts[0] != firsts[1]
    seeds = {}
    for trial in (0, 1):
        for name in NAMES:
            for stage, place in enumerate(places(finished, trial, name), 1):
                config = load_config(place.run)
                assert config.method == STRATEGIES[name].method
                assert config.lr_drops == (0.6, 0.8)
                seeds.setdefault((trial, stage), set()).add(config.seed)
                with np.load(place.run / "history.npz") as history:
                    assert history["index"].tolist() == sorted(place.read_labelled().tolist())
    assert all(len(found) == 1 for found in seeds.values())
    assert len(set.union(*seeds.values())) == 6


def test_choices_are_those_of_the_network_of_the_stage_before(finished, tiny):
    """Redone from the first stage's checkpoint, with a plain sort over the same 80 candidates."""
    data = load(tiny.dataset)
    entropy, core = (places(finished, 1, name) for name in ("entropy", "core-set"))
    trained, labelled = load_trained(entropy[0].run), entropy[0].read_labelled()
    pool = sorted({*range(300)} - {*labelled.tolist()})
    candidates = np.random.default_rng((102, 1)).choice(pool, 80, replace=False)
    split = data.train.select(candidates)
    logits = predict_split(trained.method, trained.network, split, data.mean, data.std).logits.astype(float)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    surest_last = candidates[np.argsort((p * np.log(p)).sum(axis=1))]
    assert entropy[1].read_labelled()[30:].tolist() == surest_last[:30].tolist()
    asked = core[1].read_labelled()[30:]
    assert {*asked.tolist()} <= {*candidates.tolist()}

    def seen(rows):
        return penultimate(trained.network, data.train.select(rows), data.mean, data.std)

    radius = [covering_radius(seen(candidates), seen(rows)) for rows in (core[1].read_labelled(), np.array(labelled))]
    at_random = covering_radius(seen(candidates), seen(places(finished, 1, "random")[1].read_labelled()))
    assert radius[0] < min(radius[1], at_random)


def test_asking_leaves_less_than_a_subset_in_the_pool(finished, tiny):
    data = load(tiny.dataset)
    trained = load_trained(places(finished, 0, "random")[0].run)
    for name in ("random", "margin", "core-set", "entropy"):
        asked = ask(STRATEGIES[name], trained, data.train, np.arange(290), count=10, subset=80, seed=1)
        assert sorted(asked.tolist()) == list(range(290, 300))


def work(experiment, out):
    torch.set_num_threads(1)
    run_experiment(experiment, KILLED, (0,), out, device=CPU)


def choices(out):
    files = [path for name in KILLED for path in sorted(out.glob(f"trial0/{name}/stage*.json"))]
    return {path.relative_to(out): json.loads(path.read_text()) for path in files}


def test_killed_three_times_ends_with_the_same_choices(finished, tiny, tmp_path):
    def start():
        process = SERVER.Process(target=work, args=(tiny, tmp_path))
        process.start()
        return process

    whole, moments, written = choices(finished), random.Random(3), [0]
    for goal in (2, 5, 9):
        process = start()
        while process.is_alive() and len(choices(tmp_path)) < goal:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.1))
        assert process.is_alive(), "the experiment ended before it could be killed three times"
        process.kill()
        process.join()
        written.append(len(choices(tmp_path)))
    assert written[-1] < len(whole)
    process = start()
    process.join()
    assert process.exitcode == 0
    assert len(whole) == 3 * 3 + 3 * 2  # labelled sets, and metrics of all stages but the shared first
    assert choices(tmp_path) == whole


def test_going_on_keeps_what_is_there_and_refuses_other_settings(finished, tiny, tmp_path):
    before = {path: path.read_bytes() for path in finished.rglob("*.json")}
    epochs = []
    run_experiment(
        tiny, NAMES, (0, 1), finished, device=CPU, on_epoch=lambda config, record: epochs.append(config.run_name)
    )
    assert epochs == []
    assert {path: path.read_bytes() for path in finished.rglob("*.json")} == before
    with pytest.raises(ValueError, match=r"differs in per_stage 20 \(there: 30\); choose another `out`"):
        run_experiment(replace(tiny, per_stage=20), NAMES, (0,), finished, device=CPU)
    (tmp_path / "letter.txt").write_text("mine")
    with pytest.raises(ValueError, match="holds other files; choose another `out`"):
        run_experiment(tiny, NAMES, (0,), tmp_path, device=CPU)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": 0}, "expected 1 to 99 stages, but got 0"),
        ({"per_stage": 0}, "expected at least 1 label per stage, but got 0"),
        ({"subset": 29}, "expected a subset of at least 30, but got 29"),
        ({"epochs": 0}, "expected epochs to be at least 1"),
        ({"stages": 11}, "expected at most 300 labels in all, the size of .*, but got 11 stages of 30"),
    ],
)
def test_impossible_experiments_are_refused(tiny, tmp_path, changes, message):
    with pytest.raises(ValueError, match=message):
        run_experiment(replace(tiny, **changes), NAMES, (0,), tmp_path / "out", device=CPU)
    assert not (tmp_path / "out").exists()


def test_curves_are_stored_and_shown_again(finished, tiny, tmp_path, capsys, command):
    (finished / "trials.txt").write_text("not a trial")
    (finished / "trial7").mkdir()
    curves, asked = collect(finished, {"dataset": "digits", "model": "small"}, 3)
    (finished / "trial7").rmdir()
    assert list(curves.curves) == list(STRATEGIES) and curves.config["trials"] == [0, 1]
    by_hand = json.loads((finished / "trial1" / "margin" / "stage03" / "metrics.json").read_text())["metrics"]["acc"]
    assert curves.values()["margin"][1][2] == by_hand
    assert curves.labelled() == [30, 60, 90]
    save_curves(tmp_path / "kept.json", curves, asked)
    assert load_curves(tmp_path / "kept.json") == curves
    with np.load(tmp_path / "kept.npz") as kept:
        assert kept["margin-trial1"].tolist() == places(finished, 1, "margin")[2].read_labelled().tolist()
        assert kept["margin-trial1-loss"].shape == kept["margin-trial1-acc"].shape == (3, tiny.epochs)
    (tmp_path / "linked.png").symlink_to(tmp_path / "kept.json")
    command("active", "show", tmp_path / "kept.json", "--figure", tmp_path / "linked.png", code=2)
    assert f"{tmp_path / 'linked.png'} is an input of this command" in capsys.readouterr().err
    command("active", "show", tmp_path / "kept.json", "--markdown", "--figure", tmp_path / "curves.png")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "| strategy | trials | 30 labels | 60 labels | 90 labels |"
    ours = 100 * np.array([trial[2] for trial in curves.values()["margin"]])
    assert lines[2 + list(STRATEGIES).index("margin")].endswith(f" {ours.mean():.2f}±{ours.std(ddof=1):.2f} |")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_kept_results_grow_and_are_never_lost(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)

    def run(flags, code=0):
        command("active", "run", *SMALL.split(), "--results", "kept", *flags.split(), code=code)
        printed = capsys.readouterr()
        return printed.err if code else printed.out

    def kept():
        curves = load_curves(Path("kept/digits-small.json"))
        return {name: len(trials) for name, trials in curves.curves.items()}

    assert "│ entropy  │      2 │" in run("--strategy random,entropy --trials 2")
    run("--strategy margin --trials 1")
    command("active", "run", *SMALL.split(), "--strategy", "random,margin", "--trials", 1)  # without --results
    there = json.loads(Path("runs/active-digits-small/digits-small.json").read_text())
    assert there["config"]["strategies"] == ["random", "entropy", "margin"]
    assert [stage["labelled"] for stage in there["curves"]["margin"][0]] == [20, 40]
    assert "expected a strategy among random" in (capsys.readouterr() and run("--strategy margins", code=2))
    assert kept() == {"random": 2, "entropy": 2, "margin": 1}
    error = run("--strategy random --trials 1 --out elsewhere", code=2)
    assert "it has 2 trials of 2 stages with random, and elsewhere would have fewer with 2" in error
    error = run("--lr 0.01 --trials 1 --out elsewhere", code=2)
    assert "differs in lr 0.01 (there: 0.1); choose another --results" in error
    error = run("--strategy random --trials 2 --stages 3", code=2)
    assert "stages with entropy, and runs/active-digits-small would have fewer with 3 stages" in error
    run("--strategy random --trials 2 --stages 3 --results longer")
    assert load_curves(Path("longer/digits-small.json")).labelled() == [20, 40, 60]
    run("--together 0", code=2)
    assert kept() == {"random": 2, "entropy": 2, "margin": 1}


STAGE = [{"labelled": 20, "metrics": {"acc": 0.5}}]


def curves_of(**trials):
    config = {"stages": 1, "strategies": [*trials], "trials": sorted({*chain(*trials.values())})}
    arrays = {f"{name}-trial{trial}": np.arange(3) for name in trials for trial in trials[name]}
    return Curves(config, {}, {name: [STAGE for _ in numbers] for name, numbers in trials.items()}, trials), arrays


def test_a_kill_between_curves_and_arrays_loses_nothing(tmp_path, monkeypatch):
    path, new = tmp_path / "kept.json", curves_of(entropy=[1])
    save_curves(path, *curves_of(random=[0, 1], entropy=[2]))

    def kill(target, content):
        if target.suffix == ".json":
            raise KeyboardInterrupt
        write_atomically(target, content)

    with monkeypatch.context() as patch:
        patch.setattr("confrank.active.records.write_atomically", kill)
        with pytest.raises(KeyboardInterrupt):
            save_curves(path, *merged(path, *new))
    assert load_curves(path).trials == {"random": [0, 1], "entropy": [2]}
    save_curves(path, *merged(path, *new))
    curves = load_curves(path)
    assert curves.trials == {"random": [0, 1], "entropy": [1, 2]} and curves.config["trials"] == [0, 1, 2]
    assert {name: len(rows) for name, rows in curves.curves.items()} == {"random": 2, "entropy": 2}
    assert {*load_arrays(path)} == {"random-trial0", "random-trial1", "entropy-trial1", "entropy-trial2"}


def test_the_first_files_have_the_same_trials_of_all_strategies(tmp_path):
    path = tmp_path / "kept.json"
    curves, arrays = curves_of(random=[0, 2], entropy=[0, 2])
    save_curves(path, curves, arrays)
    content = json.loads(path.read_text())
    assert content.pop("trials") == curves.trials
    path.write_text(json.dumps(content))
    assert load_curves(path) == curves


def test_the_papers_accuracies_are_next_to_ours():
    cells = active_cells({"cifar10": {"least-confidence": [[0.66, 0.80], [0.66, 0.82]]}})
    assert len(cells) == 100
    mine = {cell.metric: cell.ours for cell in cells if cell.ours}
    assert set(mine) == {"acc_stage1", "acc_stage2"}
    assert mine["acc_stage2"].mean == pytest.approx(0.81)
    text = render(cells, "markdown", ours_only=True)
    assert "66.00±0.00 (65.91±1.44) +0.1σ" in text
    assert text.count("\n") == 3
    means = active_means("cifar10")  # in the order of the stages
    assert set(means) == {"random", "entropy", "core-set", "mc-entropy", "least-confidence"}
    assert means["random"][:2] == [0.6486, 0.7735] and len(means["random"]) == 10


def test_the_committed_experiment_follows_the_paper_and_has_all_its_epochs():
    path = Path(__file__).parent.parent / "results" / "active" / "cifar10-resnet18.json"
    curves = load_curves(path)
    assert of_the_paper(curves) and curves.labelled() == [2000, 4000, 6000, 8000]
    shown = {cell.method: cell.ours for cell in comparison_cells("stable-al-perf", path.parent.parent) if cell.ours}
    assert shown["random"].mean == curves.values()["random"][0][-1]
    with np.load(path.with_suffix(".npz")) as arrays:
        for name in curves.curves:
            assert arrays[f"{name}-trial0-loss"].shape == (4, 200)
            assert len(np.unique(arrays[f"{name}-trial0"])) == 8000
        assert len({tuple(arrays[f"{name}-trial0"][:2000]) for name in curves.curves}) == 1
