"""Training and prediction on one thread of a CPU: what keeping freed memory, layouts, bfloat16 and others change.

    python benchmarks/cpu_training.py [--compare memory layouts ...] [--networks convnet small ...] [--repeats 7]

Each form is compared to the form that confrank uses ("now"): both take turns, and a ratio is the processor time of
"now" over that of the form in the same turn, so above 1 the form is faster. Printed are the median and the range
over the turns. Processor time, because other programs may run meanwhile; it includes the time of the system, which
page faults take. Memory settings are a process's own: these forms are processes that take turns.
"""

import argparse
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from confrank import methods, models
from confrank.config import RunConfig
from confrank.data import DataSet, split_of
from confrank.environment import keep_freed_memory
from confrank.training.run import Run
from confrank.training.step import PLAIN

NUM_IMAGES, CLASSES = 640, tuple("0123456789")
# Network, batch size, steps per turn, side of the images.
CASES = {
    "convnet": ("convnet", 32, 6, 32),
    "convnet-128": ("convnet", 128, 2, 32),
    "small": ("small", 128, 2, 32),
    "mlp": ("mlp", 128, 10, 32),
    "resnet18": ("resnet18", 32, 1, 32),
    "text": ("bag-of-embeddings", 128, 10, 0),
    "text-encoder": ("text-encoder", 32, 1, 0),
}


def random_set(side: int) -> DataSet:
    """Random colour images, or (side 0) texts of 100 words."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, NUM_IMAGES)
    if not side:
        words = tuple(f"word{number}" for number in range(10_000))
        texts = split_of(rng.integers(2, 10_000, (NUM_IMAGES, 100), dtype=np.int32), labels)
        return DataSet("random", texts, texts, CLASSES, (), (), vocabulary=words, vocabulary_size=10_000)
    split = split_of(rng.integers(0, 256, (NUM_IMAGES, side, side, 3), dtype=np.uint8), labels)
    return DataSet("random", split, split, CLASSES, (0.5,) * 3, (0.25,) * 3, padding=4, flip=True)


def run_of(case: str, method: str = "crl-softmax", optimizer: str = "sgd") -> Run:
    model, batch_size, _, side = CASES[case]
    config = RunConfig(
        dataset="random", model=model, method=method, batch_size=batch_size, lr=0.001, optimizer=optimizer
    )
    return Run(config, random_set(side), torch.device("cpu"))


def stepping(run: Run, bf16: bool = False) -> Callable[[], None]:
    """One step of a run; after the epoch, it starts again."""

    def step() -> None:
        if run.next_step == run.num_steps:
            run._enter(0, 0, run.draws)
        size = run.next_size
        run.advance(size, lambda: run.forward(size, bf16=bf16))
        run.next_step += 1

    return step


def predicting(case: str) -> Callable[[], None]:
    """Predictions for two batches of a split, as after training."""
    run, data = run_of(case, "baseline"), random_set(CASES[case][3])
    split = data.train.select(np.arange(2 * run.config.batch_size))
    return partial(methods.predict_split, run.method, run.model, split, data.mean, data.std)


def seconds(call: Callable[[], object], times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        call()
    return (time.process_time() - start) / times


def ratios(forms: dict[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """The time of the first form over that of each, in each of the turns after one to warm up."""
    taken = [{name: one() for name, one in forms.items()} for _ in range(repeats + 1)][1:]
    first = next(iter(forms))
    print(f"  {first}: {1000 * statistics.median(turn[first] for turn in taken):.1f} ms", flush=True)
    return {name: [turn[first] / turn[name] for turn in taken] for name in [*forms][1:]}


def show(title: str, forms: dict[str, Callable[[], float]], repeats: int) -> None:
    print(title, flush=True)
    for name, values in ratios(forms, repeats).items():
        low, high = min(values), max(values)
        print(f"  {name}: x {statistics.median(values):.2f} ({low:.2f} to {high:.2f}, n = {len(values)})", flush=True)


class Elsewhere:
    """A process that measures the step or the prediction of a case when asked."""

    def __init__(self, case: str, what: str, memory: str) -> None:
        command = [sys.executable, __file__, "--serve", case, what, memory]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self) -> float:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def __enter__(self) -> "Elsewhere":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def serve(case: str, what: str, memory: str) -> None:
    if memory == "now":
        assert keep_freed_memory()
    call = stepping(run_of(case)) if what == "train" else predicting(case)
    for _ in sys.stdin:
        print(seconds(call, CASES[case][2]), flush=True)


def compare_memory(case: str, repeats: int) -> None:
    for what in ("train", "predict"):
        with Elsewhere(case, what, "now") as now, Elsewhere(case, what, "default") as default:
            show(f"{case}, {what}: memory", {"now": now, "returned to the system": default}, repeats)


def compare_layouts(case: str, repeats: int) -> None:
    """Weights in channels-last memory, bfloat16, and both; images are in channels-last memory in all forms."""
    runs = {name: run_of(case) for name in ("now", "channels-last weights", "bfloat16", "both")}
    for name in ("channels-last weights", "both"):
        runs[name].model.to(memory_format=torch.channels_last)
    calls = {name: stepping(run, name in ("bfloat16", "both")) for name, run in runs.items()}
    show(f"{case}, train: layout and type", timed(calls, case), repeats)


def compare_optimizers(case: str, repeats: int) -> None:
    for kind, create in (("sgd", partial(torch.optim.SGD, momentum=0.9)), ("adamw", torch.optim.AdamW)):
        calls = {"now (fused)": stepping(run_of(case, optimizer=kind))}
        for name, options in (("foreach", {"foreach": True}), ("loop", {"foreach": False})):
            run = run_of(case)
            run.optimizer = create(run.model.parameters(), lr=0.001, weight_decay=1e-4, **options)
            calls[name] = stepping(run)
        show(f"{case}, train with {kind}: optimizer", timed(calls, case), repeats)


def compare_parts(case: str, repeats: int) -> None:
    """A step without the ranking loss and history, and one on a batch that is fetched and augmented once."""
    run, bare, fixed = run_of(case), run_of(case), run_of(case)
    bare.criterion = BareCrossEntropy()
    size = fixed.config.batch_size
    batch = PLAIN.fetch(fixed.store, fixed.draws, fixed.position, size)
    calls = {"now": stepping(run), "without ranking loss and history": stepping(bare)}
    calls["without fetching the batch"] = lambda: fixed.advance(size, lambda: fixed.judge_batch(batch, PLAIN))
    fixed.step_loss = torch.zeros(1_000_000)
    show(f"{case}, train: parts of a step", timed(calls, case), repeats)


class BareCrossEntropy(nn.Module):
    """No ranking, no history."""

    def forward(self, output: torch.Tensor, label: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(output, label)


def compare_compiled(case: str, repeats: int) -> None:
    plain, compiled = run_of(case), run_of(case)
    compiled.called = torch.compile(compiled.model)
    start = time.perf_counter()
    stepping(compiled)()
    print(f"{case}, train: compiled in {time.perf_counter() - start:.0f} s")
    show(
        f"{case}, train: torch.compile",
        timed({"now": stepping(plain), "compiled": stepping(compiled)}, case),
        repeats,
    )


def compare_inference(case: str, repeats: int) -> None:
    model, batch_size, _, side = CASES[case]
    network = models.create(model, 10).eval()
    image = torch.randn(batch_size, 3, side, side).to(memory_format=torch.channels_last)

    def under(mode: Callable[[], AbstractContextManager[object]]) -> Callable[[], object]:
        def call() -> object:
            with mode():
                return network(image)

        return call

    calls = {"now (no_grad)": under(torch.no_grad), "inference_mode": under(torch.inference_mode)}
    calls["with gradients"] = under(nullcontext)
    show(f"{case}, forward pass", timed(calls, case), repeats)


def timed(calls: dict[str, Callable[[], object]], case: str) -> dict[str, Callable[[], float]]:
    return {name: partial(seconds, call, CASES[case][2]) for name, call in calls.items()}


COMPARISONS = {
    "memory": compare_memory,
    "layouts": compare_layouts,
    "parts": compare_parts,
    "optimizers": compare_optimizers,
    "inference": compare_inference,
    "compiled": compare_compiled,
}
FOR_IMAGES = ("layouts", "inference")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compare", nargs="+", default=[*COMPARISONS], choices=COMPARISONS)
    parser.add_argument("--networks", nargs="+", default=[*CASES], choices=CASES)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.serve:
        return serve(*arguments.serve)
    keep_freed_memory()
    print(f"Python {platform.python_version()}, torch {torch.__version__}, {'-'.join(platform.libc_ver())}")
    for name in arguments.compare:
        for case in arguments.networks:
            if CASES[case][3] or name not in FOR_IMAGES:
                COMPARISONS[name](case, arguments.repeats)


if __name__ == "__main__":
    main()
