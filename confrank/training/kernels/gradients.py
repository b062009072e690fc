"""The gradients of a convolution fused with batch norms: of its input and of its weights, as matrix products."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from confrank.training.kernels.convolution import empty_maps, gather_product, packed, strides
from confrank.training.kernels.parts import (
    Norm,
    Sums,
    Tiling,
    add_parts,
    at_once,
    has_halo,
    load_span,
    padded,
    store_halo,
    store_parts,
    store_span,
    tiling_of,
    weight_tiling,
)


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
    BEHIND: tl.constexpr, RESIDUAL: tl.constexpr, ADDED: tl.constexpr, BEFORE: tl.constexpr, PRODUCT: tl.constexpr,
    HALO: tl.constexpr,
    ROWS: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr, SPAN: tl.constexpr,
    NUMBER: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """The gradient of x in y = conv(relu(norm(x))), up to the affine part of the batch norm's backward pass.

    `BEHIND`: the gradient of y is computed first, and stored: the affine part for the batch norm of y, of `slope`
    (the gradient behind the ReLU), plus `residual`. `BEFORE`: the result is masked by the ReLU before the
    convolution, and its sums are taken, alone and times the normalised x.

    Moves six maps: 25.2, 12.6 and 6.3 MB in the stages of ResNet-110 at batch 128, for which the memory of an H200
    needs 5.9, 2.9 and 1.5 us. It takes 15.1, 11.3 and 8.9 us in a chain of equal layers, and 18.2, 13.4 and 11.2 us
    in a step, next to weight gradients.
    """
    TAPS: tl.constexpr = SIZE + BLOCK - 1
    READ: tl.constexpr = (ROWS + SIZE - 2) // STRIDE + 1
    SPANNED: tl.constexpr = (READ if READ < OUT_HEIGHT else OUT_HEIGHT) * OUT_WIDTH
    PROGRAMS: tl.constexpr = (HEIGHT + ROWS - 1) // ROWS
    program = tl.program_id(0)
    image = program // PROGRAMS
    first_row = (program % PROGRAMS) * ROWS
    gradient += image * gradient_image
    if BEHIND:
        channel = tl.arange(0, PADDED_OUTPUTS)
        exists = channel < OUTPUTS
        start = tl.maximum((first_row + SIZE // 2 - SIZE + 1) // STRIDE, 0) * OUT_WIDTH
        stop = tl.minimum((first_row + ROWS - 1 + SIZE // 2) // STRIDE + 1, OUT_HEIGHT) * OUT_WIDTH
        slope += image * slope_image
        raw += image * raw_image
        residual += image * residual_image
        slopes = load_span(slope, slope_row, slope_pixel, start, stop, channel, OUTPUTS, OUT_WIDTH, SPAN)
        raws = load_span(raw, raw_row, raw_pixel, start, stop, channel, OUTPUTS, OUT_WIDTH, SPAN)
        if RESIDUAL:
            others = load_span(residual, residual_row, residual_pixel, start, stop, channel, OUTPUTS, OUT_WIDTH, SPAN)
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
        for begin in tl.static_range(0, SPANNED, SPAN):
            at = start + begin
            if begin > 0:
                slopes = load_span(slope, slope_row, slope_pixel, at, stop, channel, OUTPUTS, OUT_WIDTH, SPAN)
                raws = load_span(raw, raw_row, raw_pixel, at, stop, channel, OUTPUTS, OUT_WIDTH, SPAN)
            affine = slopes.to(tl.float32) * factor[None, :] + constant[None, :]
            affine += raws.to(tl.float32) * of_raw[None, :]
            if RESIDUAL:
                if begin > 0:
                    others = load_span(
                        residual, residual_row, residual_pixel, at, stop, channel, OUTPUTS, OUT_WIDTH, SPAN
                    )
                affine += others.to(tl.float32)
            store_span(gradient, gradient_row, gradient_pixel, at, stop, channel, affine, OUTPUTS, OUT_WIDTH, SPAN)
        if HALO:
            store_halo(
                gradient, gradient_row, gradient_pixel, channel, OUTPUTS, PADDED_OUTPUTS, OUT_HEIGHT, OUT_WIDTH
            )
        tl.debug_barrier()
    COLUMNS: tl.constexpr = PADDED * BLOCK * BLOCK
    ALL_KNOWN: tl.constexpr = ROWS * WIDTH // (BLOCK * BLOCK) % PIXELS == 0 and HEIGHT % ROWS == 0
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
    for begin in range(0, ROWS * WIDTH // (BLOCK * BLOCK) if PRODUCT else 0, PIXELS):
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
            product = gather_product(
                tl.zeros([PIXELS, COLUMNS], tl.float32), gradient, gradient_row, gradient_pixel, weight, h, w, known,
                OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PADDED_OUTPUTS, INPUTS * BLOCK * BLOCK, COLUMNS,
                1, TAPS * TAPS * OUTPUTS, OUTPUTS, TAPS, SIZE // 2, BLOCK, GROUP, False, HALO, ALL_KNOWN, STAGES,
            )  # fmt: skip
        else:
            product = gather_product(
                tl.zeros([PIXELS, COLUMNS], tl.float32), gradient, gradient_row, gradient_pixel, weight, h, w, known,
                OUT_HEIGHT, OUT_WIDTH, OUTPUTS, PADDED_OUTPUTS, INPUTS, COLUMNS, SIZE * SIZE * INPUTS, 1, INPUTS,
                SIZE, SIZE // 2, STRIDE, GROUP, True, HALO, ALL_KNOWN, STAGES,
            )  # fmt: skip
        if ADDED:
            seconds = added + image * added_image + y * added_row + x * added_pixel + channel[None, :]
            product += tl.load(seconds, mask=mask, other=0.0).to(tl.float32)
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
    HALO: tl.constexpr, PIXELS: tl.constexpr, STAGES: tl.constexpr, PIXELS_PER_PROGRAM: tl.constexpr,
):  # fmt: skip
    """One part of the weight gradient: the taps of `program_id(1)`, over the output pixels of `program_id(0)`.

    Reads two maps: 8.4, 4.2 and 2.1 MB in the stages of ResNet-110 at batch 128, for which the memory of an H200
    needs 2.0, 1.0 and 0.5 us. It takes 10.3, 8.4 and 6.4 us alone, with the sum of the parts, and 17.7, 11.2 and 8.7
    us in a step, next to input gradients.
    """
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
        if HALO:
            left = tl.load(inputs, mask=known[:, None] & used[None, :], other=0.0)
        else:
            left = tl.load(inputs, mask=inside & used[None, :], other=0.0)
        outputs = gradient + (image * gradient_image + h * gradient_row + w * gradient_pixel)[:, None]
        right = tl.load(outputs + column[None, :], mask=known[:, None] & present[None, :], other=0.0)
        product = tl.dot(tl.trans(left), right, product, input_precision="ieee")
    own = parts + split * (OUTPUTS * SIZE * SIZE * INPUTS)
    place = own + (column * (SIZE * SIZE * INPUTS))[None, :]
    place += ((vertical * SIZE + horizontal) * INPUTS + channel)[:, None]
    tl.store(place, product, mask=used[:, None] & present[None, :])


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


def input_gradient(
    weight: Tensor,
    shape: torch.Size,
    *,
    stride: int = 1,
    gradient: Tensor | None = None,
    behind: Behind | None = None,
    residual: Tensor | None = None,
    added: Tensor | None = None,
    source: Tensor | None = None,
    norm: Norm | None = None,
    target: Tensor | None = None,
    wanted: bool = True,
    blocks: Tensor | None = None,
    tiling: Tiling | None = None,
) -> tuple[Tensor, Tensor, Sums]:
    """The gradient of the input `shape` of a convolution, as (gradient of its output, gradient, its sums).

    The gradient of the output is `gradient`, or comes from the batch norm `behind` it, plus `residual`. With the
    `norm` before the convolution and its input `source`, the result is the gradient behind the scale and shift, where
    the ReLU passes it; `added` is a second gradient of the activated input. The sums are those of the result, alone
    and times the normalised source. If the gradient of the input is not `wanted`, only that of the output is set.
    """
    size, outputs = weight.shape[-1], weight.shape[0]
    n, inputs, height, width = shape
    like = behind.slope if behind is not None else gradient
    assert like is not None
    tiling = tiling or tiling_of(shape, outputs, blocked=blocks is not None, backward=True)
    halo = has_halo(size, stride) and gradient is None
    gradient = empty_maps(like.shape, like, halo=halo) if gradient is None else gradient
    target = empty_maps(shape, like) if target is None else target
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
        packed(weight) if tiling.block == 1 else blocks,
        target if added is None else added, *strides(target if added is None else added),
        source, *strides(source),
        before.weight, before.bias, before.moments, before.moments.stride(0),
        target, *strides(target), parts,
        height, width, like.shape[2], like.shape[3], inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, tiling.block,
        is_behind, residual is not None, added is not None, norm is not None, wanted, halo,
        tiling.rows, tiling.pixels, tiling.stages, at_once(outputs, tiling.warps, like.shape[2] * like.shape[3]),
        len(behind.sums.parts), at_once(outputs, tiling.warps, len(behind.sums.parts)), num_warps=tiling.warps,
    )  # fmt: skip
    return gradient, target, Sums(parts, n * height * width)


def weight_gradient(
    active: Tensor,
    gradient: Tensor,
    parts: Tensor,
    *,
    size: int = 3,
    stride: int = 1,
    halo: bool = False,
    tiling: Tiling | None = None,
) -> None:
    """Write the parts [splits, out * size * size * in] of a weight gradient, in channels-last order.

    `active` is the input of the convolution, with a `halo` or without, and `gradient` the gradient of its output.
    `tiling.rows` has no meaning.
    """
    n, inputs, height, width = active.shape
    _, outputs, out_height, out_width = gradient.shape
    splits, number = len(parts), n * out_height * out_width
    tiling = tiling or weight_tiling(inputs, size)
    _weight_gradient[(splits, size * -(-size // tiling.group))](
        active, *strides(active), gradient, *strides(gradient), parts, number,
        height, width, out_height, out_width, inputs, padded(inputs), outputs, padded(outputs),
        size, stride, tiling.group, halo, tiling.pixels, tiling.stages,
        -(-number // (splits * tiling.pixels)) * tiling.pixels, num_warps=tiling.warps,
    )  # fmt: skip
