"""Programs outside the package, for tests that call their functions."""

import importlib.util
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parent.parent


def program(path: str) -> ModuleType:
    """The module in a file, given by its path from the root of the repository."""
    file = ROOT / path
    spec = importlib.util.spec_from_file_location(f"{file.parent.name}_{file.stem}", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
