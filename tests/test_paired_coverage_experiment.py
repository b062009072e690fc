"""The experiment on paired intervals: what it measures, its means over cells, and what the pages show of it."""

import json
import sys

import numpy as np
import pytest
from programs import ROOT, program

PAIRED = program("experiments/paired_coverage.py")
RESULTS = ROOT / "experiments/paired_coverage_epyc-2core_202611.jsonl"


def run(monkeypatch, *flags):
    monkeypatch.setattr(sys, "argv", ["paired_coverage.py", *map(str, flags)])
    PAIRED.main()


def test_the_pages_show_what_the_command_prints(monkeypatch, capsys):
    run(monkeypatch, RESULTS, "--repetitions", 0)
    printed = capsys.readouterr().out
    assert RESULTS.with_suffix(".md").read_text().endswith(printed)
    page = (ROOT / "docs/evidence/intervals.md").read_text()
    differ, equal = (part.partition("\n\n")[2].strip() for part in printed.split("## ")[1:3])
    assert differ.startswith("| metric |") and f"{differ}\n\n" in page and f"{equal}\n\n" in page


def test_means_over_cells_are_those_of_all_repetitions():
    cells = [json.loads(line) for line in RESULTS.read_text().splitlines()]
    found = PAIRED.over_cells(one for one in cells if not one["rounded"])["nll", "some", "5 to 10"]
    chosen = [
        one
        for one in cells
        if (one["metric"], one["difference"], one["rounded"]) == ("nll", "some", False)
        and (one["n"], one["error_rate"]) in ((50, 0.2), (100, 0.05), (300, 0.02))
    ]
    covered = []
    for one in chosen:
        right = round(one["covered"] * one["repetitions"])
        covered += [True] * right + [False] * (one["repetitions"] - right)
    assert found["repetitions"] == len(covered)
    assert found["covered"] == pytest.approx(np.mean(covered))


def test_only_missing_cells_are_measured(tmp_path, monkeypatch, capsys):
    path = tmp_path / "results.jsonl"
    flags = ("--common", 0.5, "--error-rates", 0.2, "--repetitions", 2)
    monkeypatch.setattr(PAIRED, "true_differences", lambda *_: np.zeros(len(PAIRED.KEYS)))
    run(monkeypatch, path, "--sizes", 20, *flags)
    first = path.read_text()
    run(monkeypatch, path, "--sizes", 20, 30, *flags)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert path.read_text().startswith(first)
    assert {(one["n"], one["difference"]) for one in lines} == {
        (n, which) for n in (20, 30) for which in ("none", "some")
    }
    assert len({(one["metric"], one["n"], one["difference"]) for one in lines}) == len(lines)
    assert "| nll | 30 | 0.5 | 0.2 | some | 2 |" in capsys.readouterr().out
