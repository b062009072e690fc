"""Training steps on one GPU: the published form of the loop against confrank's captured path, in one process.

    python benchmarks/training.py [--networks vgg16 resnet110 densenet-bc] [--together 1 4] [--steps 200]
        [--without-plain] [--compiled] [--json FILE]

`published` reimplements the loop of the paper's public code: float32, `cudnn.benchmark` on, four loader workers that
crop, flip and normalise image by image, correctness counts in host memory, `.item()` in each step. Its epoch has 390
steps, as on CIFAR, so that the workers start as rarely as there. `1` is a single captured run, `4` the time per run
when four share the GPU; each with the correctness ranking loss and (`plain`) with cross-entropy alone. For each
network, `published` is measured first, then the captured forms in the order given; each form starts with the
process's own setting of `cudnn.benchmark`. The file of `--json` has each row as soon as it is measured. Times are
milliseconds per step at batch 128 on random 32x32 images; the spread is over repeated blocks of steps.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from confrank import models
from confrank.config import RunConfig
from confrank.data import DataSet, split_of
from confrank.training.captured import CapturedRun
from confrank.training.run import Run

BATCH, BLOCKS = 128, 5
NUM_IMAGES = 50_000


class PerImageSet(Dataset):
    """What a data loader worker does for one image: decode, pad and crop, flip, scale, normalise."""

    def __init__(self, data: DataSet) -> None:
        self.images, self.labels = data.train.images, data.train.labels
        self.mean, self.std = (torch.tensor(values).view(3, 1, 1) for values in (data.mean, data.std))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int, int]:
        picture = Image.fromarray(self.images[index])
        canvas = Image.new("RGB", (40, 40))
        canvas.paste(picture, (4, 4))
        left, top = torch.randint(0, 9, (2,)).tolist()
        picture = canvas.crop((left, top, left + 32, top + 32))
        if torch.rand(1) < 0.5:
            picture = picture.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        image = torch.from_numpy(np.array(picture)).permute(2, 0, 1).contiguous().float().div(255)
        return (image - self.mean) / self.std, int(self.labels[index]), index


class PublishedLoop:
    """The loop of the published code, step by step."""

    def __init__(self, network: str, data: DataSet) -> None:
        self.model = models.create(network, 10).cuda().train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        self.loader = DataLoader(PerImageSet(data), batch_size=BATCH, shuffle=True, num_workers=4, drop_last=True)
        self.counts, self.epochs = np.zeros(len(data.train)), 1
        self.iterator = iter(self.loader)
        self.total, self.right = 0.0, 0

    def rate(self, index: np.ndarray) -> Tensor:
        lowest, highest = float(self.counts.min()), float(max(self.counts.max(), 1))
        return torch.from_numpy((self.counts[index] - lowest) / (highest - lowest)).float().cuda()

    def step(self) -> None:
        try:
            image, label, index = next(self.iterator)
        except StopIteration:
            self.iterator = iter(self.loader)
            image, label, index = next(self.iterator)
        image, label = image.cuda(), label.cuda()
        logits = self.model(image)
        confidence = functional.softmax(logits, dim=1).max(dim=1).values
        rate, partner = self.rate(index.numpy()), self.rate(np.roll(index.numpy(), -1))
        sign = (rate > partner).float() - (rate < partner).float()
        margin = (rate - partner).abs()
        shifted = confidence.roll(-1) + margin / torch.where(sign == 0, 1.0, sign)
        ranking = functional.margin_ranking_loss(confidence, shifted, -sign * -1)
        loss = functional.cross_entropy(logits, label) + ranking
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        correct = (logits.argmax(dim=1) == label).cpu().numpy()
        self.counts[index.numpy()] += correct
        self.total += loss.item()
        self.right += int(correct.sum())


class BareCrossEntropy(nn.Module):
    """No ranking, no history."""

    def forward(self, output: Tensor, label: Tensor, index: Tensor) -> Tensor:
        return functional.cross_entropy(output.float(), label)


def random_set() -> DataSet:
    rng = np.random.default_rng(0)
    split = split_of(rng.integers(0, 256, (NUM_IMAGES, 32, 32, 3), dtype=np.uint8), rng.integers(0, 10, NUM_IMAGES))
    return DataSet("random", split, split, tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def captured(network: str, data: DataSet, seed: int, ranking: bool, kernels: bool = True) -> CapturedRun:
    config = RunConfig(dataset="random", model=network, method="crl-softmax", seed=seed, lr=0.01)
    run = Run(config, data, torch.device("cuda"))
    if not ranking:
        run.criterion = BareCrossEntropy()
    return CapturedRun(run, kernels=kernels)


def graph_of(call: Callable[[], object]) -> torch.cuda.CUDAGraph:
    """The work of a call as a graph, after one call to warm up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        call()
    return graph


def microseconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The time of a call, captured as a graph: the median of BLOCKS groups of replays, after two to warm up."""
    graph, times = graph_of(call), []
    for _ in range(2 + BLOCKS):
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(repeats):
            graph.replay()
        stop.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(stop) * 1000 / repeats)
    return statistics.median(times[2:])


def milliseconds(step: Callable[[], None], steps: int, per_call: int = 1) -> list[float]:
    """Milliseconds per step of each of BLOCKS blocks, after a warm-up."""
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    blocks = []
    for _ in range(BLOCKS):
        start = time.perf_counter()
        for _ in range(steps // BLOCKS):
            step()
        torch.cuda.synchronize()
        blocks.append((time.perf_counter() - start) * 1000 / (steps // BLOCKS) / per_call)
    return blocks


def stepping(runs: list[CapturedRun]) -> Callable[[], None]:
    """One step of each run; after a full epoch it starts again at the first batch."""

    def step() -> None:
        for run in runs:
            if run.run.next_step == run.run.num_steps:
                with torch.cuda.stream(run.stream):
                    run.run._enter(0, 0, run.run.draws)
            run.step()

    return step


@contextmanager
def cudnn_benchmark(on: bool) -> Iterator[None]:
    """Choose convolution algorithms by measurement, or not; the setting before is restored."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = on
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def measure(
    network: str,
    data: DataSet,
    steps: int,
    together: list[int],
    kinds: tuple[bool, ...],
    kernels: bool,
    report: Callable[[dict[str, object]], None],
) -> None:
    """Measure the published form, then the captured ones; `kinds` says with and without the ranking loss."""

    def note(form: str, blocks: list[float], seconds: float) -> None:
        median = statistics.median(blocks)
        report({"network": network, "form": form, "ms": median, "blocks": blocks, "prepare_s": seconds})

    with cudnn_benchmark(True):
        start = time.perf_counter()
        loop = PublishedLoop(network, data)
        prepare = time.perf_counter() - start
        note("published", milliseconds(loop.step, steps), prepare)
        del loop
    for ranking in kinds:
        suffix = "" if ranking else " plain"
        runs: list[CapturedRun] = []
        for number in together:
            with cudnn_benchmark(torch.backends.cudnn.benchmark):
                start = time.perf_counter()
                runs += [captured(network, data, seed, ranking, kernels) for seed in range(len(runs), number)]
                prepare = time.perf_counter() - start
                note(f"{number}{suffix}", milliseconds(stepping(runs), 2 * steps // number, number), prepare)
        del runs
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["vgg16", "resnet110", "densenet-bc"])
    parser.add_argument("--together", nargs="+", type=int, default=[1, 4])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--without-plain", action="store_true")
    parser.add_argument("--compiled", action="store_true", help="compile networks that have fused kernels, too")
    parser.add_argument("--json", default=None)
    arguments = parser.parse_args()
    kinds = (True,) if arguments.without_plain else (True, False)
    data, rows = random_set(), []
    device = torch.cuda.get_device_name()
    versions = {"torch": str(torch.__version__), "python": platform.python_version(), "device": device}
    print(f"{'network':<12} {'form':<12} {'ms a step':>10} {'spread':>14} {'x published':>12} {'prepare s':>10}")

    def report(row: dict[str, object]) -> None:
        rows.append(row)
        published = next(r["ms"] for r in rows if r["network"] == row["network"] and r["form"] == "published")
        blocks = row["blocks"]
        print(
            f"{row['network']:<12} {row['form']:<12} {row['ms']:>10.3f} {min(blocks):>6.2f}-{max(blocks):<7.2f}"
            f" {published / row['ms']:>12.2f} {row['prepare_s']:>10.1f}",
            flush=True,
        )
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump({"versions": versions, "rows": rows}, file, indent=1)

    for network in arguments.networks:
        measure(network, data, arguments.steps, sorted(arguments.together), kinds, not arguments.compiled, report)
    for network in arguments.networks if False in kinds else ():
        times = {row["form"]: row["ms"] for row in rows if row["network"] == network}
        for number in arguments.together:
            added = 100 * (times[f"{number}"] / times[f"{number} plain"] - 1)
            print(f"{network}: CRL adds {added:.1f}% with {number} side by side")
    print(json.dumps({"versions": versions, "rows": rows}))


if __name__ == "__main__":
    main()
