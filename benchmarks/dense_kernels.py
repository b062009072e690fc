"""DenseNet-BC in its kernels on a GPU: errors against float64, and the time of a pass.

    python benchmarks/dense_kernels.py

Prints the relative errors of a pass (everything between stem and head, forward and backward; batch 32) next to those
of torch in bfloat16, and the milliseconds of a pass at batch 128. `training.py` measures steps, `kernels.py` shows
their kernels.
"""

import json
from collections import defaultdict

import torch
from torch import Tensor, nn
from training import microseconds

from confrank.models.images import densenet_bc
from confrank.training.kernels import densenet


def prepared(num: int) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    network = densenet_bc(10).cuda().to(memory_format=torch.channels_last).train()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.normal_(module.weight, 1, 0.2)
            nn.init.normal_(module.bias, 0, 0.2)
    maps = (
        torch.randn(num, 24, 32, 32, device="cuda").to(torch.bfloat16).contiguous(memory_format=torch.channels_last)
    )
    vector = torch.randn(num, network.head.in_features, device="cuda").to(torch.bfloat16)
    return network, maps, vector


def by_torch(network: nn.Module, layers: densenet.Layers, maps: Tensor, vector: Tensor, bf16: bool) -> list[Tensor]:
    maps = maps.clone().requires_grad_()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=bf16):
        value = maps
        for block in list(network.blocks)[1:]:
            value = block(value)
        output = network.neck(value)
    parameters = [value for module in layers.inner for value in module.parameters()]
    return [output.detach(), *torch.autograd.grad(output, [maps, *parameters], vector.to(output.dtype))]


def by_kernels(layers: densenet.Layers, maps: Tensor, vector: Tensor) -> list[Tensor]:
    maps = maps.clone().requires_grad_()
    output = densenet.inner_features(layers, maps)
    parameters = [value for module in layers.inner for value in module.parameters()]
    return [output.detach(), *torch.autograd.grad(output, [maps, *parameters], vector)]


def errors(num: int) -> dict[str, float]:
    """Relative errors of output and gradients against float64: ours, torch's, and the ratio per kind of value."""
    network, maps, vector = prepared(num)
    layers = densenet.layers_of(network)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    ours = by_kernels(layers, maps, vector)
    again = by_kernels(layers, maps, vector)
    mine = {name: value.clone() for name, value in network.state_dict().items() if "running" in name}
    network.load_state_dict(state)
    theirs = by_torch(network, layers, maps, vector, True)
    by_torch(network, layers, maps, vector, True)
    apart = max(
        float((value - mine[name]).norm() / value.norm())
        for name, value in network.state_dict().items()
        if name in mine
    )
    network.load_state_dict(state)
    exact = by_torch(network.double(), layers, maps.double(), vector.double(), False)
    same = all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
    kinds = defaultdict(list)
    for number, (a, b, right) in enumerate(zip(ours, theirs, exact, strict=True)):
        error = [float((value.double() - right).norm() / right.norm()) for value in (a, b)]
        names = {1: "gains and biases", 4: "3x3 weights" if right.shape[-1] == 3 else "1x1 weights"}
        kind = ("output", "maps")[number] if number < 2 else names[right.ndim]
        kinds[kind].append((error[0] / error[1], *error, number))
    for kind, found in kinds.items():
        ratios = sorted(found)
        means = [sum(row[which] for row in found) / len(found) for which in (1, 2)]
        print(
            f"errors {kind}: ours {means[0]:.5f} torch {means[1]:.5f} ratio median {ratios[len(ratios) // 2][0]:.3f}"
            f" worst {ratios[-1][0]:.3f} at {ratios[-1][3]}",
            flush=True,
        )
    print(f"deterministic {same}; running statistics apart {apart:.2e}", flush=True)
    return {kind: sorted(found)[len(found) // 2][0] for kind, found in kinds.items()}


def pass_time() -> float:
    """Print and return the milliseconds of a captured pass."""
    network, maps, vector = prepared(128)
    layers = densenet.layers_of(network)
    time_taken = microseconds(lambda: by_kernels(layers, maps, vector)) / 1000
    print(f"pass: {time_taken:.3f} ms", flush=True)
    return time_taken


def main() -> None:
    print(json.dumps({"errors": errors(32), "pass ms": pass_time()}))


if __name__ == "__main__":
    main()
