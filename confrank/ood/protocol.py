"""What an out-of-distribution experiment measures: detectors, tuning images, seed and metrics. Needs no torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from confrank.metrics.separation import AUPR_ESTIMATORS, AuprEstimator

DETECTORS = ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn")
# ODIN without tuning images: a high temperature and a small step are the usual choice.
ODIN_TEMPERATURE, ODIN_EPS = 1000.0, 0.0014


@dataclass(frozen=True)
class Protocol:
    """`num_tuning` images of each set tune the detectors; 0: no out-of-distribution image is used before the test."""

    detectors: Sequence[str] = DETECTORS
    num_tuning: int = 1000
    seed: int = 0
    neighbours: int = 50
    aupr: AuprEstimator = "average"
    batch_size: int = 500

    def __post_init__(self) -> None:
        object.__setattr__(self, "detectors", tuple(name.replace("_", "-") for name in self.detectors))
        for name in self.detectors:
            if name not in DETECTORS:
                raise ValueError(f"expected detectors among {', '.join(DETECTORS)}, but got {name!r}")
        if len(set(self.detectors)) < len(self.detectors):
            raise ValueError(f"expected each detector once, but got {' '.join(self.detectors)}")
        if self.aupr not in AUPR_ESTIMATORS:
            raise ValueError(f"expected an AUPR among {', '.join(AUPR_ESTIMATORS)}, but got {self.aupr!r}")

    @property
    def is_of_the_paper(self) -> bool:
        """Whether the results can be compared with the paper's table."""
        return (self.num_tuning, self.aupr) == (Protocol.num_tuning, Protocol.aupr)

    def describe(self) -> str:
        """The protocol in one sentence."""
        if not self.num_tuning:
            settings = {
                "odin": f"ODIN T = {ODIN_TEMPERATURE:g}, eps = {ODIN_EPS:g}",
                "mahalanobis": "Mahalanobis eps = 0, layers weighted equally",
            }
            used = "; ".join(text for name, text in settings.items() if name in self.detectors)
            none = "tuning: none, nothing out-of-distribution was used before the test"
            return f"{none} ({used})" if used else none
        half = self.num_tuning // 2
        return (
            f"tuning: {self.num_tuning:,} in-distribution and {self.num_tuning:,} out-of-distribution images of each"
            f" out-set, all left out of the test; settings have the highest TNR at 95% TPR (Mahalanobis: {half:,} +"
            f" {half:,} to fit, {half:,} + {half:,} to choose)"
        )
