"""One run between two steps: network, loss, optimizer, data on the device, and the place in the epoch."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from confrank import methods, models
from confrank.config import RunConfig, learning_rate
from confrank.data import DataSet
from confrank.history import CorrectnessHistory
from confrank.methods import normalise
from confrank.training.draws import Draws, crop_and_flip, epoch_draws, initial_seed


class DivergedError(RuntimeError):
    """The loss became NaN or infinite."""


@dataclass(frozen=True)
class Batch:
    """What a step sees: positions in the training set [b], normalised images [b, c, h, w], labels [b]."""

    index: Tensor
    image: Tensor
    label: Tensor


class Run:
    """The state of a training run. `step` goes forward by one mini-batch; everything else is bookkeeping.

    The whole training set lies on the device as bytes. Per-step losses stay there until the epoch ends.
    """

    def __init__(self, config: RunConfig, data: DataSet, device: torch.device) -> None:
        self.config, self.device = config, device
        self.height, self.width, channels = data.train.images.shape[1:]
        self.padding, self.flip = data.padding, data.flip
        self.method = methods.get(config.method)
        torch.manual_seed(initial_seed(config.seed))
        model = models.create(config.model, data.num_classes, in_channels=channels)
        self.model = model.to(device).train()
        self.history = CorrectnessHistory(len(data.train))
        self.criterion = self.method.criterion(self.history, config.weight).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=config.lr, momentum=config.momentum, weight_decay=config.weight_decay
        )
        images, margin = torch.from_numpy(data.train.images), self.padding
        self.images = pad(images, (0, 0, margin, margin, margin, margin)).to(device)
        self.labels = torch.from_numpy(data.train.labels).to(device)
        self.mean, self.std = torch.tensor(data.mean, device=device), torch.tensor(data.std, device=device)
        self.num_steps = math.ceil(len(data.train) / config.batch_size)
        self.epoch = self.next_step = 0
        self.step_loss = torch.zeros(self.num_steps, device=device)
        self.num_correct = torch.zeros((), dtype=torch.int64, device=device)
        self._draws: Draws | None = None

    @property
    def finished(self) -> bool:
        return self.epoch == self.config.epochs

    def step(self) -> None:
        """One optimizer step on the next mini-batch of the epoch."""
        batch = self._next_batch()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.config, self.epoch)
        output = self.model(batch.image)
        loss = self.criterion(output, batch.label, batch.index)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        self.step_loss[self.next_step] = loss.detach()
        self.num_correct += (output.detach().argmax(dim=1) == batch.label).sum()
        self.next_step += 1

    def finish_epoch(self) -> dict[str, float]:
        """Check the epoch's losses, go on to the next epoch, and return what happened in this one."""
        assert self.next_step == self.num_steps
        self.check_finite()
        sizes = torch.full_like(self.step_loss, self.config.batch_size)
        sizes[-1] = len(self.labels) - self.config.batch_size * (self.num_steps - 1)
        record = {
            "epoch": self.epoch + 1,
            "lr": learning_rate(self.config, self.epoch),
            "loss": float((self.step_loss.double() * sizes).sum() / len(self.labels)),
            "acc": int(self.num_correct) / len(self.labels),
        }
        self.epoch, self.next_step, self._draws = self.epoch + 1, 0, None
        self.step_loss.zero_()
        self.num_correct.zero_()
        return record

    def check_finite(self) -> None:
        """Raise if a loss of this epoch was NaN or infinite, naming where; the only wait for the device."""
        bad = (~self.step_loss[: self.next_step].isfinite()).nonzero().flatten().tolist()
        if bad:
            start = bad[0] * self.config.batch_size
            index = self._epoch_draws().order[start : start + self.config.batch_size].tolist()
            raise DivergedError(
                f"expected a finite loss, but got {float(self.step_loss[bad[0]])} in epoch {self.epoch + 1},"
                f" step {bad[0] + 1} of {self.num_steps}, on training samples {index};"
                " lower --lr, or look at these samples"
            )
        if not all(bool(values.isfinite().all()) for values in self.model.parameters()):
            raise DivergedError(
                f"expected finite weights, but some are not after epoch {self.epoch + 1}, step {self.next_step};"
                " lower --lr"
            )

    def batches(self) -> Iterator[Batch]:
        """The mini-batches of the current epoch from the first, as `step` sees them."""
        for step in range(self.num_steps):
            yield self._batch(step)

    def state_dict(self) -> dict[str, Any]:
        """Everything but the weights that the next step depends on: tensors, numbers and strings only."""
        state: dict[str, Any] = {
            "epoch": self.epoch,
            "next_step": self.next_step,
            "criterion": self.criterion.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step_loss": self.step_loss,
            "num_correct": self.num_correct,
            "rng_cpu": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            state["rng_cuda"] = torch.cuda.get_rng_state(self.device)
        return state

    def load_state(self, weights: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Go to a saved position."""
        self.model.load_state_dict(weights)
        self.criterion.load_state_dict(state["criterion"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.epoch, self.next_step, self._draws = state["epoch"], state["next_step"], None
        self.step_loss.copy_(state["step_loss"])
        self.num_correct.copy_(state["num_correct"])
        torch.set_rng_state(state["rng_cpu"])
        if self.device.type == "cuda" and "rng_cuda" in state:
            torch.cuda.set_rng_state(state["rng_cuda"], self.device)

    def _next_batch(self) -> Batch:
        return self._batch(self.next_step)

    def _batch(self, step: int) -> Batch:
        draws = self._epoch_draws()
        rows = slice(step * self.config.batch_size, (step + 1) * self.config.batch_size)
        index = draws.order[rows]
        image = self.images[index]
        if self.padding or self.flip:
            image = crop_and_flip(image, draws.offset[rows], draws.flip[rows], self.height, self.width)
        return Batch(index, normalise(image, self.mean, self.std), self.labels[index])

    def _epoch_draws(self) -> Draws:
        if self._draws is None:
            draws = epoch_draws(self.config.seed, self.epoch, len(self.labels), self.padding, self.flip)
            self._draws = draws.to(self.device)
        return self._draws
