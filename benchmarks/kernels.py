"""Where the time of a captured training step goes on a GPU: its kernels, and how runs side by side overlap them.

    python benchmarks/kernels.py resnet110 --together 1 2 4 8 [--compiled]

Batch 128, random 32x32 images, correctness ranking loss. Prints milliseconds per step and run for each number of runs
side by side, then the kernels of a single run by kind, and one by one, sorted by their total time over five steps.
Weight gradients of the fused kernels run next to others, so that the sum over all kernels exceeds the step.
"""

import argparse
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile
from training import captured, milliseconds, random_set, stepping

STEPS = 5
# What the names of kernels contain, by kind; the first that fits counts.
KINDS = {
    "weight gradients": ("_weight_gradient", "wgrad", "ReduceSplitK"),
    "both gradients of a convolution": ("narrow_backward", "grow_backward"),
    "input gradients": ("_input_gradient", "dgrad"),
    "convolutions forward": ("_forward", "narrow_kernel", "grow_kernel", "fprop"),
    "batch norm": ("batch_norm", "_pool", "settle_kernel", "enter_kernel", "neck"),
    "optimizer and running averages": ("multi_tensor_apply",),
}


def kind_of(name: str) -> str:
    """The kind of a kernel, by its name."""
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "all else")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--together", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=45)
    parser.add_argument("--compiled", action="store_true", help="compile networks that have fused kernels, too")
    arguments = parser.parse_args()
    data = random_set()
    runs = [
        captured(arguments.network, data, seed, ranking=True, kernels=not arguments.compiled)
        for seed in range(max(arguments.together))
    ]
    for count in arguments.together:
        blocks = milliseconds(stepping(runs[:count]), 100, per_call=count)
        print(f"{count} side by side: {', '.join(f'{ms:.3f}' for ms in blocks)} ms a step and run", flush=True)
    step = stepping(runs[:1])
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    total, calls = Counter[str](), Counter[str]()
    for event in recorded.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            total[event.name] += event.device_time_total
            calls[event.name] += 1
    print(f"{sum(total.values()) / STEPS:.0f} us of {sum(calls.values()) / STEPS:.0f} kernels a step")
    kinds = Counter[str]()
    for name, us in total.items():
        kinds[kind_of(name)] += us
    for kind, us in kinds.most_common():
        number = sum(calls[name] for name in calls if kind_of(name) == kind)
        print(f"{us / STEPS:9.1f} us  {number / STEPS:6.1f} x  {kind}")
    for name, us in total.most_common(arguments.rows):
        print(f"{us / STEPS:9.1f} us  {calls[name] / STEPS:6.1f} x {us / calls[name]:6.1f} us  {name[:150]}")


if __name__ == "__main__":
    main()
