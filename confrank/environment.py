"""Where a run is computed: device, versions and hardware."""

import platform
from typing import Any

import numpy as np
import torch

from confrank import __version__


def default_device() -> torch.device:
    """The first GPU if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def versions() -> dict[str, str]:
    """Versions of what computes a run."""
    return {
        "confrank": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }


def environment(device: torch.device, path: str) -> dict[str, Any]:
    """Versions, hardware and the path of the computation, for the record."""
    return {
        **versions(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine(),
        "threads": torch.get_num_threads(),
        "path": path,
    }
