"""The neck of a network as one kernel each way: batch norm, ReLU and the mean over pixels."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from confrank.training.kernels.batch_norm import Norm, Sums, add_parts, moments_of
from confrank.training.kernels.convolution import strides
from confrank.training.kernels.tiling import at_once, padded


@triton.jit
def _pool(
    source, source_image, source_row, source_pixel,
    parts, count, scale, shift, moments, moments_row, epsilon, target,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr,
    NUMBER: tl.constexpr, PIXELS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The mean of relu(norm(x)) over one image.

    Reads one map: 1.0 MB for 128 images of 8x8x64, for which the memory of an H200 needs 0.2 us. It takes 4.3 us,
    most of them for the sums of 128 parts, once a step.
    """
    image = tl.program_id(0)
    channel = tl.arange(0, PADDED)
    exists = channel < CHANNELS
    total, squares = add_parts(parts, channel, NUMBER, CHANNELS, PADDED, CHUNK)
    mean, deviation = moments_of(total, squares, count, epsilon, moments, moments_row, channel, exists, image == 0)
    slope = tl.load(scale + channel, mask=exists, other=0.0) * deviation
    offset = tl.load(shift + channel, mask=exists, other=0.0) - mean * slope
    result = tl.zeros([PADDED], tl.float32)
    for begin in range(0, HEIGHT * WIDTH, PIXELS):
        pixel = begin + tl.arange(0, PIXELS)
        known = (pixel < HEIGHT * WIDTH)[:, None]
        inputs = source + image * source_image + (pixel // WIDTH * source_row + pixel % WIDTH * source_pixel)[:, None]
        x = tl.load(inputs + channel[None, :], mask=known & exists[None, :], other=0.0).to(tl.float32)
        active = tl.maximum(x * slope[None, :] + offset[None, :], 0.0)
        result += tl.sum(tl.where(known, active, 0.0), 0)
    result = result / (HEIGHT * WIDTH)
    tl.store(target + image * CHANNELS + channel, result.to(target.dtype.element_ty), mask=exists)


@triton.jit
def _pool_gradient(
    gradient, source, source_image, source_row, source_pixel,
    scale, shift, moments, moments_row,
    target, target_image, target_row, target_pixel, parts,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, CHANNELS: tl.constexpr, PADDED: tl.constexpr, PIXELS: tl.constexpr,
):  # fmt: skip
    """The gradient of norm(x) for one image, with its sums, alone and times the normalised x.

    Moves two maps: 2.1 MB for 128 images of 8x8x64, for which the memory of an H200 needs 0.5 us.
    """
    image = tl.program_id(0)
    channel = tl.arange(0, PADDED)
    exists = channel < CHANNELS
    mean = tl.load(moments + channel, mask=exists, other=0.0)
    deviation = tl.load(moments + moments_row + channel, mask=exists, other=0.0)
    slope = tl.load(scale + channel, mask=exists, other=0.0) * deviation
    offset = tl.load(shift + channel, mask=exists, other=0.0) - mean * slope
    share = tl.load(gradient + image * CHANNELS + channel, mask=exists, other=0.0).to(tl.float32) / (HEIGHT * WIDTH)
    total = tl.zeros([PADDED], tl.float32)
    products = tl.zeros([PADDED], tl.float32)
    for begin in range(0, HEIGHT * WIDTH, PIXELS):
        pixel = begin + tl.arange(0, PIXELS)
        mask = (pixel < HEIGHT * WIDTH)[:, None] & exists[None, :]
        h = pixel // WIDTH
        w = pixel % WIDTH
        inputs = source + image * source_image + (h * source_row + w * source_pixel)[:, None]
        x = tl.load(inputs + channel[None, :], mask=mask, other=0.0).to(tl.float32)
        passes = mask & (x * slope[None, :] + offset[None, :] > 0)
        result = tl.where(passes, share[None, :], 0.0).to(target.dtype.element_ty)
        outputs = target + image * target_image + (h * target_row + w * target_pixel)[:, None]
        tl.store(outputs + channel[None, :], result, mask=mask)
        total += tl.sum(result.to(tl.float32), 0)
        products += tl.sum(result.to(tl.float32) * (x - mean[None, :]) * deviation[None, :], 0)
    own = parts + image * (2 * CHANNELS) + channel
    tl.store(own, total, mask=exists)
    tl.store(own + CHANNELS, products, mask=exists)


def pool(maps: Tensor, norm: Norm, sums: Sums) -> Tensor:
    """The spatial mean of relu(norm(maps)), [n, c]; the moments are stored in `norm`."""
    n, channels, height, width = maps.shape
    target = torch.empty(n, channels, dtype=maps.dtype, device=maps.device)
    _pool[(n,)](
        maps, *strides(maps), sums.parts, float(sums.count),
        norm.weight, norm.bias, norm.moments, norm.moments.stride(0), norm.epsilon, target,
        height, width, channels, padded(channels),
        len(sums.parts), 64, at_once(channels, 4, len(sums.parts)),
    )  # fmt: skip
    return target


def pool_gradient(gradient: Tensor, maps: Tensor, norm: Norm) -> tuple[Tensor, Sums]:
    """The gradient of norm(maps) for a `gradient` [n, c] of `pool`, and its sums, as `input_gradient` gives them."""
    n, channels, height, width = maps.shape
    target, parts = torch.empty_like(maps), torch.empty(n, 2, channels, device=maps.device)
    _pool_gradient[(n,)](
        gradient.contiguous(), maps, *strides(maps),
        norm.weight, norm.bias, norm.moments, norm.moments.stride(0), target, *strides(target), parts,
        height, width, channels, padded(channels), 64,
    )  # fmt: skip
    return target, Sums(parts, n * height * width)
