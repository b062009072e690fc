"""Connecting to a cluster: what is reported before any task runs."""

import pickle
import sys

import pytest

from confrank.errors import InputError
from confrank.study.cluster import connected

STUDY = ["study", "table-clf-perf", "--datasets", "digits", "--methods", "baseline", "--seeds", "0", "--epochs", "1"]


def test_without_ray_one_line_says_how_to_install_it(tmp_path, monkeypatch, capsys, command):
    monkeypatch.setitem(sys.modules, "ray", None)  # as if it were not installed
    monkeypatch.chdir(tmp_path)
    command(*STUDY, "--models", "mlp", "--ray", "local", code=2)
    assert capsys.readouterr().err == (
        "confrank: error: expected the package ray, but it is not installed;"
        " run pip install 'confrank[ray]', or leave out --ray\n"
    )


def test_a_numbered_gpu_is_refused_before_anything_is_started(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    command(*STUDY, "--models", "mlp", "--ray", "local", "--device", "cuda:1", code=2)
    expected = (
        "expected auto, cpu or cuda as device of tasks, but got cuda:1; leave out --device: Ray gives each task"
    )
    assert expected in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_a_cluster_that_is_not_there(address):
    with pytest.raises(InputError, match=f"expected a Ray cluster at {address}, but could not connect: .*ray start"):
        connected(address).__enter__()


def test_an_error_from_another_process_still_names_its_parameters():
    error = pickle.loads(pickle.dumps(InputError("expected a new folder", "choose another {out}")))
    assert error.worded("--{}".format) == "expected a new folder; choose another --out"
