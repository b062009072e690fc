"""One history for several processes: each counts the samples it examines, and the counts are added up."""

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from confrank.history import CorrectnessHistory


class SharedHistory:
    """Keeps the histories of all processes of `group` equal: call `add_up` at the end of each epoch.

    In between, each process pairs and counts the samples of its own batches. A distributed sampler gives each sample
    to one process per epoch, so each sample has the same rate as with a single process. Processes must start from
    equal histories: new ones, or all restored from one checkpoint. With a single process there is nothing to add.
    """

    def __init__(self, history: CorrectnessHistory, group: "distributed.ProcessGroup | None" = None) -> None:
        self.history, self.group = history, group
        if history.agreed is None:
            history.agree()

    @torch.no_grad()
    def add_up(self) -> None:
        """Add up what each process has counted since the last call; then all have the same history."""
        if not distributed.is_available() or not distributed.is_initialized():
            self.history.agree()  # processes started later must not each add these counts
            return
        history, start = self.history, self._same_start()
        added = history.counts() - start
        distributed.all_reduce(added, group=self.group)
        for counter, total in zip((history.examined, history.correct), start + added, strict=True):
            counter.copy_(total)
        distributed.all_reduce(history.lowest_label, distributed.ReduceOp.MIN, group=self.group)
        distributed.all_reduce(history.highest_label, distributed.ReduceOp.MAX, group=self.group)
        history.agree()

    def _same_start(self) -> Tensor:
        """The counts that all processes started from; an error in every process if they differ."""
        start = self.history.agreed
        assert start is not None
        sizes = torch.tensor([self.history.num_samples, self.history.resolution], device=start.device)
        (smallest, coarsest), (largest, finest) = (bounds.tolist() for bounds in self._extremes(sizes))
        if smallest != largest:
            raise ValueError(
                "expected a history of the complete training set in each process, but got sizes from"
                f" {smallest} to {largest}; create it with len(train_set), not with the length of a shard"
            )
        if coarsest != finest:
            raise ValueError(
                f"expected one resolution in each process, but got from {coarsest:,} to {finest:,};"
                " create all histories with the same resolution"
            )
        lowest, highest = self._extremes(start)
        if differing := int((lowest != highest).any(dim=0).sum()):
            raise ValueError(
                "expected the same history in each process at the start, but the counts of"
                f" {differing:,} samples differ; load the checkpoint in every process, and create the SharedHistory"
                " before anything is counted"
            )
        return start

    def _extremes(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The lowest and the highest of each value over all processes."""
        both = torch.stack((-values, values))
        distributed.all_reduce(both, distributed.ReduceOp.MAX, group=self.group)
        return -both[0], both[1]


def leave_counters_alone(module: nn.Module) -> None:
    """Call this before `DistributedDataParallel` wraps a module that contains a history.

    Otherwise it overwrites the counters with those of the first process at every step, as it does with all buffers.
    """
    counters = {
        f"{prefix}.{name}".lstrip(".")
        for prefix, part in module.named_modules()
        if isinstance(part, CorrectnessHistory)
        for name, _ in part.named_buffers()
    }
    others = getattr(module, "_ddp_params_and_buffers_to_ignore", ())
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(  # type: ignore[no-untyped-call]
        module, [*{*others, *counters}]
    )
