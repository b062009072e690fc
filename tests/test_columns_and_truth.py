"""What a user says about a file: extra columns, roles of columns, a second file with the truth."""

import numpy as np
import pytest

from confrank.predictions import read

TEXT = "site,weight,label,prediction,confidence\na,0.5,cat,cat,0.9\nb,1,dog,cat,0.6\na,2,dog,dog,0.8\n"


def test_columns_are_kept_as_they_are_in_every_format(tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    (tmp_path / "a.csv").write_text(TEXT)
    (tmp_path / "a.tsv").write_text(TEXT.replace(",", "\t"))
    columns = {
        "site": ["a", "b", "a"],
        "weight": [0.5, 1, 2],
        "label": ["cat", "dog", "dog"],
        "prediction": ["cat", "cat", "dog"],
        "confidence": [0.9, 0.6, 0.8],
    }
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    np.savez(tmp_path / "a.npz", **columns)
    for name in ("a.csv", "a.tsv", "a.parquet", "a.npz"):
        loaded = read(tmp_path / name, keep=["site", "weight"])
        assert loaded.extra["site"].tolist() == ["a", "b", "a"]
        assert loaded.extra["weight"].astype(float).tolist() == [0.5, 1, 2]
        assert loaded.label.tolist() == [0, 1, 1]
        assert loaded.describe() == "3 predictions, label, prediction and confidence"


def test_a_column_may_be_kept_and_have_a_role(tmp_path):
    (tmp_path / "a.csv").write_text("id,label,prediction,confidence\n7,1,1,0.9\n8,0,1,0.6\n")
    loaded = read(tmp_path / "a.csv", keep=["label", "id"])
    assert loaded.extra["label"].tolist() == ["1", "0"] and loaded.extra["id"].tolist() == ["7", "8"]
    assert loaded.label.tolist() == [1, 0] and loaded.key.tolist() == [b"7", b"8"]
    with pytest.raises(ValueError, match="expected a column 'region', but got the columns id, label"):
        read(tmp_path / "a.csv", keep=["region"])


def test_a_kept_column_is_no_class(tmp_path):
    (tmp_path / "a.csv").write_text("label,cat,dog,age\ncat,0.9,0.1,31\ndog,0.2,0.8,44\n")
    loaded = read(tmp_path / "a.csv", keep=["age"])
    assert loaded.probabilities.tolist() == [[0.9, 0.1], [0.2, 0.8]]
    assert loaded.extra["age"].tolist() == ["31", "44"]
