"""The experiment for one classifier: fit, tune (or not), score, and evaluate each detector on each out-set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confrank.data import Split
from confrank.ood.features import forward_logits, repeatable
from confrank.ood.images import Images, LabelledBatches, over
from confrank.ood.logits import LOGIT_SCORES
from confrank.ood.mahalanobis import Mahalanobis
from confrank.ood.neighbours import NearestNeighbours
from confrank.ood.odin import Odin
from confrank.ood.protocol import Protocol
from confrank.ood.results import OodResult, Scores
from confrank.ood.tuning import TuningImages, divide, tune_mahalanobis, tune_odin
from confrank.phrasing import InputError
from confrank.trained import TrainedOn


@dataclass(frozen=True)
class Classifier:
    """A trained network, its training and test images, and the layers to look at (confrank's networks know theirs).

    `run` and `config` identify the run that trained it, if any; every result carries them.
    """

    model: nn.Module
    train: Split
    test: NDArray[np.uint8]
    mean: Sequence[float]
    std: Sequence[float]
    layers: Sequence[str] = ()
    run: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of_run(cls, trained: TrainedOn, run: str, layers: Sequence[str] = ()) -> Self:
        """The network of a run with its data."""
        data, record = trained.data, trained.provenance
        config = trained.config.as_dict()
        return cls(trained.network, data.train, data.test.images, record.mean, record.std, layers, run, config)


def examine(
    classifier: Classifier,
    out_sets: Mapping[str, NDArray[np.uint8]],
    protocol: Protocol,
    on_note: Callable[[str], None] = lambda text: None,
    on_result: Callable[[OodResult], None] = lambda result: None,
) -> list[OodResult]:
    """Results of every out-set with every detector, in this order. The same seed gives the same results.

    `on_result` is called with each result as soon as it is computed.
    """
    splits = {"the training split": classifier.train.images, "the test split": classifier.test}
    if classifier.train.is_text and (refused := sorted({*protocol.detectors} - {*LOGIT_SCORES})):
        raise InputError(
            f"expected detectors that need only the logits for texts, but got {', '.join(refused)}",
            f"set {{detectors}} to some of {', '.join(LOGIT_SCORES)}",
        )
    for name, pixels in {**splits, **out_sets}.items():
        check_pixels(name, pixels, classifier.test)
    if "knn" in protocol.detectors and protocol.neighbours > len(classifier.train):
        raise InputError(
            f"expected k within 1..{len(classifier.train)} (the training samples), but got {protocol.neighbours}",
            "lower {neighbours}",
        )
    with repeatable(classifier.model) as device:
        results = []
        for result in _results(classifier, out_sets, protocol, device, on_note):
            results.append(result)
            on_result(result)
        return results


def check_pixels(name: str, pixels: NDArray[np.uint8], like: NDArray[np.uint8]) -> None:
    """Raise unless a set's images are bytes of the size and channels that the network was trained on."""
    if pixels.dtype != (np.int32 if like.ndim == 2 else np.uint8):  # texts or images
        raise ValueError(
            f"expected uint8 images, which are divided by 255 and normalised here, but got {pixels.dtype} in {name};"
            " give pixels within 0..255 as bytes"
        )
    if pixels.shape[1:] != like.shape[1:]:
        expected, actual = ("x".join(map(str, shape[1:])) for shape in (like.shape, pixels.shape))
        raise InputError(
            f"expected images of {expected} (height x width x channels) as in training, but got {actual} in {name}",
            "set {image_size} to scale the pictures of a folder, and convert their channels",
        )


def _results(
    classifier: Classifier,
    out_sets: Mapping[str, NDArray[np.uint8]],
    protocol: Protocol,
    device: torch.device,
    on_note: Callable[[str], None],
) -> Iterator[OodResult]:
    def images(pixels: NDArray[np.uint8]) -> Images:
        return Images(pixels, classifier.mean, classifier.std, device, protocol.batch_size)

    inside = images(classifier.test)
    train = LabelledBatches(images(classifier.train.images), classifier.train.labels)
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
        tuning = TuningImages.of(inside, rows, outside, out_rows) if protocol.num_tuning else None
        test_out = outside.select(out_rows.test)
        fixed_out = fixed.scores(test_out)
        for name in protocol.detectors:
            if name in fixed_in:
                scores, notes = (fixed_in[name], fixed_out[name]), list[str]()
                settings: dict[str, Any] = {"k": protocol.neighbours} if name == "knn" else {}
            else:
                on_note(f"{'tuning and ' if tuning else ''}scoring {out_set} by {name}")
                score, settings, notes = tuned.chosen(name, tuning)
                scores = over(test_in, score), over(test_out, score)
            facts: dict[str, Any] = {"run": classifier.run, "config": classifier.config, "settings": settings}
            yield OodResult.of_scores(name, out_set, *scores, protocol, notes=notes, **facts)


@dataclass(frozen=True)
class _Fixed:
    """The detectors without settings to tune. One forward pass serves all that need only the logits."""

    model: nn.Module
    names: Sequence[str]
    neighbours: NearestNeighbours | None

    @classmethod
    def fit(cls, classifier: Classifier, protocol: Protocol, train: LabelledBatches) -> "_Fixed":
        neighbours = None
        if "knn" in protocol.detectors:
            layer = classifier.layers[-1] if classifier.layers else ""
            neighbours = NearestNeighbours(classifier.model, layer, protocol.neighbours).fit(train)
        return cls(classifier.model, [name for name in protocol.detectors if name in LOGIT_SCORES], neighbours)

    def scores(self, images: Images) -> dict[str, Scores]:
        scores: dict[str, Scores] = {}
        if self.names:
            with torch.no_grad():
                logits = torch.from_numpy(over(images, lambda batch: forward_logits(self.model, batch)))
            scores |= {name: LOGIT_SCORES[name](logits).numpy() for name in self.names}
        if self.neighbours is not None:
            scores["knn"] = over(images, self.neighbours.score)
        return scores


@dataclass(frozen=True)
class _Tuned:
    """The detectors whose settings may be tuned for each out-set."""

    odin: Odin
    mahalanobis: Mahalanobis | None

    @classmethod
    def fit(cls, classifier: Classifier, protocol: Protocol, train: LabelledBatches) -> "_Tuned":
        mahalanobis = None
        if "mahalanobis" in protocol.detectors:
            mahalanobis = Mahalanobis(classifier.model, classifier.layers, std=classifier.std).fit(train)
        return cls(Odin(classifier.model, std=classifier.std), mahalanobis)

    def chosen(
        self, name: str, images: TuningImages | None
    ) -> tuple[Callable[[Tensor], Tensor], dict[str, Any], list[str]]:
        """The score function with the chosen settings, these settings, and notes."""
        if name == "odin":
            odin = self.odin if images is None else tune_odin(self.odin, images)
            return odin.score, {"temperature": odin.temperature, "eps": odin.eps}, []
        assert self.mahalanobis is not None  # fitted when requested
        detector = self.mahalanobis if images is None else tune_mahalanobis(self.mahalanobis, images)
        weights = None if detector.weights is None else list(detector.weights.weight)
        settings = {"eps": detector.eps, "layers": list(detector.layers), "weights": weights}
        return detector.score, settings, detector.notes
