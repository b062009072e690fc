"""The kernels of DenseNet-BC's forward pass.

Maps are [rows, channels] with a row per pixel, in bfloat16. A program works on tiles of rows, `num_programs` apart.
Times are microseconds a layer on an H200 at batch 128, means over blocks 1, 2 and 3 (131,072, 32,768 and 8,192 rows).
"Traffic" is what the bytes need at 4.3 TB/s. "In a step" is the mean over all launches of a training step of one run.
`benchmarks/dense_kernels_h200_202611.md` has more of them.
"""

import triton
import triton.language as tl

from confrank.training.kernels.dense_sums import finish_statistics, fold


@triton.jit
def active_tile(x, lines, columns, stride, scale, shift, readable):
    """ReLU of the scaled and shifted maps [lines, columns] in float32.

    Where scale and shift are 0 the maps may be anything, NaN included, and the result is 0.
    """
    value = tl.load(x + lines[:, None] * stride + columns[None, :], mask=(columns < readable)[None, :], other=0.0)
    value = value.to(tl.float32) * scale[None, :] + shift[None, :]
    return tl.where(value > 0.0, value, 0.0)


@triton.jit
def corner(lines, number: tl.constexpr, POOL: tl.constexpr):
    """The row of one of the four pixels that average pooling of maps POOL wide joins in each of `lines`."""
    half: tl.constexpr = POOL // 2
    return (lines // half * 2 + number // 2) * POOL + lines % half * 2 + number % 2


@triton.jit
def enter_kernel(
    maps, out, partial, counter, mean, inverse, variance, rows, maps_stride, out_stride, eps,
    COUNT: tl.constexpr, LINE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Copy maps [rows, COUNT] into the first channels of a buffer, with their statistics.

    4 COUNT bytes a row; once in a step, 13.2 us (traffic 2.9).
    """
    columns = tl.arange(0, LINE)
    written = (columns < COUNT)[None, :]
    sums, squares = tl.zeros([ROWS, LINE], tl.float32), tl.zeros([ROWS, LINE], tl.float32)
    for tile in range(tl.program_id(0), rows // ROWS, tl.num_programs(0)):
        lines = tile * ROWS + tl.arange(0, ROWS)
        value = tl.load(maps + lines[:, None] * maps_stride + columns[None, :], mask=written, other=0.0)
        tl.store(out + lines[:, None] * out_stride + columns[None, :], value, mask=written)
        wide = value.to(tl.float32)
        sums += wide
        squares += wide * wide
    finish_statistics(sums, squares, partial, counter, mean, inverse, variance, 0, rows, eps, COUNT, LINE)


@triton.jit(do_not_specialize=["width"])
def narrow_kernel(
    x, mean, inverse, gain, bias, weight, out, partial, counter, out_mean, out_inverse, out_variance,
    rows, width, readable, x_stride, out_stride, eps,
    COUNT: tl.constexpr, LINE: tl.constexpr, POOL: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr,
    HELD: tl.constexpr,
):  # fmt: skip
    """1x1 convolution of the first `width` channels after batch norm and ReLU, with the statistics of its output.

    With POOL, the breadth of the input, 2x2 average pooling comes before the convolution, with which it commutes.
    Reads 2 width (8 width with POOL) and writes 2 COUNT bytes a row: 26.6, 12.7 and 9.0 us (traffic 9.9, 3.7, 1.1).
    With POOL, before blocks 2 and 3: 121 and 47.6 us (15, 5). In a step: 18.9 us (5.1).
    """
    columns = tl.arange(0, LINE)
    written = (columns < COUNT)[None, :]
    sums, squares = tl.zeros([HELD, LINE], tl.float32), tl.zeros([HELD, LINE], tl.float32)
    for tile in range(tl.program_id(0), rows // ROWS, tl.num_programs(0)):
        lines = tile * ROWS + tl.arange(0, ROWS)
        value = tl.zeros([ROWS, LINE], tl.float32)
        for start in range(0, width, STEP):
            steps = start + tl.arange(0, STEP)
            inside = steps < width
            scale = tl.load(gain + steps, mask=inside, other=0.0) * tl.load(inverse + steps, mask=inside, other=0.0)
            shift = tl.load(bias + steps, mask=inside, other=0.0)
            shift -= tl.load(mean + steps, mask=inside, other=0.0) * scale
            if POOL:
                active = tl.zeros([ROWS, STEP], tl.float32)
                for number in tl.static_range(4):
                    there = corner(lines, number, POOL)
                    active += active_tile(x, there, steps, x_stride, scale, shift, readable) * 0.25
            else:
                active = active_tile(x, lines, steps, x_stride, scale, shift, readable)
            factor = weight + columns[None, :] * readable + steps[:, None]
            factor = tl.load(factor, mask=written & (steps < readable)[:, None], other=0.0)
            value = tl.dot(active.to(factor.dtype), factor, value)
        sums += fold(value, ROWS, LINE, HELD)
        squares += fold(value * value, ROWS, LINE, HELD)
        there = out + lines[:, None] * out_stride + columns[None, :]
        tl.store(there, value.to(out.dtype.element_ty), mask=written)
    finish_statistics(
        sums, squares, partial, counter, out_mean, out_inverse, out_variance, 0, rows, eps, COUNT, LINE
    )  # fmt: skip


@triton.jit
def add_product(value, maps, inside, factor, scale, shift):
    """`value` plus the product of the normalised and activated maps, 0 outside an image, with a factor."""
    active = tl.maximum(maps.to(tl.float32) * scale[None, :] + shift[None, :], 0.0)
    active = tl.where(inside[:, None], active, 0.0)
    return tl.dot(active.to(factor.dtype), factor, value)


@triton.jit(do_not_specialize=["first"])
def grow_kernel(
    z, mean, inverse, gain, bias, weight, out, partial, counter, out_mean, out_inverse, out_variance,
    rows, first, z_stride, out_stride, eps,
    DEPTH: tl.constexpr, DEEP: tl.constexpr, COUNT: tl.constexpr, LINE: tl.constexpr,
    HEIGHT: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """3x3 convolution after batch norm and ReLU into the channels from `first` on, with their statistics.

    It is the sum of three matrix products, of the activations one image row above, here, and one below. Their columns
    [4 LINE] are the three horizontal neighbours, added after a shift. A tile must hold full image rows.
    Reads 2 DEPTH (three times, mostly from the cache) and writes 2 COUNT bytes a row. In a step: 13.2 us (traffic
    1.6; 3.7, 0.9 and 0.2 by block). Before all loads of a tile came first: 28.2, 12.7 and 6.0 us.
    """
    columns, depths = tl.arange(0, LINE), tl.arange(0, DEEP)
    written, deep = (columns < COUNT)[None, :], depths < DEPTH
    scale = tl.load(gain + depths, mask=deep, other=0.0) * tl.load(inverse + depths, mask=deep, other=0.0)
    shift = tl.load(bias + depths, mask=deep, other=0.0) - tl.load(mean + depths, mask=deep, other=0.0) * scale
    joint = tl.arange(0, 4 * LINE)
    channel, right = joint % LINE, joint // LINE - 1
    used = (channel < COUNT) & (right <= 1)
    known = used[None, :] & deep[:, None]
    factors = weight + (channel * 9 + right + 1)[None, :] * DEPTH + depths[:, None]
    of_above = tl.load(factors, mask=known, other=0.0)
    of_here = tl.load(factors + 3 * DEPTH, mask=known, other=0.0)
    of_below = tl.load(factors + 6 * DEPTH, mask=known, other=0.0)
    sums, squares = tl.zeros([ROWS, LINE], tl.float32), tl.zeros([ROWS, LINE], tl.float32)
    for tile in range(tl.program_id(0), rows // ROWS, tl.num_programs(0)):
        lines = tile * ROWS + tl.arange(0, ROWS)
        high, across = lines // BREADTH % HEIGHT, lines % BREADTH
        top, bottom = high >= 1, high < HEIGHT - 1
        there = z + lines[:, None] * z_stride + depths[None, :]
        above = tl.load(there - BREADTH * z_stride, mask=top[:, None] & deep[None, :], other=0.0)
        here = tl.load(there, mask=deep[None, :], other=0.0)
        below = tl.load(there + BREADTH * z_stride, mask=bottom[:, None] & deep[None, :], other=0.0)
        value = tl.zeros([ROWS, 4 * LINE], tl.float32)
        value = add_product(value, above, top, of_above, scale, shift)
        value = add_product(value, here, high >= 0, of_here, scale, shift)
        value = add_product(value, below, bottom, of_below, scale, shift)
        column = across[:, None] + right[None, :]
        inside = (column >= 0) & (column < BREADTH) & used[None, :]
        row = tl.arange(0, ROWS)[:, None] + right[None, :]
        value = tl.gather(value, tl.where(inside, row, 0), axis=0)
        value = tl.sum(tl.reshape(tl.where(inside, value, 0.0), [ROWS, 4, LINE]), axis=1)
        sums += value
        squares += value * value
        there = out + lines[:, None] * out_stride + first + columns[None, :]
        tl.store(there, value.to(out.dtype.element_ty), mask=written)
    finish_statistics(
        sums, squares, partial, counter, out_mean, out_inverse, out_variance, first, rows, eps, COUNT, LINE
    )  # fmt: skip


@triton.jit(do_not_specialize=["width"])
def neck_kernel(
    x, mean, inverse, gain, bias, out, width, aligned, x_stride,
    AREA: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The mean over AREA pixels after batch norm and ReLU, WIDTH channels of an image to a program.

    Reads 2 width bytes a row; once in a step, 4.8 us (traffic 1.3).
    """
    columns, lines = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH), tl.program_id(0) * AREA + tl.arange(0, AREA)
    inside = columns < width
    scale = tl.load(gain + columns, mask=inside, other=0.0) * tl.load(inverse + columns, mask=inside, other=0.0)
    shift = tl.load(bias + columns, mask=inside, other=0.0) - tl.load(mean + columns, mask=inside, other=0.0) * scale
    active = tl.sum(active_tile(x, lines, columns, x_stride, scale, shift, aligned), axis=0) / AREA
    tl.store(out + tl.program_id(0) * width + columns, active.to(out.dtype.element_ty), mask=inside)
