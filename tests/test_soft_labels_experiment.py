"""The experiment on soft labels: its rows, its paired intervals, and what the pages show of it."""

import json
import re
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from programs import ROOT, program
from scipy.stats import ttest_rel

NEIGHBOURS = ("ingredients", "when", "ranking_with_averaging", "overconfidence")
with pytest.MonkeyPatch.context() as patch:
    for name in NEIGHBOURS:
        patch.setitem(sys.modules, name, program(f"experiments/{name}.py"))
    SOFT = program("experiments/soft_labels.py")
INTERVAL = re.compile(r"[+-][\d.]+ \[[^]]*\]")
RESULT = ROOT / "experiments/soft_labels_epyc-2core_202611.md"


def test_missing_runs_are_trained_as_their_rows_say(tmp_path):
    results = tmp_path / "results.jsonl"
    given = {"data": "digits", "model": "mlp", "samples": 100, "epochs": [2], "seeds": 1, "first_seed": 0}
    for padding, rows in ((None, ["plain"]), (None, ["plain", "crl", "soft0.8"]), (1, ["plain"])):
        SOFT.train_missing(results, SimpleNamespace(**given, padding=padding, rows=rows, minutes=1.0))
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert [line["row"] for line in lines] == ["plain", "crl", "soft0.8", "plain"]
    assert [line["data"] for line in lines] == ["digits"] * 3 + ["digits shifted by 1"]
    assert len({line["aurc"] for line in lines}) == 4
    # ECE is the mean size of the gaps in the bins, so it is at least the size of their mean.
    assert all(abs(line["overconfidence"]) <= 100 * line["ece"] + 0.001 for line in lines)


def test_differences_are_paired_by_seed_with_students_interval():
    first, second = np.random.default_rng(0).normal(0.2, 0.02, (2, 6))
    found = {
        name: {seed: {"aurc": value} for seed, value in enumerate(values)}
        for name, values in (("plain", first), ("soft0.8", second))
    }
    text = SOFT.difference(found, "plain", "soft0.8", range(6), "aurc")
    low, high = ttest_rel(1000 * second, 1000 * first).confidence_interval(0.95)
    assert text.replace("**", "") == f"{1000 * (second - first).mean():+.1f} [{low:+.1f}, {high:+.1f}]"
    assert text.startswith("**") == (not low <= 0 <= high)


def stored():
    return SOFT.read(RESULT.with_suffix(".jsonl"))


def test_plain_and_crl_repeat_the_runs_of_the_neighbouring_experiment():
    """Both train by the same settings, so a run of the same seed has the same metrics."""
    mine = {tuple(row[key] for key in SOFT.KEYS): row for row in stored()}
    compared = 0
    for path in (ROOT / "experiments").glob("when_*_epyc-2core_202611.jsonl"):
        for row in SOFT.read(path):
            name = {0.0: "plain", 1.0: "crl"}.get(row["weight"])
            other = mine.get((row["data"], row["model"], row["epochs"], name, row["seed"]))
            if other is not None and row["warm_up"] == "none":
                assert [row[key] for key in SOFT.METRICS] == [other[key] for key in SOFT.METRICS]
                compared += 1
    assert compared > 50


def test_the_result_and_the_page_show_the_runs():
    rows, printed = stored(), RESULT.read_text()
    assert all(table in printed for table in SOFT.tables(rows))
    seeds = [len(runs) for _, found in SOFT.groups(rows) for runs in found.values()]
    assert min(seeds) >= 8
    page = (ROOT / "docs/evidence/soft-labels.md").read_text()
    assert SOFT.overview(rows) in page and SOFT.overview(rows) in printed
    # Each interval on the page is one of the printed ones.
    there, shown = (INTERVAL.findall(text.replace("**", "")) for text in (printed, page))
    assert len(shown) > 50 and {*shown} <= {*there}


def test_the_page_on_ingredients_shows_differences_of_the_result():
    page, result = (ROOT / "docs/how-to/ingredients.md").read_text(), RESULT.read_text()
    shown = re.findall(r"([\d.]+) \[([\d.]+), ([\d.]+)\]", page)
    assert len(shown) == 6
    for row, differences in (("swa | plain", shown[:3]), ("swa+both | swa", shown[3:])):
        lines = re.findall(rf"^\| {re.escape(row)} \| 12 \| \*\*(.+?)\*\* (\S+ \S+) \|", result, re.M)
        assert lines == [(f"-{value}", f"[-{high}, -{low}]") for value, low, high in differences]
