import copy
import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from confrank.config import RunConfig
from confrank.data import DataSet, split_of
from confrank.models import MODELS, OtherWeightsError, create, load_weights
from confrank.training import Run
from confrank.training.draws import initial_seed

GOLDEN = Path(__file__).parent / "golden_losses.json"
COUNTS = {
    "vgg16": (15_253_578, 15_299_748),
    "resnet110": (1_730_522, 1_736_372),
    "densenet-bc": (769_162, 800_032),
    "resnet18": (11_173_962, 11_220_132),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameter_counts(name):
    counts = tuple(sum(p.numel() for p in create(name, classes).parameters()) for classes in (10, 100))
    assert counts == COUNTS[name]


def test_convnet_has_two_convolutions_of_each_width():
    widths = [(3, 16), (16, 16), (16, 32), (32, 32), (32, 64), (64, 64)]
    expected = sum(9 * before * after + 2 * after for before, after in widths) + 65 * 10
    assert sum(p.numel() for p in create("convnet", 10).parameters()) == expected


@pytest.mark.parametrize(
    ("name", "expected"), [("mlp", 8 * 65 + 8 * 9 + 10 * 9), ("small", 8 * 11 + 8 * 74 + 16 * 33 + 10 * 17)]
)
def test_networks_whose_width_experiments_vary(name, expected):
    """experiments/demo_settings.py and digits_settings.py."""
    network = MODELS[name](10, in_channels=1, width=8)
    assert sum(p.numel() for p in network.parameters()) == expected


@pytest.mark.parametrize("name", MODELS)
def test_variance_head_and_dropout_variants(name):
    model = create(name, 7, dropout=True, variance_head=True).eval()
    logits, log_variance = model(torch.randn(2, 3, 32, 32))
    assert logits.shape == log_variance.shape == (2, 7)
    dropped = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    convolutions = sum(isinstance(module, nn.Conv2d) and module.kernel_size > (1, 1) for module in model.modules())
    expected = {
        "small": [0.2] * 3,
        "convnet": [0.2] * 6,
        "mlp": [0.2] * 2,
        "vgg16": [0.3] + [0.4] * 7 + [0.5] * 2,
        "resnet110": [0.2] * 111 + [0.1],
        "densenet-bc": [0.2] * (2 * 48 + 2),
        "resnet18": [0.2] * 20 + [0.1],
    }
    assert dropped == expected[name]
    numbers = {"vgg16": 13, "resnet110": 109, "densenet-bc": 49, "resnet18": 17}
    assert convolutions == {"small": 2, "convnet": 6, "mlp": 0, **numbers}[name]


def test_vgg_with_dropout_is_the_network_of_geifman_et_al():
    """Their published summary has 14,991,946 trainable parameters for ten classes."""
    model = create("vgg16", 10, dropout=True)
    assert sum(p.numel() for p in model.parameters()) == 14_991_946
    short = {"Conv2d": "c", "ReLU": "r", "BatchNorm2d": "n", "Dropout": "d", "MaxPool2d": "p"}
    layers = ["".join(short[type(layer).__name__] for layer in block) for block in model.blocks]
    assert layers == ["crndcrnp"] * 2 + ["crndcrndcrnp"] * 3
    neck = [type(layer).__name__ for layer in model.neck]
    assert neck == ["Flatten", "Dropout", "Linear", "ReLU", "BatchNorm1d", "Dropout"]


def test_only_vgg_has_dropout_in_the_baseline():
    rates = {
        name: [module.p for module in create(name, 10).modules() if isinstance(module, nn.Dropout)] for name in MODELS
    }
    assert rates == {name: [] for name in MODELS} | {"vgg16": [0.5, 0.5]}


@pytest.mark.parametrize(
    ("name", "penultimate", "blocks"),
    [
        ("mlp", 128, [128, 128]),
        ("convnet", 64, [16, 32, 64]),
        ("vgg16", 512, [64, 128, 256, 512, 512]),
        ("resnet110", 64, [16, 16, 32, 64]),
        ("densenet-bc", 342, [24, 108, 150, 342]),
        ("resnet18", 512, [64, 64, 128, 256, 512]),
    ],
)
def test_features(name, penultimate, blocks):
    model = create(name, 10).eval()
    image = torch.randn(2, 3, 32, 32)
    features = model.features(image)
    assert features.penultimate.shape == (2, penultimate)
    assert [block.shape for block in features.blocks] == [(2, width) for width in blocks]
    assert torch.equal(model.head(features.penultimate), model(image))


def test_convolutions_are_he_normal_by_fan_out():
    torch.manual_seed(0)
    for module in create("vgg16", 10).modules():
        if isinstance(module, nn.Conv2d) and module.in_channels > 100:
            assert module.weight.std().item() == pytest.approx((2 / (9 * module.out_channels)) ** 0.5, rel=0.02)
            assert not module.bias.any()


def test_the_head_of_densenet_alone_starts_without_bias():
    """As in the published code."""
    assert not create("densenet-bc", 10).head.bias.any()
    assert all(create(name, 10).head.bias.all() for name in ("resnet110", "resnet18"))


def test_a_custom_network(tmp_path, monkeypatch):
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "def flat(num_classes, in_channels=3):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64 * in_channels, num_classes))\n"
        "def wrong(num_classes):\n"
        "    return 3\n"
        "def boom(num_classes):\n"
        "    return {}['here']\n"
    )
    monkeypatch.chdir(tmp_path)
    assert create("my_networks:flat", 5, in_channels=1)(torch.zeros(2, 1, 8, 8)).shape == (2, 5)
    with pytest.raises(ValueError, match="expected my_networks:wrong to return a torch.nn.Module, but got int"):
        create("my_networks:wrong", 5)
    with pytest.raises(ValueError, match="to take num_classes, in_channels, .*; add the argument in_channels$"):
        create("my_networks:wrong", 5, in_channels=1)
    with pytest.raises(ValueError, match="my_networks:boom to build a network, but it failed: KeyError: 'here'"):
        create("my_networks:boom", 5)
    with pytest.raises(ValueError, match="importable package.module:factory, but got 'my_networks:gone'"):
        create("my_networks:gone", 5)
    with pytest.raises(ValueError, match="expected a model among small, convnet, mlp, vgg16.*but got 'vgg'"):
        create("vgg", 5)


def with_counters(network):
    """The same network with torch's own batch norm, which counts its batches."""
    for module in network.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.register_buffer("num_batches_tracked", torch.tensor(3))
    return network


@pytest.mark.parametrize("form", [{}, {"dropout": True, "variance_head": True}], ids=["plain", "dropout-head"])
@pytest.mark.parametrize("name", MODELS)
def test_a_network_loads_as_any_module_does(name, form, tmp_path):
    image = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        trained = create(name, 7, **form)
        trained(image)  # moves the batch statistics
        expected = trained.eval()(image)
        path = tmp_path / "weights.safetensors"
        safetensors.torch.save_file(trained.state_dict(), path)
        assert not any(key.endswith("num_batches_tracked") for key in safetensors.torch.load_file(path))
        counted = with_counters(copy.deepcopy(trained)).state_dict()
        assert name == "mlp" or any(key.endswith("num_batches_tracked") for key in counted)
        network = create(name, 7, **form).eval()
        for state in (trained.state_dict(), safetensors.torch.load_file(path), counted, dict(counted)):
            for value in network.state_dict().values():
                value.zero_()
            network.load_state_dict(state)
            assert list(network.state_dict()) == list(trained.state_dict())
            assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
        for answer, wanted in zip(network(image), expected, strict=True):
            assert torch.equal(answer, wanted)


def test_copies_of_a_network_load_too():
    network = create("small", 3)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        twin.load_state_dict(dict(network.state_dict()))


def test_weights_of_another_network_are_an_error_in_one_line():
    weights = dict(create("small", 3).state_dict())
    del weights["head.bias"]
    with pytest.raises(RuntimeError, match="head.bias"):
        create("small", 3).load_state_dict(weights)
    with pytest.raises(OtherWeightsError, match=r'Missing key\(s\) in state_dict: "head.bias"') as raised:
        load_weights(create("small", 3), weights)
    assert "\n" not in str(raised.value)


def coloured_set(num_samples=64, size=32):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, num_samples)
    images = rng.integers(0, 256, (num_samples, size, size, 3), dtype=np.uint8)
    images[:, : size // 2] //= 1 + labels[:, None, None, None].astype(np.uint8)
    split = split_of(images, labels)
    return DataSet("coloured", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def first_losses(name, count=20):
    """In float64: small batches amplify the rounding of float32 until losses differ between machines."""
    config = RunConfig(model=name, method="crl-softmax", batch_size=4, lr=1e-4, epochs=2, seed=3)
    torch.manual_seed(initial_seed(config.seed))
    network = create(name, 10).double()
    network.register_forward_pre_hook(lambda module, inputs: inputs[0].double())
    run = Run(config, coloured_set(), torch.device("cpu"), network=network)
    run.store = run.store._replace(mean=run.store.mean.double(), std=run.store.std.double())
    losses = []
    while len(losses) < count:
        run.step()
        losses.append(run.step_loss[run.next_step - 1].item())
        if run.next_step == run.num_steps:
            run.finish_epoch()
    return losses


SHORT = [(name, 6) for name in COUNTS if name != "resnet110"]
WHOLE = [pytest.param(name, 20, marks=pytest.mark.slow) for name, _ in SHORT]


@pytest.mark.parametrize(("name", "count"), [("resnet110", 20), *SHORT, *WHOLE])
def test_golden_losses(name, count):
    """An epoch has 16 steps. One network also runs into its second here, the others in the slow tests.

    Rewrite the file with `python -m tests.test_models` after a change that is meant to change numbers.
    """
    losses = first_losses(name, count)
    assert losses == pytest.approx(json.loads(GOLDEN.read_text())[name][:count], rel=1e-5)
    assert first_losses(name, 2) == losses[:2]


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: first_losses(name) for name in COUNTS}, indent=1) + "\n")
