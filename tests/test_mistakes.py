"""Sixty mistakes that people make, each answered in one line that names the remedy, with exit code 2."""

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Predictions of 40 rows with a text column, a folder, and a file that is no table."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = [f"r{row},{row % 2},{row % 3 > 0:d},{value:.3f},north" for row, value in enumerate(rng.random(40))]
    (tmp_path / "val.csv").write_text("\n".join(["id,label,prediction,confidence,site", *rows]) + "\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "notes.txt").write_text("no table")


MISTAKES = {
    # a misspelt command, or another word for one
    "thresold val.csv": "did you mean threshold?",
    "evalute val.csv": "did you mean evaluate?",
    "moniter p.json val.csv": "did you mean monitor?",
    "compare val.csv val.csv": "use confrank evaluate A.csv B.csv",
    "onnx run": "use confrank.decisions.export_onnx in Python",
    "fit": "did you mean train?",
    "data fetsh cifar10": "expected one of list, fetch, check, but got 'fetsh'; did you mean fetch?",
    "active qeury --pool folder": "expected one of run, show, query, train, but got 'qeury'; did you mean query?",
    "active": "expected one of run, show, query, train, but got nothing; see --help",
    # a misspelt option
    "threshold val.csv --rsk 0.1": "did you mean --risk?",
    "evaluate val.csv --jsno out.json": "did you mean --json?",
    "evaluate val.csv --html page.html": "did you mean --report?",
    "train --modle small": "expected a known option, but got '--modle'; did you mean --model?",
    "calibrate val.csv --metod isotonic": "did you mean --method?",
    "sets val.csv --lvel 0.9": "did you mean --level?",
    "ood runs --agianst svhn": "did you mean --against?",
    "study record --dry-rnu": "did you mean --dry-run?",
    "table list --fromat csv": "did you mean --format?",
    # an option of another command
    "threshold val.csv --fdr 0.1": "--fdr is an option of confrank select",
    "evaluate val.csv --risk 0.1": "--risk is an option of confrank threshold",
    "report events run --device cpu": "a known option, but got '--device'; --device is an option of confrank train",
    "apply p.json val.csv --truth val.csv": "--truth is an option of confrank evaluate",
    # a misspelt value
    "calibrate val.csv --method isotonik": "did you mean isotonic?",
    "sets val.csv --method asp": "did you mean aps?",
    "train --optimizer adam": "did you mean adamw?",
    "train --model vgg-16": "did you mean vgg16?",
    "train --method crl": "did you mean crl-softmax?",
    "train --device gpu": "expected --device to be one of auto, cpu, cuda, cuda:N",
    "table list --format latx": "one of terminal, markdown, latex, csv, but got 'latx'; did you mean latex?",
    "predict run --split tets": "one of test, train, holdout, but got 'tets'; did you mean test?",
    "report event run": "a figure among events, epochs, curves, but got 'event'; did you mean events?",
    "table table-clf-pref": "did you mean table-clf-perf?",
    "scores val.csv --policy p.json --rows desing": "did you mean design?",
    # a number out of range, or none
    "threshold val.csv --risk 5": "did you mean 0.05?",
    "threshold val.csv --risk 5%": "did you mean 0.05?",
    "threshold val.csv --risk much": "expected a number for --risk, but got 'much'",
    "threshold val.csv --risk 0.1 --delta 1": "expected --delta in (0, 1), but got 1",
    "threshold val.csv --coverage 80": "expected --coverage in (0, 1], but got 80; did you mean 0.8?",
    "evaluate val.csv --coverage 80": "expected --coverage in (0, 1], but got 80; did you mean 0.8?",
    "threshold val.csv --coverage 0.5 --split 20": "expected --split in (0, 1), but got 20; did you mean 0.2?",
    "calibrate val.csv --split 20": "expected --split in (0, 1), but got 20; did you mean 0.2?",
    "select val.csv --fdr 10 --new val.csv --out o.csv": "did you mean 0.1?",
    "evaluate val.csv --resamples 5": "raise --resamples, or set it to 0",
    "evaluate val.csv --seed -1": "expected --seed to be at least 0, but got -1",
    "evaluate val.csv --seed 1.5": "expected a whole number for --seed, but got '1.5'",
    "demo --seeds 0": "expected --seeds to be at least 1, but got 0",
    "train --epochs 0": "expected --epochs to be at least 1, but got 0",
    "train --flip maybe": "expected true or false for --flip, but got 'maybe'",
    "train --seeds 1,1": "expected --seeds to be distinct whole numbers like 0,1,2,3, but got '1,1'",
    "predict run --images folder --threshold 97": "did you mean 0.97?",
    # a misspelt or missing column
    "evaluate val.csv --by sites": "but got the columns id, label, prediction, confidence, site",
    "threshold val.csv --risk 0.5 --by sit": "but got the columns id, label, prediction, confidence, site",
    "evaluate val.csv --columns label": "expected --columns ROLE=COLUMN,..., but got 'label'",
    "evaluate val.csv --columns lable=label": "expected a role among label, prediction,",
    # a path
    "evaluate vla.csv": "did you mean val.csv?",
    "evaluate folder": "it is a folder; give one file",
    "evaluate val.csv --json out.csv": "expected --json to name a file ending in .json, but got out.csv",
    "evaluate val.csv --json folder": "is a folder; name a file in it",
    "evaluate val.csv --report val.csv": "expected --report to name a file ending in .html or .htm",
    "threshold val.csv --risk 0.5 --policy val.csv": "expected --policy to name a file ending in .json",
    "apply val.csv val.csv": "give a file that a command wrote with --policy",
    "train --out notes.txt": "is a file or inside one; choose another path",
    "active query --pool nix": "expected --pool to be a folder of images or a file ending in .npz,",
    "train --config folder": "for --config, but folder does not exist or is not a file",
    # an empty value, a missing one, one too many, or two that exclude each other
    "evaluate val.csv --json=": "expected a path to write, but got an empty one",
    "threshold val.csv --risk": "expected a value after --risk, but got none",
    "evaluate": "but got none; see --help",
    "threshold val.csv other.csv --risk 0.1": "expected no further argument, but got 'other.csv'; see --help",
    "threshold val.csv": "expected --risk, --coverage, or --cost-error with --cost-reject, but got none of them; try",
    "threshold val.csv --risk 0.1 --coverage 0.5": "expected either --risk or --coverage, but got both",
    "select val.csv": "add --new NEW --out OUT.csv",
    "study record --models , --dry-run": "expected values separated by commas, but got ','",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_a_mistake_is_one_line_that_names_the_remedy(words, folder, capsys, command):
    before = sorted(Path().rglob("*"))
    command(*words.split(), code=2)
    printed = capsys.readouterr()
    assert sorted(Path().rglob("*")) == before
    assert printed.err.startswith("confrank: error: ") and printed.err.count("\n") == 1
    assert MISTAKES[words] in printed.err


def test_there_are_sixty():
    assert len(MISTAKES) >= 60
