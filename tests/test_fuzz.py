"""Damaged files end in metrics or in one line: no traceback, no warning, no hang, no flood of memory."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz"))
from mutate import MUTATIONS
from run import damaged, originals, problem_with, run


def test_a_seed_gives_the_same_files_and_every_mutation_changes_some():
    from random import Random

    files = originals()
    assert damaged(3, 0, files) == damaged(3, 0, files)
    assert len({damaged(case, 0, files)[1] for case in range(40)}) >= 38
    content, other = files["plain.parquet"], files["lists.parquet"]
    for mutation in MUTATIONS:
        assert any(mutation(content, other, Random(seed)) != content for seed in range(5)), mutation.__name__


def test_a_traceback_a_warning_and_a_wrong_code_are_failures(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_text("confidence,correct\n0.5,1\n0.25,0\n")
    assert problem_with(path, []) is None
    assert problem_with(path, ["--columns", "nothing=such"]) is None

    def broken(*arguments, **options):
        raise KeyError("broken")

    monkeypatch.setattr("confrank.cli.options.Reading.source", broken)
    assert "KeyError: 'broken'" in problem_with(path, [])


def test_two_hundred_damaged_files():
    failures, peak = run(200, seed=17)
    assert not failures, "\n".join(failure["problem"] for failure in failures)
    assert 0 < peak < 2


@pytest.mark.slow
def test_ten_thousand_damaged_files():
    failures, peak = run(10_000, seed=0, workers=2)
    assert not failures, "\n".join(failure["problem"] for failure in failures)
    assert 0 < peak < 2
