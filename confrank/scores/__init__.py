"""Confidence scores of logits or probabilities alone, and choosing among them on data."""

from confrank.scores.choice import Choice, Judged, choose
from confrank.scores.registry import fit, names, score

__all__ = ["Choice", "Judged", "choose", "fit", "names", "score"]
