"""Batch norm inside the kernels: its parameters and moments, sums over a batch in parts, and spans of pixels.

Sums over a batch are written as one part per program, [parts, 2, c] in float32, and added up by the kernel that reads
them, in a fixed order: there are no atomic operations, and results are the same each time.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor


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
