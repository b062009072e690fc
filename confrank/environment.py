"""Where a run is computed: device, versions and hardware."""

import platform
from typing import Any

import numpy as np
import torch

from confrank import __version__

VERSIONS = ("confrank", "python", "torch", "numpy")


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
