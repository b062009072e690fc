"""Further measurements of a trained network: with mirrored images, and under shift.

Shift is noise, blur and less contrast, in five strengths each: those of CIFAR-10-C (Hendrycks & Dietterich 2019). The
images are computed here and differ from the published ones in noise and rounding. They are the same on every machine.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confrank.data import DataSet, Split
from confrank.environment import default_device
from confrank.evaluation import evaluate
from confrank.metrics.inputs import Floats
from confrank.runs.trained import TrainedOn, load_run
from confrank.study.results import extend_result, is_of_run, load_result

Metrics = dict[str, float | None]
STRENGTHS = (1, 2, 3, 4, 5)
NOISE_STD = (0.04, 0.06, 0.08, 0.09, 0.10)  # on the 0-1 scale
BLUR_STD = (0.4, 0.6, 0.7, 0.8, 1.0)  # in pixels
CONTRAST_SHARE = (0.75, 0.5, 0.4, 0.3, 0.15)
# Images are corrupted in blocks that fit into a cache.
BLOCK = 500


def examine_run(
    run: Path,
    results: Path,
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    data: DataSet | None = None,
) -> Path:
    """Add `mirrored` and `shift` to the result of a finished run, unless it has them; options as in `load_run`.

    `mirrored` has the metrics of the mean prediction for each image and its mirror image: on `test`, and on
    `validation` if any. `shift` has those on corrupted test images, by corruption and strength. Without `device`,
    it is the one that training would use: eighteen passes over a test set take long on a CPU.
    """
    path = results / f"{run.name}.json"
    if load_result(path).shift:
        return path
    if not is_of_run(path, run):
        raise ValueError(f"expected the network of {path} in {run}, but it was trained again; remove the result")
    trained = load_run(run, root=root, device=device or default_device(), data=data)
    if trained.data.is_text:
        raise ValueError(f"expected images to mirror and corrupt, but {run} was trained on texts")
    test = trained.data.test
    splits = {"test": test, "validation": trained.held_out}
    mirrored = {name: _metrics(trained, split, mirror=True) for name, split in splits.items() if split is not None}
    shift: dict[str, dict[str, Metrics]] = {name: {} for name in CORRUPTIONS}
    for name, of_strength in shift.items():
        for strength in STRENGTHS:  # of seed 0, so that all networks see the same images
            images = corrupted(test.images, name, strength)
            of_strength[str(strength)] = _metrics(trained, replace(test, images=images))
    return extend_result(path, {"mirrored": mirrored, "shift": shift})


def _metrics(trained: TrainedOn, split: Split, **options: bool) -> Metrics:
    return evaluate(**trained.predict(split, **options).evaluation_inputs()).metrics


def corrupted(images: NDArray[Any], name: str, strength: int, *, seed: int = 0) -> NDArray[np.uint8]:
    """A corrupted copy of images uint8 [n, h, w, c]; the noise is drawn from (seed, strength).

    >>> corrupted(np.full((1, 2, 2, 1), 100, np.uint8), "noise", 5).ravel().tolist()
    [98, 87, 108, 33]
    """
    if name not in CORRUPTIONS:
        raise ValueError(f"expected a corruption among {', '.join(CORRUPTIONS)}, but got {name!r}")
    if strength not in STRENGTHS:
        raise ValueError(f"expected a strength among {', '.join(map(str, STRENGTHS))}, but got {strength!r}")
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(f"expected uint8 images [n, h, w, c], but got {images.dtype} of shape {images.shape}")
    change = CORRUPTIONS[name](strength, images.shape[1:3], np.random.default_rng([seed, strength]))
    result = np.empty(images.shape, np.uint8)
    for start in range(0, len(images), BLOCK):
        rows = slice(start, start + BLOCK)
        result[rows] = np.rint(change(images[rows].astype(np.float64)).clip(0, 255))
    return result


Change = Callable[[Floats], Floats]


def _noise(strength: int, shape: tuple[int, ...], random: np.random.Generator) -> Change:
    """Add Gaussian noise, independent in every channel of every pixel."""
    std = 255 * NOISE_STD[strength - 1]
    return lambda image: image + std * random.standard_normal(image.shape)


def _blur(strength: int, shape: tuple[int, ...], random: np.random.Generator) -> Change:
    """Average the surroundings of each pixel with Gaussian weights; the border is repeated outwards."""
    rows, columns = (_weights(size, BLUR_STD[strength - 1]) for size in shape)

    def blurred(image: Floats) -> Floats:
        n, h, w, c = image.shape
        down = (rows @ image.reshape(n, h, w * c)).reshape(n * h, w, c)
        return (columns @ down).reshape(n, h, w, c)

    return blurred


def _weights(size: int, std: float) -> Floats:
    """The weights [size, size] of the pixels of a line in each blurred pixel.

    They are multiples of 2^-16 and sum to 1: with them, float64 is exact in whatever order a product is summed.
    """
    reach = int(4 * std + 0.5)
    offset = np.arange(-reach, reach + 1)
    kernel = np.exp(-0.5 * (offset / std) ** 2)
    kernel = np.rint(kernel / kernel.sum() * 2**16)
    kernel[reach] += 2**16 - kernel.sum()
    weights = np.zeros((size, size))
    source = (np.arange(size)[:, None] + offset).clip(0, size - 1)
    np.add.at(weights, (np.arange(size)[:, None], source), kernel / 2**16)
    return weights


def _contrast(strength: int, shape: tuple[int, ...], random: np.random.Generator) -> Change:
    """Move each pixel towards the mean of its channel."""
    share = CONTRAST_SHARE[strength - 1]

    def flattened(image: Floats) -> Floats:
        mean: Floats = image.mean(axis=(1, 2), keepdims=True)
        return share * (image - mean) + mean

    return flattened


CORRUPTIONS: dict[str, Callable[[int, tuple[int, ...], np.random.Generator], Change]] = {
    "noise": _noise,
    "blur": _blur,
    "contrast": _contrast,
}
