"""The experiments on intervals: what they measure, means over cells, and what the pages show of it."""

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


WORLDS = program("experiments/interval_worlds.py")
IN_WORLDS = ROOT / "experiments/interval_worlds_epyc-2core_202611.jsonl"


def test_the_pages_show_the_worlds_as_printed(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["interval_worlds.py", str(IN_WORLDS), "--repetitions", "0"])
    WORLDS.main()
    printed = capsys.readouterr().out
    assert IN_WORLDS.with_suffix(".md").read_text().endswith(printed)
    page = (ROOT / "docs/evidence/intervals.md").read_text()
    for section in printed.split("## ")[1:4]:
        table = section.partition("\n\n")[2].strip()
        assert table.startswith("| ") and f"{table}\n\n" in page


def test_the_intervals_hold_in_every_world():
    cells = [json.loads(line) for line in IN_WORLDS.read_text().splitlines()]
    assert {(one["world"], one["n"]) for one in cells} == {
        *((world, n) for world in WORLDS.WORLDS for n in (50, 200, 1000, 2000)),
        (WORLDS.WITH_CLUSTERS, 2000),
        (WORLDS.WITHOUT, 2000),
    }
    for one in cells:
        assert one["repetitions"] == 1000
        if one["world"] == WORLDS.WITH_CLUSTERS and one["metric"] in ("acc", "aurc"):
            assert 0.92 <= one["covered"] <= 0.97
        if one["world"] not in WORLDS.WORLDS:
            continue
        if one["metric"] in WORLDS.AREAS:
            assert one["intervals"] == 1000 and one["covered"] >= 0.925
            assert one["covered"] <= 0.995 or one["errors"] < 30 or one["errors"] > 0.25 * one["n"]
        if one["metric"] == "fpr95" and one["errors"] >= 19:
            assert one["covered"] >= 0.92


def test_only_missing_metrics_of_a_world_are_measured(tmp_path, monkeypatch):
    path, missing = tmp_path / "results.jsonl", ("three values", 50, "naurc")
    cells = [json.loads(line) for line in IN_WORLDS.read_text().splitlines()]
    known = [one for one in cells if (one["world"], one["n"], one["metric"]) != missing]
    path.write_text("".join(json.dumps(one) + "\n" for one in known))
    before = path.read_text()
    monkeypatch.setattr(sys, "argv", ["interval_worlds.py", str(path), "--repetitions", "2"])
    WORLDS.main()
    assert path.read_text().startswith(before)
    (added,) = [json.loads(line) for line in path.read_text()[len(before) :].splitlines()]
    assert (added["world"], added["n"], added["metric"], added["repetitions"]) == (*missing, 2)
