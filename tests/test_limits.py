"""What a file may cost: sizes come from headers, and whatever a file holds ends in one line."""

import hashlib
import io
import struct
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pytest
from packing import packed
from pyarrow import parquet

from confrank import models
from confrank.active.pool import open_pool
from confrank.data.custom import npz_arrays
from confrank.data.pictures import read_picture
from confrank.errors import InputError
from confrank.files import check_unpacked, gigabytes_allowed
from confrank.predictions import read
from confrank.provenance import Provenance
from confrank.report.contact import contact_sheet
from confrank.runs.checkpoint import DamagedCheckpointError, _unsealed
from confrank.runs.folder import load_config

DEEP = "[" * 5000 + "]" * 5000


def zeros_npz(path, **lengths):
    """An npz of zeros, written in blocks so that the test needs no memory for it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, length in lengths.items():
            header = io.BytesIO()
            description = {"descr": "|u1", "fortran_order": False, "shape": (length,)}
            np.lib.format.write_array_header_1_0(header, description)
            with archive.open(f"{name}.npy", "w") as member:
                member.write(header.getvalue())
                for start in range(0, length, 1 << 22):
                    member.write(bytes(min(1 << 22, length - start)))


def png_of(width, height):
    """A valid PNG of black pixels whose rows are never all in memory."""
    packer = zlib.compressobj()
    rows = b"".join(packer.compress(bytes(1 + width)) for _ in range(height)) + packer.flush()
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)), (b"IDAT", rows), (b"IEND", b"")]
    chunks = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def test_a_packed_archive_is_refused_by_its_directory(tmp_path, capsys, command):
    path = tmp_path / "bomb.npz"
    zeros_npz(path, confidence=30_000_000, correct=30_000_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"at most 0.05 GB when unpacked, but got 60 MB from .*`max_gigabytes`"):
        read(path, max_gigabytes=0.05)
    assert len(read(path, max_gigabytes=0.07)) == 30_000_000
    command("evaluate", path, "--max-gigabytes", 0.05, code=2)
    line = f"{path}: expected at most 0.05 GB when unpacked, but got 60 MB from {path.stat().st_size / 1e3:.3g} kB"
    remedy = "raise the limit with --max-gigabytes if the file is meant to be this large"
    assert capsys.readouterr().err == f"confrank: error: {line}; {remedy}\n"
    command("evaluate", path, "--max-gigabytes", -1, code=2)
    assert "expected a positive limit in gigabytes, but got -1.0; change --max-gigabytes" in capsys.readouterr().err


def test_the_environment_sets_the_limit_and_is_named_where_there_is_no_flag(tmp_path, monkeypatch):
    path = tmp_path / "images.npz"
    zeros_npz(path, images=2_000_000)
    monkeypatch.setenv("CONFRANK_MAX_GIGABYTES", "0.001")
    for reading in (npz_arrays, open_pool):
        zeros_npz(path, **{"images" if reading is npz_arrays else "confidence": 2_000_000})
        with pytest.raises(InputError, match="variable CONFRANK_MAX_GIGABYTES"):
            reading(path)
    monkeypatch.setenv("CONFRANK_MAX_GIGABYTES", "many")
    with pytest.raises(InputError, match="positive limit in gigabytes, but got 'many'"):
        gigabytes_allowed()


def test_an_uncompressed_file_is_as_large_as_it_is():
    check_unpacked(9_000_000_000, 9_100_000_000, 4)
    with pytest.raises(InputError, match="got 9 GB from 8.9 GB"):
        check_unpacked(9_000_000_000, 8_900_000_000, 4)


def test_a_shape_that_its_bytes_cannot_fill(tmp_path):
    path = tmp_path / "shape.npz"
    header = io.BytesIO()
    description = {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    np.lib.format.write_array_header_1_0(header, description)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("confidence.npy", header.getvalue() + bytes(80))
        archive.writestr("correct.npy", header.getvalue() + bytes(80))
    with pytest.raises(InputError, match=r"expected 8,000,000,000,000 bytes in confidence.npy"):
        read(path)


def test_parquet_is_measured_by_its_metadata(tmp_path):
    """Repeated values take no space in the file: 1e8 rows are a few kilobytes."""
    path = tmp_path / "repeated.parquet"
    schema = pa.schema([("confidence", pa.float64()), ("correct", pa.bool_())])
    rows = pa.table({"confidence": np.full(1_000_000, 0.5), "correct": np.ones(1_000_000, bool)}, schema=schema)
    with parquet.ParquetWriter(path, schema) as writer:
        for _ in range(5):
            writer.write_table(rows)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match="at most 0.05 GB when unpacked, but got 80 MB"):
        read(path, max_gigabytes=0.05)
    assert len(read(path)) == 5_000_000


@pytest.mark.parametrize("ending", [".feather", ".arrow"])
def test_arrow_is_counted_while_it_is_read(tmp_path, ending):
    """Files and streams: 20 batches of a million equal numbers, which take few bytes when packed."""
    words = pa.DictionaryArray.from_arrays(np.zeros(1_000_000, dtype="i4"), ["cat"])
    table = pa.table({"label": words, "prediction": words, "confidence": np.full(1_000_000, 0.5)})
    path = tmp_path / f"repeated{ending}"
    new = pa.ipc.new_file if ending == ".feather" else pa.ipc.new_stream
    with new(path, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as file:
        for _ in range(5):
            file.write_table(table)
    assert path.stat().st_size < 100_000
    with pytest.raises(InputError, match=r"at most 0.05 GB when unpacked, but got \d+ MB"):
        read(path, max_gigabytes=0.05)
    assert len(read(path)) == 5_000_000
    content = path.read_bytes()
    path.write_bytes(content.replace(b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", 2))
    with pytest.raises(ValueError, match=f"expected a {ending} file, but it cannot be read"):
        read(path)


def test_a_column_without_buffers_that_claims_rows(tmp_path):
    table = pa.table({"confidence": pa.nulls(10**9), "correct": pa.nulls(10**9)})
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as file:
        file.write_table(table)
    with pytest.raises(InputError, match="at most 2 GB when unpacked, but got 16 GB from"):
        read(tmp_path / "a.arrow")


@pytest.mark.parametrize("ending", ["bz2", "zst"])
def test_packed_text_is_counted_up_to_the_limit(tmp_path, ending):
    path = tmp_path / f"zeros.csv.{ending}"
    path.write_bytes(packed(path.name, b"confidence,correct\n" + b"0.5,1\n" * 1_000_000))
    with pytest.raises(InputError, match=r"at most 0.001 GB when unpacked, but got [12](\.\d+)? MB from"):
        read(path, max_gigabytes=0.001)
    assert len(read(path)) == 1_000_000


@pytest.mark.parametrize(("width", "height"), [(10_001, 10_000), (100_000_001, 1)])
def test_pictures_are_measured_by_their_headers(tmp_path, width, height):
    path = tmp_path / "big.png"
    path.write_bytes(png_of(width, 1)[:60] if height == 1 else png_of(width, height))
    with pytest.raises(ValueError, match=f"at most 100 megapixels, but got {width:,} x {height:,} pixels; scale it"):
        read_picture(path)


def test_a_model_that_fails_to_import_or_exits_is_one_line(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raising_module.py").write_text("raise KeyError('colour')")
    (tmp_path / "exiting_module.py").write_text("import sys\nsys.exit(3)")
    (tmp_path / "exiting_factory.py").write_text("import sys\ndef make(num_classes):\n    sys.exit(4)")
    for name, why in (("raising_module", "KeyError: 'colour'"), ("exiting_module", "SystemExit: 3")):
        with pytest.raises(ValueError, match=f"importable package.module:factory, but got '{name}:make': {why}"):
            models.create(f"{name}:make", 10)
        command("train", "--model", f"{name}:make", "--epochs", 1, "--out", tmp_path / "run", code=2)
        assert capsys.readouterr().err.count("\n") == 1
    with pytest.raises(
        ValueError, match="expected exiting_factory:make to build a network, but it failed: SystemExit"
    ):
        models.create("exiting_factory:make", 10)


def bomb():
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]" for level in range(1, 12)]
    return "\n".join([*lines, "epochs: *a11"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"epochs: {DEEP}", "expected plain settings, but got lists nested more than 8 deep"),
        (bomb(), "expected settings without aliases, but got *a0; write the value itself"),
        ("epochs: &a [*a]", "expected settings without aliases, but got *a; write the value itself"),
        (f"epochs: {'1' * 1_000_001}", "expected at most 1,000,000 characters of settings, but got 1,000,009"),
    ],
)
def test_settings_that_would_cost_too_much(tmp_path, capsys, command, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ValueError) as error:
        load_config(tmp_path)
    assert message in str(error.value)
    command("train", "--config", path, "--out", tmp_path / "run", code=2)
    assert capsys.readouterr().err == f"confrank: error: {message}\n"


def test_brackets_nested_deep_in_metadata_and_manifest(tmp_path):
    assert Provenance.from_metadata({"config": DEEP}) is None
    path = tmp_path / "manifest.json"
    for body in (DEEP.encode(), b"[]", b'{"format": 1}', b"{"):
        path.write_bytes(body + b"\n" + hashlib.sha256(body).hexdigest().encode() + b"\n")
        with pytest.raises(DamagedCheckpointError, match="manifest.json, but got"):
            _unsealed(path)


@pytest.mark.parametrize(
    ("error", "message"),
    [(MemoryError, "expected input that fits into memory"), (RecursionError, "nested thousands deep")],
)
def test_memory_and_recursion_errors_are_one_line(tmp_path, monkeypatch, capsys, command, error, message):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("confrank.cli.options.Reading.source", fail)
    command("evaluate", tmp_path / "a.csv", code=2)
    assert message in (line := capsys.readouterr().err) and line.count("\n") == 1


def test_a_name_with_a_line_break_on_the_contact_sheet(tmp_path):
    picture = np.zeros((8, 8, 1), np.uint8)
    contact_sheet([("a\nb\x07.png", picture)], tmp_path / "sheet.png")
    contact_sheet([("a?b?.png", picture)], tmp_path / "same.png")
    assert (tmp_path / "sheet.png").read_bytes() == (tmp_path / "same.png").read_bytes()
    contact_sheet([("été.png", picture)], tmp_path / "sheet.png")  # with its accents
    contact_sheet([("?t?.png", picture)], tmp_path / "same.png")
    assert (tmp_path / "sheet.png").read_bytes() != (tmp_path / "same.png").read_bytes()


def test_a_picture_that_pillow_itself_refuses(tmp_path):
    path = tmp_path / "huge.png"
    path.write_bytes(png_of(20_000, 1)[:16] + struct.pack(">II", 20_000, 20_000) + png_of(20_000, 1)[24:])
    damaged = bytearray(path.read_bytes())
    damaged[29:33] = struct.pack(">I", zlib.crc32(bytes(damaged[12:29])))
    path.write_bytes(bytes(damaged))
    with pytest.raises(ValueError, match="at most 100 megapixels, but .*huge.png has far more; scale it down"):
        read_picture(path)
