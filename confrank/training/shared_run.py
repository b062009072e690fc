"""A run that several processes train together: each computes a part of every batch (DDP)."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from confrank.config import RunConfig
from confrank.data import DataSet
from confrank.distributed import SharedHistory, SharedRing
from confrank.errors import InputError
from confrank.loss import CorrectnessRanking
from confrank.training.draws import step_seed
from confrank.training.processes import Processes, reporting_lost_peers
from confrank.training.run import Run
from confrank.training.shared_norm import SharedNorms
from confrank.training.start import InitialWeights
from confrank.training.step import PLAIN, StepFunctions
from confrank.training.store import Batch, fetch


class SharedRun(Run):
    """A run whose steps equal those of one process on the same batches, up to rounding (and the draws of dropout).

    Each process takes consecutive samples of a batch. The ring of pairs, the images to mix with and the statistics of
    batch norm run over the complete batch. Losses are weighted by the number of samples, so that the mean gradient of
    the processes is that of the batch. A batch with fewer samples than processes is computed by every process.
    Call `connect` in every process before the first step.
    """

    def __init__(
        self,
        config: RunConfig,
        data: DataSet,
        device: torch.device,
        *,
        processes: Processes,
        network: nn.Module | None = None,
        initial: InitialWeights | None = None,
    ) -> None:
        if config.batch_size < processes.size:
            raise InputError(
                f"expected batches of at least one sample per process, but got {config.batch_size} for"
                f" {processes.size} processes",
                "increase {batch_size}, or start fewer processes",
            )
        super().__init__(config, data, device, network=network, initial=initial)
        self.processes, self.ring = processes, SharedRing()
        self.shared_history, self.norms = SharedHistory(self.history), SharedNorms(self.model)
        self._agree()

    def connect(self) -> None:
        """Give every process the weights of the first, and let DDP average the gradients from now on.

        A step without DDP finds parameters that are not used, which DDP must ignore. A step with it makes DDP group
        the gradients: the groups decide the order of additions, and a resumed run must add in the same order.
        """
        start = self.snapshot()
        with reporting_lost_peers(self.processes):
            self._backward(self.forward(self.next_size)[0])
            unused = [name for name, values in self.model.named_parameters() if values.grad is None]
            ignored = [*unused, *(f".{name}" for name in unused)]  # DDP's names of parameters of the network itself
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(self.model, ignored)  # type: ignore[no-untyped-call]
            device_ids = [self.device] if self.device.type == "cuda" else None
            self.called = DistributedDataParallel(self.model, device_ids=device_ids)
            self._backward(self.forward(self.next_size)[0])
        self.optimizer.zero_grad(set_to_none=True)
        self.load_state(*start)

    def step(self) -> None:
        rank, seed = self.processes.rank, self.config.seed
        self.random.manual_seed(step_seed(seed, self.epoch, self.next_step, rank))
        with reporting_lost_peers(self.processes):
            if self.method.facts.stretched:  # depends on the counts of all samples
                self.shared_history.add_up()
            super().step()

    def forward(
        self, size: int, functions: StepFunctions | None = None, *, bf16: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The loss of this process's part of the next batch, weighted by its size, and the number correct."""
        spread = size >= self.processes.size
        part = self.processes.part(size) if spread else range(size)
        batch = fetch(self.store, self.draws, self.position + part.start, len(part))
        with self._as_one_batch(part, size) if spread else self._counted_once(batch):
            loss, num_correct = self.judge_batch(
                batch, functions or PLAIN, previous=self._previous(batch, part, size)
            )
        if spread:
            return loss * (self.processes.size * len(part) / size), num_correct
        return loss, num_correct * self.processes.leads

    def settle(self) -> None:
        """Add up what each process has counted since the last call."""
        with reporting_lost_peers(self.processes), torch.no_grad():
            changes = [now - start for now, start in zip(self._record(), self._agreed, strict=True)]
            changes[0] /= self.processes.size  # the losses are weighted so that their mean is that of the batch
            for added, total, start in zip(changes, self._record(), self._agreed, strict=True):
                distributed.all_reduce(added)
                total.copy_(start + added)
            self.shared_history.add_up()
        self._agree()

    def finish_epoch(self) -> dict[str, float]:
        self.settle()
        record = super().finish_epoch()
        self._agree()
        with reporting_lost_peers(self.processes):
            for values in self.model.buffers():  # each process has seen other samples
                distributed.broadcast(values, src=0)
        return record

    def load_state(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        super().load_state(weights, state)
        self._agree()

    def _record(self) -> tuple[Tensor, ...]:
        return self.step_loss, self.num_correct, *self.mean_predictions

    def _agree(self) -> None:
        """Declare the record to be that of all processes together."""
        self._agreed = [values.clone() for values in self._record()]

    def _previous(self, batch: Batch, part: range, size: int) -> Batch | None:
        """The predecessor of each sample of this part in the batch, where images are mixed with it."""
        if self.mixing is None:
            return None
        first = fetch(self.store, self.draws, self.position + (part.start - 1) % size, 1)
        return Batch(*(torch.cat((one, values[:-1])) for one, values in zip(first, batch, strict=True)))

    @contextmanager
    def _as_one_batch(self, part: range, size: int) -> Iterator[None]:
        """Pair the samples of all processes, and normalise over them."""
        num = self.processes.size
        self.ring.sizes = [len(Processes(rank, num).part(size)) for rank in range(num)]
        ranking = self.criterion if isinstance(self.criterion, CorrectnessRanking) else None
        try:
            if ranking is not None:
                ranking.ring = self.ring
            with self.norms.over(len(part) / size):
                yield
        finally:
            if ranking is not None:
                ranking.ring = None

    @contextmanager
    def _counted_once(self, batch: Batch) -> Iterator[None]:
        """Record events and predictions in the first process only: all of them see the same batch."""
        before = [values.index_select(0, batch.index) for values in self.mean_predictions]
        self.history.train(self.processes.leads)
        try:
            yield
        finally:
            self.history.train()
            if not self.processes.leads:
                for values, rows in zip(self.mean_predictions, before, strict=True):
                    values.index_copy_(0, batch.index, rows)
