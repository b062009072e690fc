"""Active learning: which samples to label next, the paper's experiment, and the tool for a real pool."""

from confrank.active.centres import covering_radius, k_center_greedy
from confrank.active.strategies import STRATEGIES, Strategy, select

__all__ = ["STRATEGIES", "Strategy", "covering_radius", "k_center_greedy", "select"]
