"""The fused kernels against float64: interpreted in float32 on a CPU with Triton, in bfloat16 on a CUDA device."""

import copy
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from confrank import methods, models
from confrank.config import RunConfig
from confrank.data import DataSet, split_of
from confrank.models.images import PreActivationBlock, residual_stages
from confrank.models.network import Network, SpatialMean, conv, norm
from confrank.training import Run
from confrank.training.captured import CapturedRun
from confrank.training.step import PLAIN

if find_spec("triton") is None:
    pytest.skip("the kernels need Triton", allow_module_level=True)
HAS_CUDA = torch.cuda.is_available()

from confrank.training.kernels import can_run, fused  # noqa: E402
from confrank.training.kernels.convolution import blocks_of, convolve  # noqa: E402
from confrank.training.kernels.gradients import Behind, input_gradient, weight_gradient  # noqa: E402
from confrank.training.kernels.parts import Norm, Sums, Tiling  # noqa: E402
from confrank.training.kernels.resnet import features, layers_of  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
DEVICE = torch.device("cuda", 0) if HAS_CUDA else torch.device("cpu")
TYPE = torch.bfloat16 if HAS_CUDA else torch.float32
cuda = pytest.mark.skipif(not HAS_CUDA, reason="bfloat16 needs a CUDA device")


def maps(*shape, scale=1.0):
    return (scale * torch.randn(*shape, device=DEVICE)).to(TYPE).to(memory_format=torch.channels_last)


def error(got, expected):
    return float((got.double() - expected).norm() / expected.norm())


def close(got, expected, like=None):
    """Within float32 of float64; in bfloat16, within 1.5 times the error of torch's result `like`."""
    if like is None or not HAS_CUDA:
        return error(got, expected) < (0.02 if HAS_CUDA else 2e-6)
    print("error", error(got, expected), "torch's", error(like, expected))
    return error(got, expected) <= 1.5 * error(like, expected) + 1e-7


def sums_of(first, second):
    parts = torch.stack([first.float().sum((0, 2, 3)), second.float().sum((0, 2, 3))])
    return Sums(parts[None].contiguous(), first.numel() // first.shape[1])


def norm_of(values):
    width = values.shape[1]
    weight, bias = torch.rand(width, device=DEVICE) + 0.5, torch.randn(width, device=DEVICE)
    return Norm(weight, bias, torch.empty(3, width, device=DEVICE), 1e-5)


def normalised(values, layer):
    return functional.batch_norm(values, None, None, layer.weight.to(values), layer.bias.to(values), True, 0.1, 1e-5)


SHAPES = [  # inputs, outputs, side, stride, size, tiling
    (16, 16, 4, 1, 3, None),
    (16, 16, 8, 1, 3, Tiling(4, 16, 4, 2, 4, 2)),
    (16, 16, 4, 1, 3, Tiling(2, 16, 4, 2, 3)),
    (16, 32, 8, 2, 3, None),
    (64, 64, 2, 1, 3, None),
    (48, 12, 4, 1, 3, Tiling(2, 16, 4, 2)),
    (3, 16, 4, 1, 3, None),
    (16, 32, 4, 2, 1, None),
]
SHAPES += [(16, 16, 32, 1, 3, None), (32, 32, 16, 1, 3, None), (64, 64, 8, 1, 3, None)] if HAS_CUDA else []


@pytest.mark.parametrize(("inputs", "outputs", "side", "stride", "size", "tiling"), SHAPES)
def test_a_layer_and_its_gradients(inputs, outputs, side, stride, size, tiling):
    torch.manual_seed(inputs + side + stride)
    number = 40 if HAS_CUDA else 2
    x, residual = maps(number, inputs, side, side), maps(number, outputs, side // stride, side // stride)
    weight = maps(outputs, inputs, size, size, scale=0.1)
    before = norm_of(x)
    packed = weight.permute(0, 2, 3, 1)[None]
    blocked = (inputs, outputs, stride, size) == (16, 16, 1, 3)
    blocks = [blocks_of(packed, transposed=each)[0] if blocked else None for each in (False, True)]
    setting = {"stride": stride, "tiling": tiling}
    active, got, sums = convolve(
        x, weight, norm=before, sums=sums_of(x, x.float() ** 2), residual=residual, blocks=blocks[0], **setting
    )

    def torch_forward(x, weight, residual):
        after = functional.relu(normalised(x, before)).to(x.dtype)
        return functional.conv2d(after, weight, stride=stride, padding=size // 2) + residual

    expected = torch_forward(x.double(), weight.double(), residual.double())
    assert close(got, expected, torch_forward(x, weight, residual))
    added = sums.parts.sum(0)
    assert torch.allclose(added[0], got.float().sum((0, 2, 3)), atol=1e-2, rtol=1e-4)
    assert torch.allclose(added[1], (got.float() ** 2).sum((0, 2, 3)), rtol=1e-4)
    spread = x.float().var((0, 2, 3), correction=0)
    moments = torch.stack([x.float().mean((0, 2, 3)), (spread + 1e-5).rsqrt(), spread])
    assert torch.allclose(before.moments, moments, atol=1e-5, rtol=1e-5)

    gradient = maps(*got.shape)
    _, plain, _ = input_gradient(weight, x.shape, gradient=gradient, blocks=blocks[1], **setting)
    arguments = None, [stride] * 2, [size // 2] * 2, [1, 1], False, [0, 0], 1, [True, True, False]
    full = active if size == 3 else functional.relu(normalised(x.float(), before)).to(TYPE)
    expected = torch.ops.aten.convolution_backward(gradient.double(), full.double(), weight.double(), *arguments)
    theirs = torch.ops.aten.convolution_backward(gradient, full, weight, *arguments)
    assert close(plain, expected[0], theirs[0])
    parts = torch.full((2, weight.numel()), torch.nan, device=DEVICE)
    weight_gradient(full.contiguous(memory_format=torch.channels_last), gradient, parts, size=size, stride=stride)
    total = parts.sum(0).view(outputs, size, size, inputs).permute(0, 3, 1, 2)
    assert close(total, expected[1], theirs[1])


@pytest.mark.parametrize("tiling", [None, Tiling(2, 16, 4, 2, 3), Tiling(2, 16, 4, 2, 4, 2)])
def test_the_input_gradient_through_both_batch_norms(tiling):
    torch.manual_seed(0)
    x, up, shortcut = (maps(2, 16, 4, 4) for _ in range(3))
    weight = maps(16, 16, 3, 3, scale=0.1)
    before, after = norm_of(x), norm_of(x)
    inputs = [x.double(), *(each.double() for each in (before.weight, before.bias, after.weight, after.bias))]
    inputs = [each.requires_grad_() for each in inputs]
    first = functional.batch_norm(inputs[0], None, None, inputs[1], inputs[2], True)
    raw = functional.conv2d(functional.relu(first), weight.double(), padding=1)
    second = functional.batch_norm(raw, None, None, inputs[3], inputs[4], True)
    for each in (first, raw, second):
        each.retain_grad()
    ((functional.relu(second) * up).sum() + (raw * shortcut).sum()).backward()

    packed, blocks = weight.permute(0, 2, 3, 1)[None], {}
    if tiling is None or tiling.block == 2:
        blocks = {"blocks": blocks_of(packed)[0]}
    _, got, sums = convolve(x, weight, norm=before, sums=sums_of(x, x.float() ** 2), tiling=tiling, **blocks)
    convolve(got, weight, norm=after, sums=sums)  # for its moments
    slope = second.grad.to(TYPE).contiguous(memory_format=torch.channels_last)
    scaled = (got.float() - after.moments[0, :, None, None]) * after.moments[1, :, None, None]
    of_norm = [torch.empty(16, device=DEVICE) for _ in range(2)]
    behind = Behind(slope, got, sums_of(slope, slope.float() * scaled), after, *of_norm)
    if blocks:
        blocks = {"blocks": blocks_of(packed, transposed=True)[0]}
    gradient, result, sums = input_gradient(
        weight, x.shape, behind=behind, residual=shortcut, source=x, norm=before, tiling=tiling, **blocks
    )
    assert close(gradient, raw.grad)
    assert close(result, first.grad)
    added = sums.parts.sum(0)
    for one, other in zip((of_norm[0], of_norm[1], added[1], added[0]), (3, 4, 1, 2), strict=True):
        assert close(one, inputs[other].grad)


def small_network(depth=2):
    torch.manual_seed(0)
    stages = residual_stages(PreActivationBlock, 16, (16, 32, 64), depth, 0.0)
    network = Network([conv(3, 16), *stages], nn.Sequential(norm(64), nn.ReLU(), SpatialMean()), 64, 10)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.normal_(0, 0.3)
    return network.to(DEVICE).to(memory_format=torch.channels_last).train()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "side"), [(128, 32), (100, 28), (30, 64)] if HAS_CUDA else [(2, 12)])
def test_a_network_with_its_gradients_and_running_averages(number, side):
    network = small_network(2 if HAS_CUDA else 1)
    plain, exact = copy.deepcopy(network), copy.deepcopy(network).double()
    image = torch.randn(number, 3, side, side, device=DEVICE)
    up = torch.randn(number, 10, device=DEVICE)
    got = network.classify(features(layers_of(network), image, TYPE).float())
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=HAS_CUDA):
        theirs = plain(image)
    expected = exact(image.double())
    for output in (got, theirs, expected):
        (output * up).sum().backward()
    assert close(got, expected, theirs)
    for one, other, reference in zip(*(each.buffers() for each in (network, plain, exact)), strict=True):
        assert close(one, reference, other) or error(one, reference) < 1e-3
    references = [each.grad for each in exact.parameters()]
    errors = [
        torch.tensor([error(one.grad, other) for one, other in zip(each.parameters(), references, strict=True)])
        for each in (network, plain)
    ]
    names = [name for name, _ in network.named_parameters()]
    for row in sorted(zip(*(each.tolist() for each in errors), names, strict=True), reverse=True)[:5]:
        print("gradient of", row[2], "error", row[0], "torch's", row[1])
    assert errors[0].max() < 1e-5 or errors[0].median() <= 1.5 * errors[1].median()


def test_other_networks_take_the_other_path():
    assert fused(models.create("resnet110", 10), 30, 32) is None
    for method, has_kernels in (("crl-margin", True), ("mcdropout", False), ("aleatoric-mc", False)):
        network = methods.get(method).network("resnet110", 10, 1, head="linear")
        assert (fused(network, 32, 32) is not None) == has_kernels
    assert fused(models.create("resnet18", 10), 32, 32) is None
    for hook in ("register_forward_hook", "register_full_backward_hook"):
        hooked = models.create("resnet110", 10)
        getattr(hooked.blocks[1][0], hook)(lambda *_: None)
        assert fused(hooked, 32, 32) is None
    for name in ("resnet110", "densenet-bc"):
        frozen = models.create(name, 10)
        assert fused(frozen, 32, 32) is not None
        frozen.blocks[0].weight.requires_grad_(False)
        assert fused(frozen, 32, 32) is None


def test_they_need_a_device_with_products_of_bfloat16(monkeypatch):
    for capability, expected in (((9, 0), True), ((7, 5), False)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device, it=capability: it)
        assert can_run(torch.device("cuda")) == expected


def random_set(num_samples=700):
    rng = np.random.default_rng(0)
    label = rng.integers(0, 10, num_samples)
    image = rng.integers(0, 128, (num_samples, 32, 32, 3)) + 12 * label[:, None, None, None]
    split = split_of(image.astype(np.uint8), label)
    return DataSet("random", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def in_kernels(network, image, bf16):
    return network.classify(features(layers_of(network), image, torch.float32))


@pytest.mark.skipif(HAS_CUDA, reason="the interpreter needs a CPU")
@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"mix": "both", "augment": "trivial", "clip": 0.1}, {"optimizer": "adamw", "sam": 0.05, "averaging": "ema"}],
)
def test_interpreted_training_with_other_settings_follows_plain_training(settings):
    rng = np.random.default_rng(0)
    split = split_of(rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8), np.array([0, 1, 2, 3]))
    data = DataSet("random", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=1, flip=True)
    config = RunConfig(dataset="random", method="crl-softmax", lr=0.01, epochs=2, batch_size=2, **settings)
    runs = [Run(config, data, DEVICE, network=small_network(1)) for _ in range(2)]
    for run, functions in zip(runs, (PLAIN, PLAIN._replace(infer=in_kernels)), strict=True):
        for _ in range(run.num_steps):
            run.advance(2, lambda run=run, functions=functions: run.forward(2, functions))
    assert torch.allclose(runs[0].step_loss, runs[1].step_loss, rtol=1e-4)
    averaged = [[] if run.average is None else run.average.mean for run in runs]
    states = [[*run.model.state_dict().values(), *mean] for run, mean in zip(runs, averaged, strict=True)]
    for expected, got in zip(*states, strict=True):
        assert torch.allclose(got, expected, atol=1e-3, rtol=1e-2)


LOSSES = [
    {}, {"sam": 0.05}, {"head": "cosine", "averaging": "ema"}, {"mix": "both", "augment": "trivial", "clip": 1.0},
    {"optimizer": "adamw", "lr": 0.001},
]  # fmt: skip


@cuda
@pytest.mark.parametrize("settings", LOSSES)
def test_losses_follow_the_plain_path_as_closely_as_autocast(settings):
    config = RunConfig(
        dataset="random", model="resnet110", method="crl-softmax", epochs=2, **{"lr": 0.01, **settings}
    )
    plain, eager, fast = (Run(config, random_set(), DEVICE) for _ in range(3))
    steppers = [plain, CapturedRun(eager, compiled=False, kernels=False), CapturedRun(fast, compiled=False)]
    assert steppers[2].fused is not None
    for _ in range(plain.num_steps):
        for stepper in steppers:
            stepper.step()
    torch.cuda.synchronize()
    losses = [run.step_loss.cpu() for run in (plain, eager, fast)]
    print([each.tolist() for each in losses])
    distances = [(each - losses[0]).abs() for each in losses[1:]]
    assert distances[1].mean() <= 1.5 * distances[0].mean() + 0.01
    assert torch.equal(plain.history.examined, fast.history.examined)


@cuda
def test_side_by_side_is_bit_for_bit_alone():
    def run(seed):
        config = RunConfig(dataset="random", model="resnet110", seed=seed, lr=0.01, epochs=2)
        return CapturedRun(Run(config, random_set(), DEVICE), compiled=False)

    results = []
    for seeds in ((1,), (0, 1, 2)):
        runs = {seed: run(seed) for seed in seeds}
        for _ in range(runs[1].run.num_steps):
            for each in runs.values():
                each.step()
        torch.cuda.synchronize()
        results.append({name: values.clone() for name, values in runs[1].run.model.state_dict().items()})
    assert all(torch.equal(results[0][name], results[1][name]) for name in results[0])
