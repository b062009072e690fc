"""Where the time of a captured training step goes on a GPU: its kernels, and how runs side by side overlap them.

    python benchmarks/kernels.py resnet110 --together 1 2 4 8

Batch 128, random 32x32 images, correctness ranking loss. Prints milliseconds per step and run for each number of runs
side by side, then the kernels of a single run, sorted by their total time over five steps.
"""

import argparse
from collections import Counter

import torch
from torch.profiler import ProfilerActivity, profile
from training import captured, milliseconds, random_set, stepping

STEPS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--together", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rows", type=int, default=45)
    parser.add_argument("--kernels", action="store_true", help="use the fused kernels where there are any")
    arguments = parser.parse_args()
    data = random_set()
    runs = [
        captured(arguments.network, data, seed, ranking=True, kernels=arguments.kernels)
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
    for name, us in total.most_common(arguments.rows):
        print(f"{us / STEPS:9.1f} us  {calls[name] / STEPS:6.1f} x {us / calls[name]:6.1f} us  {name[:150]}")


if __name__ == "__main__":
    main()
