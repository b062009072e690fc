import csv
import io
import json
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from forked import SERVER
from safetensors.torch import load_file
from test_study_folders import run, write_result

from confrank import evaluate
from confrank.analysis.repeats import Cell, Summary
from confrank.config import RunConfig
from confrank.report.paper_table import render
from confrank.runs.checkpoint import load_latest, save_checkpoint
from confrank.runs.folder import RunFolder
from confrank.runs.trained import load_run, predict, save_weights_file
from confrank.study.catalogue import RECIPES, Recipe, recipe
from confrank.study.comparison import comparison_cells
from confrank.study.grid import run_plan
from confrank.study.paper import contradictions, paper_tables, paper_values, table_values
from confrank.study.plan import has_result, plan
from confrank.study.plans import plan_lines
from confrank.study.results import export_run, load_result
from confrank.study.tables import label_of, load_results, table_cells
from confrank.training import train

TRIED = ("baseline", "aes-10", "crl-entropy", "crl-softmax", "ensemble-crl-softmax", "crl-margin")
TINY = Recipe(("digits",), ("small",), TRIED, seeds=(0, 1, 2), epochs=12)


def test_the_papers_numbers_are_read_in_our_words_and_raw():
    assert len(paper_values()) == 2356
    contradicted = {(value.dataset, value.model, value.method, value.metric) for value in contradictions()}
    assert contradicted == {
        ("cifar100", "densenet-bc", "mcdropout", "nll"),
        ("svhn", "densenet-bc", "baseline", "e_aurc"),
        ("svhn", "densenet-bc", "aleatoric-mc", "brier"),
    }
    assert len(paper_tables()) == 10
    (value,) = [
        value for value in table_values("table-clf-perf")
        if (value.dataset, value.model, value.method, value.metric) == ("cifar100", "vgg16", "crl-softmax", "aurc")
    ]  # fmt: skip
    assert (value.mean, value.std) == pytest.approx((0.07183, 0.00047))
    with pytest.raises(ValueError, match="expected a table among table-clf-perf.*but got 'table-1'"):
        table_values("table-1")


@pytest.mark.parametrize("table", paper_tables())
def test_paper_only_prints_every_number_of_every_table(table):
    """Against the source file, as it writes them."""
    source = Path("confrank/study/paper.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(source) if row["table"] == table]
    for form in ("markdown", "terminal", "latex"):
        text = render(table_cells(table, []), form, paper_only=True)
        for row in rows:
            assert f"{float(row['mean']):.2f}" in text
    shown = list(csv.DictReader(io.StringIO(render(table_cells(table, []), "csv"))))
    assert len(shown) == len(rows)


def test_best_values_are_bold_and_contradictions_marked():
    """The paper's own best AURC of VGG-16 on CIFAR-100, and a cell to which two tables give different numbers."""
    cells = table_cells("table-clf-perf", [])
    markdown, latex, plain = (render(cells, form, paper_only=True) for form in ("markdown", "latex", "terminal"))
    assert "| **71.83±0.47** |" in markdown and "| 77.33±1.15 |" in markdown
    assert r"\textbf{71.83$\pm$0.47}" in latex
    assert "*" not in plain and "\x1b[1m71.83±0.47" in render(cells, "terminal", paper_only=True, width=300)
    note = "† cifar100, densenet-bc, mcdropout, NLL ×10: another table of the paper has 9.42±0.14"
    assert "9.49±0.14†" in markdown and markdown.count(note) == plain.count(note) == 1
    assert r"9.49$\pm$0.14$\dagger$" in latex
    assert "†" not in render(cells, "csv")
    learning = render(table_cells("stable-al-perf", []), "markdown", paper_only=True)
    assert "| **65.91±1.44** |" in learning and "| **94.33±0.17** |" in learning and learning.count("**") == 2 * 20


def test_tables_and_plans_are_printed_without_torch():
    code = """
import runpy, sys
for line in sys.argv[1:]:
    sys.argv[1:] = line.split()
    try:
        runpy.run_module("confrank", run_name="__main__")
    except SystemExit as end:
        assert not end.code, line
    assert "torch" not in sys.modules, line
    print("END")
"""
    lines = ["table table-clf-perf --paper-only", "table table-ood-perf", "table stable-al-perf", "table all",
             "study reproduction --dry-run"]  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, *lines], capture_output=True, text=True, check=True)
    assert [part.count("\n") > 10 for part in done.stdout.split("END\n")] == [True] * len(lines) + [False]


def test_every_recipe_names_its_table_command_and_expectation():
    for name, function in RECIPES.items():
        assert name in paper_tables() or name in ("reproduction", "ood", "record")
        runs = len(plan(*recipe(name)).runs)
        for word in (f"Command: confrank study {name} ({runs} runs).", "Expected"):
            assert word in function.__doc__
    with pytest.raises(ValueError, match="expected a study among"):
        recipe("table-1")


def test_recipes_in_parts_share_runs_and_keep_the_snapshots_that_a_part_needs():
    wanted = plan(*recipe("reproduction"))
    names = [config.run_name for config in wanted.runs]
    assert len(names) == len({*names}) == 72
    assert [name for name, config in zip(names, wanted.runs, strict=True) if config.snapshots] == [
        "cifar10-vgg16-baseline-seed0",
        "cifar100-vgg16-baseline-seed0",
        "cifar100-vgg16-baseline-seed4",
        "cifar100-vgg16-baseline-seed5",
        "svhn-vgg16-baseline-seed0",
        "cifar100-resnet110-baseline-seed0",
    ]
    members = {item.name: [member.seed for member in item.members] for item in wanted.averages}
    assert members["cifar100-vgg16-ensemble-baseline-of3"] == [1, 2, 3]
    assert members["cifar100-vgg16-ensemble-baseline-of5"] == [4, 5, 6, 7, 8]
    assert members["cifar100-vgg16-ensemble-crl-softmax-of5"] == [4, 5, 6, 7, 8]
    assert members["cifar10-vgg16-ensemble-crl-softmax-of5"] == [3, 4, 5, 6, 7]
    assert members["cifar100-vgg16-ensemble-crl-softmax-weight0.5-of5"] == [4, 5, 6, 7, 8]
    assert members["cifar10-vgg16-aes-10-seed0"] == [0]


def test_flags_narrow_a_recipe_in_parts(tmp_path, capsys, command):
    flags = ["--datasets", "cifar10", "--models", "vgg16,resnet110", "--methods", "baseline,aes-10,mcdropout"]
    shutil.copytree("results", tmp_path / "results", ignore=shutil.ignore_patterns("*resnet110*"))
    command("study", "reproduction", *flags, "--results", tmp_path / "results", "--root", tmp_path, "--dry-run")
    assert capsys.readouterr().out.splitlines() == [
        *(f"     done  cifar10-vgg16-baseline-seed{seed}" for seed in (0, 1, 2)),
        *(f" to train  cifar10-resnet110-baseline-seed{seed}" for seed in (0, 1, 2)),
        "     done  cifar10-vgg16-mcdropout-seed0",
        "     done  cifar10-vgg16-mcdropout-seed1",
        "     done  cifar10-vgg16-aes-10-seed0",
        "cifar10 vgg16: 5 of 5 runs done",
        "cifar10 resnet110: 0 of 3 runs done, 3 to train",
        "8 runs, 3 to train, 1 average",
        "data missing: cifar10 (--datasets and --against select a part of a study)",
    ]


def test_a_study_looks_for_its_data_once(tmp_path, capsys, command):
    flags = ["--models", "vgg16", "--methods", "ensemble-baseline", "--seeds", "0,1", "--root", tmp_path]
    folders = ["--out", tmp_path / "runs", "--results", tmp_path / "results"]
    command("study", "table-clf-perf", "--datasets", "cifar10,cifar100", *flags, *folders, code=2)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[-1].startswith("data missing: cifar10, cifar100 (--datasets")
    (error,) = printed.err.splitlines()
    assert error.endswith("but there is nothing; run: confrank data fetch cifar10, with the same --root")
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("flag", "value", "message"),
    [
        ("--methods", "crl-sofmax", "expected methods of reproduction among baseline, crl-softmax, .* crl-sofmax;"),
        ("--datasets", "digits", "expected datasets of reproduction among cifar10, cifar100, svhn, but got digits;"),
        ("--seeds", "0,9", "expected seeds of reproduction among 0, 1, 2, 3, 4, 5, 6, 7, 8, but got 9;"),
    ],
)
def test_what_a_recipe_in_parts_has_not_is_refused(flag, value, message, capsys, command):
    command("study", "reproduction", flag, value, "--dry-run", code=2)
    assert re.search(message, capsys.readouterr().err)


def test_plan_shares_runs_between_cells():
    wanted = plan(TINY)
    assert len(wanted.runs) == 12
    methods = {config.method for config in wanted.runs}
    assert methods == {"baseline", "crl-entropy", "crl-margin", "crl-softmax"}
    assert all(config.snapshots == (config.method == "baseline") for config in wanted.runs)
    assert [item.name for item in wanted.averages] == [
        "digits-small-aes-10-seed0", "digits-small-aes-10-seed1", "digits-small-aes-10-seed2",
        "digits-small-ensemble-crl-softmax-of3",
    ]  # fmt: skip
    half = plan(*recipe("table-clf-ensemble-perf"))
    assert {config.weight for config in half.runs if config.method == "crl-softmax"} == {0.5}
    assert {config.weight for config in half.runs if config.method == "baseline"} == {1.0}
    assert half.runs[-1].run_name == "svhn-densenet-bc-crl-softmax-weight0.5-seed4"
    assert half.averages[1].name == "cifar10-vgg16-ensemble-crl-softmax-weight0.5-of5"
    own = replace(TINY, datasets=("/data/my-baseline.npz",), methods=("aes-10", "ensemble-crl-softmax"), weight=0.5)
    assert [item.name for item in plan(own).averages] == [
        *(f"my-baseline-small-aes-10-seed{seed}" for seed in (0, 1, 2)),
        "my-baseline-small-ensemble-crl-softmax-weight0.5-of3",
    ]


def work(study, out):
    torch.set_num_threads(1)
    run(study, out)


def num_epochs(out):
    return sum(path.read_text().count("\n") for path in out.glob("runs/*/log.jsonl"))


FEW = replace(TINY, methods=("baseline", "aes-10", "ensemble-crl-softmax"), seeds=(0, 1))


@pytest.mark.parametrize(("study", "num_kills"), [(FEW, 2), pytest.param(TINY, 5, marks=pytest.mark.slow)])
def test_killed_study_ends_complete_with_the_same_table(study, num_kills, tmp_path):
    def start(folder):
        process = SERVER.Process(target=work, args=(study, tmp_path / folder))
        process.start()
        return process

    undisturbed, moments, wanted = start("whole"), random.Random(1), plan(study)
    for kill in range(num_kills):
        process, goal = start("killed"), len(wanted.runs) * study.epochs * (kill + 0.5) / num_kills
        while process.is_alive() and num_epochs(tmp_path / "killed") < goal:
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 0.2))
        assert process.is_alive(), f"the study ended before it could be killed {num_kills} times"
        process.kill()
        process.join()
    start("killed").join()
    undisturbed.join()
    whole, killed = load_results(tmp_path / "whole" / "results"), load_results(tmp_path / "killed" / "results")
    assert [result.name for result in whole] == [result.name for result in killed]
    assert len(killed) == len(wanted.runs) + len(wanted.averages)
    for one, other in zip(whole, killed, strict=True):
        assert one.metrics == other.metrics, one.name
        assert one.config == other.config
        if "members" not in other.config:
            assert [entry["epoch"] for entry in other.log] == list(range(1, study.epochs + 1))
    for folder in (tmp_path / "killed" / "runs").iterdir():
        epochs = [json.loads(line)["epoch"] for line in (folder / "log.jsonl").read_text().splitlines()]
        assert epochs == list(range(1, study.epochs + 1))


def test_finished_runs_are_not_trained_again_and_failures_do_not_stop_others(tmp_path):
    small = replace(TINY, methods=("baseline", "crl-softmax"), seeds=(0,), epochs=1)
    trained = []
    options = {"device": torch.device("cpu"), "on_epoch": lambda config, record: trained.append(config.run_name)}
    wanted = plan(small)
    broken = replace(wanted.runs[0], lr=1e30, seed=7)
    wanted = replace(wanted, runs=(broken, *wanted.runs))
    problems = run_plan(wanted, tmp_path / "runs", tmp_path / "results", **options)
    assert len(problems) == 1
    assert problems[0].startswith("digits-small-baseline-seed7: expected a finite loss")
    assert trained == ["digits-small-baseline-seed0", "digits-small-crl-softmax-seed0"]
    trained.clear()
    assert run_plan(plan(small), tmp_path / "runs", tmp_path / "results", **options) == []
    assert trained == []


def test_kept_weights_are_half_as_large_and_predict_the_same(tmp_path):
    small = replace(TINY, methods=("crl-margin",), seeds=(0,), epochs=4)
    assert run(small, tmp_path, weights=tmp_path / "weights") == []
    (path,) = (tmp_path / "weights").iterdir()
    assert path.name == "digits-small-crl-margin-seed0.safetensors"
    kinds = {name.rpartition(".")[2]: value.dtype for name, value in load_file(path).items()}
    assert kinds == {"weight": torch.float16, "bias": torch.float16, "running_mean": torch.float32,
                     "running_var": torch.float32}  # fmt: skip
    folder = tmp_path / "runs" / "digits-small-crl-margin-seed0"
    whole, half = predict(folder), predict(path)
    assert half.metadata["method"] == "crl-margin"
    assert np.abs(half.logits - whole.logits).max() < 0.01 * np.abs(whole.logits).max()
    again = evaluate(**half.evaluation_inputs()).metrics
    assert again == pytest.approx(load_results(tmp_path / "results")[0].metrics, abs=0.005)
    before = path.read_bytes()
    path.unlink()  # results are there: only the weights are written again
    assert run(small, tmp_path, weights=tmp_path / "weights") == []
    assert path.read_bytes() == before
    checkpoint, _ = load_latest(RunFolder(folder).checkpoint)
    checkpoint.weights["head.bias"][0] = 1e6
    save_checkpoint(RunFolder(folder).checkpoint, (5, 0), checkpoint)
    with pytest.raises(ValueError, match=r"expected weights within half precision, but head.bias has 1e\+06"):
        save_weights_file(folder, tmp_path / "weights.safetensors")
    assert not (tmp_path / "weights.safetensors").exists()


def test_averages_are_of_the_members_that_the_plan_names(tmp_path):
    short = replace(TINY, methods=("baseline", "aes-10", "ensemble-baseline"), seeds=(0, 1), epochs=1)
    longer, cpu = replace(short, epochs=3), torch.device("cpu")
    assert run_plan(plan(short), tmp_path / "one", tmp_path / "results", device=cpu) == []
    with pytest.raises(ValueError, match=r"differs in epochs 3 \(there: 1\); choose another `results`"):
        run_plan(plan(longer), tmp_path / "three", tmp_path / "results", device=cpu)
    assert run_plan(plan(longer), tmp_path / "three", tmp_path / "results3", device=cpu) == []
    for path in (tmp_path / "results3").glob("*-of2.json"):
        path.unlink()
    # The members are kept, but the folders that lie there are of other runs.
    with pytest.raises(ValueError, match="baseline-seed0 to be of this run, but it differs in epochs"):
        run_plan(plan(longer), tmp_path / "one", tmp_path / "results3", device=cpu)


def test_a_stored_ensemble_of_other_seeds_fills_the_cell_unless_it_is_of_other_data(tmp_path):
    pair = replace(TINY, methods=("ensemble-baseline",), seeds=(0, 1), epochs=1)
    folders, cpu = (tmp_path / "runs", tmp_path / "results"), torch.device("cpu")
    assert run_plan(plan(pair), *folders, device=cpu) == []
    (kept,) = (tmp_path / "results").glob("*-of2.json")
    before, others = kept.read_text(), plan(replace(pair, seeds=(2, 0)))
    assert "done  digits-small-ensemble-baseline-of2 (seeds 0, 1)" in "\n".join(plan_lines(others, *folders))
    assert "done  digits-small-ensemble-baseline-of2\n" in "\n".join(plan_lines(plan(pair), *folders))
    assert run_plan(others, *folders, device=cpu) == []
    assert kept.read_text() == before
    content = json.loads(before)
    for members in (["digits-small-baseline-seed0"] * 2, ["digits-small-crl-softmax-seed0", "x-seed1"]):
        kept.write_text(json.dumps({**content, "config": {**content["config"], "members": members}}))
        with pytest.raises(ValueError, match="differs in .*members"):
            others.check(*folders)
    content["environment"]["data"] = "of old images"
    kept.write_text(json.dumps(content))
    for wanted in (plan(pair), others):
        (problem,) = run_plan(wanted, *folders, device=cpu)
        assert "is from other data; remove it" in problem
    kept.with_suffix(".npz").unlink()  # half of a result fills nothing
    with pytest.raises(ValueError, match="differs in .*members"):
        others.check(*folders)


@pytest.mark.parametrize(
    "study", ["table-clf-ensemble-perf", "stable-clf-ensemble-weight1", "stable-clf-ensemble-weight0.5"]
)
def test_the_ensemble_studies_go_with_the_results_of_a_checkout(study, tmp_path, capsys, command):
    results = Path(__file__).parent.parent / "results"
    command("study", study, "--results", results, "--out", tmp_path, "--root", tmp_path, "--dry-run")
    assert "done  cifar100-vgg16-ensemble-baseline-of5 (seeds 4, 5, 6, 7, 8)\n" in capsys.readouterr().out


def test_held_out_images_depend_on_the_seed_and_are_no_other_data(tmp_path):
    pair = replace(TINY, methods=("baseline", "ensemble-baseline"), seeds=(0, 1), epochs=1, holdout=0.1)
    for _ in range(2):
        assert run(pair, tmp_path) == []
    (path,) = (tmp_path / "results").glob("*-of2.json")
    assert load_result(path).metrics["acc"] > 0
    # A run of the same seed holds out the same images.
    old = tmp_path / "results" / f"{plan(pair).runs[0].run_name}.json"
    content = json.loads(old.read_text())
    old.write_text(json.dumps(content | {"environment": content["environment"] | {"data": "of old images"}}))
    (problem,) = run(replace(pair, methods=("baseline", "crl-softmax"), seeds=(0,)), tmp_path)
    assert problem.startswith("data: expected digits to be the same images in every run")


@pytest.mark.parametrize("method", ["aes-1", "aes-foo", "aes-20", "ensemble-aes-10", "crl"])
def test_unknown_methods_are_named_before_anything_is_trained(method):
    with pytest.raises(ValueError, match="expected a method among baseline"):
        plan(replace(TINY, methods=(method,)))


def test_names_of_data_sets_are_escaped():
    cells = [Cell("C:\\own & #1|2", "small", "baseline", "", "acc", None, Summary(0.5, 0.1, 3))]
    assert "\nC:\\textbackslash{}own \\& \\#1|2 & small & baseline & 3 & " in render(cells, "latex")
    assert "| C:\\own & #1\\|2 | small |" in render(cells, "markdown")


def test_a_result_is_finished_only_with_its_held_out_images(tmp_path, monkeypatch):
    config, results = RunConfig(epochs=1, holdout=0.2), tmp_path / "results"
    train(config, tmp_path / config.run_name, device=torch.device("cpu"))

    def killed(*predictions):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("confrank.study.results._scores", killed)
        with pytest.raises(KeyboardInterrupt):
            export_run(tmp_path / config.run_name, results)
    assert not has_result(config, results)
    result = load_result(export_run(tmp_path / config.run_name, results))
    assert has_result(config, results) and result.validation["acc"] > 0 and "max-probability" in result.scores["test"]
    save_weights_file(tmp_path / config.run_name, tmp_path / "w.safetensors")  # which know what was held out
    whole, half = load_run(tmp_path / config.run_name), load_run(tmp_path / "w.safetensors")
    assert half.config == whole.config and half.provenance == whole.provenance
    assert len(half.data.train) == len(whole.data.train) == 720
    assert half.held_out.index.tolist() == whole.held_out.index.tolist()


def test_cells_take_full_runs_of_the_protocol_only(tmp_path):
    others = {"short": {"epochs": 20}, "half": {"weight": 0.5}, "held": {"holdout": 0.5}, "slow": {"lr": 1e-9}}
    for name, settings in {"a": {}, "b": {"seed": 2}, **others}.items():
        metrics = {"aurc": 0.07 + settings.get("seed", 0) / 1000}
        write_result(tmp_path, name, metrics, dataset="cifar100", method="crl-softmax", **settings)
    cells = table_cells("table-clf-perf", load_results(tmp_path))
    (cell,) = [c for c in cells if c.ours]
    assert (cell.method, cell.metric, cell.ours.n) == ("crl-softmax", "aurc", 2)
    assert cell.ours.mean == pytest.approx(0.071)
    assert cell.deviations == pytest.approx((0.071 - 0.07183) / 0.00047)
    text = render(cells, "markdown", ours_only=True)
    assert "71.00±1.41 (71.83±0.47) -1.8σ" in text
    assert text.count("\n") == 3
    assert "not run" in render(cells, "terminal")
    rows = {cell.method.removeprefix("crl-softmax") for cell in comparison_cells("all", tmp_path)}
    assert rows == {"", "-20epochs", "-weight0.5", "-holdout0.5", "-lr1e-09"}


def test_results_of_the_same_images_share_a_row(tmp_path):
    def write(name, dataset, data, **changes):
        write_result(tmp_path, name, environment={"data": data}, dataset=dataset, model="small", **changes)

    write("a", "photos", "one", seed=0)
    write("b", "/somewhere/photos", "one", seed=1)
    write("c", "others", "two", seed=0)
    write("g", "small/photos", "six", seed=0, image_size=8)
    write("h", "small/photos", "seven", seed=0, image_size=16)
    write("i", "cifar10", "one", seed=0)
    write("j", "cifar10", "noisy one", seed=1)
    write("d", "held", "three", seed=0, holdout=0.5)
    write("e", "held", "four", seed=1, holdout=0.5)
    write("f", "photos", "fifth set", seed=2)
    counts = {
        (cell.dataset, cell.method.count("image_size")): cell.ours.n for cell in comparison_cells("all", tmp_path)
    }
    assert counts == {
        ("photos", 0): 2,
        ("photos (fifth )", 0): 1,
        ("others", 0): 1,
        ("held", 0): 2,
        ("small/photos", 1): 1,
        ("cifar10", 0): 1,
        ("cifar10 (noisy )", 0): 1,
    }


def test_record_runs_follow_their_training_recipes_under_names_of_their_own():
    runs = plan(*recipe("record")).runs
    assert {(run.recipe, run.epochs, run.holdout) for run in runs} == {
        ("paper", 300, 0.1), ("fmfp", 200, 0.1), ("sure", 200, 0.1), ("best", 200, 0.1),
    }  # fmt: skip
    assert not any(run.departures for run in runs)
    assert {run.weight for run in runs if (run.recipe, run.dataset) == ("sure", "cifar10")} == {0.5}
    others = [run for name in RECIPES if name != "record" for run in plan(*recipe(name)).runs]
    assert not {run.run_name for run in runs} & {run.run_name for run in others}
    labels = {label_of(run.as_dict()) for run in runs if run.dataset == "cifar100"}
    assert labels == {
        "baseline-holdout0.1", "crl-softmax-holdout0.1", "baseline-fmfp-holdout0.1",
        "crl-softmax-stretched-sure-holdout0.1", "baseline-best-holdout0.1",
    }  # fmt: skip


def test_a_table_in_a_file_has_one_line_per_row():
    """However many metrics there are: a file has no width."""
    metrics = ("acc", "aurc", "e_aurc", "aupr_error", "fpr95", "ece", "nll", "brier")
    cells = [
        Cell("cifar10", "vgg16", method, "", key, Summary(0.9374, 0.0014, 5), Summary(0.9376, 0.0018, 3))
        for method in ("baseline", "crl-softmax")
        for key in metrics
    ]
    lines = [line for line in render(cells, "terminal").splitlines() if line.startswith("│")]
    assert len(lines) == 2 and all(line.count("σ") == len(metrics) for line in lines)


@pytest.mark.parametrize("width", [60, 80, 100, 160])
def test_a_narrow_terminal_gets_every_number_in_tables_that_fit(width):
    cells = [cell for cell in table_cells("stable-clf-perf-cifar10", []) if cell.model == "vgg16"]
    whole, text = (render(cells, "terminal", paper_only=True, width=columns) for columns in (None, width))
    assert "\x1b[1m" in text  # the best values
    text = re.sub(r"\x1b\[\d+m", "", text)
    assert max(map(len, text.splitlines())) <= width
    assert text.count("method") == {60: 3, 80: 2, 100: 2, 160: 1}[width]
    numbers = re.compile(r"\d+\.\d+±\d+\.\d+")
    assert sorted(numbers.findall(text)) == sorted(numbers.findall(whole))
    assert ("data set cifar10, network vgg16\n" in text) == (width < 160)


def test_the_common_start_of_long_names_is_shown_once():
    method = "crl-softmax-60epochs-lr0.05-image_size16"
    metrics = {"auroc": 0.8, "fpr95": 0.5, "detection_error": 0.3}
    cells = [
        Cell("photos", "small", f"{method}/{detector}", "noise", metric, None, Summary(value, None, 1))
        for detector in ("odin", "energy")
        for metric, value in metrics.items()
    ]
    text = render(cells, "terminal", width=80)
    assert text.splitlines()[0] == f"data set photos, network small, method {method}/, out-set noise, runs 1"
    assert text.count("method") == 2 and text.count("energy") == 1
    assert text.count(method) == 1


def test_a_plan_names_short_averages(tmp_path, capsys, command):
    cells = ["--datasets", "digits", "--models", "small", "--methods", "baseline,aes-10", "--seeds", "0,1"]
    folders = ["--out", tmp_path / "runs", "--results", tmp_path / "results"]
    command("study", "table-clf-perf", *cells, "--epochs", 5, *folders, "--dry-run")
    lines = capsys.readouterr().out.splitlines()
    count = len({round(0.4 * 5 + step * 0.6 * 5 / 9) for step in range(10)})
    assert lines.count(f"aes-10 averages {count} snapshots instead of 10: the runs have 5 epochs") == 1
    cells = ["--datasets", "cifar10", "--models", "vgg16", "--methods", "baseline", "--seeds", "0"]
    command("study", "table-clf-perf", *cells, "--dry-run")
    assert capsys.readouterr().out.splitlines()[-1] == "1 run, 0 to train, 0 averages"
