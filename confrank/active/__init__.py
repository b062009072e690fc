"""Active learning: which samples to label next, the paper's experiment, and a tool for your own pool of samples."""

from importlib import import_module
from typing import TYPE_CHECKING

from confrank.active.strategies import STRATEGIES, Strategy

if TYPE_CHECKING:
    from confrank.active.centres import covering_radius, k_center_greedy
    from confrank.active.selection import select

# Imported on first use: a table of results needs no torch.
_HOME = {"covering_radius": "centres", "k_center_greedy": "centres", "select": "selection"}

__all__ = ["STRATEGIES", "Strategy", "covering_radius", "k_center_greedy", "select"]

if not TYPE_CHECKING:  # a type checker that saw this function would accept any name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
