"""Where a run is computed: device, versions and hardware."""

import ctypes
import os
import platform
from typing import Any

import numpy as np
import torch

from confrank import __version__

VERSIONS = ("confrank", "python", "torch", "numpy")
# Options of mallopt, from glibc's malloc.h, with the largest values that all versions take. Arrays of more than
# 32 MiB are mapped and returned as ever.
TRIM_THRESHOLD, MMAP_THRESHOLD = (-1, 2**31 - 1), (-3, 2**25)


def default_device() -> torch.device:
    """The first GPU if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def environment(device: torch.device, path: str) -> dict[str, Any]:
    """Versions, hardware and the path of the computation, for the record."""
    return {
        "confrank": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "path": path,
    }


def keep_freed_memory() -> bool:
    """Let this process keep the memory that it frees, up to 2 GiB, for what it allocates next.

    A step on a CPU allocates the maps of all layers anew. Where glibc returns them to the system in between, the
    system clears their pages each time. False if this is not glibc, or if the user has set options of its malloc.
    """
    if any(name == "GLIBC_TUNABLES" or name.startswith("MALLOC_") for name in os.environ):
        return False
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return all(mallopt(*option) for option in (MMAP_THRESHOLD, TRIM_THRESHOLD))
