"""The result of one detector on one out-set, from the detector to file, table and figures. Needs no torch."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from confrank.config import RunConfig
from confrank.metrics.separation import detection
from confrank.ood.protocol import Protocol

Scores = NDArray[np.float64]
PAPER = Protocol()
STORED = ("detector", "out_set", "num_in", "num_out", "settings", "metrics", "undefined", "notes")


class Group(NamedTuple):
    """What results must share to be averaged: data set, network, method with its settings, and out-set."""

    dataset: str
    model: str
    method: str
    out_set: str


@dataclass(frozen=True)
class OodResult:
    """One detector of one run on one out-set.

    `inside` and `outside` are the scores of the `num_in` + `num_out` test images; files do not store them. `config`
    is the flat config of the run, empty for a network that no run trained.
    """

    detector: str
    out_set: str
    num_in: int
    num_out: int
    metrics: dict[str, float | None]
    undefined: dict[str, str] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    run: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    protocol: Protocol = PAPER
    inside: Scores | None = field(default=None, repr=False, compare=False)
    outside: Scores | None = field(default=None, repr=False, compare=False)

    @classmethod
    def of_scores(
        cls, detector: str, out_set: str, inside: Scores, outside: Scores, protocol: Protocol = PAPER, **facts: Any
    ) -> Self:
        """The result with the metrics of these scores; `facts` are its other fields."""
        judged = detection(inside, outside, aupr=protocol.aupr)
        facts |= {"metrics": judged.metrics, "undefined": judged.undefined, "protocol": protocol}
        return cls(detector, out_set, len(inside), len(outside), inside=inside, outside=outside, **facts)


def results_json(results: Iterable[OodResult], protocol: Protocol, environment: Mapping[str, Any]) -> dict[str, Any]:
    """Protocol, versions and hardware, and the results run by run; `read_results` reads it again."""
    runs: dict[str, dict[str, Any]] = {}
    for result in results:
        # A file that is passed on should not name folders of the machine that wrote it.
        new = {"name": Path(result.run).name, "config": result.config, "outcomes": []}
        runs.setdefault(result.run, new)["outcomes"].append({key: getattr(result, key) for key in STORED})
    return {
        "protocol": {
            "description": protocol.describe(),
            "num_tuning": protocol.num_tuning,
            "uses_out_of_distribution_images": protocol.num_tuning > 0,
            "seed": protocol.seed,
            "aupr": protocol.aupr,
        },
        "environment": dict(environment),
        "runs": list(runs.values()),
    }


def read_results(path: Path) -> list[OodResult]:
    """The results in a file of `results_json`, without their scores."""
    try:
        content = json.loads(path.read_text())
        protocol = Protocol(**{key: content["protocol"][key] for key in ("num_tuning", "seed", "aupr")})
        return [
            OodResult(
                **{key: one[key] for key in STORED},
                run=Path(run["name"]).name,
                config=RunConfig.from_dict(run["config"]).as_dict(),
                protocol=protocol,
            )
            for run in content["runs"]
            for one in run["outcomes"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"expected results of out-of-distribution detection in {path}, but they cannot be read: {error!r}"
        ) from None


def pairs_by_detector(results: Iterable[OodResult]) -> dict[str, list[tuple[Scores, Scores]]]:
    """Each detector's scores (inside, outside), run by run."""
    pairs: dict[str, list[tuple[Scores, Scores]]] = {}
    for result in results:
        assert result.inside is not None and result.outside is not None  # fresh results have them
        pairs.setdefault(result.detector, []).append((result.inside, result.outside))
    return pairs


Groups = Mapping[Group, Sequence[OodResult]]
