"""Forward and backward of a narrow residual network on a GPU: what the compiler reaches by itself, and fused kernels.

    python benchmarks/compiler.py [--forms kernels eager compiled max-autotune]

A pre-activation ResNet-20 with the widths of ResNet-110, batch 128, 32x32 images, bfloat16, captured as a graph.
Prints milliseconds of a pass and the seconds it took to prepare it; `max-autotune` also reports, on standard error,
the time of each kernel among which it chooses. A form is printed as soon as it is measured.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn
from training import graph_of, milliseconds

from confrank.models.images import PreActivationBlock, residual_stages
from confrank.models.network import Network, SpatialMean, conv, norm
from confrank.training.kernels import resnet
from confrank.training.step import Output, infer

PASSES = 250


def resnet20() -> Network:
    stages = residual_stages(PreActivationBlock, 16, (16, 32, 64), 3, 0.0)
    network = Network([conv(3, 16), *stages], nn.Sequential(norm(64), nn.ReLU(), SpatialMean()), 64, 10)
    return network.cuda().to(memory_format=torch.channels_last).train()


def forms() -> dict[str, Callable[..., Output]]:
    """The function that computes the network's output, by form."""
    return {
        "kernels": resnet.infer,
        "eager": infer,
        "compiled": torch.compile(infer, dynamic=False, fullgraph=True),
        "max-autotune": torch.compile(infer, dynamic=False, fullgraph=True, mode="max-autotune-no-cudagraphs"),
    }


def measure(form: Callable[..., Output], network: Network) -> dict[str, object]:
    """Milliseconds of a pass, in blocks, and the seconds until the graph was captured."""
    image = torch.randn(128, 3, 32, 32, device="cuda").to(memory_format=torch.channels_last)

    def call() -> None:
        network.zero_grad(set_to_none=True)
        form(network, image, True).float().logsumexp(1).sum().backward()

    start = time.perf_counter()
    for _ in range(3):
        call()
    graph = graph_of(call)
    torch.cuda.synchronize()
    prepare = time.perf_counter() - start
    blocks = milliseconds(graph.replay, PASSES)
    return {"ms": statistics.median(blocks), "blocks": blocks, "prepare_s": prepare}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--forms", nargs="+", default=["kernels", "eager", "compiled", "max-autotune"])
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    network, rows = resnet20(), []
    for name in arguments.forms:
        row = measure(forms()[name], network)
        rows.append({"form": name, **row})
        print(f"{name:<14} {row['ms']:8.3f} ms {row['prepare_s']:8.1f} s to prepare", flush=True)
        torch._dynamo.reset()
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
