"""What the kernels of residual networks share: how they divide their work, and batch norm inside them.

Sums over a batch are written as one part per program, [parts, 2, c] in float32, and added up by the kernel that reads
them, in a fixed order: there are no atomic operations, and results are the same each time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


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


class Sums(NamedTuple):
    """Two sums per channel over `count` pixels, in parts [parts, 2, c] that have yet to be added up."""

    parts: Tensor
    count: int  # type: ignore[assignment]  # this field hides tuple.count, which nobody calls


class Norm(NamedTuple):
    """A batch norm: scale and shift [c], the moments [3, c] (mean, 1 / deviation, variance), and epsilon."""

    weight: Tensor
    bias: Tensor
    moments: Tensor
    epsilon: float


@triton.jit
def add_parts(
    parts, channel, NUMBER: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, CHUNK: tl.constexpr
):
    """Both sums [PADDED] of the parts [NUMBER, 2, CHANNELS]."""
    first = tl.zeros([PADDED], tl.float32)
    second = tl.zeros([PADDED], tl.float32)
    for start in range(0, NUMBER, CHUNK):
        part = start + tl.arange(0, CHUNK)
        mask = (part < NUMBER)[:, None] & (channel < CHANNELS)[None, :]
        values = parts + part[:, None] * (2 * CHANNELS) + channel[None, :]
        first += tl.sum(tl.load(values, mask=mask, other=0.0), 0)
        second += tl.sum(tl.load(values + CHANNELS, mask=mask, other=0.0), 0)
    return first, second


@triton.jit
def store_parts(parts, first, second, CHANNELS: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr):
    """Store two sums [BLOCK * BLOCK * PADDED], added up over the pixels of a block."""
    channel = tl.arange(0, PADDED)
    first = tl.sum(tl.reshape(first, [BLOCK * BLOCK, PADDED]), 0)
    second = tl.sum(tl.reshape(second, [BLOCK * BLOCK, PADDED]), 0)
    tl.store(parts + channel, first, mask=channel < CHANNELS)
    tl.store(parts + CHANNELS + channel, second, mask=channel < CHANNELS)


@triton.jit
def moments_of(total, squares, count, epsilon, moments, moments_row, channel, exists, writes):
    """Mean and 1 / deviation [c] from the sums; they are stored if the program `writes`."""
    mean = total / count
    variance = tl.maximum(squares / count - mean * mean, 0.0)
    deviation = 1.0 / tl.sqrt(variance + epsilon)
    if writes:
        tl.store(moments + channel, mean, mask=exists)
        tl.store(moments + moments_row + channel, deviation, mask=exists)
        tl.store(moments + 2 * moments_row + channel, variance, mask=exists)
    return mean, deviation


@triton.jit
def load_span(
    maps, row, pixel, start, stop, channel, CHANNELS: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr
):
    """The pixels [SPAN, c] of an image from number `start` on, before `stop`."""
    number = start + tl.arange(0, SPAN)
    places = maps + (number // WIDTH * row + number % WIDTH * pixel)[:, None] + channel[None, :]
    return tl.load(places, mask=(number < stop)[:, None] & (channel < CHANNELS)[None, :], other=0.0)


@triton.jit
def store_span(
    maps, row, pixel, start, stop, channel, values,
    CHANNELS: tl.constexpr, WIDTH: tl.constexpr, SPAN: tl.constexpr,
):  # fmt: skip
    """Store what `load_span` loads."""
    number = start + tl.arange(0, SPAN)
    places = maps + (number // WIDTH * row + number % WIDTH * pixel)[:, None] + channel[None, :]
    mask = (number < stop)[:, None] & (channel < CHANNELS)[None, :]
    tl.store(places, values.to(maps.dtype.element_ty), mask=mask)


@triton.jit
def store_halo(
    maps, row, pixel, channel,
    CHANNELS: tl.constexpr, PADDED: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Store zeros around an image, one pixel wide: first above and below, then left and right."""
    AROUND: tl.constexpr = 2 * (WIDTH + 2) + 2 * HEIGHT
    for begin in tl.static_range(0, AROUND, 64):
        number = begin + tl.arange(0, 64)
        beside = number - 2 * (WIDTH + 2)
        h = tl.where(beside < 0, number // (WIDTH + 2) * (HEIGHT + 1) - 1, beside // 2)
        w = tl.where(beside < 0, number % (WIDTH + 2) - 1, beside % 2 * (WIDTH + 1) - 1)
        places = maps + (h * row + w * pixel)[:, None] + channel[None, :]
        mask = (number < AROUND)[:, None] & (channel < CHANNELS)[None, :]
        tl.store(places, tl.zeros([64, PADDED], maps.dtype.element_ty), mask=mask)
