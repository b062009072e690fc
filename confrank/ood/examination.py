"""The experiment for one classifier: fit, tune (or not), score, and evaluate each detector on each out-set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from confrank.data import Split
from confrank.errors import InputError
from confrank.ood.features import forward_logits, repeatable
from confrank.ood.images import Images, LabelledBatches, over
from confrank.ood.logits import LOGIT_SCORES
from confrank.ood.mahalanobis import Mahalanobis
from confrank.ood.neighbours import NearestNeighbours
from confrank.ood.odin import Odin
from confrank.ood.protocol import Protocol
from confrank.ood.results import OodResult, Scores
from confrank.ood.tuning import TuningImages, divide, tune_mahalanobis, tune_odin
from confrank.runs.trained import TrainedOn

Detector = NearestNeighbours | Odin | Mahalanobis


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
    fitted = _fitted(classifier, protocol, train)
    test_in = inside.select(rows.test)
    fixed_in = _fixed_scores(classifier.model, fitted, protocol, test_in)
    for out_set, pixels in out_sets.items():
        on_note(f"scoring {out_set}")
        outside = images(pixels)
        out_rows = out_rows_of[out_set]
        tuning = TuningImages.of(inside, rows, outside, out_rows) if protocol.num_tuning else None
        test_out = outside.select(out_rows.test)
        fixed_out = _fixed_scores(classifier.model, fitted, protocol, test_out)
        for name in protocol.detectors:
            detector = fitted.get(name)
            if detector is None or name in fixed_in:
                scores = fixed_in[name], fixed_out[name]
            else:
                on_note(f"{'tuning and ' if tuning else ''}scoring {out_set} by {name}")
                detector = _tuned(detector, tuning)
                scores = over(test_in, detector.score), over(test_out, detector.score)
            facts = {"run": classifier.run, "config": classifier.config, **_facts(detector)}
            yield OodResult.of_scores(name, out_set, *scores, protocol, **facts)


def _fitted(classifier: Classifier, protocol: Protocol, train: LabelledBatches) -> dict[str, Detector]:
    """The detectors that need more than the logits, fitted on the training images."""
    model, layers, std = classifier.model, classifier.layers, classifier.std
    known: dict[str, Callable[[], Detector]] = {
        "knn": lambda: NearestNeighbours(model, layers[-1] if layers else "", protocol.neighbours),
        "odin": lambda: Odin(model, std=std),
        "mahalanobis": lambda: Mahalanobis(model, layers, std=std),
    }
    return {name: make().fit(train) for name, make in known.items() if name in protocol.detectors}


def _fixed_scores(
    model: nn.Module, fitted: Mapping[str, Detector], protocol: Protocol, images: Images
) -> dict[str, Scores]:
    """The scores without settings to tune. One forward pass serves all that need only the logits."""
    scores: dict[str, Scores] = {}
    if names := [name for name in protocol.detectors if name in LOGIT_SCORES]:
        with torch.no_grad():
            logits = torch.from_numpy(over(images, lambda batch: forward_logits(model, batch)))
        scores = {name: LOGIT_SCORES[name](logits).numpy() for name in names}
    if "knn" in fitted:
        scores["knn"] = over(images, fitted["knn"].score)
    return scores


def _tuned(detector: Detector, images: TuningImages | None) -> Detector:
    """The detector with the settings that these images choose; without images, as it is."""
    if images is not None and isinstance(detector, Odin):
        return tune_odin(detector, images)
    if images is not None and isinstance(detector, Mahalanobis):
        return tune_mahalanobis(detector, images)
    return detector


def _facts(detector: Detector | None) -> dict[str, Any]:
    """What a result says about its detector."""
    if isinstance(detector, NearestNeighbours):
        return {"settings": {"k": detector.k}}
    if isinstance(detector, Odin):
        return {"settings": {"temperature": detector.temperature, "eps": detector.eps}}
    if isinstance(detector, Mahalanobis):
        weights = None if detector.weights is None else list(detector.weights.weight)
        settings = {"eps": detector.eps, "layers": list(detector.layers), "weights": weights}
        return {"settings": settings, "notes": detector.notes}
    return {}
