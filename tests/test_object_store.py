"""Predictions in an object store, read through a local server that speaks S3."""

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from confrank import evaluate
from confrank.predictions import read

pytestmark = pytest.mark.slow
LABEL, SURE = np.arange(60) % 2, np.linspace(0.5, 0.99, 60)
ANSWER = LABEL * (np.arange(60) % 5 > 0)
TABLE = pa.table({"id": np.arange(60), "label": LABEL, "prediction": ANSWER, "confidence": SURE})


@pytest.fixture(scope="module")
def store():
    """The address of a bucket, and what follows the path."""
    server = pytest.importorskip("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    system = fs.S3FileSystem(
        access_key="test", secret_key="test", endpoint_override=f"{host}:{port}", scheme="http",
        allow_bucket_creation=True,
    )  # fmt: skip
    system.create_dir("answers")
    for part in range(3):
        parquet.write_table(TABLE.slice(20 * part, 20), f"answers/day/part-{part}.parquet", filesystem=system)
    with system.open_output_stream("answers/all.csv") as file:
        file.write("".join(",".join(map(str, row)) + "\n" for row in [TABLE.column_names, *zip(
            *TABLE.to_pydict().values(), strict=True)]).encode())  # fmt: skip
    yield "s3://test:test@answers", f"?endpoint_override={host}:{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.mark.parametrize("path", ["day", "day/part-0.parquet", "all.csv"])
def test_a_folder_of_parts_and_single_files(store, path):
    bucket, options = store
    found = read(f"{bucket}/{path}{options}")
    rows = slice(0, 20 if path.endswith("parquet") else 60)
    expected = {name: TABLE.column(name).to_numpy()[rows] for name in ("label", "prediction", "confidence")}
    assert evaluate(**found.evaluation_inputs()).metrics == pytest.approx(evaluate(**expected).metrics)
    assert found.notes == (("3 parts",) if path == "day" else ())


def test_the_command_reads_an_address(store, command, capsys):
    bucket, options = store
    command("evaluate", f"{bucket}/day{options}", "--resamples", 0)
    assert "60 predictions" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("s3://test:test@nobody/day", "does not exist|cannot be|can be opened"),
        ("s3://test:test@answers/nowhere", "it does not exist"),
        ("s3://test:test@answers/day/weights.npz", "does not exist|copy it to this machine"),
    ],
)
def test_what_is_not_there_is_one_line(store, address, message, command, capsys):
    command("evaluate", address + store[1], code=2)
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "expected" in error, error
    with pytest.raises(ValueError, match=message):
        read(address + store[1])


def test_missing_credentials_are_one_line(store, monkeypatch, tmp_path):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    closed = "s3://answers/day?endpoint_override=127.0.0.1:9&scheme=http&region=us-east-1"
    with pytest.raises(ValueError, match="can be opened, but .*; check the address and your credentials") as error:
        read(closed)
    assert "\n" not in str(error.value)
