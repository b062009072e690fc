"""Convolutions of few channels as implicit matrix products, fused with the batch norm and ReLU around them.

Maps are channels-last views [n, c, h, w] with any strides of images, rows and pixels; the stride of channels is 1, so
a slice of channels of a wider buffer is a valid map. Each program computes some rows of one image. Sums over a batch
are written as one part per program, [parts, 2, c] in float32, and added up by the kernel that reads them, in a fixed
order: there are no atomic operations, and results are the same each time.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

EARLY = False


class Tiling(NamedTuple):
    """How a kernel divides its work: rows per program, pixels per matrix product, warps, pipeline stages, how many
    taps of a row form one product, and the side of the block of pixels that one row of the product computes.
    """

    rows: int
    pixels: int
    warps: int
    stages: int
    group: int = 1
    block: int = 1


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


# The fastest tilings of the layers of ResNet-110 on an H200 (`benchmarks/convolutions.py`), by channels, height, width
# and whether the kernel is an input gradient.
TILINGS = {
    (16, 32, 32, False): Tiling(32, 256, 8, 3, 4, 2),
    (16, 32, 32, True): Tiling(32, 256, 8, 3, 4, 2),
    (32, 16, 16, False): Tiling(16, 256, 8, 4),
    (32, 16, 16, True): Tiling(16, 256, 8, 4),
    (64, 8, 8, False): Tiling(8, 64, 4, 3),
    (64, 8, 8, True): Tiling(8, 64, 8, 3),
}


@triton.jit
def wait_for_inputs(EARLY: tl.constexpr):
    """Wait until the kernel before has finished, if this one was started early; then let the next one start."""
    if EARLY:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


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
def _gather_product(
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
    STAGES: tl.constexpr,
):
    """Add the convolution at the pixels (h, w) [m] of one image to `product` [m, PADDED_COLUMNS].

    `GROUP` taps of a row form one matrix product, so that its depth is at least 64. Transposed, it is the input
    gradient: the taps that read a pixel are gathered, instead of the pixels that a tap reads.
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
        pixels = source + (y * row_stride)[:, None] + x * pixel_stride + channel[None, :]
        left = tl.load(pixels, mask=inside & used[None, :], other=0.0)
        taps = weight + (vertical * SIZE + horizontal) * TAP_STRIDE + channel * WEIGHT_STRIDE
        mask = used[:, None] & (column < COLUMNS)[None, :]
        right = tl.load(taps[:, None] + (column * COLUMN_STRIDE)[None, :], mask=mask, other=0.0)
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
    NORM: tl.constexpr, RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr, SPAN: tl.constexpr,
    NUMBER: tl.constexpr, CHUNK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """y = conv(relu(norm(x))) + residual, the sums of y and y^2, relu(norm(x)), and the moments of x."""
    wait_for_inputs(EARLY)
    TAPS: tl.constexpr = SIZE + BLOCK - 1
    PROGRAMS: tl.constexpr = (OUT_HEIGHT + ROWS - 1) // ROWS
    program = tl.program_id(0)
    image = program // PROGRAMS
    first_row = (program % PROGRAMS) * ROWS
    active += image * active_image
    if NORM:
        channel = tl.arange(0, PADDED)
        exists = channel < INPUTS
        total, squares = add_parts(parts, channel, NUMBER, INPUTS, PADDED, CHUNK)
        mean, deviation = moments_of(
            total, squares, count, epsilon, moments, moments_row, channel, exists, program == 0
        )
        slope = tl.load(scale + channel, mask=exists, other=0.0) * deviation
        offset = tl.load(shift + channel, mask=exists, other=0.0) - mean * slope
        start = tl.maximum(first_row * STRIDE - SIZE // 2, 0) * WIDTH
        stop = tl.minimum((first_row + ROWS - 1) * STRIDE - SIZE // 2 + SIZE, HEIGHT) * WIDTH
        for begin in range(0, ((ROWS - 1) * STRIDE + SIZE) * WIDTH, SPAN):
            pixel = start + begin + tl.arange(0, SPAN)
            mask = (pixel < stop)[:, None] & exists[None, :]
            h = (pixel // WIDTH)[:, None]
            w = (pixel % WIDTH)[:, None]
            inputs = source + image * source_image + h * source_row + w * source_pixel + channel[None, :]
            values = tl.load(inputs, mask=mask, other=0.0).to(tl.float32) * slope[None, :] + offset[None, :]
            outputs = active + h * active_row + w * active_pixel + channel[None, :]
            tl.store(outputs, tl.maximum(values, 0.0).to(active.dtype.element_ty), mask=mask)
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
        product = _gather_product(
            tl.zeros([PIXELS, COLUMNS], tl.float32), active, active_row, active_pixel, weight, h, w, known,
            HEIGHT, WIDTH, INPUTS, PADDED, OUTPUTS * BLOCK * BLOCK, COLUMNS, 1, TAPS * TAPS * INPUTS, INPUTS,
            TAPS, SIZE // 2, STRIDE * BLOCK, GROUP, False, STAGES,
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


@triton.jit
def _input_gradient(
    slope, slope_image, slope_row, slope_pixel,
    raw, raw_image, raw_row, raw_pixel,
    parts, count, raw_scale, raw_moments, raw_moments_row, scale_gradient, shift_gradient,
    residual, residual_image, residual_row, residual_pixel,
    gradient, gradient_image, gradient_row, gradient_pixel,
    weight,
    added, added_image, added_row, added_pixel,
    source, source_image, source_row, source_pixel,
    scale, shift, moments, moments_row,
    target, target_image, target_row, target_pixel,
    target_parts,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    INPUTS: tl.constexpr, PADDED: tl.constexpr, OUTPUTS: tl.constexpr, PADDED_OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, GROUP: tl.constexpr, BLOCK: tl.constexpr,
    BEHIND: tl.constexpr, RESIDUAL: tl.constexpr, ADDED: tl.constexpr, BEFORE: tl.constexpr,
    ROWS: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr, SPAN: tl.constexpr,
    NUMBER: tl.constexpr, CHUNK: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """The gradient of x in y = conv(relu(norm(x))), up to the affine part of the batch norm's backward pass.

    `BEHIND`: the gradient of y is computed first, and stored: the affine part for the batch norm of y, of `slope`
    (the gradient behind the ReLU), plus `residual`. `BEFORE`: the result is masked by the ReLU before the
    convolution, and its sums are taken, alone and times the normalised x.
    """
    wait_for_inputs(EARLY)
    TAPS: tl.constexpr = SIZE + BLOCK - 1
    PROGRAMS: tl.constexpr = (HEIGHT + ROWS - 1) // ROWS
    program = tl.program_id(0)
    image = program // PROGRAMS
    first_row = (program % PROGRAMS) * ROWS
    gradient += image * gradient_image
    if BEHIND:
        channel = tl.arange(0, PADDED_OUTPUTS)
        exists = channel < OUTPUTS
        total, products = add_parts(parts, channel, NUMBER, OUTPUTS, PADDED_OUTPUTS, CHUNK)
        if program == 0:
            tl.store(shift_gradient + channel, total, mask=exists)
            tl.store(scale_gradient + channel, products, mask=exists)
        mean = tl.load(raw_moments + channel, mask=exists, other=0.0)
        deviation = tl.load(raw_moments + raw_moments_row + channel, mask=exists, other=0.0)
        factor = tl.load(raw_scale + channel, mask=exists, other=0.0) * deviation
        # gradient = factor * (slope - total / n - (raw - mean) * deviation * products / n)
        of_raw = -factor * deviation * products / count
        constant = -factor * total / count - of_raw * mean
        start = tl.maximum((first_row + SIZE // 2 - SIZE + 1) // STRIDE, 0) * OUT_WIDTH
        stop = tl.minimum((first_row + ROWS - 1 + SIZE // 2) // STRIDE + 1, OUT_HEIGHT) * OUT_WIDTH
        for begin in range(0, ((ROWS + SIZE - 2) // STRIDE + 1) * OUT_WIDTH, SPAN):
            pixel = start + begin + tl.arange(0, SPAN)
            mask = (pixel < stop)[:, None] & exists[None, :]
            h = (pixel // OUT_WIDTH)[:, None]
            w = (pixel % OUT_WIDTH)[:, None]
            slopes = slope + image * slope_image + h * slope_row + w * slope_pixel + channel[None, :]
            raws = raw + image * raw_image + h * raw_row + w * raw_pixel + channel[None, :]
            values = tl.load(slopes, mask=mask, other=0.0).to(tl.float32) * factor[None, :] + constant[None, :]
            values += tl.load(raws, mask=mask, other=0.0).to(tl.float32) * of_raw[None, :]
            if RESIDUAL:
                others = residual + image * residual_image + h * residual_row + w * residual_pixel + channel[None, :]
                values += tl.load(others, mask=mask, other=0.0).to(tl.float32)
            outputs = gradient + h * gradient_row + w * gradient_pixel + channel[None, :]
            tl.store(outputs, values.to(gradient.dtype.element_ty), mask=mask)
        tl.debug_barrier()
    COLUMNS: tl.constexpr = PADDED * BLOCK * BLOCK
    column = tl.arange(0, COLUMNS)
    channel = column % PADDED
    present = channel < INPUTS
    down = column // (PADDED * BLOCK)
    right = column // PADDED % BLOCK
    total = tl.zeros([COLUMNS], tl.float32)
    products = tl.zeros([COLUMNS], tl.float32)
    if BEFORE:
        centre = tl.load(moments + channel, mask=present, other=0.0)
        inverse = tl.load(moments + moments_row + channel, mask=present, other=0.0)
        steepness = tl.load(scale + channel, mask=present, other=0.0) * inverse
        offset = tl.load(shift + channel, mask=present, other=0.0) - centre * steepness
    for begin in range(0, ROWS * WIDTH // (BLOCK * BLOCK), PIXELS):
        pixel = begin + tl.arange(0, PIXELS)
        h = first_row // BLOCK + pixel // (WIDTH // BLOCK)
        w = pixel % (WIDTH // BLOCK)
        known = (pixel < ROWS * WIDTH // (BLOCK * BLOCK)) & (h * BLOCK < HEIGHT)
        mask = known[:, None] & present[None, :]
        y = (h * BLOCK)[:, None] + down[None, :]
        x = (w * BLOCK)[:, None] + right[None, :]
        if BEFORE:  # loaded early, to arrive during the product
            inputs = source + image * source_image + y * source_row + x * source_pixel + channel[None, :]
            raw_input = tl.load(inputs, mask=mask, other=0.0)
        if BLOCK > 1:  # the weights of a block are those of a convolution: transposed and flipped already
            product = _gather_product(
                tl.zeros([PIXELS, COLUMNS], tl.float32), gradient, gradient_row, gradient_pixel, weight, h, w, known,
                OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PADDED_OUTPUTS, INPUTS * BLOCK * BLOCK, COLUMNS,
                1, TAPS * TAPS * OUTPUTS, OUTPUTS, TAPS, SIZE // 2, BLOCK, GROUP, False, STAGES,
            )  # fmt: skip
        else:
            product = _gather_product(
                tl.zeros([PIXELS, COLUMNS], tl.float32), gradient, gradient_row, gradient_pixel, weight, h, w, known,
                OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PADDED_OUTPUTS, INPUTS, COLUMNS, SIZE * SIZE * INPUTS, 1, INPUTS,
                SIZE, SIZE // 2, STRIDE, GROUP, True, STAGES,
            )  # fmt: skip
        if ADDED:
            others = added + image * added_image + y * added_row + x * added_pixel + channel[None, :]
            product += tl.load(others, mask=mask, other=0.0).to(tl.float32)
        if BEFORE:
            before = raw_input.to(tl.float32)
            product = tl.where(before * steepness[None, :] + offset[None, :] > 0, product, 0.0)
        result = product.to(target.dtype.element_ty)
        outputs = target + image * target_image + y * target_row + x * target_pixel + channel[None, :]
        tl.store(outputs, result, mask=mask)
        if BEFORE:
            rounded = tl.where(known[:, None], result.to(tl.float32), 0.0)
            total += tl.sum(rounded, 0)
            products += tl.sum(rounded * (before - centre[None, :]) * inverse[None, :], 0)
    if BEFORE:
        store_parts(target_parts + program * (2 * INPUTS), total, products, INPUTS, PADDED, BLOCK)


@triton.jit
def _weight_gradient(
    active, active_image, active_row, active_pixel,
    gradient, gradient_image, gradient_row, gradient_pixel,
    parts, number_of_pixels,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, OUT_HEIGHT: tl.constexpr, OUT_WIDTH: tl.constexpr,
    INPUTS: tl.constexpr, PADDED: tl.constexpr, OUTPUTS: tl.constexpr, PADDED_OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr, STRIDE: tl.constexpr, GROUP: tl.constexpr,
    PIXELS: tl.constexpr, STAGES: tl.constexpr, PIXELS_PER_PROGRAM: tl.constexpr, EARLY: tl.constexpr,
):  # fmt: skip
    """One part of the weight gradient: the taps of `program_id(1)`, over the output pixels of `program_id(0)`."""
    wait_for_inputs(EARLY)
    GROUPS: tl.constexpr = (SIZE + GROUP - 1) // GROUP
    SPREAD: tl.constexpr = 1 if GROUP == 1 else 4
    split = tl.program_id(0)
    vertical = tl.program_id(1) // GROUPS
    k = tl.arange(0, PADDED * SPREAD)
    channel = k % PADDED
    horizontal = (tl.program_id(1) % GROUPS) * GROUP + k // PADDED
    used = (channel < INPUTS) & (horizontal < SIZE)
    column = tl.arange(0, PADDED_OUTPUTS)
    present = column < OUTPUTS
    product = tl.zeros([PADDED * SPREAD, PADDED_OUTPUTS], tl.float32)
    start = split * PIXELS_PER_PROGRAM
    stop = tl.minimum(start + PIXELS_PER_PROGRAM, number_of_pixels)
    for begin in tl.range(0, PIXELS_PER_PROGRAM, PIXELS, num_stages=STAGES):
        pixel = start + begin + tl.arange(0, PIXELS)
        known = pixel < stop
        image = pixel // (OUT_HEIGHT * OUT_WIDTH)
        h = (pixel // OUT_WIDTH) % OUT_HEIGHT
        w = pixel % OUT_WIDTH
        y = h * STRIDE - (SIZE // 2) + vertical
        x = w[:, None] * STRIDE - (SIZE // 2) + horizontal[None, :]
        fits = known & (y >= 0) & (y < HEIGHT)
        inside = fits[:, None] & (x >= 0) & (x < WIDTH)
        inputs = active + (image * active_image + y * active_row)[:, None] + x * active_pixel + channel[None, :]
        left = tl.load(inputs, mask=inside & used[None, :], other=0.0)
        outputs = gradient + (image * gradient_image + h * gradient_row + w * gradient_pixel)[:, None]
        right = tl.load(outputs + column[None, :], mask=known[:, None] & present[None, :], other=0.0)
        product = tl.dot(tl.trans(left), right, product, input_precision="ieee")
    own = parts + split * (OUTPUTS * SIZE * SIZE * INPUTS)
    place = own + (column * (SIZE * SIZE * INPUTS))[None, :]
    place += ((vertical * SIZE + horizontal) * INPUTS + channel)[:, None]
    tl.store(place, product, mask=used[:, None] & present[None, :])


def convolve(
    maps: Tensor,
    weight: Tensor,
    *,
    stride: int = 1,
    norm: Norm | None = None,
    sums: Sums | None = None,
    residual: Tensor | None = None,
    active: Tensor | None = None,
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
    active = maps if norm is None else _empty(maps.shape, maps) if active is None else active
    target = _empty(shape, maps) if target is None else target
    programs = n * -(-shape[2] // tiling.rows)
    parts = torch.empty(programs, 2, outputs, device=maps.device)
    moments = parts if norm is None else norm.moments
    read = Sums(parts, 1) if sums is None else sums
    _forward[(programs,)](
        maps, *strides(maps), active, *strides(active),
        read.parts, float(read.count),
        parts if norm is None else norm.weight, parts if norm is None else norm.bias,
        moments, moments.stride(0), 0.0 if norm is None else norm.epsilon,
        _packed(weight) if tiling.block == 1 else blocks,
        maps if residual is None else residual, *strides(maps if residual is None else residual),
        target, *strides(target), parts,
        height, width, shape[2], shape[3], inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, tiling.block,
        norm is not None, residual is not None,
        tiling.rows, tiling.pixels, tiling.stages, at_once(inputs, tiling.warps),
        len(read.parts), chunk(len(read.parts), inputs, tiling.warps), early(),
        num_warps=tiling.warps, launch_pdl=early(),
    )  # fmt: skip
    return active, target, Sums(parts, n * shape[2] * shape[3])


def input_gradient(
    weight: Tensor,
    shape: torch.Size,
    *,
    stride: int = 1,
    gradient: Tensor | None = None,
    behind: "Behind | None" = None,
    residual: Tensor | None = None,
    added: Tensor | None = None,
    source: Tensor | None = None,
    norm: Norm | None = None,
    target: Tensor | None = None,
    blocks: Tensor | None = None,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor, Sums]:
    """The gradient of the input `shape` of a convolution, as (gradient of its output, gradient, its sums).

    The gradient of the output is `gradient`, or comes from the batch norm `behind` it, plus `residual`. With the
    `norm` before the convolution and its input `source`, the result is the gradient behind the scale and shift, where
    the ReLU passes it; `added` is a second gradient of the activated input. The sums are those of the result, alone
    and times the normalised source.
    """
    size, outputs = weight.shape[-1], weight.shape[0]
    n, inputs, height, width = shape
    like = behind.slope if behind is not None else gradient
    assert like is not None
    tiling = tiling or tiling_of(shape, outputs, blocked=blocks is not None, backward=True)
    gradient = _empty(like.shape, like) if gradient is None else gradient
    target = _empty(shape, like) if target is None else target
    programs = n * -(-height // tiling.rows)
    parts = torch.empty(programs, 2, inputs, device=like.device)
    if behind is None:
        behind = Behind(like, like, Sums(parts, 1), Norm(parts, parts, parts, 0.0), parts, parts)
        is_behind = False
    else:
        is_behind = True
    before = Norm(parts, parts, parts, 0.0) if norm is None else norm
    source = target if source is None else source
    _input_gradient[(programs,)](
        behind.slope, *strides(behind.slope), behind.raw, *strides(behind.raw),
        behind.sums.parts, float(behind.sums.count),
        behind.norm.weight, behind.norm.moments, behind.norm.moments.stride(0),
        behind.weight_gradient, behind.bias_gradient,
        like if residual is None else residual, *strides(like if residual is None else residual),
        gradient, *strides(gradient),
        _packed(weight) if tiling.block == 1 else blocks,
        target if added is None else added, *strides(target if added is None else added),
        source, *strides(source),
        before.weight, before.bias, before.moments, before.moments.stride(0),
        target, *strides(target), parts,
        height, width, like.shape[2], like.shape[3], inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, tiling.block,
        is_behind, residual is not None, added is not None, norm is not None,
        tiling.rows, tiling.pixels, tiling.stages, at_once(outputs, tiling.warps),
        len(behind.sums.parts), chunk(len(behind.sums.parts), outputs, tiling.warps), early(),
        num_warps=tiling.warps, launch_pdl=early(),
    )  # fmt: skip
    return gradient, target, Sums(parts, n * height * width)


class Behind(NamedTuple):
    """A batch norm and ReLU behind a convolution: `slope`, the gradient where the ReLU passes it, with its `sums`;
    `raw`, the input of the norm; and where to put the gradients of the norm's scale and shift.
    """

    slope: Tensor
    raw: Tensor
    sums: Sums
    norm: Norm
    weight_gradient: Tensor
    bias_gradient: Tensor


def weight_gradient(
    active: Tensor, gradient: Tensor, parts: Tensor, *, size: int = 3, stride: int = 1, tiling: Tiling | None = None
) -> None:
    """Write the parts [splits, out * size * size * in] of a weight gradient, in channels-last order.

    `active` is the input of the convolution and `gradient` the gradient of its output. `tiling.rows` has no meaning.
    """
    n, inputs, height, width = active.shape
    _, outputs, out_height, out_width = gradient.shape
    splits, number = len(parts), n * out_height * out_width
    tiling = tiling or weight_tiling(inputs, size)
    _weight_gradient[(splits, size * -(-size // tiling.group))](
        active, *strides(active), gradient, *strides(gradient), parts, number,
        height, width, out_height, out_width, inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, tiling.pixels, tiling.stages,
        -(-number // (splits * tiling.pixels)) * tiling.pixels, early(),
        num_warps=tiling.warps, launch_pdl=early(),
    )  # fmt: skip


def tiling_of(shape: Sequence[int], channels: int, *, blocked: bool, backward: bool = False) -> Tiling:
    """The tiling of a convolution of `channels`, or of an input gradient, with a result of `shape`."""
    height, width = shape[2:]
    if (measured := TILINGS.get((channels, height, width, backward))) and blocked == (measured.block == 2):
        return measured
    if blocked:
        return Tiling(rows=height, pixels=min(256, height * width // 4), warps=8, stages=3, group=4, block=2)
    pixels = min(256, max(64, int(triton.next_power_of_2(height * width))))
    return Tiling(height, pixels, 4 if pixels == 64 else 8, 3, 3 if channels <= 16 else 1)


def weight_tiling(inputs: int, size: int) -> Tiling:
    """The tiling of a weight gradient."""
    group = 3 if size == 3 and padded(inputs) <= 32 else 1
    return Tiling(rows=0, pixels=64 if inputs == 32 else 128, warps=4, stages=4 if inputs == 64 else 3, group=group)


def early() -> bool:
    """Whether kernels start before the one before has finished, to save the time between them."""
    return EARLY and not triton.knobs.runtime.interpret


def at_once(channels: int, warps: int) -> int:
    """How many pixels to normalise at a time: 32 values a thread."""
    return max(16, 1024 * warps // padded(channels))


def chunk(parts: int, channels: int, warps: int) -> int:
    """How many parts to add at a time: at most 32 values a thread."""
    most = 1024 * warps // padded(channels)
    return int(min(triton.next_power_of_2(parts), most))


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


def padded(channels: int) -> int:
    return max(16, int(triton.next_power_of_2(channels)))


def _empty(shape: tuple[int, ...] | torch.Size, like: Tensor) -> Tensor:
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=torch.channels_last)


def strides(maps: Tensor) -> tuple[int, int, int]:
    """Strides of images, rows and pixels."""
    image, _, row, pixel = maps.stride()
    return image, row, pixel


def _packed(weight: Tensor) -> Tensor:
    """Check that a weight is in channels-last order."""
    _, inputs, height, width = weight.shape
    expected = (inputs * height * width, 1, inputs * width, inputs)
    strides: Any = weight.stride()
    assert all(size == 1 or a == b for size, a, b in zip(weight.shape, strides, expected, strict=True)), strides
    return weight
