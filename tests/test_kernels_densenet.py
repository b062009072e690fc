"""The hand-written pass through DenseNet-BC against autograd, and its kernels against plain torch."""

from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from confrank import models
from confrank.config import RunConfig
from confrank.data import DataSet, split_of
from confrank.models.images import densenet_bc
from confrank.training import Run
from confrank.training.captured import CapturedRun
from confrank.training.kernels import densenet
from confrank.training.kernels.densenet import Gradient
from confrank.training.step import PLAIN

HAS_CUDA = torch.cuda.is_available()
cuda = pytest.mark.skipif(not HAS_CUDA, reason="bfloat16 needs a CUDA device")


def as_maps(rows, size):
    return rows.view(-1, *size, rows.shape[1]).permute(0, 3, 1, 2)


def as_rows(maps):
    return maps.permute(0, 2, 3, 1).flatten(0, 2)


def write(values, to, first=0):
    """Maps [rows, c] into the channels from `first` on, with their statistics."""
    columns = slice(first, first + values.shape[1])
    to.values[:, columns] = values
    to.mean[columns] = values.mean(dim=0)
    to.variance[columns] = values.var(dim=0, correction=0)
    to.inverse[columns] = (to.variance[columns] + densenet.EPSILON).rsqrt()


def normalised(maps, width):
    return (maps.values[:, :width] - maps.mean[:width]) * maps.inverse[:width]


def active(maps, norm, size):
    value = (normalised(maps, norm.num_features) * norm.weight + norm.bias).relu()
    return value if size is None else as_rows(functional.avg_pool2d(as_maps(value, size), 2))


def narrow(maps, norm, conv, to, pool):
    write(active(maps, norm, pool) @ conv.weight.flatten(1).T, to)


def grow(maps, norm, conv, to, first, size):
    write(as_rows(functional.conv2d(as_maps(active(maps, norm, None), size), conv.weight, padding=1)), to, first)


def settle(gradient, maps, first, count):
    columns = slice(first, first + count)
    linear = gradient.slope[columns] * maps.values[:, columns] + gradient.offset[columns]
    return gradient.values[:, columns] + linear


def norm_backward(active_gradient, maps, norm):
    """Values, slope and offset of the gradient through batch norm and ReLU, and the gradients of gain and bias."""
    width, rows = norm.num_features, len(maps.values)
    masked = active_gradient * (active(maps, norm, None) > 0)
    gain, bias = (masked * normalised(maps, width)).sum(dim=0), masked.sum(dim=0)
    scale = norm.weight * maps.inverse[:width]
    slope = -scale * maps.inverse[:width] * gain / rows
    return masked * scale, slope, -scale * bias / rows - slope * maps.mean[:width], [gain, bias]


def grow_backward(grown, maps, norm, conv, partial, size):
    grown, inputs = as_maps(grown[:, : conv.out_channels], size), as_maps(active(maps, norm, None), size)
    weight = nn.grad.conv2d_weight(inputs, conv.weight.shape, grown, padding=1)
    partial[0, : conv.weight.numel()] = weight.permute(0, 2, 3, 1).flatten()
    back = as_rows(nn.grad.conv2d_input(inputs.shape, conv.weight, grown, padding=1))
    *parts, parameters = norm_backward(back, maps, norm)
    return Gradient(*parts), parameters


def narrow_backward(given, norm, conv, maps, gradient, partial, pool):
    width = norm.num_features
    partial[0, : conv.weight.numel()] = (given.T @ active(maps, norm, pool)).flatten()
    spread = given @ conv.weight.flatten(1)
    if pool is not None:
        spread = as_rows(functional.interpolate(as_maps(spread, (pool[0] // 2, pool[1] // 2)) / 4, scale_factor=2))
        for values in gradient:
            values.zero_()
    values, slope, offset, parameters = norm_backward(spread, maps, norm)
    gradient.values[:, :width] += values
    gradient.slope[:width] += slope
    gradient.offset[:width] += offset
    return parameters


def neck(maps, norm, num):
    return active(maps, norm, None).view(num, -1, norm.num_features).mean(dim=1)


def neck_backward(vector, maps, norm, gradient):
    area, width = len(maps.values) // len(vector), norm.num_features
    values, slope, offset, parameters = norm_backward(vector.repeat_interleave(area, dim=0) / area, maps, norm)
    gradient.values[:, :width], gradient.slope[:], gradient.offset[:] = values, slope, offset
    return parameters


REFERENCE = SimpleNamespace(
    programs=lambda kernel, rows: 1, enter=write, narrow=narrow, grow=grow, settle=settle, neck=neck,
    grow_backward=grow_backward, narrow_backward=narrow_backward, neck_backward=neck_backward,
)  # fmt: skip


def small_network(dtype, depth=16):
    """Two layers a block, with every batch norm away from its initial values."""
    torch.manual_seed(0)
    network = densenet_bc(4, depth=depth).to(memory_format=torch.channels_last).train()
    layers = densenet.layers_of(network)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.weight.normal_(1, 0.3)
                module.bias.normal_(0, 0.3)
    return network.to(dtype), layers


@torch.no_grad()
def by_hand(ops, layers, maps, vector):
    """The neck's vectors, then the gradients of the stem's maps and of the parameters for that of the vectors."""
    output, saved = densenet.forward(ops, maps, layers)
    of_maps, of_parameters = densenet.backward(ops, vector, saved, layers)
    return output, [of_maps, *of_parameters]


def by_autograd(network, layers, maps, vector):
    maps = maps.clone().requires_grad_()
    value = maps
    for block in list(network.blocks)[1:]:
        value = block(value)
    output = network.neck(value)
    parameters = [value for module in layers.inner for value in module.parameters()]
    return output.detach(), list(torch.autograd.grad(output, [maps, *parameters], vector.to(output.dtype)))


def test_the_pass_by_hand_equals_autograd_in_float64():
    network, layers = small_network(torch.float64)
    maps, vector = torch.randn(3, 24, 8, 8).double(), torch.randn(3, network.head.in_features).double()
    expected, wanted = by_autograd(network, layers, maps, vector)
    output, gradients = by_hand(REFERENCE, layers, maps, vector)
    torch.testing.assert_close(output, expected, rtol=0, atol=1e-9)
    assert len(gradients) == len(wanted)
    for got, right in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(got, right, rtol=0, atol=1e-9)


def test_only_plain_networks_fit():
    network = densenet_bc(4, depth=10)
    assert densenet.layers_of(network) is not None
    assert densenet.layers_of(densenet_bc(4, depth=10, variance_head=True)) is not None
    assert densenet.layers_of(densenet_bc(4, depth=10, growth=24)) is not None
    assert densenet.layers_of(densenet_bc(4, depth=10, growth=36)) is None
    assert densenet.layers_of(densenet_bc(4, depth=10, dropout=True)) is None
    assert densenet.layers_of(models.create("resnet110", 4)) is None
    assert densenet.layers_of(nn.Sequential(network)) is None
    network.neck[0].momentum = 0.2
    assert densenet.layers_of(network) is None


@pytest.fixture
def interpreter(monkeypatch):
    """Triton's interpreter, which otherwise makes an int of an array [1]: numpy 2.4 refuses that."""
    if find_spec("triton") is None:
        pytest.skip("the kernels need Triton")
    if HAS_CUDA:
        pytest.skip("kernels are interpreted only without a CUDA device")
    from triton.runtime import interpreter as triton_interpreter

    original = triton_interpreter._patch_lang_tensor

    def patch(tensor, scope):
        original(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    monkeypatch.setattr(triton_interpreter, "_patch_lang_tensor", patch)


def poisoned(original):
    """An allocation whose values are NaN until they are written."""

    def allocate(*arguments, **settings):
        values = original(*arguments, **settings)
        return values.fill_(torch.nan) if values.is_floating_point() else values

    return allocate


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.usefixtures("interpreter")
def test_interpreted_kernels_equal_plain_torch(monkeypatch):
    from confrank.training.kernels.dense_kernels import Kernels

    network, layers = small_network(torch.float32)
    maps = torch.randn(2, 24, 16, 16).contiguous(memory_format=torch.channels_last)
    vector = torch.randn(2, network.head.in_features)
    with monkeypatch.context() as patched, torch.no_grad():
        patched.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))
        patched.setattr(torch, "empty_like", poisoned(torch.empty_like))
        output, gradients = by_hand(Kernels(layers, maps), layers, maps, vector)
    network.double()
    expected, wanted = by_hand(REFERENCE, layers, maps.double(), vector.double())
    for got, right in zip([output, *gradients], [expected, *wanted], strict=True):
        assert float((got - right).norm() / right.norm()) < 5e-6


def random_set(num, size):
    rng = np.random.default_rng(0)
    split = split_of(rng.integers(0, 256, (num, size, size, 3), dtype=np.uint8), rng.integers(0, 10, num))
    return DataSet("random", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def fused_float32(network, image, bf16):
    layers = densenet.layers_of(network)
    return network.classify(densenet.inner_features(layers, layers.stem(image)))


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.slow
@pytest.mark.usefixtures("interpreter")
def test_interpreted_training_follows_plain_training():
    """Losses, weights and running averages after two steps."""
    runs = []
    for functions in (None, PLAIN._replace(infer=fused_float32)):
        torch.manual_seed(0)
        network = densenet_bc(10, depth=10)
        config = RunConfig(dataset="random", model="own", method="crl-softmax", lr=0.1, batch_size=4)
        run = Run(config, random_set(8, 16), torch.device("cpu"), network=network)
        for size in (4, 4):
            run.advance(size, lambda size=size, run=run, functions=functions: run.forward(size, functions))
        runs.append(run)
    torch.testing.assert_close(runs[0].step_loss, runs[1].step_loss, rtol=0, atol=1e-5)
    for name, values in runs[0].model.state_dict().items():
        torch.testing.assert_close(runs[1].model.state_dict()[name], values, rtol=0, atol=1e-4)


def fused_bfloat16(network, layers, maps, vector):
    """The neck's vectors, and the gradients of the stem's maps and of the parameters, from the kernels."""
    maps = maps.clone().requires_grad_()
    output = densenet.inner_features(layers, maps)
    parameters = [value for module in layers.inner for value in module.parameters()]
    return [output.detach(), *torch.autograd.grad(output, [maps, *parameters], vector)]


def relative_error(got, exact):
    """Over all tensors together, each in units of its norm."""
    return float(sum(((a.double() - b).norm() / b.norm()) ** 2 for a, b in zip(got, exact, strict=True)) ** 0.5)


@cuda
@pytest.mark.parametrize(("num", "depth"), [(128, 100), (72, 40)])
def test_errors_are_those_of_torch_in_bfloat16(num, depth):
    network, layers = small_network(torch.float32, depth)
    network.cuda()
    maps = torch.randn(num, 24, 32, 32, device="cuda", dtype=torch.bfloat16)
    maps = maps.contiguous(memory_format=torch.channels_last)
    vector = torch.randn(num, network.head.in_features, device="cuda", dtype=torch.bfloat16)
    before = {name: values.clone() for name, values in network.state_dict().items()}
    ours = fused_bfloat16(network, layers, maps, vector)
    averages = [values.clone() for name, values in network.named_buffers()]
    network.load_state_dict(before)
    again = fused_bfloat16(network, layers, maps, vector)
    assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    network.load_state_dict(before)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        output, gradients = by_autograd(network, layers, maps, vector)
    theirs = [values.clone() for name, values in network.named_buffers()]
    network.load_state_dict(before)
    exact, wanted = by_autograd(network.double(), layers, maps.double(), vector.double())
    for part in (slice(1), slice(1, 2), slice(2, None)):
        limit = relative_error([output, *gradients][part], [exact, *wanted][part])
        assert relative_error(ours[part], [exact, *wanted][part]) <= 1.5 * limit
    right = list(network.buffers())
    assert relative_error(averages, right) <= 1.5 * relative_error(theirs, right) + 1e-6


@cuda
def test_captured_training_follows_the_plain_path():
    """The losses of an epoch stay as close to float32 as those of torch in bfloat16."""
    ways = {"exact": {"bf16": False}, "torch": {"kernels": False}, "fused": {"kernels": True}}
    losses = {}
    for name, options in ways.items():
        torch.manual_seed(0)
        config = RunConfig(dataset="random", model="own", method="crl-softmax", lr=0.01, batch_size=64)
        network = densenet_bc(10, depth=40)
        run = Run(config, random_set(512 + 16, 32), torch.device("cuda"), network=network)
        captured = CapturedRun(run, compiled=False, **options)
        assert (captured.fused is densenet.infer) == (name == "fused")
        for _ in range(run.num_steps):
            captured.step()
        torch.cuda.synchronize()
        losses[name] = run.step_loss.double().cpu()
    apart = {name: float((losses[name] - losses["exact"]).norm()) for name in ("torch", "fused")}
    assert apart["fused"] <= 1.5 * apart["torch"] + 0.02
