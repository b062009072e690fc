"""Training and predicting need no table: pyarrow, which reads tables, may be out of reach."""

import subprocess
import sys

CODE = """
import sys
sys.modules["pyarrow"] = None
import confrank, confrank.training
from confrank.cli import main
from confrank.predictions import read

for arguments in (
    ["train", "--dataset", "digits", "--model", "mlp", "--epochs", "1", "--holdout", "0.2", "--device", "cpu",
     "--out", "run"],
    ["predict", "run", "--out", "again.safetensors"],
    ["evaluate", "again.safetensors", "--resamples", "0"],
):
    try:
        main(arguments)
    except SystemExit as stop:
        assert not stop.code, arguments
print(len(read("again.safetensors")))
"""


def test_training_and_predicting_work_with_pyarrow_blocked(tmp_path):
    done = subprocess.run([sys.executable, "-c", CODE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "897", done.stdout
