"""A network that notes its training steps in a file, for processes that run a study with it."""

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import torch

STEPS_PER_EPOCH = 8  # 900 digits in batches of 128
TESTS = Path(__file__).parent


def network(num_classes, in_channels=3, **options):
    """An mlp that writes a line per training step: the seed of its run, its process, and the parent of that."""
    from confrank.models import create

    built, seed = create("mlp", num_classes, in_channels=in_channels), torch.initial_seed()

    def note(module, inputs):
        if module.training:
            with open(os.environ["STEPS"], "a") as file:
                file.write(f"{seed} {os.getpid()} {os.getppid()}\n")
            time.sleep(0.005)  # so that a test has time to intervene

    built.register_forward_pre_hook(note)
    return built


def environment(folder):
    """The environment of processes that train this network; steps go to a file in the folder."""
    paths = [str(TESTS), str(TESTS.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "STEPS": str(folder / "steps")}


def start(folder, *command):
    """A Python process in the folder; its output can be read, and its input ends it if it waits for that."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, *map(str, command)], cwd=folder, env=environment(folder), **pipes)


def start_study(folder, seeds, epochs, *flags):
    """A process that runs `confrank study` with this network, in the folders of `folder`."""
    cells = {"datasets": "digits", "models": "counting:network", "methods": "ensemble-baseline"}
    given = {**cells, "seeds": ",".join(map(str, seeds)), "epochs": epochs, "device": "cpu"}
    options = [part for name, value in given.items() for part in (f"--{name}", value)]
    return start(folder, "-m", "confrank", "study", "table-clf-perf", *options, *flags)


def steps(folder):
    """The seed of the run, the process and its parent of each step so far."""
    path = folder / "steps"
    text = path.read_text() if path.exists() else ""
    return [tuple(map(int, line.split())) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def steps_per_run(folder):
    """The number of training steps of each run, by its seed."""
    return Counter(seed for seed, *_ in steps(folder))
