"""One thread and one seed for all tests: reproducible numbers, and no crawling on a busy machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # before anything imports Triton, whose own functions read it then

import forked  # noqa: F401 - names what every forked process has imported
import pytest

from confrank.cli import main

torch.set_num_threads(1)
# Programs that are run by hand or by a test, two of them called run.py.
collect_ignore = ["files", "fuzz", "mutation"]


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def command():
    """`command("train", ..., code=2)` is `confrank train ...` in this process; it must end with that exit code."""

    def run(*arguments, code=0):
        with pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        assert stop.value.code == code

    return run
