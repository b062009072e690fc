"""The experiment behind docs/when-to-use.md: schedules, paired intervals, and resuming."""

import json
import runpy
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import ttest_rel

from confrank.config import RunConfig
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


def test_a_weight_of_zero_is_the_baseline_and_a_late_one_departs_in_the_second_half():
    data, device = load("digits"), torch.device("cpu")
    configs = [RunConfig(**WHEN["DEMO"], method=name, epochs=2) for name in ("baseline", "crl-softmax")]
    settings = [Setting(2, 0.0), Setting(2, 0.0), Setting(2, 1.0, "late")]
    runs = [WHEN["trained"](*pair, data, device)[0] for pair in zip(settings, [*configs, configs[1]], strict=True)]
    first, same, late = (next(run.model.parameters()) for run in runs)
    assert torch.equal(first, same) and not torch.equal(first, late)


def test_a_rerun_trains_only_what_is_missing(tmp_path):
    results, settings = tmp_path / "when.jsonl", [Setting(1, 0.0), Setting(1, 1.0, "late")]
    arguments = SimpleNamespace(data="digits", model=None, root=None, device="cpu")
    WHEN["train_missing"](results, settings, range(1), arguments)
    first, last = results.read_text().splitlines()
    results.write_text(f"{first}\n{last[:20]}")  # killed while writing
    WHEN["train_missing"](results, settings, range(1), arguments)
    again = results.read_text().splitlines()
    assert again[0] == first and len(again) == 2
    assert {**json.loads(again[1]), "cpu_s": 0} == {**json.loads(last), "cpu_s": 0}
    arguments.model = "small"
    with pytest.raises(SystemExit, match="choose another results file"):
        WHEN["train_missing"](results, settings, range(1), arguments)


def test_the_page_and_the_result_show_the_rows_of_the_grid():
    result = ROOT / "experiments/when_digits_epyc-2core_202611.md"
    rows = WHEN["read"](result.with_suffix(".jsonl"))
    page, printed = (ROOT / "docs/when-to-use.md").read_text(), result.read_text()
    assert all(table in page for table in WHEN["page_tables"](rows))
    assert all(table in printed for table in WHEN["tables"](rows))
    gaps = [
        WHEN["gap_of"](rows, Setting(one.epochs, 0.0), one, "aurc") for one in WHEN["present"](rows) if one.weight
    ]
    assert len(gaps) >= 30 and min(gap.n for gap in gaps) >= 5
