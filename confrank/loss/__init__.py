"""The Correctness Ranking Loss: confidences should be ordered as the correctness rates are."""

from confrank.loss.criterion import CorrectnessRanking, CorrectnessRankingLoss, LossParts
from confrank.loss.forms import are_correct
from confrank.loss.ranking import Reduction, Ring, ranking_loss

__all__ = [
    "CorrectnessRanking",
    "CorrectnessRankingLoss",
    "LossParts",
    "Reduction",
    "Ring",
    "are_correct",
    "ranking_loss",
]
