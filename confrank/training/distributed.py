"""One history for several processes: each counts what it examines, and the counts are added up."""

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from confrank.history import CorrectnessHistory


class SharedHistory:
    """Keeps the histories of all processes of `group` equal: call `add_up` at the end of each epoch.

    In between, each process pairs and counts the samples of its own batches. A sampler shows each sample to one
    process an epoch, so that the rate a sample comes with is the same as with one process. Processes must start
    from equal histories: new ones, or all restored from one checkpoint. With a single process nothing happens.
    """

    def __init__(self, history: CorrectnessHistory, group: distributed.ProcessGroup | None = None) -> None:
        self.history, self.group = history, group
        self._remember()
        # What is loaded is where all processes go on from, not something that each of them has counted.
        history.register_load_state_dict_post_hook(  # type: ignore[no-untyped-call]
            lambda module, keys: self._remember()
        )

    @torch.no_grad()
    def add_up(self) -> None:
        """Add what each process has counted since the last call; afterwards all have the same history."""
        if not distributed.is_available() or not distributed.is_initialized():
            return
        self._check_same_start()
        history, start = self.history, self._start.to(self.history.examined.device)
        added = self._counts() - start
        distributed.all_reduce(added, group=self.group)
        for counter, total in zip((history.examined, history.correct), start + added, strict=True):
            counter.copy_(total)
        distributed.all_reduce(history.lowest_label, distributed.ReduceOp.MIN, group=self.group)
        distributed.all_reduce(history.highest_label, distributed.ReduceOp.MAX, group=self.group)
        self._remember()

    def _counts(self) -> Tensor:
        return torch.stack((self.history.examined, self.history.correct))

    def _remember(self) -> None:
        self._start = self._counts()

    def _check_same_start(self) -> None:
        """Sizes and sums are compared in all processes, so that all of them raise, or none."""
        mine = torch.tensor([self.history.num_samples, *self._start.sum(dim=1).tolist()])
        extremes = torch.stack((mine, -mine)).to(self.history.examined.device)
        distributed.all_reduce(extremes, distributed.ReduceOp.MAX, group=self.group)
        highest, lowest = extremes[0].tolist(), (-extremes[1]).tolist()
        if highest[0] != lowest[0]:
            raise ValueError(
                f"expected a history of the whole training set in each process, but got sizes from {lowest[0]} to"
                f" {highest[0]}; make it with len(train_set), not with that of a shard"
            )
        if highest != lowest:
            raise ValueError(
                "expected the same history in each process to begin with, but got between"
                f" {lowest[1]} and {highest[1]} examinations; load the checkpoint in every process"
            )


def leave_counters_alone(module: nn.Module) -> None:
    """Call this before `DistributedDataParallel` wraps a module that holds a history.

    Else it overwrites the counters with those of the first process at every step, as it does with all buffers.
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
