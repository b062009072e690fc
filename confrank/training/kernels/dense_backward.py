"""The kernels of DenseNet-BC's backward pass; maps, tiles and times are as in the forward pass.

The sums of the batch norm before a 1x1 convolution come from the weight's gradient. With `on` [rows, channels] the
mask of the ReLU and x the maps before the batch norm, the products U = given^T on and V = given^T (on * x) give the
weight's gradient, `scale * V + shift * U`, and the sums of the masked gradient and of its product with x: weight * U
and weight * V, summed over the outputs.
"""

import triton
import triton.language as tl

from confrank.training.kernels.dense_forward import corner
from confrank.training.kernels.dense_sums import finish_gradient, fold


@triton.jit(do_not_specialize=["start"])
def settle_kernel(
    values, slope, offset, x, out, start, stride,
    ALIGNED: tl.constexpr, COUNT: tl.constexpr, OUT: tl.constexpr, LINE: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The gradient [rows, OUT] of COUNT channels from ALIGNED `start` on, padded with zeros.

    6 COUNT bytes a row. In a step: 4.5 us (traffic 2.4).
    """
    first = start * ALIGNED
    lines = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns = tl.arange(0, LINE)
    inside = columns < COUNT
    there = lines[:, None] * stride + first + columns[None, :]
    value = tl.load(values + there, mask=inside[None, :], other=0.0).to(tl.float32)
    maps = tl.load(x + there, mask=inside[None, :], other=0.0).to(tl.float32)
    value += maps * tl.load(slope + first + columns, mask=inside, other=0.0)[None, :]
    value += tl.load(offset + first + columns, mask=inside, other=0.0)[None, :]
    there = out + lines[:, None] * OUT + columns[None, :]
    tl.store(there, value.to(out.dtype.element_ty), mask=(columns < OUT)[None, :])


@triton.jit
def grow_backward_kernel(
    grown, z, mean, inverse, gain, bias, weight, out, weight_partial, partial, counter,
    gain_gradient, bias_gradient, slope, offset, rows, z_stride, weight_stride,
    DEPTH: tl.constexpr, DEEP: tl.constexpr, COUNT: tl.constexpr, LINE: tl.constexpr,
    HEIGHT: tl.constexpr, BREADTH: tl.constexpr, ROWS: tl.constexpr, HELD: tl.constexpr,
):  # fmt: skip
    """Gradients of a 3x3 convolution's weight and of the maps before its batch norm, from `grown` [rows, LINE].

    Eight neighbours of a pixel make one matrix [ROWS, 8 LINE], its centre another. Reads 2 (DEPTH + LINE) (the
    neighbours mostly from the cache) and writes 2 DEPTH bytes a row: 38.5, 16.7 and 9.8 us (traffic 6.8, 1.7, 0.4),
    and 22.1, 7.6 and 3.9 with four runs at once. In a step: 21.9 us (3.0).
    """
    columns, depths = tl.arange(0, LINE), tl.arange(0, DEEP)
    joint = tl.arange(0, 8 * LINE)
    channel, tap = joint % LINE, joint // LINE
    tap += (tap >= 4).to(tl.int32)
    up, right = tap // 3 - 1, tap % 3 - 1
    deep = depths < DEPTH
    around = weight + channel[:, None] * 9 * DEPTH + tap[:, None] * DEPTH + depths[None, :]
    around = tl.load(around, mask=(channel < COUNT)[:, None] & deep[None, :], other=0.0)
    centre = weight + columns[:, None] * 9 * DEPTH + 4 * DEPTH + depths[None, :]
    centre = tl.load(centre, mask=(columns < COUNT)[:, None] & deep[None, :], other=0.0)
    scale = tl.load(gain + depths, mask=deep, other=0.0) * tl.load(inverse + depths, mask=deep, other=0.0)
    shift = tl.load(bias + depths, mask=deep, other=0.0) - tl.load(mean + depths, mask=deep, other=0.0) * scale
    sums, products = tl.zeros([HELD, DEEP], tl.float32), tl.zeros([HELD, DEEP], tl.float32)
    of_around, of_centre = tl.zeros([DEEP, 8 * LINE], tl.float32), tl.zeros([DEEP, LINE], tl.float32)
    for tile in range(tl.program_id(0), rows // ROWS, tl.num_programs(0)):
        lines = tile * ROWS + tl.arange(0, ROWS)
        high, across = (lines // BREADTH % HEIGHT)[:, None] - up[None, :], (lines % BREADTH)[:, None] - right[None, :]
        inside = (high >= 0) & (high < HEIGHT) & (across >= 0) & (across < BREADTH)
        there = (lines[:, None] - (up * BREADTH + right)[None, :]) * LINE + channel[None, :]
        neighbours = tl.load(grown + there, mask=inside, other=0.0)
        here = tl.load(grown + lines[:, None] * LINE + columns[None, :])
        maps = tl.load(z + lines[:, None] * z_stride + depths[None, :], mask=deep[None, :], other=0.0).to(tl.float32)
        active = maps * scale[None, :] + shift[None, :]
        back = tl.dot(here, centre, tl.dot(neighbours, around))
        back = tl.where(active > 0.0, back, 0.0)
        sums += fold(back, ROWS, DEEP, HELD)
        products += fold(back * maps, ROWS, DEEP, HELD)
        active = tl.trans(tl.maximum(active, 0.0).to(here.dtype))
        of_around, of_centre = tl.dot(active, neighbours, of_around), tl.dot(active, here, of_centre)
        there = out + lines[:, None] * z_stride + depths[None, :]
        tl.store(there, (back * scale[None, :]).to(out.dtype.element_ty), mask=deep[None, :])
    weight_partial += tl.program_id(0) * weight_stride
    there = weight_partial + channel[None, :] * 9 * DEPTH + tap[None, :] * DEPTH + depths[:, None]
    tl.store(there, of_around, mask=(channel < COUNT)[None, :] & deep[:, None])
    there = weight_partial + columns[None, :] * 9 * DEPTH + 4 * DEPTH + depths[:, None]
    tl.store(there, of_centre, mask=(columns < COUNT)[None, :] & deep[:, None])
    finish_gradient(
        tl.sum(sums, axis=0), tl.sum(products, axis=0), partial, counter, tl.program_id(0), tl.num_programs(0), gain,
        mean, inverse, gain_gradient, bias_gradient, slope, offset, depths, deep, rows, False, DEEP,
    )  # fmt: skip


@triton.jit(do_not_specialize=["width"])
def narrow_backward_kernel(
    given, x, mean, inverse, gain, bias, weight, gradient, weight_partial, partial, counter,
    gain_gradient, bias_gradient, slope, offset, rows, width, aligned, given_stride, x_stride, weight_stride,
    COUNT: tl.constexpr, LINE: tl.constexpr, POOL: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Gradients of a 1x1 convolution's weight and of the maps before its batch norm, WIDTH channels to a program.

    `given` [rows, COUNT] is the gradient of its output. Without POOL the kernel adds to the gradient of the maps,
    else it writes it. Reads 2 COUNT (again for every WIDTH channels, mostly from the cache) and reads and writes
    6 width bytes a row (16 width with POOL): 69, 33 and 19 us (traffic 23.8, 9.8, 2.9; with more programs than now),
    and 51.8, 22.2 and 7.4 with four runs at once. With POOL, before blocks 2 and 3: 117 and 77 us (28, 10). In a
    step: 41.0 us (12.4).
    """
    part, program, programs = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    columns, outputs = part * WIDTH + tl.arange(0, WIDTH), tl.arange(0, LINE)
    inside, read = columns < width, outputs < COUNT
    readable = (columns < aligned)[None, :]
    scale = tl.load(gain + columns, mask=inside, other=0.0) * tl.load(inverse + columns, mask=inside, other=0.0)
    shift = tl.load(bias + columns, mask=inside, other=0.0) - tl.load(mean + columns, mask=inside, other=0.0) * scale
    factor = tl.load(weight + outputs[:, None] * aligned + columns[None, :], mask=read[:, None] & readable, other=0.0)
    on_weight, of_weight = tl.zeros([LINE, WIDTH], tl.float32), tl.zeros([LINE, WIDTH], tl.float32)
    for tile in range(program, rows // ROWS, programs):
        lines = tile * ROWS + tl.arange(0, ROWS)
        upstream = tl.load(given + lines[:, None] * given_stride + outputs[None, :], mask=read[None, :], other=0.0)
        if POOL:
            back = tl.dot(upstream, factor) * (0.25 * scale)[None, :]
            ones, maps = tl.zeros([ROWS, WIDTH], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
            for number in tl.static_range(4):
                pixel = corner(lines, number, POOL)[:, None] * x_stride + columns[None, :]
                one = tl.load(x + pixel, mask=readable, other=0.0).to(tl.float32)
                on = one * scale[None, :] + shift[None, :] > 0.0
                tl.store(gradient + pixel, tl.where(on, back, 0.0).to(gradient.dtype.element_ty), mask=readable)
                ones += on.to(tl.float32)
                maps += tl.where(on, one, 0.0)
            ones, maps = ones * 0.25, maps * 0.25
        else:
            pixel = lines[:, None] * x_stride + columns[None, :]
            maps = tl.load(x + pixel, mask=readable, other=0.0)
            before = tl.load(gradient + pixel, mask=readable, other=0.0)
            on = maps.to(tl.float32) * scale[None, :] + shift[None, :] > 0.0
            back = tl.where(on, tl.dot(upstream, factor) * scale[None, :], 0.0)
            tl.store(gradient + pixel, (before.to(tl.float32) + back).to(gradient.dtype.element_ty), mask=readable)
            ones, maps = tl.where(on, 1.0, 0.0), tl.where(on, maps, 0.0)
        upstream = tl.trans(upstream)
        on_weight = tl.dot(upstream, ones.to(factor.dtype), on_weight)
        of_weight = tl.dot(upstream, maps.to(factor.dtype), of_weight)
    sums = tl.sum(factor.to(tl.float32) * on_weight, axis=0)
    products = tl.sum(factor.to(tl.float32) * of_weight, axis=0)
    of_weight = of_weight * scale[None, :] + on_weight * shift[None, :]
    there = weight_partial + program * weight_stride + outputs[:, None] * width + columns[None, :]
    tl.store(there, of_weight, mask=read[:, None] & inside[None, :])
    all_rows = rows * 4 if POOL else rows
    finish_gradient(
        sums, products, partial + part * programs * 2 * WIDTH, counter + part, program, programs, gain, mean, inverse,
        gain_gradient, bias_gradient, slope, offset, columns, inside, all_rows, not POOL, WIDTH,
    )  # fmt: skip


@triton.jit(do_not_specialize=["width"])
def neck_backward_kernel(
    vector, x, mean, inverse, gain, bias, gradient, partial, counter, gain_gradient, bias_gradient, slope, offset,
    images, width, aligned, x_stride, AREA: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The gradient of the maps before the neck from that of its output [images, width], as `narrow_backward`.

    Reads and writes 4 width bytes a row; once in a step, 11.9 us (traffic 2.6).
    """
    part, program, programs = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    columns = part * WIDTH + tl.arange(0, WIDTH)
    inside, readable = columns < width, (columns < aligned)[None, :]
    scale = tl.load(gain + columns, mask=inside, other=0.0) * tl.load(inverse + columns, mask=inside, other=0.0)
    shift = tl.load(bias + columns, mask=inside, other=0.0) - tl.load(mean + columns, mask=inside, other=0.0) * scale
    sums, products = tl.zeros([WIDTH], tl.float32), tl.zeros([WIDTH], tl.float32)
    for image in range(program, images, programs):
        pixel = (image * AREA + tl.arange(0, AREA))[:, None] * x_stride + columns[None, :]
        maps = tl.load(x + pixel, mask=readable, other=0.0).to(tl.float32)
        back = tl.load(vector + image * width + columns, mask=inside, other=0.0).to(tl.float32) / AREA
        on = maps * scale[None, :] + shift[None, :] > 0.0
        value = tl.where(on, (back * scale)[None, :], 0.0).to(gradient.dtype.element_ty)
        tl.store(gradient + pixel, value, mask=readable)
        sums += back * tl.sum(tl.where(on, 1.0, 0.0), axis=0)
        products += back * tl.sum(tl.where(on, maps, 0.0), axis=0)
    finish_gradient(
        sums, products, partial + part * programs * 2 * WIDTH, counter + part, program, programs, gain, mean, inverse,
        gain_gradient, bias_gradient, slope, offset, columns, inside, images * AREA, False, WIDTH,
    )  # fmt: skip
