"""Convolutions of few channels as implicit matrix products, fused with the batch norm and ReLU before them.

Maps are channels-last views [n, c, h, w] with any strides of images, rows and pixels; the stride of channels is 1, so
a slice of channels of a wider buffer is a valid map. Each program computes some rows of one image.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from confrank.training.kernels.parts import (
    Norm,
    Sums,
    Tiling,
    add_parts,
    at_once,
    has_halo,
    load_span,
    moments_of,
    padded,
    store_halo,
    store_parts,
    store_span,
    tiling_of,
)


@triton.jit
def gather_product(
    product,
    source,
    row_stride,
    pixel_stride,
    weight,
    h,
    w,
    known,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    CHANNELS: tl.constexpr,
    PADDED: tl.constexpr,
    COLUMNS: tl.constexpr,
    PADDED_COLUMNS: tl.constexpr,
    WEIGHT_STRIDE: tl.constexpr,
    COLUMN_STRIDE: tl.constexpr,
    TAP_STRIDE: tl.constexpr,
    SIZE: tl.constexpr,
    PAD: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    HALO: tl.constexpr,
    ALL_KNOWN: tl.constexpr,
    STAGES: tl.constexpr,
):
    """Add the convolution at the pixels (h, w) [m] of one image to `product` [m, PADDED_COLUMNS].

    `GROUP` taps of a row form one matrix product, so that its depth is at least 64. Transposed, it is the input
    gradient: the taps that read a pixel are gathered, instead of the pixels that a tap reads. With a `HALO` of zeros
    around the image, and if all pixels are known, loads need no masks.
    """
    GROUPS: tl.constexpr = (SIZE + GROUP - 1) // GROUP
    SPREAD: tl.constexpr = 1 if GROUP == 1 else 4
    k = tl.arange(0, PADDED * SPREAD)
    channel = k % PADDED
    column = tl.arange(0, PADDED_COLUMNS)
    for step in tl.range(0, SIZE * GROUPS, num_stages=STAGES):
        vertical = step // GROUPS
        horizontal = (step % GROUPS) * GROUP + k // PADDED
        if TRANSPOSED:
            y = h + PAD - vertical
            x = w[:, None] + PAD - horizontal[None, :]
            fits = known & (y >= 0) & (y < HEIGHT * STRIDE)
            inside = fits[:, None] & (x >= 0) & (x < WIDTH * STRIDE)
            if STRIDE > 1:
                inside = inside & (y % STRIDE == 0)[:, None] & (x % STRIDE == 0)
                y = y // STRIDE
                x = x // STRIDE
        else:
            y = h * STRIDE - PAD + vertical
            x = w[:, None] * STRIDE - PAD + horizontal[None, :]
            fits = known & (y >= 0) & (y < HEIGHT)
            inside = fits[:, None] & (x >= 0) & (x < WIDTH)
        used = (channel < CHANNELS) & (horizontal < SIZE)
        EXACT: tl.constexpr = CHANNELS == PADDED and SIZE % SPREAD == 0
        pixels = source + (y * row_stride)[:, None] + x * pixel_stride + channel[None, :]
        if HALO and ALL_KNOWN and EXACT:
            left = tl.load(pixels)
        else:
            left = tl.load(pixels, mask=inside & used[None, :], other=0.0)
        taps = weight + (vertical * SIZE + horizontal) * TAP_STRIDE + channel * WEIGHT_STRIDE
        taps = taps[:, None] + (column * COLUMN_STRIDE)[None, :]
        if EXACT and COLUMNS == PADDED_COLUMNS:
            right = tl.load(taps)
        else:
            right = tl.load(taps, mask=used[:, None] & (column < COLUMNS)[None, :], other=0.0)
        product = tl.dot(left, right, product, input_precision="ieee")
    return product


@triton.jit
def _forward(
    source, source_image, source_row, source_pixel,
    active, active_image, active_row, active_pixel,
    parts, count, scale, shift, moments, moments_row, epsilon,
    weight,
    residual, residual_image, residual_row, residual_pixel,
    target, target_image, target_row, target_pixel,
    target_parts,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    INPUTS: tl.constexpr, PADDED: tl.constexpr, OUTPUTS: tl.constexpr, PADDED_OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    NORM: tl.constexpr, RESIDUAL: tl.constexpr, HALO: tl.constexpr,
    ROWS: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr, SPAN: tl.constexpr,
    NUMBER: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """y = conv(relu(norm(x))) + residual, the sums of y and y^2, relu(norm(x)), and the moments of x.

    Moves four maps: 16.8, 8.4 and 4.2 MB for 128 images of 32x32x16, 16x16x32 and 8x8x64, for which the memory of an
    H200 needs 3.9, 2.0 and 1.0 us. It takes 11.9, 9.6 and 7.3 us in a chain of equal layers, and 10.7, 9.1 and 8.7 us
    in a step.
    """
    TAPS: tl.constexpr = SIZE + BLOCK - 1
    READ: tl.constexpr = (ROWS - 1) * STRIDE + SIZE
    SPANNED: tl.constexpr = (READ if READ < HEIGHT else HEIGHT) * WIDTH
    PROGRAMS: tl.constexpr = (OUT_HEIGHT + ROWS - 1) // ROWS
    program = tl.program_id(0)
    image = program // PROGRAMS
    first_row = (program % PROGRAMS) * ROWS
    active += image * active_image
    if NORM:
        channel = tl.arange(0, PADDED)
        exists = channel < INPUTS
        start = tl.maximum(first_row * STRIDE - SIZE // 2, 0) * WIDTH
        stop = tl.minimum((first_row + ROWS - 1) * STRIDE - SIZE // 2 + SIZE, HEIGHT) * WIDTH
        source += image * source_image
        values = load_span(source, source_row, source_pixel, start, stop, channel, INPUTS, WIDTH, SPAN)
        total, squares = add_parts(parts, channel, NUMBER, INPUTS, PADDED, CHUNK)
        mean, deviation = moments_of(
            total, squares, count, epsilon, moments, moments_row, channel, exists, program == 0
        )
        slope = tl.load(scale + channel, mask=exists, other=0.0) * deviation
        offset = tl.load(shift + channel, mask=exists, other=0.0) - mean * slope
        for begin in tl.static_range(0, SPANNED, SPAN):
            if begin > 0:
                values = load_span(
                    source, source_row, source_pixel, start + begin, stop, channel, INPUTS, WIDTH, SPAN
                )
            activated = tl.maximum(values.to(tl.float32) * slope[None, :] + offset[None, :], 0.0)
            store_span(active, active_row, active_pixel, start + begin, stop, channel, activated, INPUTS, WIDTH, SPAN)
        if HALO:
            store_halo(active, active_row, active_pixel, channel, INPUTS, PADDED, HEIGHT, WIDTH)
        tl.debug_barrier()
    # One row of the product is a block of pixels, `BLOCK` high and wide; its columns are their channels.
    COLUMNS: tl.constexpr = PADDED_OUTPUTS * BLOCK * BLOCK
    column = tl.arange(0, COLUMNS)
    channel = column % PADDED_OUTPUTS
    present = channel < OUTPUTS
    down = column // (PADDED_OUTPUTS * BLOCK)
    right = column // PADDED_OUTPUTS % BLOCK
    total = tl.zeros([COLUMNS], tl.float32)
    squares = tl.zeros([COLUMNS], tl.float32)
    for begin in range(0, ROWS * OUT_WIDTH // (BLOCK * BLOCK), PIXELS):
        pixel = begin + tl.arange(0, PIXELS)
        h = first_row // BLOCK + pixel // (OUT_WIDTH // BLOCK)
        w = pixel % (OUT_WIDTH // BLOCK)
        known = (pixel < ROWS * OUT_WIDTH // (BLOCK * BLOCK)) & (h * BLOCK < OUT_HEIGHT)
        mask = known[:, None] & present[None, :]
        y = (h * BLOCK)[:, None] + down[None, :]
        x = (w * BLOCK)[:, None] + right[None, :]
        if RESIDUAL:  # loaded early, to arrive during the product
            added = residual + image * residual_image + y * residual_row + x * residual_pixel + channel[None, :]
            shortcut = tl.load(added, mask=mask, other=0.0)
        product = gather_product(
            tl.zeros([PIXELS, COLUMNS], tl.float32), active, active_row, active_pixel, weight, h, w, known,
            HEIGHT, WIDTH, INPUTS, PADDED, OUTPUTS * BLOCK * BLOCK, COLUMNS, 1, TAPS * TAPS * INPUTS, INPUTS,
            TAPS, SIZE // 2, STRIDE * BLOCK, GROUP, False, HALO,
            ROWS * OUT_WIDTH // (BLOCK * BLOCK) % PIXELS == 0 and OUT_HEIGHT % ROWS == 0, STAGES,
        )  # fmt: skip
        if RESIDUAL:
            product += shortcut.to(tl.float32)
        result = product.to(target.dtype.element_ty)
        outputs = target + image * target_image + y * target_row + x * target_pixel + channel[None, :]
        tl.store(outputs, result, mask=mask)
        rounded = result.to(tl.float32)
        total += tl.sum(rounded, 0)
        squares += tl.sum(rounded * rounded, 0)
    store_parts(target_parts + program * (2 * OUTPUTS), total, squares, OUTPUTS, PADDED_OUTPUTS, BLOCK)


def convolve(
    maps: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    norm: Norm | None = None,
    sums: Sums | None = None,
    residual: Tensor | None = None,
    target: Tensor | None = None,
    blocks: Tensor | None = None,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor, Sums]:
    """conv(relu(norm(maps))) + residual, as (activated input, output, sums of the output and its square).

    `weight` [out, in, size, size] in channels-last order has the type of `maps`; `blocks` are the same weights as
    `blocks_of` gives them, to compute 2x2 pixels at once. With `norm` and the `sums` of
    `maps`, the moments are stored in `norm`; without, the convolution reads `maps` themselves.
    """
    n, inputs, height, width = maps.shape
    outputs, size = weight.shape[0], weight.shape[-1]
    shape = (n, outputs, -(-height // stride), -(-width // stride))
    tiling = tiling or tiling_of(shape, inputs, blocked=blocks is not None)
    halo = has_halo(size) and norm is not None
    active = maps if norm is None else empty_maps(maps.shape, maps, halo=halo)
    target = empty_maps(shape, maps) if target is None else target
    programs = n * -(-shape[2] // tiling.rows)
    parts = torch.empty(programs, 2, outputs, device=maps.device)
    moments = parts if norm is None else norm.moments
    read = Sums(parts, 1) if sums is None else sums
    _forward[(programs,)](
        maps, *strides(maps), active, *strides(active),
        read.parts, float(read.count),
        parts if norm is None else norm.weight, parts if norm is None else norm.bias,
        moments, moments.stride(0), 0.0 if norm is None else norm.epsilon,
        packed(weight) if tiling.block == 1 else blocks,
        maps if residual is None else residual, *strides(maps if residual is None else residual),
        target, *strides(target), parts,
        height, width, shape[2], shape[3], inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, tiling.block,
        norm is not None, residual is not None, halo,
        tiling.rows, tiling.pixels, tiling.stages, at_once(inputs, tiling.warps, height * width),
        len(read.parts), at_once(inputs, tiling.warps, len(read.parts)), num_warps=tiling.warps,
    )  # fmt: skip
    return active, target, Sums(parts, n * shape[2] * shape[3])


def blocks_of(weights: Tensor, *, transposed: bool = False) -> Tensor:
    """Weights [l, out, size, size, in] of convolutions that compute 2x2 pixels at once, [l, 4 out, s + 1, s + 1, in].

    Such a convolution has a stride of 2. Transposed, they are those of the input gradient.
    """
    if transposed:
        weights = weights.flip(2, 3).transpose(1, 4)
    number, outputs, size, _, inputs = weights.shape
    blocks = weights.new_zeros(number, 2, 2, outputs, size + 1, size + 1, inputs)
    for down in range(2):
        for right in range(2):
            blocks[:, down, right, :, down : down + size, right : right + size] = weights
    return blocks.flatten(1, 3)


def empty_maps(shape: tuple[int, ...] | torch.Size, like: Tensor, *, halo: bool = False) -> Tensor:
    """Maps with the type of others; with `halo`, there is room for one more pixel on each side."""
    n, channels, height, width = shape
    size = (n, channels, height + 2, width + 2) if halo else (n, channels, height, width)
    maps = torch.empty(size, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)
    return maps[:, :, 1:-1, 1:-1] if halo else maps


def strides(maps: Tensor) -> tuple[int, int, int]:
    """Strides of images, rows and pixels."""
    image, _, row, pixel = maps.stride()
    return image, row, pixel


def packed(weight: Tensor) -> Tensor:
    """Check that a weight is in channels-last order."""
    _, inputs, height, width = weight.shape
    expected = (inputs * height * width, 1, inputs * width, inputs)
    strides: Any = weight.stride()
    assert all(size == 1 or a == b for size, a, b in zip(weight.shape, strides, expected, strict=True)), strides
    return weight
