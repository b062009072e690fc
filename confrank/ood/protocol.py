"""The whole experiment for one classifier: fit, tune (or not), score, and judge each detector on each out-set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confrank.data import Split
from confrank.metrics.separation import AUPR_ESTIMATORS, AuprEstimator, Detection, detection
from confrank.ood.features import evaluating, logits_of
from confrank.ood.images import Images, Labelled, over
from confrank.ood.logits import LOGIT_SCORES
from confrank.ood.mahalanobis import Mahalanobis
from confrank.ood.neighbours import NearestNeighbours
from confrank.ood.odin import Odin
from confrank.ood.tuning import Division, Scores, TuningImages, divide, tune_mahalanobis, tune_odin

DETECTORS = ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn")


@dataclass(frozen=True)
class Classifier:
    """A trained network, its training and test images, and the layers to look at (our networks know theirs)."""

    model: nn.Module
    train: Split
    test: NDArray[np.uint8]
    mean: Sequence[float]
    std: Sequence[float]
    layers: Sequence[str] = ()


@dataclass(frozen=True)
class Protocol:
    """What is measured and how. `num_tuning` images of each set tune the detectors; 0: no foreign image is used."""

    detectors: Sequence[str] = DETECTORS
    num_tuning: int = 1000
    seed: int = 0
    neighbours: int = 50
    aupr: AuprEstimator = "average"
    batch_size: int = 500

    def __post_init__(self) -> None:
        for name in self.detectors:
            if name not in DETECTORS:
                raise ValueError(f"expected detectors among {', '.join(DETECTORS)}, but got {name!r}")
        if len(set(self.detectors)) < len(self.detectors):
            raise ValueError(f"expected each detector once, but got {' '.join(self.detectors)}")
        if self.aupr not in AUPR_ESTIMATORS:
            raise ValueError(f"expected an AUPR among {', '.join(AUPR_ESTIMATORS)}, but got {self.aupr!r}")

    @property
    def tuned(self) -> tuple[str, ...]:
        """The detectors whose settings are chosen on images of the out-set that they are tested on."""
        return ("odin", "mahalanobis") if self.num_tuning else ()

    def describe(self) -> str:
        """One sentence that tells which protocol this is."""
        if not self.num_tuning:
            return (
                "tuning: none, no out-of-distribution image was used before the test"
                f" (ODIN T = {Odin.temperature:g}, eps = {Odin.eps:g};"
                " Mahalanobis eps = 0, layers weighted equally)"
            )
        half = self.num_tuning // 2
        return (
            f"tuning: {self.num_tuning:,} in-distribution and {self.num_tuning:,} out-of-distribution images of each"
            f" out-set ({half:,} + {half:,} to fit, {half:,} + {half:,} to choose by TNR at 95% TPR),"
            " all left out of the test"
        )


@dataclass(frozen=True)
class Outcome:
    """One detector on one out-set: its scores on the test images, what was chosen, the metrics."""

    detector: str
    out_set: str
    inside: Scores
    outside: Scores
    detection: Detection
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def examine(
    classifier: Classifier,
    out_sets: Mapping[str, NDArray[np.uint8]],
    protocol: Protocol,
    on_note: Callable[[str], None] = lambda text: None,
    on_outcome: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Every detector on every out-set, in this order. The same seed gives the same outcomes.

    `on_outcome` is called with each as soon as it is there.
    """
    own = {"the training split": classifier.train.images, "the test split": classifier.test}
    for name, pixels in {**own, **out_sets}.items():
        check_pixels(name, pixels, classifier.test)
    with evaluating(classifier.model) as device:
        outcomes = []
        for outcome in _outcomes(classifier, out_sets, protocol, device, on_note):
            outcomes.append(outcome)
            on_outcome(outcome)
        return outcomes


def check_pixels(name: str, pixels: NDArray[np.uint8], like: NDArray[np.uint8]) -> None:
    """An error where a set's images are not bytes, of the size and channels that the network was trained on."""
    if pixels.dtype != np.uint8:
        raise ValueError(
            f"expected uint8 images, which are divided by 255 and normalised here, but got {pixels.dtype} in {name};"
            " give pixels within 0..255 as bytes"
        )
    if pixels.shape[1:] != like.shape[1:]:
        expected, actual = ("x".join(map(str, shape[1:])) for shape in (like.shape, pixels.shape))
        raise ValueError(
            f"expected images of {expected} (height x width x channels) as in training, but got {actual} in {name};"
            " scale the pictures of a folder with --image-size, and convert their channels"
        )


def _outcomes(
    classifier: Classifier,
    out_sets: Mapping[str, NDArray[np.uint8]],
    protocol: Protocol,
    device: torch.device,
    on_note: Callable[[str], None],
) -> Iterator[Outcome]:
    def images(pixels: NDArray[np.uint8]) -> Images:
        return Images(pixels, classifier.mean, classifier.std, device, protocol.batch_size)

    inside, train = images(classifier.test), Labelled(images(classifier.train.images), classifier.train.labels)
    rows = divide(len(inside), protocol.num_tuning, protocol.seed, "the test split")
    out_rows_of = {
        out_set: divide(len(pixels), protocol.num_tuning, protocol.seed + 1, out_set)
        for out_set, pixels in out_sets.items()
    }
    if {"knn", "mahalanobis"} & set(protocol.detectors):
        on_note("fitting on the training images")
    fixed, tuned = _Fixed.fit(classifier, protocol, train), _Tuned.fit(classifier, protocol, train)
    test_in = inside.select(rows.test)
    fixed_in = fixed.scores(test_in)
    for out_set, pixels in out_sets.items():
        on_note(f"scoring {out_set}")
        outside = images(pixels)
        out_rows = out_rows_of[out_set]
        tuning = _tuning_images(inside, rows, outside, out_rows) if protocol.num_tuning else None
        test_out = outside.select(out_rows.test)
        fixed_out = fixed.scores(test_out)
        for name in protocol.detectors:
            if name in fixed_in:
                scores, settings, notes = (fixed_in[name], fixed_out[name]), fixed.settings(name), list[str]()
            else:
                on_note(f"{'tuning and ' if tuning else ''}scoring {out_set} by {name}")
                score, settings, notes = tuned.chosen(name, tuning)
                scores = over(test_in, score), over(test_out, score)
            yield Outcome(name, out_set, *scores, detection(*scores, aupr=protocol.aupr), settings, notes)


def _tuning_images(inside: Images, rows: Division, outside: Images, out_rows: Division) -> TuningImages:
    return TuningImages(
        inside.select(rows.fit),
        outside.select(out_rows.fit),
        inside.select(rows.choose),
        outside.select(out_rows.choose),
    )


@dataclass(frozen=True)
class _Fixed:
    """The detectors without anything to tune. One forward pass serves all that look at the logits."""

    model: nn.Module
    names: Sequence[str]
    neighbours: NearestNeighbours | None

    @classmethod
    def fit(cls, classifier: Classifier, protocol: Protocol, train: Labelled) -> "_Fixed":
        neighbours = None
        if "knn" in protocol.detectors:
            layer = classifier.layers[-1] if classifier.layers else ""
            neighbours = NearestNeighbours(classifier.model, layer, protocol.neighbours).fit(train)
        return cls(classifier.model, [name for name in protocol.detectors if name in LOGIT_SCORES], neighbours)

    def scores(self, images: Images) -> dict[str, Scores]:
        found: dict[str, Scores] = {}
        if self.names:
            with torch.no_grad():
                logits = torch.from_numpy(over(images, lambda batch: logits_of(self.model, batch)))
            found |= {name: LOGIT_SCORES[name](logits).numpy() for name in self.names}
        if self.neighbours is not None:
            found["knn"] = over(images, self.neighbours.score)
        return found

    def settings(self, name: str) -> dict[str, Any]:
        return {"k": self.neighbours.k} if name == "knn" and self.neighbours else {}


@dataclass(frozen=True)
class _Tuned:
    """The detectors whose settings may be chosen anew for each out-set."""

    odin: Odin
    mahalanobis: Mahalanobis | None

    @classmethod
    def fit(cls, classifier: Classifier, protocol: Protocol, train: Labelled) -> "_Tuned":
        mahalanobis = None
        if "mahalanobis" in protocol.detectors:
            mahalanobis = Mahalanobis(classifier.model, classifier.layers, std=classifier.std)
            mahalanobis.fit(train)
        return cls(Odin(classifier.model, std=classifier.std), mahalanobis)

    def chosen(
        self, name: str, images: TuningImages | None
    ) -> tuple[Callable[[Tensor], Tensor], dict[str, Any], list[str]]:
        """The score to use, the settings behind it, and notes."""
        if name == "odin":
            odin = self.odin if images is None else tune_odin(self.odin, images)
            return odin.score, {"temperature": odin.temperature, "eps": odin.eps}, []
        assert self.mahalanobis is not None  # fitted when asked for
        detector = self.mahalanobis if images is None else tune_mahalanobis(self.mahalanobis, images)
        weights = None if detector.weights is None else list(detector.weights.weight)
        settings = {"eps": detector.eps, "layers": list(detector.layers), "weights": weights}
        return detector.score, settings, detector.notes
