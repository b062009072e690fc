"""The experiment behind docs/evidence/crl-grids.md: schedules, paired intervals, and resuming."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from confrank import CorrectnessHistory, CorrectnessRanking, CorrectnessRankingLoss
from confrank.data import load

ROOT = Path(__file__).parents[1]
WHEN = runpy.run_path(str(ROOT / "experiments/when.py"), run_name="imported")
Setting = WHEN["Setting"]


@pytest.mark.parametrize(
    ("warm_up", "weights"),
    [("none", [2, 2, 2, 2, 2]), ("linear", [0.5, 1, 1.5, 2, 2]), ("late", [0, 0, 0, 2, 2])],
)
def test_the_weight_of_each_epoch(warm_up, weights):
    assert [WHEN["weight_at"](Setting(5, 2.0, warm_up), epoch) for epoch in range(5)] == weights


def rows_of(setting, values, first_seed=0):
    return [{**setting._asdict(), "seed": seed, "aurc": value} for seed, value in enumerate(values, start=first_seed)]


def test_differences_are_paired_by_seed_with_students_interval():
    values = np.random.default_rng(0).normal(0.1, 0.02, (2, 6))
    first, second = Setting(5, 0.0), Setting(5, 1.0, "late")
    rows = [*rows_of(first, values[0]), *reversed(rows_of(second, values[1])), *rows_of(first, [9.0], 6)]
    gap = WHEN["gap_of"](rows, first, second, "aurc")
    expected = ttest_rel(values[1], values[0]).confidence_interval(0.95)
    assert gap[2:4] == pytest.approx(tuple(expected))
    assert gap.mean == pytest.approx((values[1] - values[0]).mean()) and gap.n == 6
    assert WHEN["gap_of"](rows[:7], first, second, "aurc") is None  # one pair has no spread


@pytest.mark.parametrize(
    ("limits", "key", "said"),
    [((-2, -1), "aurc", "better"), ((1, 2), "aurc", "worse"), ((-1, 2), "aurc", "-"), ((1, 2), "acc", "better")],
)
def test_a_verdict_needs_an_interval_without_zero(limits, key, said):
    assert WHEN["verdict"](WHEN["Gap"](sum(limits) / 2, 1.0, *limits, 5), key) == said


def results_of(settings, seed=0):
    """Test AURC and training error of each setting."""
    pairs = [(setting, seed) for setting in settings]
    results = WHEN["trained"](pairs, WHEN["DEMO"], load("digits"), torch.device("cpu"))
    return [(evaluations["test"].metrics["aurc"], error) for evaluations, error in results]


def test_a_scheduled_weight_departs_from_the_baseline_when_it_starts():
    base, constant = results_of([Setting(3, 0.0), Setting(3, 1.0)])
    late, linear = (results_of([Setting(3, 1.0, name)])[0] for name in ("late", "linear"))
    assert len({base, constant, late, linear}) == 4
    before, after = WHEN["Scheduled"](None, torch.device("cpu")), Setting(4, 1.0, "late")
    assert [before.set_weight(WHEN["weight_at"](after, epoch)) or float(before.weight) for epoch in (1, 2)] == [0, 1]


def test_a_scheduled_loss_is_the_loss_with_that_weight():
    torch.manual_seed(0)
    history = CorrectnessHistory(40)
    history.update(torch.arange(40), torch.rand(40) < 0.6)
    logits, label, index = torch.randn(8, 3), torch.randint(0, 3, (8,)), torch.randperm(40)[:8]
    criterion = CorrectnessRankingLoss(history).eval()
    scheduled = WHEN["Scheduled"](CorrectnessRanking(history).eval(), torch.device("cpu"))
    for weight in (0.0, 0.3, 2.0):
        scheduled.set_weight(weight)
        criterion.weight = weight
        torch.testing.assert_close(scheduled(logits, label, index), criterion(logits, label, index))


def arguments_of(**changes):
    given = {"data": "digits", "device": "cpu", "together": 1, "plain": False}
    given |= dict.fromkeys(("model", "root", "samples"))
    return SimpleNamespace(**given | changes)


def test_a_rerun_trains_only_what_is_missing(tmp_path):
    results, settings = tmp_path / "when.jsonl", [Setting(1, 0.0), Setting(1, 1.0, "late")]
    WHEN["train_missing"](results, settings, range(1), arguments_of())
    first, last = results.read_text().splitlines()
    results.write_text(f"{first}\n{last[:20]}")  # killed while writing
    WHEN["train_missing"](results, settings, range(1), arguments_of())
    again = results.read_text().splitlines()
    assert again[0] == first and len(again) == 2
    assert {**json.loads(again[1]), "cpu_s": 0} == {**json.loads(last), "cpu_s": 0}
    for change in ({"model": "small"}, {"samples": 300}):
        with pytest.raises(SystemExit, match="choose another results file"):
            WHEN["train_missing"](results, settings, range(1), arguments_of(**change))


def test_runs_side_by_side_give_the_rows_of_single_ones(tmp_path):
    settings = [Setting(2, 0.0), Setting(2, 1.0), Setting(2, 1.0, "late"), Setting(1, 0.0)]
    files = [tmp_path / f"{together}.jsonl" for together in (1, 3)]
    for file, together in zip(files, (1, 3), strict=True):
        WHEN["train_missing"](file, settings, range(2), arguments_of(samples=100, together=together))
    alone, beside = ({WHEN["key_of"](row): {**row, "cpu_s": 0} for row in WHEN["read"](file)} for file in files)
    assert alone == beside and len(alone) == 8
    assert {row["samples"] for row in alone.values()} == {100}


def test_a_limited_training_split_is_stratified():
    data = WHEN["limited"](load("digits"), 100)
    assert len(data.train) == 100 and set(np.bincount(data.train.labels)) <= {9, 10, 11}


@pytest.mark.parametrize("result", sorted((ROOT / "experiments").glob("when_*.md")), ids=lambda path: path.stem)
def test_the_page_and_the_results_show_the_rows_of_the_grid(result):
    rows = WHEN["read"](result.with_suffix(".jsonl"))
    page, printed = (ROOT / "docs/evidence/crl-grids.md").read_text(), result.read_text()
    shown = [*WHEN["overview"](rows), *WHEN["page_tables"](rows)[: 3 if result.stem.startswith("when_digits") else 1]]
    assert all(table in page for table in shown)
    assert all(table in printed for table in WHEN["tables"](rows))
    gaps = [
        WHEN["gap_of"](rows, Setting(one.epochs, 0.0), one, "aurc") for one in WHEN["present"](rows) if one.weight
    ]
    assert len(gaps) >= 6 and min(gap.n for gap in gaps) >= 5
