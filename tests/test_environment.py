"""Memory that a command on a CPU frees stays with the process, unless the user decides otherwise."""

import os
import platform
import subprocess
import sys

import pytest
import torch

from confrank.cli.options import device_of

glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc only")
# Each array is mapped, so that freeing it returns it. With glibc's defaults, a heap that cannot grow in one piece, as
# some layouts of the address space have it, is not returned.
MAPPED = {"MALLOC_MMAP_THRESHOLD_": "131072"}
PROGRAM = """
import resource, sys, torch
from confrank.environment import keep_freed_memory
torch.ones(1)
kept = keep_freed_memory() if sys.argv[1] == "keep" else None
def rounds(number):
    for _ in range(number):
        maps = [torch.ones(2**21) for _ in range(16)]  # 8 MiB each
        del maps
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = rounds(3)
print(kept, rounds(10) - before)
"""


def measured(mode: str, **environment: str) -> tuple[str, int]:
    """What `keep_freed_memory` returned, and the page faults of ten rounds of 128 MiB allocated and freed."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_"))}
    command = [sys.executable, "-c", PROGRAM, mode]
    output = subprocess.run(command, env={**plain, **environment}, capture_output=True, text=True, check=True).stdout
    kept, faults = output.split()
    return kept, int(faults)


@glibc
def test_kept_memory_is_not_cleared_again():
    kept, faults = measured("keep")
    assert kept == "True"
    assert faults < measured("return", **MAPPED)[1] / 4


@glibc
def test_options_of_the_user_win():
    kept, faults = measured("keep", **MAPPED)
    assert kept == "False"
    assert faults > 4 * measured("keep")[1]


@pytest.mark.parametrize(("name", "is_kept"), [("cpu", True), ("auto", not torch.cuda.is_available())])
def test_commands_on_a_cpu_keep_memory(name, is_kept, monkeypatch):
    calls = []
    monkeypatch.setattr("confrank.environment.keep_freed_memory", lambda: calls.append(name))
    device_of(name)
    assert calls == [name] * is_kept
