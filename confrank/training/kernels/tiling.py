"""How the kernels divide their work into programs and tiles, as measured for the layers of ResNet-110 on an H200."""

from collections.abc import Sequence
from typing import NamedTuple


class Tiling(NamedTuple):
    """How a kernel divides its work: rows per program, pixels per matrix product, warps, pipeline stages, how many
    taps of a row form one product, and the side of the block of pixels that one row of the product computes. With
    one stage, loads go through the first-level cache, which saves traffic; with more, they skip it and arrive during
    the products before.
    """

    rows: int
    pixels: int
    warps: int
    stages: int
    group: int = 1
    block: int = 1


# The fastest tilings (`benchmarks/convolutions.py`), by channels, height, width and whether it is an input gradient.
TILINGS = {
    (16, 32, 32, False): Tiling(32, 256, 8, 3, 4, 2),
    (16, 32, 32, True): Tiling(32, 256, 8, 3, 4, 2),
    (32, 16, 16, False): Tiling(16, 256, 8, 4),
    (32, 16, 16, True): Tiling(16, 256, 8, 4),
    (64, 8, 8, False): Tiling(8, 64, 4, 3),
    (64, 8, 8, True): Tiling(8, 64, 8, 3),
}
# Those of weight gradients, by input channels.
WEIGHT_TILINGS = {16: Tiling(0, 128, 4, 3, 3), 32: Tiling(0, 64, 4, 3, 3), 64: Tiling(0, 128, 4, 4)}


def tiling_of(shape: Sequence[int], channels: int, *, blocked: bool, backward: bool = False) -> Tiling:
    """The tiling of a convolution of `channels`, or of an input gradient, with a result of `shape`."""
    height, width = shape[2:]
    if (measured := TILINGS.get((channels, height, width, backward))) and blocked == (measured.block == 2):
        return measured
    if blocked:
        return Tiling(height, min(256, power_of_two(height * width // 4)), 8, 3, group=4, block=2)
    pixels = min(256, max(64, power_of_two(height * width)))
    return Tiling(height, pixels, 4 if pixels == 64 else 8, 3, 3 if channels <= 16 else 1)


def weight_tiling(inputs: int, size: int) -> Tiling:
    """The tiling of a weight gradient."""
    measured = WEIGHT_TILINGS.get(padded(inputs), Tiling(0, 64, 4, 3))
    return measured if size == 3 else measured._replace(group=1)


def at_once(channels: int, warps: int, most: int) -> int:
    """How many pixels to normalise, or parts to add, at a time: 64 values a thread, `most` at most."""
    return min(power_of_two(most), max(16, 32 * warps * 64 // padded(channels)))


def power_of_two(number: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << (number - 1).bit_length()


def padded(channels: int) -> int:
    return max(16, power_of_two(channels))


def has_halo(size: int, stride: int = 1) -> bool:
    """Whether the kernels write the input of a convolution with zeros around each image: loads then need no masks."""
    return size == 3 and stride == 1
