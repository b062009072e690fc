"""TrivialAugment, wide (Müller & Hutter 2021): each image is changed by one of 14 operations at a random strength.

The operations are those of Pillow, computed for a batch at once: every image passes through all of them, with
parameters that change nothing for all but the one that was drawn. No shape depends on data. Images smaller than the
paper's longest shift, 32 pixels, are shifted by at most their size.
"""

import math
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import pad

from confrank.errors import InputError
from confrank.training.draws import generator_of

OPERATIONS = (
    "identity", "shear-x", "shear-y", "translate-x", "translate-y", "rotate", "brightness", "colour", "contrast",
    "sharpness", "posterize", "solarize", "autocontrast", "equalize",
)  # fmt: skip
NUMBER = {name: number for number, name in enumerate(OPERATIONS)}
NUM_PARAMETERS = 10
# Strengths are 0, 1, ..., 30; shears, shifts, rotations and enhancements also have a random sign.
STRONGEST = 30
MAX_SHEAR, MAX_SHIFT, MAX_DEGREES, MAX_ENHANCEMENT, MAX_LOST_BITS = 0.99, 32, 135, 0.99, 6
Matrix = tuple[float, float, float, float, float, float]
# Coordinates and factors are whole numbers of 1/65536, as the coordinates of Pillow.
ONE = 2**16
# A separate random stream, as mixing has one: order, crops, flips and mixing stay the same.
STREAM = 2
# The share of an epoch's images that are changed, by the name of the setting.
SHARES = {"trivial": 1.0, "trivial-half": 0.5}


def epoch_changes(seed: int, epoch: int, num_samples: int, height: int, width: int, share: float = 1.0) -> Tensor:
    """How to change the image at each position of an epoch, int64 [n, 10], from (seed, epoch) alone.

    `height` and `width` are those of the images. Below 1, a random `share` of the images is changed as with 1, and
    the others stay as they are.
    """
    random = generator_of(seed, epoch, STREAM)
    operation = random.integers(len(OPERATIONS), size=num_samples)
    strength = random.integers(STRONGEST + 1, size=num_samples)
    sign = 1 - 2 * random.integers(2, size=num_samples)
    operation[random.random(num_samples) >= share] = NUMBER["identity"]
    return torch.from_numpy(_table(height, width)[operation, STRONGEST + sign * strength])


def change(image: Tensor, changes: Tensor) -> Tensor:
    """Changed images int32 [b, h, w, c] of grey or colour images uint8, by `changes` [b, 10] (see `parameters`)."""
    _check(image, changes)
    columns = changes.int()
    operation, factor, bits, threshold = (columns[:, number, None, None, None] for number in range(4))
    moved = _moved(image.int(), columns[:, 4:])
    enhanced = _enhanced(moved, operation, factor)
    fewer = enhanced & bits
    inverted = torch.where(fewer >= threshold, 255 - fewer, fewer)
    stretched = torch.where(operation == NUMBER["autocontrast"], _stretched(inverted), inverted)
    return torch.where(operation == NUMBER["equalize"], _equalized(stretched), stretched)


def _check(image: Tensor, changes: Tensor) -> None:
    shape = list(image.shape)
    if image.dtype != torch.uint8 or len(shape) != 4 or shape[-1] not in (1, 3):
        raise InputError(
            f"expected images uint8 [b, h, w, c] with 1 or 3 channels, but got {image.dtype} of shape {shape}",
            "augment the bytes, before they are normalised and the channels come first",
        )
    wanted, given = [shape[0], NUM_PARAMETERS], list(changes.shape)
    if given != wanted:
        raise InputError(
            f"expected changes of shape {wanted}, one row per image, but got {given}",
            "select the rows of `epoch_changes` for this batch",
        )


def parameters(name: str, strength: int, height: int, width: int) -> list[int]:
    """The parameters of an operation at a strength within -30..30.

    The number of the operation; the factor of an enhancement (in 1/65536); the bits that stay; the threshold from
    which on values are inverted; and the matrix (a, b, c, d, e, f), in 1/65536, that takes the pixel (x, y) of the
    changed image from (a x + b y + c, d x + e y + f), with the centres of pixels accounted for.

    >>> parameters("posterize", -30, 32, 32)[:4]
    [10, 65536, 192, 256]
    """
    share, size = strength / STRONGEST, abs(strength) / STRONGEST
    factor, bits, threshold = 1.0, 255, 256
    matrix: Matrix = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    if name == "shear-x":
        matrix = (1.0, share * MAX_SHEAR, 0.0, 0.0, 1.0, 0.0)
    elif name == "shear-y":
        matrix = (1.0, 0.0, 0.0, share * MAX_SHEAR, 1.0, 0.0)
    elif name == "translate-x":
        matrix = (1.0, 0.0, math.trunc(share * min(MAX_SHIFT, width)), 0.0, 1.0, 0.0)
    elif name == "translate-y":
        matrix = (1.0, 0.0, 0.0, 0.0, 1.0, math.trunc(share * min(MAX_SHIFT, height)))
    elif name == "rotate":
        matrix = _rotation(share * MAX_DEGREES, height, width)
    elif name in ("brightness", "colour", "contrast", "sharpness"):
        factor += share * MAX_ENHANCEMENT
    elif name == "posterize":
        bits -= 2 ** round(size * MAX_LOST_BITS) - 1
    elif name == "solarize":
        threshold = math.ceil(255 * (STRONGEST - abs(strength)) / STRONGEST)
    a, b, c, d, e, f = matrix
    centred = (a, b, c + (a + b) / 2, d, e, f + (d + e) / 2)
    return [NUMBER[name], _fixed(factor), bits, threshold, *map(_fixed, centred)]


def _rotation(degrees: float, height: int, width: int) -> Matrix:
    """Counterclockwise about the centre of the image."""
    cos, sin = (round(turn(-math.radians(degrees)), 15) for turn in (math.cos, math.sin))
    x, y = width / 2, height / 2
    return cos, sin, x - cos * x - sin * y, -sin, cos, y + sin * x - cos * y


def _fixed(value: float) -> int:
    return math.floor(value * ONE + 0.5)


@cache
def _table(height: int, width: int) -> NDArray[np.int64]:
    """The parameters of each operation at each strength [14, 61, 10]."""
    strengths = range(-STRONGEST, STRONGEST + 1)
    return np.array([[parameters(name, one, height, width) for one in strengths] for name in OPERATIONS])


def _moved(image: Tensor, matrix: Tensor) -> Tensor:
    """Each pixel from the nearest one of its source; black outside of the image."""
    size, height, width, channels = image.shape
    a, b, c, d, e, f = (matrix[:, number, None, None] for number in range(6))
    y = torch.arange(height, dtype=torch.int32, device=image.device)[:, None]
    x = torch.arange(width, dtype=torch.int32, device=image.device)
    column, row = (a * x + b * y + c) >> 16, (d * x + e * y + f) >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = (row.clamp(0, height - 1) * width + column.clamp(0, width - 1)).long().view(size, -1, 1)
    moved = image.reshape(size, -1, channels).gather(1, source.expand(-1, -1, channels))
    return moved.view_as(image) * inside[..., None]


def _enhanced(image: Tensor, operation: Tensor, factor: Tensor) -> Tensor:
    """Blends with black, the grey image, its mean grey or the smoothed image; a factor above 1 moves away from it."""
    grey = _grey(image)
    num_pixels = grey[0].numel()
    mean = torch.div(2 * grey.sum((1, 2), keepdim=True) + num_pixels, 2 * num_pixels, rounding_mode="floor").int()
    other = grey * (operation == NUMBER["colour"])
    other = torch.where(operation == NUMBER["contrast"], mean, other)
    other = torch.where(operation == NUMBER["sharpness"], _smoothed(image), other)
    return (other + factor.float() / ONE * (image - other)).clamp(0, 255).int()


def _grey(image: Tensor) -> Tensor:
    """Luminance [b, h, w, 1] (ITU-R 601)."""
    if image.shape[3] == 1:
        return image
    red, green, blue = (image[..., number, None] for number in range(3))
    return (19595 * red + 38470 * green + 7471 * blue + ONE // 2) >> 16


def _smoothed(image: Tensor) -> Tensor:
    """The rounded mean of nine pixels, with weight 5 for the middle one; the border stays."""
    height, width = image.shape[1:3]
    if min(height, width) < 3:
        return image
    rows = image[:, :-2] + image[:, 1:-1] + image[:, 2:]
    total = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * image[:, 1:-1, 1:-1]
    inner = torch.div(2 * total + 13, 26, rounding_mode="floor")
    y = torch.arange(height, device=image.device)[:, None, None]
    x = torch.arange(width, device=image.device)[:, None]
    border = (y == 0) | (y == height - 1) | (x == 0) | (x == width - 1)
    return torch.where(border, image, pad(inner, (0, 0, 1, 1, 1, 1)))


def _stretched(image: Tensor) -> Tensor:
    """The values of each channel stretched to 0..255."""
    low, high = image.amin((1, 2), keepdim=True), image.amax((1, 2), keepdim=True)
    values = torch.div((image - low) * 255, (high - low).clamp(min=1), rounding_mode="floor")
    return torch.where(high > low, values, image)


def _equalized(image: Tensor) -> Tensor:
    """The values of each channel replaced by their rank, so that all are about equally frequent."""
    size, height, width, channels = image.shape
    values = image.permute(0, 3, 1, 2).reshape(size, channels, -1).long()
    counts = torch.zeros(size, channels, 256, dtype=torch.int32, device=image.device)
    counts = counts.scatter_add(2, values, torch.ones_like(values, dtype=torch.int32))
    up_to = counts.cumsum(2, dtype=torch.int32)
    highest = counts.gather(2, values.amax(2, keepdim=True))
    step = torch.div(height * width - highest, 255, rounding_mode="floor")
    number = torch.div(step, 2, rounding_mode="floor") + up_to - counts
    table = torch.div(number, step.clamp(min=1), rounding_mode="floor").clamp(max=255)
    ranked = table.gather(2, values).view(size, channels, height, width).permute(0, 2, 3, 1)
    return torch.where((step > 0).view(size, 1, 1, channels), ranked, image)
