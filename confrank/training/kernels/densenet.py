"""DenseNet-BC's dense blocks, transitions and neck as one differentiable function with a hand-written backward pass.

Each block has one buffer [rows, channels], a row per pixel. Every layer writes its channels into it, so nothing is
concatenated. The mean and the variance of a channel are computed once, when it is written; all later batch norms of
the block use them, each with its gain and bias.

The backward pass goes through a layer once. With g the gradient of a batch norm's normalised input, masked by the
ReLU, the gradient of channel x is

    gain / std * (g - mean(g) - normalised(x) * mean(g * normalised(x))),

whose last two terms are linear in x. So a layer adds `gain / std * g` to the block's gradient buffer as it computes
g, and the two sums to a slope and an offset per channel, which are applied when the channel's gradient is needed:
`values + slope * x + offset`. No pass waits for the sums of another.

Bytes of device memory a layer moves per pixel with c channels before it (bfloat16, bottleneck 48, growth 12):
forward 2 (c + 48) and 2 (48 + 12); backward 6 c for the buffers and 2 (6 * 48 + 56) for the rest. At batch 128
that is 1.3 GB forward and 4.1 GB backward, which takes 1.3 ms at the 4.3 TB/s of an H200. A step, with stem, head,
loss and optimizer, takes 5.6 ms, and 4.0 per run with four side by side.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from confrank.models.images import DenseLayer
from confrank.models.network import Network, SpatialMean

EPSILON, MOMENTUM = 1e-5, 0.1  # of every batch norm


class Channels(NamedTuple):
    """Maps [rows, at least channels], and the statistics [channels] of each channel over the rows, in float32."""

    values: Tensor
    mean: Tensor
    inverse: Tensor  # 1 / sqrt(variance + eps)
    variance: Tensor  # biased


class Gradient(NamedTuple):
    """The gradient `values + slope * x + offset` of maps x: values [rows, channels], slope and offset [channels]."""

    values: Tensor
    slope: Tensor
    offset: Tensor


class Layer(NamedTuple):
    """The modules of a dense layer."""

    first: nn.BatchNorm2d
    narrow: nn.Conv2d
    second: nn.BatchNorm2d
    grow: nn.Conv2d


class Transition(NamedTuple):
    """The modules between two blocks; average pooling follows."""

    norm: nn.BatchNorm2d
    narrow: nn.Conv2d


class Block(NamedTuple):
    layers: list[Layer]
    transition: Transition | None


class Saved(NamedTuple):
    """What the backward pass of a block needs: its maps and the bottlenecks' outputs."""

    maps: Channels
    bottlenecks: list[Channels]
    size: tuple[int, int]


class Layers(NamedTuple):
    """The layers of a network: a convolution, dense blocks, and the batch norm before the mean over pixels."""

    stem: nn.Conv2d
    blocks: list[Block]
    last: nn.BatchNorm2d

    @property
    def inner(self) -> list[nn.Conv2d | nn.BatchNorm2d]:
        """Everything after the stem, in the order of the forward pass."""
        parts = [part for block in self.blocks for part in (*block.layers, *filter(None, [block.transition]))]
        return [*(module for part in parts for module in part), self.last]


def layers_of(network: nn.Module) -> Layers | None:
    """The layers of a DenseNet-BC without dropout, or None if it has any other layer or setting."""
    if type(network) is not Network or not isinstance(network.neck, nn.Sequential):
        return None
    stem, *stages = network.blocks
    blocks = [_block_of(stage) for stage in stages]
    kinds = [type(layer) for layer in network.neck]
    if type(stem) is not nn.Conv2d or kinds != [nn.BatchNorm2d, nn.ReLU, SpatialMean]:
        return None
    known = [block for block in blocks if block is not None]
    if not known or len(known) < len(blocks) or any(block.transition is None for block in known[:-1]):
        return None
    layers = Layers(stem, known, network.neck[0])  # type: ignore[arg-type]
    inner = [layer for block in known for layer in block.layers]
    narrow = all(layer.narrow.out_channels % 16 == 0 and layer.grow.out_channels <= 32 for layer in inner)
    fits = known[-1].transition is None and narrow and all(map(_fits, layers.inner))
    return layers if fits else None


def _block_of(stage: nn.Module) -> Block | None:
    """The layers of a dense block and of the transition after it."""
    if type(stage) is not nn.Sequential:
        return None
    layers = [layer for layer in stage if type(layer) is DenseLayer]
    inner = [nn.BatchNorm2d, nn.ReLU, nn.Conv2d]
    plain = all([type(module) for module in layer.grow] == inner * 2 for layer in layers)
    rest = list(stage)[len(layers) :]
    if not layers or not plain or [type(module) for module in rest] not in ([], [*inner, nn.AvgPool2d]):
        return None
    found = [Layer(*(layer.grow[number] for number in (0, 2, 3, 5))) for layer in layers]  # type: ignore[arg-type]
    return Block(found, Transition(rest[0], rest[2]) if rest else None)  # type: ignore[arg-type]


def _fits(module: nn.Conv2d | nn.BatchNorm2d) -> bool:
    if isinstance(module, nn.BatchNorm2d):
        usual = (module.eps, module.momentum, module.num_batches_tracked) == (EPSILON, MOMENTUM, None)
        return usual and module.affine and module.track_running_stats
    size = module.kernel_size[0]
    settings = (module.kernel_size, module.stride, module.padding, module.dilation, module.groups, module.bias)
    return size in (1, 3) and settings == ((size,) * 2, (1, 1), (size // 2,) * 2, (1, 1), 1, None)


def allocate(rows: int, channels: int, like: Tensor) -> Channels:
    """Uninitialised maps whose rows start at multiples of 32 bytes, with statistics."""
    wide = torch.promote_types(like.dtype, torch.float32)
    statistics = like.new_empty(3, padded(channels), dtype=wide)[:, :channels]
    return Channels(like.new_empty(rows, padded(channels)), *statistics)


def padded(count: int) -> int:
    """`count` rounded up to a multiple of 16, for aligned rows."""
    return -(-count // 16) * 16


def forward(ops: Any, maps: Tensor, layers: Layers) -> tuple[Tensor, list[Saved]]:
    """Maps [n, c, h, w] of the stem -> vectors [n, d] of the neck, and what `backward` needs."""
    num, height, breadth = len(maps), *maps.shape[2:]
    saved: list[Saved] = []
    transition: Transition | None = None
    for block in layers.blocks:
        last = block.layers[-1]
        buffer = allocate(num * height * breadth, last.first.num_features + last.grow.out_channels, maps)
        if transition is None:
            ops.enter(maps.permute(0, 2, 3, 1).flatten(0, 2), buffer)
        else:
            ops.narrow(saved[-1].maps, *transition, buffer, saved[-1].size)
        bottlenecks = [_layer_forward(ops, buffer, layer, (height, breadth)) for layer in block.layers]
        saved.append(Saved(buffer, bottlenecks, (height, breadth)))
        height, breadth, transition = height // 2, breadth // 2, block.transition
    return ops.neck(saved[-1].maps, layers.last, num), saved


def _layer_forward(ops: Any, buffer: Channels, layer: Layer, size: tuple[int, int]) -> Channels:
    bottleneck = allocate(len(buffer.values), layer.narrow.out_channels, buffer.values)
    ops.narrow(buffer, layer.first, layer.narrow, bottleneck, None)
    ops.grow(bottleneck, layer.second, layer.grow, buffer, layer.first.num_features, size)
    return bottleneck


def backward(ops: Any, vector: Tensor, saved: list[Saved], layers: Layers) -> tuple[Tensor, list[Tensor]]:
    """The gradient [n, c, h, w] of the stem's maps from that of the vectors [n, d], and those of the parameters."""
    blocks, gradient = layers.blocks, allocate_gradient(saved[-1].maps)
    parameters: list[Tensor] = ops.neck_backward(vector, saved[-1].maps, layers.last, gradient)
    for number in reversed(range(len(blocks))):
        before = (blocks[number - 1].transition, saved[number - 1]) if number else (None, None)
        gradient_before, of_block = _block_backward(ops, gradient, saved[number], blocks[number], *before)
        parameters = of_block + parameters
        if gradient_before is not None:
            gradient = gradient_before
    width = blocks[0].layers[0].first.num_features
    maps = ops.settle(gradient, saved[0].maps, 0, width)[:, :width]
    return maps.view(len(vector), *saved[0].size, width).permute(0, 3, 1, 2), parameters


def _block_backward(
    ops: Any, gradient: Gradient, saved: Saved, block: Block, transition: Transition | None, before: Saved | None
) -> tuple[Gradient | None, list[Tensor]]:
    """Through a block and the transition before it: the gradient of the maps before, and those of the parameters."""
    maps, size = saved.maps, saved.size
    narrow = _Partial(ops, "narrow_backward", [layer.narrow for layer in block.layers], maps)
    grow = _Partial(ops, "grow_backward", [layer.grow for layer in block.layers], maps)
    norms: list[tuple[list[Tensor], list[Tensor]]] = []
    for layer, bottleneck in zip(reversed(block.layers), reversed(saved.bottlenecks), strict=True):
        width = layer.first.num_features
        grown = ops.settle(gradient, maps, width, layer.grow.out_channels)
        inner, second = ops.grow_backward(grown, bottleneck, layer.second, layer.grow, grow.columns.pop(), size)
        given = ops.settle(inner, bottleneck, 0, layer.narrow.out_channels)
        first = ops.narrow_backward(given, layer.first, layer.narrow, maps, gradient, narrow.columns.pop(), None)
        norms.insert(0, (first, second))
    of_layers = zip(norms, narrow.totals(), grow.totals(), strict=True)
    parameters = [value for (first, second), a, b in of_layers for value in (*first, a, *second, b)]
    if transition is None or before is None:
        return None, parameters
    outer, pooled = allocate_gradient(before.maps), _Partial(ops, "narrow_backward_pooled", [transition.narrow], maps)
    given = ops.settle(gradient, maps, 0, transition.narrow.out_channels)
    norm = ops.narrow_backward(given, *transition, before.maps, outer, pooled.columns.pop(), before.size)
    return outer, [*norm, *pooled.totals(), *parameters]


class _Partial:
    """The gradients of the weights that a kernel computes in a block, summed over the rows of each program."""

    def __init__(self, ops: Any, kernel: str, weights: list[nn.Conv2d], maps: Channels) -> None:
        self.weights, self.sizes = weights, [padded(weight.weight.numel()) for weight in weights]
        self.sums = maps.mean.new_empty(ops.programs(kernel, len(maps.values)), sum(self.sizes))
        self.columns = list(self.sums.split(self.sizes, dim=1))

    def totals(self) -> list[Tensor]:
        """The gradients, from one launch that adds up all partial sums."""
        totals = self.sums.sum(dim=0).split(self.sizes)
        return [_shaped(total, weight) for total, weight in zip(totals, self.weights, strict=True)]


def _shaped(values: Tensor, like: nn.Conv2d) -> Tensor:
    """A weight's gradient from its values in channels-last order, perhaps with padding at the end."""
    outputs, inputs = like.out_channels, like.in_channels
    return values[: like.weight.numel()].view(outputs, *like.kernel_size, inputs).permute(0, 3, 1, 2)


def allocate_gradient(maps: Channels) -> Gradient:
    """An uninitialised gradient of maps."""
    return Gradient(torch.empty_like(maps.values), torch.empty_like(maps.mean), torch.empty_like(maps.mean))


def update_averages(layers: Layers, saved: list[Saved]) -> None:
    """Update the running averages of every batch norm as torch does, with the unbiased variance."""
    pairs = [(layers.last, saved[-1].maps)]
    for block, of_block in zip(layers.blocks, saved, strict=True):
        pairs += [(layer.first, of_block.maps) for layer in block.layers]
        pairs += [(layer.second, maps) for layer, maps in zip(block.layers, of_block.bottlenecks, strict=True)]
        pairs += [] if block.transition is None else [(block.transition.norm, of_block.maps)]
    unbiased = [len(maps.values) / (len(maps.values) - 1) for _, maps in pairs]
    variances = torch._foreach_mul([maps.variance[: norm.num_features] for norm, maps in pairs], unbiased)
    means = [maps.mean[: norm.num_features] for norm, maps in pairs]
    running: list[Any] = [norm.running_mean for norm, _ in pairs] + [norm.running_var for norm, _ in pairs]
    torch._foreach_lerp_(running, [*means, *variances], MOMENTUM)


class _Inner(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, layers: Layers, maps: Tensor, *parameters: Tensor) -> Tensor:
        from confrank.training.kernels.dense_kernels import Kernels

        with torch.autocast(maps.device.type, enabled=False):
            ctx.layers, ctx.ops = layers, Kernels(layers, maps)
            vector, ctx.saved = forward(ctx.ops, maps, layers)
            update_averages(layers, ctx.saved)
        return vector

    @staticmethod
    def backward(ctx: Any, vector: Tensor) -> Any:
        maps, parameters = backward(ctx.ops, vector, ctx.saved, ctx.layers)
        return None, maps, *parameters


def inner_features(layers: Layers, maps: Tensor) -> Tensor:
    """Maps [n, c, h, w] of the stem -> the input of the head [n, d]; running averages are updated."""
    parameters = [value for module in layers.inner for value in module.parameters()]
    result: Tensor = _Inner.apply(layers, maps, *parameters)
    return result


def infer(network: nn.Module, image: Tensor, bf16: bool) -> Tensor | tuple[Tensor, Tensor]:
    """The output of a network of which `layers_of` knows the layers, in bfloat16."""
    layers = layers_of(network)
    assert layers is not None and isinstance(network, Network) and bf16
    with torch.autocast(image.device.type, dtype=torch.bfloat16):
        return network.classify(inner_features(layers, layers.stem(image)))
