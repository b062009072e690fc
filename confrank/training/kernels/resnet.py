"""Pre-activation residual networks in fused kernels: the forward and the backward pass as one autograd function.

It computes what the layers compute under autocast in training mode, with fewer roundings: an activation is written
once before and once after its batch norm, and a sum with the shortcut is rounded once.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from confrank.models.images import PreActivationBlock
from confrank.models.network import Network, SpatialMean
from confrank.training.kernels.convolution import blocks_of, convolve, strides
from confrank.training.kernels.gradients import Behind, input_gradient, weight_gradient
from confrank.training.kernels.parts import Norm, Sums, add_parts, at_once, has_halo, moments_of, padded

# The shape of weights for which a kernel computes 2x2 pixels at once.
BLOCKED = (16, 16, 3, 3)


class Layers(NamedTuple):
    """The layers of a network: a convolution, blocks, and the batch norm before the mean over pixels."""

    stem: nn.Conv2d
    blocks: list[PreActivationBlock]
    last: nn.BatchNorm2d

    @property
    def norms(self) -> list[nn.BatchNorm2d]:
        """All batch norms, in the order of the forward pass."""
        pairs: list[Any] = [norm for block in self.blocks for norm in (block.activate[0], block.residual[1])]
        return [*pairs, self.last]

    @property
    def convolutions(self) -> list[nn.Conv2d]:
        """All convolutions: the stem, then two or three of each block."""
        result: list[Any] = [self.stem]
        for block in self.blocks:
            result += filter(None, (block.residual[0], block.residual[3], block.projection))
        return result


def layers_of(network: nn.Module) -> Layers | None:
    """The layers of a network that the kernels can compute, or None if it has any other layer or setting."""
    if type(network) is not Network or not isinstance(network.neck, nn.Sequential):
        return None
    stem, *stages = network.blocks
    blocks = [block for stage in stages for block in (stage if isinstance(stage, nn.Sequential) else [stage])]
    kinds = [type(layer) for layer in network.neck]
    if type(stem) is not nn.Conv2d or kinds != [nn.BatchNorm2d, nn.ReLU, SpatialMean]:
        return None
    if not blocks or not all(type(block) is PreActivationBlock and _is_plain(block) for block in blocks):
        return None
    layers = Layers(stem, blocks, network.neck[0])  # type: ignore[arg-type]
    fits = all(map(_norm_fits, layers.norms)) and all(map(_convolution_fits, layers.convolutions))
    return layers if fits else None


def _is_plain(block: PreActivationBlock) -> bool:
    kinds = [type(layer) for layer in (*block.activate, *block.residual)]
    projects = block.projection is None or type(block.projection) is nn.Conv2d
    return projects and kinds == [nn.BatchNorm2d, nn.ReLU, nn.Conv2d, nn.BatchNorm2d, nn.ReLU, nn.Conv2d]


def _norm_fits(norm: nn.BatchNorm2d) -> bool:
    return norm.affine and norm.track_running_stats and norm.momentum is not None and norm.num_batches_tracked is None


def _convolution_fits(layer: nn.Conv2d) -> bool:
    size, stride = layer.kernel_size[0], layer.stride[0]
    settings = (layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.bias)
    expected = ((size,) * 2, (stride,) * 2, (size // 2,) * 2, (1, 1), 1, None)
    return settings == expected and size in (1, 3) and stride in (1, 2)


def features(layers: Layers, image: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """The input of the head [n, c] for a batch of images, computed in `dtype`; running averages are updated."""
    parameters = [layer.weight for layer in layers.convolutions]
    for norm in layers.norms:
        parameters += [norm.weight, norm.bias]
    result: Tensor = _Features.apply(layers, image.to(dtype), *parameters)
    return result


class _Block(NamedTuple):
    """What the backward pass needs of a block: its input, activated; the inner maps, activated; and the norms."""

    x: Tensor
    active: Tensor
    inner: Tensor
    inner_active: Tensor
    first: int
    second: int


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Layers, image: Tensor, *parameters: Tensor) -> Tensor:
        image = image.contiguous(memory_format=torch.channels_last)
        weights = _rounded([layer.weight for layer in layers.convolutions], image.dtype)
        norms = _norms(layers.norms)
        at, number, blocks, counts = iter(weights), 0, [], []
        _, maps, sums = convolve(image, next(at).plain)
        for block in layers.blocks:
            stride = _stride(block)
            counts += [sums.count]
            first, second, x = next(at), next(at), maps
            active, inner, inner_sums = convolve(
                maps, first.plain, stride=stride, norm=norms[number], sums=sums, blocks=first.blocks
            )
            shortcut = maps if block.projection is None else convolve(active, next(at).plain, stride=stride)[1]
            counts += [inner_sums.count]
            inner_active, maps, sums = convolve(
                inner, second.plain, norm=norms[number + 1], sums=inner_sums, residual=shortcut, blocks=second.blocks
            )
            blocks.append(_Block(x, active, inner, inner_active, number, number + 1))
            number += 2
        result = pool(maps, norms[-1], sums)
        _update_averages(layers.norms, norms, [*counts, sums.count])
        ctx.kept = layers, image, weights, norms, blocks, maps
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        layers, image, weights, norms, blocks, last = ctx.kept
        of_norms = [(torch.empty_like(norm.weight), torch.empty_like(norm.bias)) for norm in norms]
        of_weights = _Parts(layers.convolutions, image)
        slope, sums = pool_gradient(gradient, last, norms[-1])
        behind = Behind(slope, last, sums, norms[-1], *of_norms[-1])
        residual, at = None, len(weights)
        for block, layer in zip(reversed(blocks), reversed(layers.blocks), strict=True):
            projects = layer.projection is not None
            at -= 3 if projects else 2
            first, second = norms[block.first], norms[block.second]
            stride = _stride(layer)
            outer, slope, sums = input_gradient(
                weights[at + 1].plain, block.inner.shape, behind=behind, residual=residual,
                source=block.inner, norm=second, blocks=weights[at + 1].transposed,
            )  # fmt: skip
            of_weights.add(at + 1, block.inner_active, outer)
            behind = Behind(slope, block.inner, sums, second, *of_norms[block.second])
            added = None
            if projects:
                _, added, _ = input_gradient(weights[at + 2].plain, block.x.shape, stride=stride, gradient=outer)
                of_weights.add(at + 2, block.active, outer)
            inner, slope, sums = input_gradient(
                weights[at].plain, block.x.shape, stride=stride, behind=behind, added=added,
                source=block.x, norm=first, blocks=weights[at].transposed,
            )  # fmt: skip
            of_weights.add(at, block.active, inner)
            behind = Behind(slope, block.x, sums, first, *of_norms[block.first])
            residual = None if projects else outer
        outer, _, _ = input_gradient(weights[0].plain, image.shape, behind=behind, residual=residual, wanted=False)
        of_weights.add(0, image, outer)
        return None, None, *of_weights.totals(), *(values for pair in of_norms for values in pair)


def _stride(block: PreActivationBlock) -> int:
    first: Any = block.residual[0]
    return int(first.stride[0])


class _Weight(NamedTuple):
    """A weight as the kernels read it; for narrow layers also as `blocks_of` gives it, forward and transposed."""

    plain: Tensor
    blocks: Tensor | None = None
    transposed: Tensor | None = None


def _rounded(weights: Sequence[Tensor], dtype: torch.dtype) -> list[_Weight]:
    """The weights in `dtype` and channels-last order."""
    flat = torch.cat([weight.detach().permute(0, 2, 3, 1).reshape(-1) for weight in weights]).to(dtype)
    pieces = flat.split([weight.numel() for weight in weights])
    rounded = [_Weight(_channels_last(piece, weight)) for piece, weight in zip(pieces, weights, strict=True)]
    narrow = [number for number, weight in enumerate(weights) if weight.shape == BLOCKED]
    if narrow:
        together = torch.stack([rounded[number].plain.permute(0, 2, 3, 1) for number in narrow])
        pairs = zip(blocks_of(together), blocks_of(together, transposed=True), strict=True)
        for number, (blocks, transposed) in zip(narrow, pairs, strict=True):
            rounded[number] = _Weight(rounded[number].plain, blocks, transposed)
    return rounded


def _channels_last(values: Tensor, like: Tensor) -> Tensor:
    outputs, inputs, height, width = like.shape
    return values.view(outputs, height, width, inputs).permute(0, 3, 1, 2)


def _norms(layers: Sequence[nn.BatchNorm2d]) -> list[Norm]:
    """The batch norms, with room for their moments in one tensor."""
    widths = [layer.num_features for layer in layers]
    moments = torch.empty(3, sum(widths), device=layers[0].weight.device).split(widths, dim=1)
    return [Norm(la.weight.detach(), la.bias.detach(), m, la.eps) for la, m in zip(layers, moments, strict=True)]


def _update_averages(layers: Sequence[nn.BatchNorm2d], norms: Sequence[Norm], counts: Sequence[int]) -> None:
    """Move the running means and (unbiased) variances towards those of the batch."""
    rows = zip(layers, norms, counts, strict=True)
    for (momentum, count), group in groupby(rows, key=lambda row: (row[0].momentum, row[2])):
        members: list[tuple[Any, Norm]] = [(layer, norm) for layer, norm, _ in group]
        means = [norm.moments[0] for _, norm in members]
        variances = torch._foreach_mul([norm.moments[2] for _, norm in members], count / (count - 1))
        torch._foreach_lerp_([layer.running_mean for layer, _ in members], means, momentum)
        torch._foreach_lerp_([layer.running_var for layer, _ in members], list(variances), momentum)


class _Parts:
    """The weight gradients of all convolutions in parts; those of equal shape are added up in one kernel.

    Nothing waits for them until the end of the backward pass, so they are computed on another stream.
    """

    def __init__(self, layers: Sequence[nn.Conv2d], image: Tensor) -> None:
        self.layers, self.side = layers, _side_stream(image.device) if image.is_cuda else None
        self.used: list[Tensor] = []
        shapes = [layer.weight.shape for layer in layers]
        self.rows: dict[torch.Size, list[int]] = {shape: [] for shape in shapes}
        for number, shape in enumerate(shapes):
            self.rows[shape].append(number)
        num_pixels = image.numel() // image.shape[1]
        self.parts = {
            shape: torch.empty(len(rows), splits(shape, num_pixels), shape.numel(), device=image.device)
            for shape, rows in self.rows.items()
        }
        self.sums: dict[torch.Size, Tensor] = {}

    def add(self, number: int, active: Tensor, gradient: Tensor) -> None:
        """Compute the parts of convolution `number`; the first convolution of its shape comes last."""
        layer = self.layers[number]
        shape = layer.weight.shape
        row = self.rows[shape].index(number)
        with self.aside():
            halo = number > 0 and has_halo(shape[-1])
            weight_gradient(
                active, gradient, self.parts[shape][row], size=shape[-1], stride=layer.stride[0], halo=halo
            )
            if row == 0:
                self.sums[shape] = self.parts[shape].sum(1)
        self.used.append(gradient)  # not to be freed before the other stream has read it

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Run on the other stream, after what has been enqueued so far."""
        if self.side is None:
            yield
            return
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield

    def totals(self) -> Iterator[Tensor]:
        """The gradients, in the order of the convolutions."""
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)
        for number, layer in enumerate(self.layers):
            shape = layer.weight.shape
            yield _channels_last(self.sums[shape][self.rows[shape].index(number)], layer.weight)


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


def splits(shape: torch.Size, num_pixels: int) -> int:
    """Into how many parts the pixels of a batch are divided for the weight gradient of a layer.

    `num_pixels` are those of the input images, of which a layer with 32 outputs has a quarter, and so on.
    """
    return -(-num_pixels // {16: 1024, 32: 2048}.get(shape[0], 9400))


def infer(network: nn.Module, image: Tensor, bf16: bool) -> Tensor | tuple[Tensor, Tensor]:
    """The output of a network of which `layers_of` knows the layers, in bfloat16."""
    layers = layers_of(network)
    assert layers is not None and isinstance(network, Network) and bf16
    with torch.autocast(image.device.type, dtype=torch.bfloat16):
        return network.classify(features(layers, image))


# The neck of a network as one kernel each way: batch norm, ReLU and the mean over pixels.


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
