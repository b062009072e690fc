"""The fused convolution kernels of ResNet-110 on a GPU, against cuDNN, for several tilings.

    python benchmarks/convolutions.py [--kinds forward input weight] [--widths 16 32 64] [--in-use]

A chain of LAYERS layers at batch 128 is captured as a graph; printed is the time per layer. `forward` includes the
batch norm and ReLU before the convolution, the shortcut and the sums for the next batch norm; `input` the backward
passes of both batch norms; cuDNN's times are those of the convolutions alone. `--in-use` measures only the tilings
of training; `--compile-only K N` fills the compiler's cache with every Nth one, to do so in several processes.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from torch import Tensor
from training import microseconds

from confrank.training.kernels.convolution import blocks_of, convolve, empty_maps
from confrank.training.kernels.gradients import Behind, input_gradient, weight_gradient
from confrank.training.kernels.parts import TILINGS as IN_USE
from confrank.training.kernels.parts import WEIGHT_TILINGS as WEIGHTS_IN_USE
from confrank.training.kernels.parts import Norm, Sums, Tiling
from confrank.training.kernels.resnet import splits

BATCH, LAYERS = 128, 12
SIDES = {16: 32, 32: 16, 64: 8}
TILINGS = {
    16: [
        Tiling(32, 256, 8, 3, 4, 2), Tiling(32, 256, 8, 2, 4, 2), Tiling(32, 128, 4, 3, 4, 2),
        Tiling(16, 128, 4, 3, 4, 2), Tiling(16, 128, 4, 4, 4, 2), Tiling(16, 64, 4, 3, 4, 2),
        Tiling(8, 64, 4, 3, 4, 2),
        Tiling(16, 128, 8, 3, 4, 2), Tiling(16, 128, 4, 1, 4, 2), Tiling(32, 256, 8, 1, 4, 2),
        Tiling(32, 256, 8, 3, 3), Tiling(16, 256, 8, 3, 3), Tiling(16, 256, 4, 1, 3), Tiling(16, 128, 4, 3, 3),
        Tiling(8, 256, 8, 3, 3), Tiling(32, 512, 16, 2, 3),
    ],
    32: [
        Tiling(16, 256, 8, 3), Tiling(16, 256, 8, 4), Tiling(16, 128, 8, 3), Tiling(16, 128, 4, 3),
        Tiling(8, 128, 4, 3),
        Tiling(8, 128, 4, 5), Tiling(8, 128, 8, 3), Tiling(8, 128, 4, 3, 3), Tiling(16, 256, 8, 3, 3),
        Tiling(8, 64, 4, 3), Tiling(16, 256, 8, 1), Tiling(16, 64, 4, 2, 4, 2), Tiling(16, 64, 8, 2, 4, 2),
    ],
    64: [
        Tiling(8, 64, 4, 3), Tiling(8, 64, 4, 4), Tiling(8, 64, 4, 6), Tiling(8, 64, 4, 2), Tiling(8, 64, 8, 3),
        Tiling(8, 64, 8, 5), Tiling(4, 32, 4, 4), Tiling(8, 64, 4, 3, 3),
    ],
}  # fmt: skip
WEIGHT_TILINGS = {
    16: [
        (parts, Tiling(0, pixels, warps, stages, 3))
        for parts, pixels, warps, stages in (
            (128, 64, 4, 3), (128, 128, 4, 3), (64, 128, 4, 3), (64, 128, 4, 4), (256, 128, 4, 3), (128, 256, 4, 2),
            (128, 128, 4, 1), (44, 128, 4, 4),
        )
    ],
    32: [
        (parts, Tiling(0, pixels, warps, stages, group))
        for parts, pixels, warps, stages, group in (
            (64, 64, 4, 3, 3), (64, 128, 4, 3, 3), (32, 64, 4, 4, 3), (64, 64, 8, 3, 3), (128, 64, 4, 3, 3),
            (32, 64, 4, 4, 1), (44, 128, 8, 3, 3), (64, 128, 4, 3, 1),
        )
    ],
    64: [
        (parts, Tiling(0, pixels, warps, stages, 1))
        for parts, pixels, warps, stages in (
            (16, 64, 4, 3), (16, 128, 4, 3), (16, 64, 4, 5), (8, 64, 4, 4), (32, 64, 4, 3), (14, 128, 4, 4),
        )
    ],
}  # fmt: skip


def maps(width: int) -> Tensor:
    side = SIDES[width]
    return torch.randn(BATCH, width, side, side, device="cuda").bfloat16().to(memory_format=torch.channels_last)


class Chain:
    """The layers of one width."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.weight = (0.1 * torch.randn(width, width, 3, 3, device="cuda")).bfloat16()
        self.weight = self.weight.to(memory_format=torch.channels_last)
        self.blocks = blocks_of(self.weight.permute(0, 2, 3, 1)[None])[0]
        self.transposed = blocks_of(self.weight.permute(0, 2, 3, 1)[None], transposed=True)[0]
        moments = torch.tensor([0.0, 1.0, 1.0], device="cuda")[:, None].repeat(1, width)
        self.norm = Norm(torch.ones(width, device="cuda"), torch.zeros(width, device="cuda"), moments, 1e-5)
        self.maps = [maps(width) for _ in range(LAYERS + 1)]
        self.others = [maps(width) for _ in range(LAYERS + 1)]
        self.count = BATCH * SIDES[width] ** 2
        self.of_norm = [torch.empty(width, device="cuda") for _ in range(2)]

    def parts(self, chosen: Tiling) -> Sums:
        number = BATCH * SIDES[self.width] // chosen.rows
        return Sums(torch.rand(number, 2, self.width, device="cuda") * self.count / number, self.count)

    def forward(self, chosen: Tiling) -> Callable[[], None]:
        sums = self.parts(chosen)

        def run() -> None:
            now = sums
            for number in range(LAYERS):
                _, _, now = convolve(
                    self.maps[number], self.weight, norm=self.norm, sums=now, residual=self.others[number],
                    blocks=self.blocks, target=self.maps[number + 1], tiling=chosen,
                )  # fmt: skip

        return run

    def input(self, chosen: Tiling) -> Callable[[], None]:
        sums, slopes = self.parts(chosen), [maps(self.width) for _ in range(LAYERS + 1)]

        def run() -> None:
            now = sums
            for number in range(LAYERS):
                behind = Behind(slopes[number], self.maps[number + 1], now, self.norm, *self.of_norm)
                _, _, now = input_gradient(
                    self.weight, self.maps[0].shape, behind=behind, residual=self.others[number],
                    source=self.maps[number], norm=self.norm, target=slopes[number + 1], blocks=self.transposed,
                    tiling=chosen,
                )  # fmt: skip

        return run

    def gradient(self, number_of_parts: int, chosen: Tiling) -> Callable[[], None]:
        parts = torch.empty(LAYERS, number_of_parts, self.weight.numel(), device="cuda")
        active = [empty_maps(each.shape, each, halo=True).copy_(each) for each in self.maps[:LAYERS]]

        def run() -> None:
            for number in range(LAYERS):
                weight_gradient(active[number], self.others[number], parts[number], halo=True, tiling=chosen)
            parts.sum(1)

        return run

    def cudnn(self, kind: str) -> Callable[[], None]:
        mask = [kind == "input", kind == "weight", False]
        settings = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)

        def run() -> None:
            for number in range(LAYERS):
                if kind == "forward":
                    torch.nn.functional.conv2d(self.maps[number], self.weight, padding=1)
                else:
                    pair = self.others[number], self.maps[number]
                    torch.ops.aten.convolution_backward(*pair, self.weight, None, *settings, mask)

        return run


def in_use(width: int, kind: str) -> tuple[object, ...]:
    """The setting of training."""
    if kind == "weight":
        return splits(torch.Size((width, width, 3, 3)), BATCH * 32 * 32), WEIGHTS_IN_USE[width]
    return (IN_USE[width, SIDES[width], SIDES[width], kind == "input"],)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", nargs="+", default=["forward", "input", "weight"])
    parser.add_argument("--widths", nargs="+", type=int, default=list(SIDES))
    parser.add_argument("--in-use", action="store_true")
    parser.add_argument("--compile-only", nargs=2, type=int, default=None)
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    torch.backends.cudnn.benchmark = True
    rows: list[dict[str, object]] = []
    jobs: list[tuple[int, str, tuple[object, ...]]] = []
    for width in arguments.widths:
        for kind in arguments.kinds:
            settings = WEIGHT_TILINGS[width] if kind == "weight" else [(each,) for each in TILINGS[width]]
            if arguments.in_use:
                settings = [in_use(width, kind)]
            jobs += [(width, kind, setting) for setting in settings]
    chains = {width: Chain(width) for width in arguments.widths}
    if arguments.compile_only:
        share, shares = arguments.compile_only
        jobs = jobs[share::shares]
    else:
        for width in arguments.widths:
            for kind in arguments.kinds:
                us = microseconds(chains[width].cudnn(kind)) / LAYERS
                rows.append({"width": width, "kind": kind, "setting": "cudnn", "us": us})
                print(f"{width:>3} {kind:<8} {us:8.2f} us  cuDNN", flush=True)
    for width, kind, setting in jobs:
        chain = chains[width]
        make = {"forward": chain.forward, "input": chain.input, "weight": chain.gradient}[kind]
        start = time.perf_counter()
        try:
            us = make(*setting)() if arguments.compile_only else microseconds(make(*setting)) / LAYERS
        except Exception as error:  # one tiling that does not fit must not stop the others
            print(width, kind, setting, repr(error)[:200], flush=True)
            continue
        if arguments.compile_only:
            print(width, kind, setting, f"{time.perf_counter() - start:.1f} s", flush=True)
            continue
        plain = [tuple(part) if isinstance(part, tuple) else part for part in setting]
        rows.append({"width": width, "kind": kind, "setting": plain, "us": us})
        print(f"{width:>3} {kind:<8} {us:8.2f} us  {plain}", flush=True)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(rows, file)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
