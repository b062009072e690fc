"""The operations that `densenet.forward` and `densenet.backward` call, in Triton kernels, and their settings.

Maps are [rows, channels] with a row per pixel, in bfloat16. A program works on tiles of rows, `num_programs` apart.
Times are microseconds a layer on an H200 at batch 128, means over blocks 1, 2 and 3 (131,072, 32,768 and 8,192 rows).
"Traffic" is what the bytes need at 4.3 TB/s. "In a step" is the mean over all launches of a training step of one run.
`benchmarks/dense_kernels_h200_202611.md` has more of them.

The sums of the batch norm before a 1x1 convolution come from the weight's gradient. With `on` [rows, channels] the
mask of the ReLU and x the maps before the batch norm, the products U = given^T on and V = given^T (on * x) give the
weight's gradient, `scale * V + shift * U`, and the sums of the masked gradient and of its product with x: weight * U
and weight * V, summed over the outputs.

Sums over all rows are deterministic: each program writes its partial sums, and the last one to finish adds them up in
order.
"""

import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from confrank.training.kernels.densenet import EPSILON, Channels, Gradient, Layers, padded

# Rows of a tile, the most programs, warps and pipeline stages; the channels of a tile of 1x1 convolutions. Of
# narrow_backward's programs there are as many for every tile of channels. Settings for at least 65,536 rows, at least
# 16,384, and fewer; `benchmarks/dense_tuning.py` measures others.
Setting = dict[str, int]
SETTINGS: dict[str, list[Setting]] = {
    "enter": [{"ROWS": 64, "programs": 528, "num_warps": 4, "num_stages": 1}] * 3,
    "narrow": [{"ROWS": 128, "STEP": 64, "programs": 264, "num_warps": 4, "num_stages": 3}] * 3,
    "narrow_pooled": [{"ROWS": 32, "STEP": 64, "programs": 264, "num_warps": 8, "num_stages": 2}] * 3,
    "grow": [{"ROWS": 64, "programs": 396, "num_warps": 4, "num_stages": 1}] * 3,
    "settle": [{"ROWS": 128, "num_warps": 4, "num_stages": 1}] * 3,
    "grow_backward": [{"ROWS": 64, "programs": 132, "num_warps": 4, "num_stages": 1}] * 3,
    "narrow_backward": [
        {"ROWS": 64, "WIDTH": 64, "programs": programs, "num_warps": 4, "num_stages": 1} for programs in (132, 66, 32)
    ],
    "narrow_backward_pooled": [{"ROWS": 32, "WIDTH": 64, "programs": 132, "num_warps": 8, "num_stages": 2}] * 3,
}


class Kernels:
    """The operations on one device and stream, for one forward and backward pass of a network."""

    def __init__(self, layers: Layers, like: Tensor) -> None:
        self.counters = torch.zeros(64, dtype=torch.int32, device=like.device)
        self.partial = torch.empty(2**20, dtype=torch.float32, device=like.device)
        weights = [module.weight for module in layers.inner if isinstance(module, nn.Conv2d)]
        norms = [module for module in layers.inner if isinstance(module, nn.BatchNorm2d)]
        vectors = [values for norm in norms for values in (norm.weight, norm.bias)]
        wide = torch.promote_types(like.dtype, torch.float32)
        padded_vectors = _padded_copies([values.view(1, -1, 1, 1) for values in vectors], wide)
        self.copies = dict(zip(map(id, weights), _padded_copies(weights, like.dtype), strict=True))
        self.copies |= dict(zip(map(id, vectors), padded_vectors, strict=True))

    def programs(self, kernel: str, rows: int) -> int:
        """How many programs of a kernel of the backward pass sum over the rows."""
        return _tiles(kernel, rows)[0]

    def norm(self, maps: Channels, norm: nn.BatchNorm2d) -> tuple[Tensor, ...]:
        """The arguments of a kernel that normalises maps."""
        return maps.values, maps.mean, maps.inverse, self.copies[id(norm.weight)], self.copies[id(norm.bias)]

    def enter(self, maps: Tensor, to: Channels) -> None:
        rows, count = maps.shape
        programs, settings = _tiles("enter", rows)
        enter_kernel[(programs,)](
            maps, to.values, self.partial, self.counters, to.mean, to.inverse, to.variance, rows, maps.stride(0),
            to.values.stride(0), EPSILON, COUNT=count, LINE=_line(count), **settings,
        )  # fmt: skip

    def narrow(
        self, maps: Channels, norm: nn.BatchNorm2d, conv: nn.Conv2d, to: Channels, pool: tuple[int, int] | None
    ) -> None:
        rows, width = len(to.values), norm.num_features
        programs, settings = _tiles("narrow" if pool is None else "narrow_pooled", rows)
        narrow_kernel[(programs,)](
            *self.norm(maps, norm), self.copies[id(conv.weight)], to.values,
            self.partial, self.counters, to.mean, to.inverse, to.variance, rows, width, padded(width),
            maps.values.stride(0), to.values.stride(0), EPSILON, COUNT=conv.out_channels,
            LINE=_line(conv.out_channels), POOL=pool[1] if pool else 0, HELD=_held(settings), **settings,
        )  # fmt: skip

    def grow(
        self,
        maps: Channels,
        norm: nn.BatchNorm2d,
        conv: nn.Conv2d,
        to: Channels,
        first: int,
        size: tuple[int, int],
    ) -> None:
        rows = len(to.values)
        programs, settings = _tiles("grow", rows)
        grow_kernel[(programs,)](
            *self.norm(maps, norm), self.copies[id(conv.weight)], to.values,
            self.partial, self.counters, to.mean, to.inverse, to.variance, rows, first, maps.values.stride(0),
            to.values.stride(0), EPSILON, DEPTH=conv.in_channels, DEEP=_line(conv.in_channels),
            COUNT=conv.out_channels, LINE=_line(conv.out_channels), HEIGHT=size[0], BREADTH=size[1], **settings,
        )  # fmt: skip

    def settle(self, gradient: Gradient, maps: Channels, first: int, count: int) -> Tensor:
        rows = len(maps.values)
        out = maps.values.new_empty(rows, padded(count))
        line, aligned = _line(count), math.gcd(first, 16)
        settings = _settings("settle", rows, 4096 // line)
        settle_kernel[(rows // settings["ROWS"],)](
            gradient.values, gradient.slope, gradient.offset, maps.values, out, first // aligned,
            maps.values.stride(0), ALIGNED=aligned, COUNT=count, OUT=padded(count), LINE=line, **settings,
        )  # fmt: skip
        return out

    def grow_backward(
        self,
        grown: Tensor,
        maps: Channels,
        norm: nn.BatchNorm2d,
        conv: nn.Conv2d,
        partial: Tensor,
        size: tuple[int, int],
    ) -> tuple[Gradient, list[Tensor]]:
        rows = len(grown)
        _, settings = _tiles("grow_backward", rows)
        out = torch.empty_like(maps.values)
        slope, offset, gain, bias = maps.mean.new_empty(4, conv.in_channels)
        grow_backward_kernel[(len(partial),)](
            grown, *self.norm(maps, norm), self.copies[id(conv.weight)], out,
            partial, self.partial, self.counters, gain, bias, slope, offset, rows, maps.values.stride(0),
            partial.stride(0), DEPTH=conv.in_channels, DEEP=_line(conv.in_channels), COUNT=conv.out_channels,
            LINE=_line(conv.out_channels), HEIGHT=size[0], BREADTH=size[1], HELD=_held(settings), **settings,
        )  # fmt: skip
        return Gradient(out, slope, offset), [gain, bias]

    def narrow_backward(
        self,
        given: Tensor,
        norm: nn.BatchNorm2d,
        conv: nn.Conv2d,
        maps: Channels,
        gradient: Gradient,
        partial: Tensor,
        pool: tuple[int, int] | None,
    ) -> list[Tensor]:
        rows, width = len(given), norm.num_features
        _, settings = _tiles("narrow_backward" if pool is None else "narrow_backward_pooled", rows)
        gain, bias = maps.mean.new_empty(2, padded(width))[:, :width]
        narrow_backward_kernel[(-(-width // settings["WIDTH"]), len(partial))](
            given, *self.norm(maps, norm), self.copies[id(conv.weight)],
            gradient.values, partial, self.partial, self.counters, gain, bias, gradient.slope, gradient.offset, rows,
            width, padded(width), given.stride(0), maps.values.stride(0), partial.stride(0),
            COUNT=conv.out_channels, LINE=_line(conv.out_channels), POOL=pool[1] if pool else 0, **settings,
        )  # fmt: skip
        return [gain, bias]

    def neck(self, maps: Channels, norm: nn.BatchNorm2d, images: int) -> Tensor:
        width = norm.num_features
        out = maps.values.new_empty(images, width)
        neck_kernel[(images, -(-width // 64))](
            *self.norm(maps, norm), out, width, padded(width), maps.values.stride(0),
            AREA=len(maps.values) // images, WIDTH=64,
        )  # fmt: skip
        return out

    def neck_backward(self, vector: Tensor, maps: Channels, norm: nn.BatchNorm2d, gradient: Gradient) -> list[Tensor]:
        images, width = vector.shape
        gain, bias = maps.mean.new_empty(2, padded(width))[:, :width]
        neck_backward_kernel[(-(-width // 64), min(images, 32))](
            vector.contiguous(), *self.norm(maps, norm), gradient.values, self.partial, self.counters, gain, bias,
            gradient.slope, gradient.offset, images, width, padded(width), maps.values.stride(0),
            AREA=len(maps.values) // images, WIDTH=64,
        )  # fmt: skip
        return [gain, bias]


def _level(rows: int) -> int:
    return (rows < 65536) + (rows < 16384)


def _settings(name: str, rows: int, most: int = 1024) -> dict[str, Any]:
    """The settings of a kernel, with tiles of at most `most` rows that divide all rows."""
    settings = dict(SETTINGS[name][_level(rows)])
    settings["ROWS"] = min(settings["ROWS"], most)
    while rows % settings["ROWS"]:
        settings["ROWS"] //= 2
    return settings


def _held(settings: Setting) -> int:
    """Into how many rows a thread of a matrix product can add up a tile without an exchange."""
    rows: int = settings["ROWS"]
    return min(rows // 2, 8 * settings["num_warps"]) if rows >= 64 else rows


def _tiles(name: str, rows: int) -> tuple[int, dict[str, Any]]:
    """The number of programs of a kernel, and its other settings."""
    settings = _settings(name, rows)
    return min(rows // settings["ROWS"], settings.pop("programs")), settings


def _line(count: int) -> int:
    """The least size of a tile with `count` columns: a power of two, at least 16."""
    return max(16, int(triton.next_power_of_2(count)))


def _padded_copies(weights: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    """Copies [outputs, height, width, padded inputs], in few launches for all of them."""
    index, sizes = _padding(tuple(tuple(weight.shape) for weight in weights), weights[0].device)
    flat = weights[0].new_zeros(sum(weight.numel() for weight in weights) + 1, dtype=dtype)
    chunks = flat[:-1].split([weight.numel() for weight in weights])
    copies = [chunk.view(weight.permute(0, 2, 3, 1).shape) for chunk, weight in zip(chunks, weights, strict=True)]
    torch._foreach_copy_([copy.permute(0, 3, 1, 2) for copy in copies], [weight.detach() for weight in weights])
    return list(flat.index_select(0, index).split(sizes))


@cache
def _padding(shapes: tuple[tuple[int, ...], ...], device: torch.device) -> tuple[Tensor, list[int]]:
    """The number of each element of the padded copies among all weights (the last element: 0), and their sizes."""
    parts, start = [], 0
    total = sum(math.prod(shape) for shape in shapes)
    for outputs, inputs, *size in shapes:
        lines = outputs * math.prod(size)
        index = torch.full((lines, padded(inputs)), total)
        index[:, :inputs] = start + torch.arange(lines * inputs).view(lines, inputs)
        start += lines * inputs
        parts.append(index.flatten())
    return torch.cat(parts).to(device), [len(part) for part in parts]


# The forward pass.


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


# The backward pass.


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


# Sums over all rows, and what follows from them: statistics and gradients.


@triton.jit
def fold(values, ROWS: tl.constexpr, LINE: tl.constexpr, HELD: tl.constexpr):
    """Sums [HELD, LINE] over the rows that one thread holds of a matrix product [ROWS, LINE] on tensor cores.

    With HELD = 8 for each warp, at most ROWS / 2, each thread adds up what it has, and nothing is exchanged.
    """
    if HELD < ROWS:
        values = tl.sum(tl.reshape(values, [ROWS // (2 * HELD), HELD // 8, 2, 8, LINE]), axis=2)
        values = tl.reshape(tl.sum(values, axis=0), [HELD, LINE])
    return values


@triton.jit
def sum_over_programs(partial, programs, LINE: tl.constexpr):
    """Both sums [LINE] over the first axis of partial sums [programs, 2, LINE], in a fixed order."""
    AT_ONCE: tl.constexpr = 4096 // LINE
    lines, columns = tl.arange(0, AT_ONCE), tl.arange(0, LINE)
    first, second = tl.zeros([AT_ONCE, LINE], tl.float32), tl.zeros([AT_ONCE, LINE], tl.float32)
    for start in range(0, programs, AT_ONCE):
        there = partial + (start + lines)[:, None] * 2 * LINE + columns[None, :]
        written = (start + lines < programs)[:, None]
        first += tl.load(there, mask=written, other=0.0, cache_modifier=".cg")
        second += tl.load(there + LINE, mask=written, other=0.0, cache_modifier=".cg")
    return tl.sum(first, axis=0), tl.sum(second, axis=0)


@triton.jit
def is_last(first, second, partial, counter, program, programs, LINE: tl.constexpr):
    """Store two partial sums [LINE]; whether this program is the last to do so."""
    columns = tl.arange(0, LINE)
    tl.store(partial + program * 2 * LINE + columns, first)
    tl.store(partial + program * 2 * LINE + LINE + columns, second)
    tl.debug_barrier()
    last = tl.atomic_add(counter, 1, sem="acq_rel") == programs - 1
    return last


@triton.jit
def finish_statistics(
    sums, squares, partial, counter, mean, inverse, variance, first, rows, eps,
    COUNT: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The last program writes mean, 1 / standard deviation and variance of the channels from `first` on."""
    programs = tl.num_programs(0)
    if is_last(tl.sum(sums, axis=0), tl.sum(squares, axis=0), partial, counter, tl.program_id(0), programs, LINE):
        columns = tl.arange(0, LINE)
        middle, spread = sum_over_programs(partial, programs, LINE)
        middle = middle / rows
        spread = tl.maximum(spread / rows - middle * middle, 0.0)
        written = columns < COUNT
        tl.store(mean + first + columns, middle, mask=written)
        tl.store(inverse + first + columns, 1 / tl.sqrt(spread + eps), mask=written)
        tl.store(variance + first + columns, spread, mask=written)
        tl.store(counter, 0)


@triton.jit
def finish_gradient(
    sums, products, partial, counter, program, programs, gain, mean, inverse, gain_gradient, bias_gradient,
    slope, offset, columns, inside, rows, ADD: tl.constexpr, LINE: tl.constexpr,
):  # fmt: skip
    """The last program writes the gradients of gain and bias, and (with ADD, adds) the slope and offset of x.

    `sums` are those of the masked gradient over a program's rows, `products` those of the gradient times x.
    """
    if is_last(sums, products, partial, counter, program, programs, LINE):
        of_bias, of_gain = sum_over_programs(partial, programs, LINE)
        steep = tl.load(inverse + columns, mask=inside, other=0.0)
        middle = tl.load(mean + columns, mask=inside, other=0.0)
        of_gain = (of_gain - middle * of_bias) * steep
        tl.store(gain_gradient + columns, of_gain, mask=inside)
        tl.store(bias_gradient + columns, of_bias, mask=inside)
        scale = tl.load(gain + columns, mask=inside, other=0.0) * steep / rows
        slanted = -scale * steep * of_gain
        level = -scale * of_bias - slanted * middle
        if ADD:
            slanted += tl.load(slope + columns, mask=inside, other=0.0)
            level += tl.load(offset + columns, mask=inside, other=0.0)
        tl.store(slope + columns, slanted, mask=inside)
        tl.store(offset + columns, level, mask=inside)
        tl.store(counter, 0)
