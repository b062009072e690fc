"""The kernels of DenseNet-BC on a GPU, one by one: microseconds a layer by settings.

    python benchmarks/dense_tuning.py [--seconds 60] [--together 1 4]

Measures settings for at most --seconds, with four networks at once on four streams, and sets the best. With them, it
measures steps and a pass. To compile all settings beforehand, without a GPU, run it with --compile K/N for each K
below N; with --present, only the present ones.
"""

import argparse
import json
import time
from collections.abc import Callable

import torch
from dense_kernels import pass_time, prepared
from training import captured, microseconds, milliseconds, random_set, stepping

from confrank.models.images import densenet_bc
from confrank.training.kernels import densenet
from confrank.training.kernels.dense_kernels import SETTINGS, Kernels

START = time.perf_counter()
Setting = dict[str, int]


AXES: dict[str, tuple[str, ...]] = {
    "narrow": ("ROWS", "STEP", "num_warps", "num_stages", "programs", "maxnreg"),
    "grow": ("ROWS", "num_warps", "num_stages", "programs", "maxnreg"),
    "grow_backward": ("ROWS", "num_warps", "num_stages", "programs", "maxnreg"),
    "narrow_backward": ("ROWS", "WIDTH", "num_warps", "num_stages", "programs", "maxnreg"),
}
VALUES: dict[str, tuple[tuple[int, ...], ...]] = {
    "narrow": (
        (64, 64, 4, 1, 264), (64, 64, 4, 2, 264), (64, 64, 4, 2, 396, 168), (64, 32, 4, 3, 396), (128, 64, 8, 1, 132),
        (128, 64, 8, 2, 132), (128, 64, 8, 2, 264, 128),
    ),
    "grow": ((64, 4, 1, 264), (64, 4, 1, 132), (64, 4, 1, 528, 128), (32, 4, 1, 528), (64, 8, 1, 132)),
    "grow_backward": ((64, 4, 1, 264), (64, 4, 1, 66), (64, 4, 1, 396, 168)),
    "narrow_pooled": (
        (64, 64, 8, 1, 132), (64, 64, 8, 2, 132), (64, 32, 8, 1, 264), (32, 64, 4, 1, 396), (32, 32, 4, 1, 528),
        (32, 64, 8, 1, 264),
    ),
    "narrow_backward_pooled": (
        (32, 64, 8, 1, 132), (32, 32, 8, 1, 132), (32, 32, 4, 1, 132), (64, 32, 8, 1, 132), (16, 64, 8, 1, 132),
        (32, 32, 4, 1, 66), (32, 64, 8, 1, 66),
    ),
    "narrow_backward": ((64, 64, 4, 1, 132), (64, 64, 4, 1, 66), (64, 64, 4, 1, 44), (64, 64, 4, 1, 32)),
}  # fmt: skip


def candidates(kernel: str) -> list[Setting]:
    """Settings of a kernel worth measuring."""
    axes = AXES[kernel.removesuffix("_pooled")]
    return [dict(zip(axes, values, strict=False)) for values in VALUES[kernel]]


class Layers:
    """The calls of each kernel for all layers of a block, on values of a real pass."""

    def __init__(self, num: int) -> None:
        self.network, maps, _ = prepared(num)
        self.layers = densenet.layers_of(self.network)
        self.ops = Kernels(self.layers, maps)
        _, self.saved = densenet.forward(self.ops, maps, self.layers)
        self.gradients = [densenet.allocate_gradient(saved.maps) for saved in self.saved]
        for gradient in self.gradients:
            for value in gradient:
                value.normal_().mul_(1e-3)

    def calls(self, kernel: str, number: int) -> Callable[[], None]:
        block, saved, gradient = self.layers.blocks[number], self.saved[number], self.gradients[number]
        ops, maps, pairs = self.ops, saved.maps, list(zip(block.layers, saved.bottlenecks, strict=True))
        rows = len(maps.values)
        partial = maps.mean.new_empty(ops.programs(kernel, rows) if "backward" in kernel else 1, 150 * 304)

        def pooled() -> None:
            transition, before = self.layers.blocks[number - 1].transition, self.saved[number - 1]
            if kernel == "narrow_pooled":
                ops.narrow(before.maps, *transition, maps, before.size)
            else:
                ops.narrow_backward(
                    gradient.values, *transition, before.maps, self.gradients[number - 1], partial, before.size
                )

        def run() -> None:
            for layer, bottleneck in pairs:
                width = layer.first.num_features
                if kernel == "narrow":
                    ops.narrow(maps, layer.first, layer.narrow, bottleneck, None)
                elif kernel == "grow":
                    ops.grow(bottleneck, layer.second, layer.grow, maps, width, saved.size)
                elif kernel == "settle":
                    ops.settle(gradient, maps, width, 12)
                elif kernel == "grow_backward":
                    ops.grow_backward(
                        gradient.values.view(-1)[: len(maps.values) * 16].view(-1, 16),
                        bottleneck,
                        layer.second,
                        layer.grow,
                        partial,
                        saved.size,
                    )
                else:
                    ops.narrow_backward(bottleneck.values, layer.first, layer.narrow, maps, gradient, partial, None)

        return pooled if "pooled" in kernel else run


def at_once(calls: list[Callable[[], None]], streams: list[torch.cuda.Stream]) -> Callable[[], None]:
    """All calls, each on a stream."""

    def run() -> None:
        current = torch.cuda.current_stream()
        for call, stream in zip(calls, streams, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                call()
        for stream in streams:
            current.wait_stream(stream)

    return run


def time_of(kernel: str, level: int, setting: Setting, networks: list["Layers"]) -> float:
    """Microseconds a layer and network with a setting, all networks at once; infinite if it does not run."""
    SETTINGS[kernel] = [dict(setting) for _ in range(3)]
    try:
        streams = [torch.cuda.Stream() for _ in networks]
        call = at_once([calls.calls(kernel, level) for calls in networks], streams)
        return microseconds(call, 3) / (1 if "pooled" in kernel else 16) / len(networks)
    except Exception as error:  # a setting may need too much shared memory
        print(kernel, setting, repr(error)[:80], flush=True)
        return float("inf")


def tune(kernel: str, calls: list["Layers"], until: float) -> list[list[tuple[float, Setting]]]:
    """The settings for each block with their time, best first; the best is set."""
    before = SETTINGS[kernel]
    found: list[list[tuple[float, Setting]]] = [[], [], []]
    levels = [1, 2] if "pooled" in kernel else [0, 1, 2]
    for number in range(1 + len(VALUES[kernel])):
        for level in levels:
            setting = [before[level], *candidates(kernel)][number]
            if number == 0 or time.perf_counter() - START < until:
                found[level].append((time_of(kernel, level, setting, calls), setting))
    best = list(before)
    for level in levels:
        found[level].sort(key=lambda row: row[0])
        best[level] = found[level][0][1]
        for us, setting in found[level]:
            print(f"{kernel} block {level + 1}: {us:6.1f} us a layer, {setting}", flush=True)
        alone = [time_of(kernel, level, setting[level], calls[:1]) for setting in (before, best)]
        print(f"{kernel} block {level + 1}: alone {alone[0]:.1f} before, {alone[1]:.1f} us with the best", flush=True)
    SETTINGS[kernel] = [dict(setting) for setting in best]
    return found


def tune_all(until: float) -> dict[str, object]:
    """Tune and set everything."""
    calls = [Layers(128) for _ in range(4)]
    found = {kernel: tune(kernel, calls, until) for kernel in VALUES}
    print("SETTINGS", json.dumps(SETTINGS), flush=True)
    return found


def steps(together: list[int]) -> dict[int, list[float]]:
    """Milliseconds of a step and run, in blocks, for runs side by side."""
    data = random_set()
    runs = [captured("densenet-bc", data, seed, ranking=True) for seed in range(max(together))]
    return {number: milliseconds(stepping(runs[:number]), 50, per_call=number) for number in together}


def compile_part(part: int, parts: int, with_candidates: bool) -> None:
    """Compile a share of the present settings, and of the candidates, into Triton's cache; needs no GPU."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver, jit

    class Target:
        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", 90, 32)

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_active_torch_device(self) -> torch.device:
            return torch.device("cpu")

    driver.set_active(Target())
    original = jit.JITFunction.run
    wanted = ("", False)

    def run(self: jit.JITFunction, *arguments: object, grid: object, warmup: bool, **settings: object) -> object:
        if (self.__name__, bool(settings.get("POOL"))) == wanted:
            return original(self, *arguments, grid=grid, warmup=True, **settings)
        return None

    jit.JITFunction.run = run
    jobs: list[tuple[str, str, int, Setting | None]] = [
        (kernel, kernel.removesuffix("_pooled"), 100 if "pooled" in kernel else 10, setting)
        for kernel in VALUES
        for setting in [None, *candidates(kernel)]
    ]
    jobs += [(kernel, kernel, 100, None) for kernel in ("settle", "enter", "neck", "neck_backward")]
    jobs = [job for job in jobs if with_candidates or job[-1] is None]
    for name, kernel, depth, setting in jobs[part::parts]:
        before = SETTINGS.get(name, [])
        SETTINGS[name] = before if setting is None else [setting] * 3
        wanted = (f"{kernel}_kernel", name != kernel)
        network = densenet_bc(10, depth=depth).to(memory_format=torch.channels_last)
        layers = densenet.layers_of(network)
        maps = torch.zeros(128, 24, 32, 32, dtype=torch.bfloat16).contiguous(memory_format=torch.channels_last)
        with torch.no_grad():
            ops = Kernels(layers, maps)
            vector, saved = densenet.forward(ops, maps, layers)
            densenet.backward(ops, vector, saved, layers)
        SETTINGS[name] = before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--together", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--compile", help="K/N: only compile the K-th of N parts of all settings, without a GPU")
    parser.add_argument("--present", action="store_true", help="compile only the present settings")
    arguments = parser.parse_args()
    if arguments.compile is not None:
        compile_part(*map(int, arguments.compile.split("/")), not arguments.present)
        return
    report = {"found": tune_all(arguments.seconds), "settings": SETTINGS}
    report |= {"steps": steps(arguments.together), "pass ms": pass_time()}
    print(json.dumps(report))


if __name__ == "__main__":
    main()
