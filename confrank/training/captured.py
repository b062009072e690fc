"""The fast path: fetch, forward, loss, history, backward and optimizer of a step as one CUDA graph.

The forward part is compiled and runs in bfloat16 (weights, loss and optimizer stay in float32) with channels-last
images. The last, smaller batch of an epoch has a graph of its own, which is not worth compiling.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from confrank.training.run import Run, forward_loss

WARM_UP = 3
# How far Python may run ahead of the GPU, in steps: enough to keep it busy, little enough to stop soon.
AHEAD = 32


@cache
def _compiled() -> Callable[..., tuple[Tensor, Tensor]]:
    # One function for all runs: those of the same network and method share the compiled code.
    return torch.compile(forward_loss, dynamic=False, fullgraph=True)


class CapturedRun:
    """A run on a GPU whose steps are replayed from graphs, on a stream of its own."""

    def __init__(self, run: Run, *, compiled: bool = True) -> None:
        assert run.device.type == "cuda"
        self.run = run
        self.stream: torch.cuda.Stream = torch.cuda.Stream(run.device)  # type: ignore[no-untyped-call]
        self._mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
        if not torch.are_deterministic_algorithms_enabled():
            torch.backends.cudnn.benchmark = True
        position = run.snapshot()
        sizes = {min(run.config.batch_size, run.num_samples)}
        if rest := run.num_samples % run.config.batch_size:
            sizes.add(rest)
        try:
            with _random_state_of(run):
                self.graphs = {size: self._capture(size, compiled and size == max(sizes)) for size in sizes}
        finally:
            run.load_state(*position)

    def step(self) -> None:
        """Enqueue the next step; nothing waits for it."""
        with torch.cuda.stream(self.stream):
            self.graphs[self.run.next_size].replay()
        self.run.next_step += 1
        if self.run.next_step % AHEAD == 0:
            self._mark.synchronize()
            self._mark.record(self.stream)

    def _capture(self, size: int, compiled: bool) -> torch.cuda.CUDAGraph:
        run = self.run
        forward = _compiled() if compiled else forward_loss

        def body() -> None:
            loss, right = forward(run.model, run.criterion, run.store, run.draws, run.place, size, bf16=True)
            run.update(loss, right, size)

        self.stream.wait_stream(torch.cuda.current_stream(run.device))
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP):
                run.place.zero_()
                run.step_number.zero_()
                body()
        torch.cuda.synchronize(run.device)
        run.place.zero_()
        run.step_number.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            body()
        torch.cuda.synchronize(run.device)
        return graph


@contextmanager
def _random_state_of(run: Run) -> Iterator[None]:
    """Make the device's default generator draw from the run's own state; graphs captured meanwhile keep it."""
    default = torch.cuda.default_generators[run.device.index or 0]
    shared = default.graphsafe_get_state()
    default.graphsafe_set_state(run.random)
    try:
        yield
    finally:
        default.graphsafe_set_state(shared)
