"""Predictions of a trained network for a complete split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from confrank import confidence
from confrank.data import Split
from confrank.errors import InputError
from confrank.methods.method import Method, Output
from confrank.metrics.inputs import to_numpy
from confrank.models import Network, logits_of
from confrank.predictions import Predictions


def normalise(image: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes [n, h, w, c] -> float32 [n, c, h, w] in channels-last memory, (x / 255 - mean) / std."""
    return ((image.float() / 255 - mean) / std).permute(0, 3, 1, 2)


def normalised(
    pixels: NDArray[Any], mean: Sequence[float], std: Sequence[float], device: torch.device, batch_size: int
) -> Iterator[Tensor]:
    """Bytes [n, h, w, c] batch by batch on a device: float32 [b, c, h, w]; texts [n, length] as they are."""
    centre, scale = (torch.tensor(tuple(values), device=device) for values in (mean, std))
    for start in range(0, len(pixels), batch_size):
        # A copy: torch rejects negative strides and read-only arrays.
        batch = torch.from_numpy(np.array(pixels[start : start + batch_size])).to(device)
        yield normalise(batch, centre, scale) if batch.ndim == 4 else batch


@contextmanager
def evaluating(model: nn.Module, *, deterministic: bool = False) -> Iterator[torch.device]:
    """Evaluation mode in full float32 precision; yields the network's device and restores the network afterwards.

    Full precision, because TF32 on tensor cores would change confidences and create ties.
    """
    training = {module for module in model.modules() if module.training}
    model.eval()
    cudnn = torch.backends.cudnn
    try:
        with _set(cudnn, enabled=True, benchmark=False, deterministic=deterministic), _full_float32():
            yield next((weights.device for weights in model.parameters()), torch.device("cpu"))
    finally:
        for module in training:
            module.training = True


@contextmanager
def _full_float32() -> Iterator[None]:
    """Turn off TF32 in convolutions and matrix products, through whichever of torch's two interfaces is in use.

    They do not mix: once a precision is set through the newer one, the older one raises or has no effect.
    """
    backends: Any = torch.backends
    cudnn = backends.cudnn
    try:
        matmul_precision = torch.get_float32_matmul_precision()
        cudnn_tf32 = cudnn.allow_tf32
        is_newer = {backends.fp32_precision, cudnn.fp32_precision} != {"none"}
    except RuntimeError:
        is_newer = True
    if is_newer:
        ieee = {"fp32_precision": "ieee"}
        with _set(cudnn.conv, **ieee), _set(cudnn.rnn, **ieee), _set(backends.cuda.matmul, **ieee):
            yield
        return
    changed = matmul_precision != "highest"
    try:
        cudnn.allow_tf32 = False
        if changed:
            torch.set_float32_matmul_precision("highest")
        yield
    finally:
        cudnn.allow_tf32 = cudnn_tf32
        if changed:
            torch.set_float32_matmul_precision(matmul_precision)


@contextmanager
def _set(target: Any, **values: object) -> Iterator[None]:
    """Set attributes of an object, and restore them afterwards."""
    before = {name: getattr(target, name) for name in values}
    try:
        for name, value in values.items():
            setattr(target, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(target, name, value)


@torch.no_grad()
def mirrored_probabilities(model: nn.Module, image: Tensor) -> Tensor:
    """The mean of the probabilities that a network gives images [b, c, h, w] and their mirror images.

    The network predicts in evaluation mode; the result is float64 [b, K].
    """
    if image.ndim != 4:
        raise InputError(
            f"expected images [b, c, h, w] to mirror, but got a tensor of shape {list(image.shape)}",
            "give grey images one channel",
        )
    with evaluating(model):
        return _mean_with_mirrored(lambda each: logits_of(model(each)).double().softmax(1), image)


def _mean_with_mirrored(probabilities_of: Callable[[Tensor], Tensor], image: Tensor) -> Tensor:
    return (probabilities_of(image).double() + probabilities_of(image.flip(3)).double()) / 2


def _predict_mirrored(method: Method, model: nn.Module, image: Tensor) -> Output:
    """The mean of a method's probabilities for images and their mirror images, with its confidence."""
    mean = _mean_with_mirrored(lambda each: _probabilities(method.predict(model, each)), image)
    confidence_of = confidence.get(method.facts.confidence or "negative_entropy")
    return Output(probabilities=mean.float(), confidence=confidence_of(mean.log()))


def _probabilities(output: Output) -> Tensor:
    if output.logits is not None:
        return output.logits.double().softmax(1)
    assert output.probabilities is not None
    return output.probabilities


def predict_split(
    method: Method,
    model: nn.Module,
    split: Split,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    batch_size: int = 1000,
    seed: int = 0,
    metadata: dict[str, str] | None = None,
    mirror: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions of the network (on its device, in float32) for every image of the split, in order.

    `on_progress` is called with the number of images done and the total. A stochastic method draws from `seed`: the
    same call gives the same predictions, and torch's global random state does not change. `mirror` averages the
    probabilities of each image and its mirror image; the metadata say so.
    """
    outputs, done = [], 0
    # no_grad, not inference mode: tensors that a network caches must stay usable in training.
    with torch.no_grad(), evaluating(model) as device, _seeded(method, device, seed):
        for image in normalised(split.images, mean, std, device, batch_size):
            outputs.append(_predict_mirrored(method, model, image) if mirror else method.predict(model, image))
            done += len(image)
            if on_progress:
                on_progress(done, len(split))

    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(output, name) for output in outputs]
        return None if not parts or parts[0] is None else to_numpy(torch.cat(parts))

    return Predictions(
        logits=joined("logits"),
        probabilities=joined("probabilities"),
        confidence=joined("confidence"),
        label=split.labels,
        index=split.index,
        key=split.path,
        metadata={
            **(metadata or {}),
            **({} if split.path is None else {"key": "id" if split.is_text else "path"}),
            **({"mirror": "true"} if mirror else {}),
        },
    )


def joined(parts: Sequence[Predictions]) -> dict[str, Any]:
    """The logits, probabilities and confidences of consecutive parts of a split, as those of the split."""
    names = [name for name in ("logits", "probabilities", "confidence") if getattr(parts[0], name) is not None]
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


@torch.inference_mode()
def penultimate(
    model: nn.Module, split: Split, mean: Sequence[float], std: Sequence[float], *, batch_size: int = 1000
) -> Tensor:
    """The input of the network's head for every image of the split, in order: float32 [n, d] on its device."""
    if not isinstance(model, Network):
        raise ValueError(
            f"expected a network of confrank.models, which exposes its features, but got {type(model).__name__}"
        )
    with evaluating(model) as device:
        images = normalised(split.images, mean, std, device, batch_size)
        return torch.cat([model.features(image).penultimate.float() for image in images])


@contextmanager
def _seeded(method: Method, device: torch.device, seed: int) -> Iterator[None]:
    if not method.facts.stochastic:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
