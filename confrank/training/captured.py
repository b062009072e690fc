"""The fast path: fetch, forward, loss, history, backward and optimizer of a step as one CUDA graph.

The forward part is compiled and runs in bfloat16 (weights, loss and optimizer stay in float32) with channels-last
images. The last, smaller batch of an epoch has a separate graph, which is not worth compiling. Networks for which
there are fused kernels are not compiled: only the data and the loss are.
"""

from functools import cache, partial

import torch
from torch import Tensor

from confrank.training.kernels import fused
from confrank.training.run import Run
from confrank.training.step import PLAIN, StepFunctions

WARM_UP = 3
# How far Python may run ahead of the GPU, in steps: enough to keep it busy, few enough to stop soon.
AHEAD = 32


@cache
def _compiled() -> StepFunctions:
    # One set of functions for all runs: runs of the same network share its code, whatever their data and method.
    compiled = partial(torch.compile, dynamic=False, fullgraph=True)
    return StepFunctions(*map(compiled, PLAIN))


def compiled_forward(run: Run, size: int, functions: StepFunctions, *, bf16: bool = True) -> tuple[Tensor, Tensor]:
    """`run.forward` with compiled functions that work for training sets of any size."""
    recorded = (*run.history.buffers(), *run.mean_predictions)
    for values in (run.store.images, run.store.labels, *run.draws.tensors, *recorded):
        torch._dynamo.mark_dynamic(values, 0)
    # Without the first patch the compiler fixes the size of buffers, and the history's counters are buffers.
    # The second lets a study of many networks compile `infer` for each of them.
    with torch._dynamo.config.patch(force_parameter_static_shapes=False, recompile_limit=256):
        return run.forward(size, functions, bf16=bf16)


class CapturedRun:
    """A run on a GPU whose steps are replayed from graphs, on a separate stream.

    Without `bf16` it computes in float32, to be compared with plain steps. With `kernels`, the network is computed in
    fused kernels if there are any for it.
    """

    def __init__(self, run: Run, *, compiled: bool = True, bf16: bool = True, kernels: bool = True) -> None:
        assert run.device.type == "cuda"
        self.run, self.compiled, self.bf16 = run, compiled, bf16
        self.fused = fused(run.called, run.store.height, run.store.width) if kernels and bf16 else None
        self.stream: torch.cuda.Stream = torch.cuda.Stream(run.device)  # type: ignore[no-untyped-call]
        self._mark = torch.cuda.Event()  # type: ignore[no-untyped-call]
        if not torch.are_deterministic_algorithms_enabled():
            torch.backends.cudnn.benchmark = True
        position = run.snapshot()
        sizes = {min(run.config.batch_size, run.num_samples)}
        if rest := run.num_samples % run.config.batch_size:
            sizes.add(rest)
        try:
            with run.own_random_state():
                self.graphs = {size: self._capture(size, compiled and size == max(sizes)) for size in sizes}
        finally:
            # Work left over from a failed warm-up must not overwrite the restored state; the first step waits for it.
            torch.cuda.synchronize(run.device)
            run.load_state(*position)
            self.stream.wait_stream(torch.cuda.current_stream(run.device))

    def step(self) -> None:
        """Enqueue the next step; nothing waits for it."""
        with torch.cuda.stream(self.stream):
            self.graphs[self.run.next_size].replay()
        self.run.next_step += 1
        if self.run.next_step % AHEAD == 0:
            self._mark.synchronize()
            self._mark.record(self.stream)

    def _capture(self, size: int, compiled: bool) -> torch.cuda.CUDAGraph:
        run, functions = self.run, _compiled() if compiled else PLAIN
        if self.fused is not None:
            functions = functions._replace(infer=self.fused)
        forward = partial(compiled_forward if compiled else Run.forward, run, size, functions, bf16=self.bf16)
        self.stream.wait_stream(torch.cuda.current_stream(run.device))
        with torch.cuda.stream(self.stream):
            for _ in range(WARM_UP):
                run.position.zero_()
                run.step_number.zero_()
                run.advance(size, forward)
        torch.cuda.synchronize(run.device)
        run.position.zero_()
        run.step_number.zero_()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            run.advance(size, forward)
        torch.cuda.synchronize(run.device)
        return graph
