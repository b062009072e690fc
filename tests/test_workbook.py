from datetime import datetime

import numpy as np
import pytest
from openpyxl import Workbook

from confrank.predictions import read

HEADER = ["Case", "Label", "Prediction", "Confidence"]
ROWS = [["P-1", "healthy", "healthy", 0.93], ["P-2", "ill", "healthy", 0.55], ["P-3", "ill", "ill", 0.8]]


def workbook(path, *sheets):
    book = Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number}")
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_sheet_is_read_like_csv(tmp_path):
    file = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    text = "\n".join(",".join(map(str, row)) for row in [HEADER, *ROWS])
    (tmp_path / "a.csv").write_text(text)
    for columns in (None, {"key": "Case"}):
        sheet, csv = read(file, columns), read(tmp_path / "a.csv", columns)
        for name in ("label", "prediction", "confidence", "key"):
            np.testing.assert_array_equal(getattr(sheet, name), getattr(csv, name))
        assert sheet.class_names == csv.class_names == ["healthy", "ill"]


def test_empty_rows_columns_and_sheets_are_left_out(tmp_path):
    rows = [[], [*HEADER, None], *([*row, " "] for row in ROWS), [None] * 5, []]
    loaded = read(workbook(tmp_path / "a.xlsx", [], rows, []))
    assert loaded.confidence.tolist() == [0.93, 0.55, 0.8] and (loaded.label == loaded.prediction).sum() == 2


def test_dates_and_class_columns(tmp_path):
    header = ["label", "probability_cat", "probability_dog", "seen"]
    day = datetime(2026, 11, 18, 9, 30)
    file = workbook(tmp_path / "a.xlsx", [header, ["cat", 0.75, 0.25, day], ["dog", 0.5, 0.5, day]])
    loaded = read(file, {"time": "seen"})
    assert loaded.probabilities.tolist() == [[0.75, 0.25], [0.5, 0.5]] and loaded.label.tolist() == [0, 1]
    assert loaded.extra["time"].tolist() == ["2026-11-18 09:30:00"] * 2


def test_missing_cells_are_counted(tmp_path):
    file = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS, ["P-4", None, "ill", 0.7]])
    with pytest.raises(ValueError, match="expected a value of 'Label' in each row, but 1 of 4 have none: rows 3"):
        read(file)
    assert len(read(file, skip_missing=True)) == 3


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ([[HEADER, *ROWS], [["notes"], ["by hand"]]], "expected one sheet with cells, but got 2: sheet 0, sheet 1;"),
        ([[], []], "expected one sheet with cells, but got none; save the one to read as CSV UTF-8"),
        ([[HEADER]], "expected rows of predictions, but there are none"),
        ([[["label", "label"], [1, 2]]], "expected distinct names in the first row, but got 'label' twice"),
        ([[["My run"], ["label", "prediction", "confidence"], [1, 1, 0.9]]], "or remove the rows above the names"),
    ],
)
def test_other_workbooks_are_refused(tmp_path, sheets, message):
    with pytest.raises(ValueError, match=message):
        read(workbook(tmp_path / "a.xlsx", *sheets))


def test_damaged_large_and_misnamed_workbooks(tmp_path):
    file = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    with pytest.raises(ValueError, match="expected at most 1e-06 GB when unpacked"):
        read(file, max_gigabytes=1e-6)
    content = file.read_bytes()
    version = content.index(b"PK\x01\x02") + 6  # needed to unpack, in the directory of the archive
    file.write_bytes(content[:version] + b"\xad" + content[version + 1 :])
    with pytest.raises(ValueError, match="expected an Excel workbook, but it cannot be read: zip file version"):
        read(file)
    file.write_bytes(content[:1000])
    with pytest.raises(ValueError, match="expected an Excel workbook, but it cannot be read"):
        read(file)
    (tmp_path / "b.csv").write_bytes(content)
    with pytest.raises(ValueError, match=r"it is an Excel workbook; rename it to end in \.xlsx"):
        read(tmp_path / "b.csv")


def test_without_openpyxl_the_error_says_what_to_do(tmp_path, monkeypatch):
    file = workbook(tmp_path / "a.xlsx", [HEADER, *ROWS])
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(ValueError, match="pip install openpyxl, or save the sheet as CSV UTF-8"):
        read(file)
