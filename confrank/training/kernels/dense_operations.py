"""The operations that `densenet.forward` and `densenet.backward` call, in Triton kernels, and their settings."""

import math
from functools import cache
from typing import Any

import torch
import triton
from torch import Tensor, nn

from confrank.training.kernels.dense_backward import (
    grow_backward_kernel,
    narrow_backward_kernel,
    neck_backward_kernel,
    settle_kernel,
)
from confrank.training.kernels.dense_forward import enter_kernel, grow_kernel, narrow_kernel, neck_kernel
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
