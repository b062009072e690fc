"""One history and one ring of pairs for several processes: counts are added up, confidences and rates gathered."""

from collections.abc import Sequence

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from confrank.history import CorrectnessHistory


class SharedHistory:
    """Keeps the histories of all processes of `group` equal: call `add_up` at the end of each epoch.

    In between, each process counts the samples of its own batches. A distributed sampler gives each sample
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


class SharedRing:
    """Pairs the samples of all processes of `group` as one batch: `CorrectnessRankingLoss(..., ring=SharedRing())`.

    Confidences and rates are gathered without gradient, and each process pulls at its samples only. Every process
    must call the loss equally often. With equal batch sizes, the gradient that `DistributedDataParallel` averages is
    that of one process with the complete batch; with others, weight the loss of each process by its share in the
    batch times the number of processes, as cross-entropy needs it too.

    `sizes` are the batch sizes of all processes, if they never change; otherwise they are exchanged at every call.
    A GPU has to wait for that, and `torch.compile(fullgraph=True)` needs `sizes`. In a single process it is the ring
    of its batch.
    """

    def __init__(
        self, group: "distributed.ProcessGroup | None" = None, *, sizes: Sequence[int] | None = None
    ) -> None:
        self.group, self.sizes = group, sizes

    @torch.no_grad()
    def __call__(self, values: Tensor) -> tuple[Tensor, int]:
        """Join the values [k, b] of all processes, one after the other, and return where this one starts."""
        if not distributed.is_available() or not distributed.is_initialized():
            return values, 0
        sizes = self._exchanged(values) if self.sizes is None else self._declared(self.sizes, values)
        padded = values.new_zeros(len(values), max(sizes))
        padded[:, : values.shape[1]] = values
        parts = [torch.empty_like(padded) for _ in sizes]
        distributed.all_gather(parts, padded, group=self.group)
        joined = torch.cat([part[:, :size] for part, size in zip(parts, sizes, strict=True)], dim=1)
        return joined, sum(sizes[: distributed.get_rank(self.group)])

    def _declared(self, sizes: Sequence[int], values: Tensor) -> Sequence[int]:
        num_processes, rank = distributed.get_world_size(self.group), distributed.get_rank(self.group)
        if len(sizes) != num_processes:
            raise ValueError(f"expected sizes for {num_processes} processes, but got {len(sizes)}")
        if values.shape[1] != sizes[rank]:
            raise ValueError(
                f"expected batches of {sizes[rank]} samples in process {rank}, as sizes says, but got"
                f" {values.shape[1]}; use drop_last=True in the DataLoader, or SharedRing() without sizes"
            )
        return sizes

    def _exchanged(self, values: Tensor) -> list[int]:
        size = torch.tensor([values.shape[1]], device=values.device)
        sizes = [torch.empty_like(size) for _ in range(distributed.get_world_size(self.group))]
        distributed.all_gather(sizes, size, group=self.group)
        return [int(one) for one in sizes]


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
