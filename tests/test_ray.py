"""A study on Ray: a cluster of three nodes on this machine, one of which dies, and signals."""

import json
import os
import signal
import socket
import time
from contextlib import contextmanager

import numpy as np
import pytest
from counting import STEPS_PER_EPOCH, TESTS, start, start_study, steps, steps_per_run
from test_study_shared import hold

from confrank.config import RunConfig
from confrank.study.cluster import arrived
from confrank.study.group import Outcome, Sharing
from confrank.study.results import read_run
from confrank.study.tables import load_results


@contextmanager
def cluster(folder):
    """The address of a cluster of three nodes, and the processes of two of them."""
    process = start(folder, TESTS / "ray_cluster.py")
    try:
        line = next(line for line in process.stdout if line.startswith("{"))
        facts = json.loads(line)
        yield facts["address"], facts["nodes"]
    finally:
        process.communicate(timeout=400)


def succeed(process):
    printed, _ = process.communicate(timeout=400)
    assert process.returncode == 0, printed
    return printed


def same_results(one, other):
    """The results in two folders are equal, apart from the time they took."""
    names = sorted(path.name for path in one.glob("*.json"))
    assert names == sorted(path.name for path in other.glob("*.json"))
    for name in names:
        (mine, arrays), (yours, others) = read_run(one / name), read_run(other / name)
        assert (mine.config, mine.metrics) == (yours.config, yours.metrics)
        assert [{**entry, "seconds": 0} for entry in mine.log] == [{**entry, "seconds": 0} for entry in yours.log]
        assert all(np.array_equal(arrays[key], others[key]) for key in arrays.keys() | others.keys())
    return names


def step_in_the_middle_of_a_run(folder, nodes, study):
    """Wait until one of the nodes is in the middle of a run: the seed of that, its process, and the node."""
    while True:
        assert study.poll() is None, study.communicate()[0]
        time.sleep(0.1)
        for node in nodes:
            there = [step for step in steps(folder) if step[2] == node]
            if there and 8 <= there.count(there[-1]) / STEPS_PER_EPOCH <= 20:
                return there[-1]


@pytest.mark.slow
def test_a_study_on_three_nodes_of_which_one_dies_gives_the_same_table(tmp_path):
    seeds, epochs = range(12), 30
    on_ray, alone = tmp_path / "ray", tmp_path / "alone"
    on_ray.mkdir()
    alone.mkdir()
    with cluster(on_ray) as (address, nodes):
        study = start_study(on_ray, seeds, epochs, "--ray", address, "--checkpoint-minutes", 0.005)
        seed, *processes = step_in_the_middle_of_a_run(on_ray, nodes, study)
        for process in processes:  # a task, and the node that runs it
            os.kill(process, signal.SIGKILL)
        nodes.remove(processes[1])
        _, process, _ = step_in_the_middle_of_a_run(on_ray, nodes, study)
        os.kill(process, signal.SIGTERM)  # saves a checkpoint, so that no step is repeated
        printed = succeed(study)
    succeed(start_study(alone, seeds, epochs))
    assert "resuming after epoch" in printed
    assert len(same_results(on_ray / "results", alone / "results")) == len(seeds) + 1
    counts = steps_per_run(on_ray)
    assert len(counts) == len(seeds)
    assert epochs * STEPS_PER_EPOCH <= counts.pop(seed) < 1.5 * epochs * STEPS_PER_EPOCH
    assert set(counts.values()) == {epochs * STEPS_PER_EPOCH}


@pytest.mark.slow
def test_runs_that_another_process_holds_are_skipped_or_waited_for(tmp_path):
    name = "digits-counting.network-baseline-seed0"
    lock, holder = hold(tmp_path, name), f"process {os.getpid()} on {socket.gethostname()} is training it"
    printed = succeed(start_study(tmp_path, [0, 1], 1, "--ray", "local", "--skip-held"))
    assert f"skipped {name}: {holder}" in printed
    assert [result.config["seed"] for result in load_results(tmp_path / "results")] == [1]
    study = start_study(tmp_path, [0, 1], 1, "--ray", "local")
    assert f"waiting for {name}: {holder}\n" in study.stdout
    lock.release()
    succeed(study)
    assert len(load_results(tmp_path / "results")) == 3


def test_files_that_do_not_arrive_are_reported(monkeypatch):
    """A node that does not share the folders writes its files elsewhere."""
    monkeypatch.setattr("confrank.study.cluster.VISIBLE_SECONDS", 0)
    lost, held, failed = runs = [RunConfig(seed=seed) for seed in range(3)]
    sharing = Sharing(missing=lambda runs: runs, waits=True, note=print, follow=print)
    before = Outcome({failed.run_name: ValueError("no data")}, {held.run_name: "process 1"})
    outcome = arrived(runs, before, sharing, "runs and results")
    problem = outcome.problems.pop(lost.run_name)
    assert str(problem).startswith("expected its files in runs and results, but a node")
    assert outcome == before


@pytest.mark.slow
def test_a_signal_leaves_checkpoints_on_ray_and_the_same_command_resumes(tmp_path):
    epochs = 150  # one run may start long after the other
    study = start_study(tmp_path, [0, 1], epochs, "--ray", "local")
    while min(steps_per_run(tmp_path).values(), default=0) < 5 * STEPS_PER_EPOCH or len(steps_per_run(tmp_path)) < 2:
        assert study.poll() is None, study.communicate()[0]
        time.sleep(0.05)
    study.terminate()
    printed, _ = study.communicate(timeout=400)
    assert study.returncode == 128 + signal.SIGTERM, printed
    assert "stopped; run the same command again to resume" in printed
    assert load_results(tmp_path / "results") == []
    assert "resuming after epoch" in succeed(start_study(tmp_path, [0, 1], epochs, "--ray", "local"))
    assert list(steps_per_run(tmp_path).values()) == [epochs * STEPS_PER_EPOCH] * 2
