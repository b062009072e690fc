"""One run between two steps: network, loss, optimizer, data on the device, and the position in the epoch."""

import copy
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from confrank import methods, models
from confrank.config import RunConfig, first_averaged, learning_rate
from confrank.data import DataSet
from confrank.errors import Remedied
from confrank.history import CorrectnessHistory
from confrank.training.averaging import EMA_DECAY, WeightAverage, estimate_statistics
from confrank.training.draws import Draws, epoch_draws, initial_seed
from confrank.training.mixing import Mixing, epoch_mixing, mix
from confrank.training.optimizer import optimizer_of
from confrank.training.sharpness import Sharpness
from confrank.training.soft_labels import SoftLabels
from confrank.training.start import InitialWeights, check_network, check_settings, check_smallest_batch, start_from
from confrank.training.step import PLAIN, Output, StepFunctions
from confrank.training.store import Batch, Store, fetch, store_on
from confrank.training.trivial_augment import SHARES, epoch_changes


class DivergedError(Remedied, RuntimeError):
    """The loss became NaN or infinite."""


class Run:
    """The state of a training run. `step` trains on one mini-batch; everything else is bookkeeping.

    Every tensor that a step reads or writes keeps its storage for the life of the run, so that a step can be
    captured once as a graph and replayed. Per-step losses stay on the device until the epoch ends.
    """

    def __init__(
        self,
        config: RunConfig,
        data: DataSet,
        device: torch.device,
        *,
        network: nn.Module | None = None,
        initial: InitialWeights | None = None,
    ) -> None:
        device = _with_number(device)
        self.config, self.device = config, device
        self.method = methods.get(config.method)
        torch.manual_seed(initial_seed(config.seed))
        check_settings(config, data, own_network=network is not None)
        if network is None:
            network = self.method.network(config.model, data.num_classes, data.in_channels, head=config.head)
        check_network(network, config, data)
        check_smallest_batch(network, config, data)
        self.started_anew = [] if initial is None else start_from(network, initial, data)
        self.model = network.to(device).train()
        if device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.called: nn.Module = self.model  # what a step calls: the network, or a wrapper around it
        self.history = CorrectnessHistory(len(data.train))
        self.criterion = self.method.criterion(self.history, config.weight).to(device)
        self.learning_rate = torch.zeros((), device=device)
        self.optimizer = optimizer_of(self.model, config, self.learning_rate)
        self.store: Store = store_on(device, data)
        self.num_samples = len(data.train)
        self.num_steps = math.ceil(self.num_samples / config.batch_size)
        self._augmentation = data.padding, data.flip
        drawn = self._drawn(0)
        self.draws = drawn.to(device)
        # The start of the next batch and the number of its step, for steps that are replayed without Python.
        self.position = torch.zeros(1, dtype=torch.int64, device=device)
        self.step_number = torch.zeros(1, dtype=torch.int64, device=device)
        self.step_loss = torch.zeros(self.num_steps, device=device)
        self.num_correct = torch.zeros((), dtype=torch.int64, device=device)
        self.random = _own_random_state(device, initial_seed(config.seed))
        self.average = WeightAverage(self.model) if config.averaging != "none" else None
        self.average_share, self.averaged_steps = (torch.zeros((), device=device) for _ in range(2))
        self.soft_labels = SoftLabels(self.num_samples, data.num_classes, device) if config.soft_labels else None
        self.sharpness: Sharpness | None = None
        if config.sam:
            buffers = (*self.model.buffers(), *self.criterion.buffers(), *self.mean_predictions)
            self.sharpness = Sharpness(self.model.parameters(), config.sam, buffers)
        mixing = self._drawn_mixing(0)
        self.mixing = None if mixing is None else mixing.to(device)
        self._enter(0, 0, drawn)

    @property
    def mean_predictions(self) -> tuple[Tensor, ...]:
        """What a step records of its predictions, if labels are soft."""
        return () if self.soft_labels is None else (self.soft_labels.mean,)

    @property
    def finished(self) -> bool:
        return self.epoch == self.config.epochs

    @property
    def next_size(self) -> int:
        """The number of samples in the next batch: the last one of an epoch may be smaller."""
        return min(self.config.batch_size, self.num_samples - self.next_step * self.config.batch_size)

    def step(self) -> None:
        """One optimizer step on the next mini-batch of the epoch."""
        size = self.next_size
        with self.own_random_state():
            self.advance(size, lambda: self.forward(size))
        self.next_step += 1

    def forward(
        self, size: int, functions: StepFunctions | None = None, *, bf16: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The loss of the next batch and its number of correct samples; the history records them.

        Here and in `advance` no Python value depends on data, so that both can be captured.
        """
        do = functions or PLAIN
        return self.judge_batch(do.fetch(self.store, self.draws, self.position, size), do, bf16=bf16)

    def judge_batch(self, batch: Batch, do: StepFunctions, *, bf16: bool = False) -> tuple[Tensor, Tensor]:
        """The loss of a batch and its number of correct samples."""
        target = self._target(batch)
        if self.mixing is None:
            return self._judge(do.infer(self.called, batch.image, bf16), batch, target, do)
        size = len(batch.label)
        mixed, share = do.mix(batch.image, self.mixing.at(self.step_number), None)
        output = do.infer(self.called, torch.cat((batch.image, mixed)), bf16)
        clean = (output[0][:size], output[1][:size]) if isinstance(output, tuple) else output[:size]
        loss, num_correct = self._judge(clean, batch, target, do)
        additional = do.mixed_loss(models.logits_of(output)[size:], target, share, None)
        return torch.add(loss, additional, alpha=self.config.mix_weight), num_correct

    def _target(self, batch: Batch) -> Tensor:
        """The labels of a batch: classes [b], or probabilities [b, K] if they are soft."""
        return batch.label if self.soft_labels is None else self.soft_labels.of(batch.label, batch.index)

    def _judge(self, output: Output, batch: Batch, target: Tensor, do: StepFunctions) -> tuple[Tensor, Tensor]:
        loss, num_correct = do.judge(self.criterion, output, batch.label, batch.index)
        if self.soft_labels is not None:
            loss = loss + do.soften(self.soft_labels, models.logits_of(output), batch.label, batch.index, target)
        return loss, num_correct

    def advance(self, size: int, forward: Callable[[], tuple[Tensor, Tensor]]) -> None:
        """Backward pass, optimizer, and the record of the step; `forward` gives the loss, twice for SAM."""
        if self.sharpness is not None:
            self.sharpness.remember()
        loss, num_correct = forward()
        self._backward(loss)
        if self.sharpness is not None:
            self.sharpness.climb()
            self._backward(forward()[0])
            self.sharpness.descend()
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.optimizer.step()
        if self.average is not None and self.config.averaging == "ema":
            # An average over all steps is the mean of their weights at first, without the random initial ones.
            self.average.follow(self.average_share.maximum(1 / (1 + self.averaged_steps + self.step_number[0])))
        self.step_loss.index_copy_(0, self.step_number, loss.detach().view(1).float())
        self.num_correct += num_correct
        self.position += size
        self.step_number += 1

    def _backward(self, loss: Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)

    @contextmanager
    def own_random_state(self) -> Iterator[None]:
        """Let the device's default generator use this run's state; graphs captured meanwhile stay bound to it."""
        if self.device.type != "cuda":
            yield
            return
        default = torch.cuda.default_generators[self.device.index]
        shared = default.graphsafe_get_state()
        default.graphsafe_set_state(self.random)
        try:
            yield
        finally:
            default.graphsafe_set_state(shared)

    def finish_epoch(self) -> dict[str, float]:
        """Check the epoch's losses, enter the next epoch, and return the record of this one.

        After the last epoch, the network has the averaged weights, if they are averaged.
        """
        assert self.next_step == self.num_steps
        upcoming = self._drawn(self.epoch + 1)
        self.check_finite()
        if self.average is not None and self.config.averaging == "swa" and self.epoch >= first_averaged(self.config):
            self.average.add()
        sizes = torch.full((self.num_steps,), float(self.config.batch_size), dtype=torch.float64)
        sizes[-1] = self.num_samples - self.config.batch_size * (self.num_steps - 1)
        record = {
            "epoch": self.epoch + 1,
            "lr": learning_rate(self.config, self.epoch),
            "loss": float((self.step_loss.cpu().double() * sizes).sum() / self.num_samples),
            "acc": int(self.num_correct) / self.num_samples,
        }
        self._enter(self.epoch + 1, 0, upcoming)
        self.step_loss.zero_()
        self.num_correct.zero_()
        if self.finished and self.average is not None:
            self._apply_average(self.average)
        return record

    def _apply_average(self, average: WeightAverage) -> None:
        """Give the network the averaged weights, and batch norm statistics over the images of an epoch."""
        average.apply()
        with self.own_random_state():
            estimate_statistics(self.model, self._passed_images())

    def _passed_images(self) -> Iterator[Tensor]:
        """The images of each step of the epoch as `judge_batch` passes them: augmented, and with the mixed ones."""
        size = self.config.batch_size
        for step in range(self.num_steps):
            start = step * size
            image = fetch(self.store, self.draws, start, min(size, self.num_samples - start)).image
            if self.mixing is None:
                yield image
            else:
                mixed, _ = mix(image, self.mixing.at(step))
                yield torch.cat((image, mixed))

    def check_finite(self) -> None:
        """Raise if a loss of this epoch or a weight is NaN or infinite; the only wait for the device."""
        losses = self.step_loss[: self.next_step].cpu()
        bad = (~losses.isfinite()).nonzero().flatten().tolist()
        if bad:
            start = bad[0] * self.config.batch_size
            index = self.draws.order[start : start + self.config.batch_size].tolist()
            more = f" and {len(index) - 8} more" if len(index) > 8 else ""
            raise DivergedError(
                f"expected a finite loss, but got {float(losses[bad[0]])} in epoch {self.epoch + 1},"
                f" step {bad[0] + 1} of {self.num_steps}, on training samples {index[:8]}{more}",
                "lower {lr}, or inspect these samples",
            )
        if not bool(torch.stack([values.detach().isfinite().all() for values in self.model.parameters()]).all()):
            raise DivergedError(
                f"expected finite weights, but some are not after epoch {self.epoch + 1}, step {self.next_step}",
                "lower {lr}",
            )

    def state_dict(self) -> dict[str, Any]:
        """All that the next step depends on, except the weights: tensors, numbers and strings only."""
        return {
            "epoch": self.epoch,
            "next_step": self.next_step,
            "criterion": self.criterion.state_dict(),
            "optimizer": self._optimizer_state(),
            "step_loss": self.step_loss,
            "num_correct": self.num_correct,
            "random": self.random.get_state(),
            **({} if self.average is None else {"average": self.average.state_dict()}),
            **({} if self.soft_labels is None else {"soft_labels": self.soft_labels.mean}),
        }

    @torch.no_grad()
    def load_state(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Return to a saved position, writing into the existing tensors."""
        models.load_weights(self.model, weights)
        self.criterion.load_state_dict(state["criterion"])
        for mine, saved in zip(self._optimizer_state(), state["optimizer"], strict=True):
            mine.copy_(saved)
        self.step_loss.copy_(state["step_loss"])
        self.num_correct.copy_(state["num_correct"])
        if state["random"].shape == self.random.get_state().shape:  # those of a CPU and of a GPU differ
            self.random.set_state(state["random"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
        if self.soft_labels is not None:
            self.soft_labels.mean.copy_(state["soft_labels"])
        self._enter(state["epoch"], state["next_step"], self._drawn(state["epoch"]))

    def snapshot(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Copies of the weights and of the state, to return to with `load_state`."""
        return copy.deepcopy((dict(self.model.state_dict()), self.state_dict()))

    def _optimizer_state(self) -> list[Tensor]:
        parameters = self.optimizer.param_groups[0]["params"]
        return [values for parameter in parameters for values in self.optimizer.state[parameter].values()]

    def _drawn(self, epoch: int) -> Draws:
        drawn = epoch_draws(self.config.seed, epoch, self.num_samples, *self._augmentation)
        if self.config.augment == "none":
            return drawn
        store = self.store
        share = SHARES[self.config.augment]
        changes = epoch_changes(self.config.seed, epoch, self.num_samples, store.height, store.width, share)
        return drawn._replace(changes=changes)

    def _drawn_mixing(self, epoch: int) -> Mixing | None:
        if self.config.mix == "none":
            return None
        store = self.store
        return epoch_mixing(self.config.mix, self.config.seed, epoch, self.num_steps, store.height, store.width)

    def _enter(self, epoch: int, step: int, drawn: Draws) -> None:
        self.epoch, self.next_step = epoch, step
        for mine, values in zip(self.draws.tensors, drawn.tensors, strict=True):
            mine.copy_(values)
        if self.mixing is not None and (mixing := self._drawn_mixing(epoch)) is not None:
            for mine, values in zip(self.mixing.tensors, mixing.tensors, strict=True):
                mine.copy_(values)
        if self.soft_labels is not None:
            self.soft_labels.enter(epoch, self.config.epochs, self.config.soft_labels)
        self.learning_rate.fill_(learning_rate(self.config, epoch))
        # The step of a moving average is all the way until averaging starts.
        self.average_share.fill_(1 - EMA_DECAY if epoch >= first_averaged(self.config) else 1.0)
        # Its steps before this epoch if it is over all steps; infinite if it starts at trained weights.
        self.averaged_steps.fill_(math.inf if first_averaged(self.config) else epoch * self.num_steps)
        self.position.fill_(step * self.config.batch_size)
        self.step_number.fill_(step)


def _with_number(device: torch.device) -> torch.device:
    """A GPU with its number: "cuda" alone would follow the current device."""
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def _own_random_state(device: torch.device, seed: int) -> torch.Generator:
    """The random state of dropout: on a GPU each run has one, so that runs side by side do not mix."""
    if device.type != "cuda":
        return torch.default_generator
    own: torch.Generator = torch.cuda.default_generators[device.index].clone_state()
    return own.manual_seed(seed)
