"""The Correctness Ranking Loss: confidences should be ordered as the correctness rates are."""

from confrank.loss.criterion import CorrectnessRanking, CorrectnessRankingLoss
from confrank.loss.forms import are_correct
from confrank.loss.ranking import Ring, ranking_loss

__all__ = [
    "CorrectnessRanking",
    "CorrectnessRankingLoss",
    "Ring",
    "are_correct",
    "ranking_loss",
]
