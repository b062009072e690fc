"""The random choices of an epoch. They depend on (seed, epoch) alone, so training can resume at any step exactly."""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


class Draws(NamedTuple):
    """For each position in the epoch: which sample [n], where its crop starts [n, 2], whether it is flipped [n].

    `changes` [n, 10] are those of TrivialAugment, if images are changed by it.
    """

    order: Tensor
    offset: Tensor
    flip: Tensor
    changes: Tensor | None = None

    def to(self, device: torch.device) -> "Draws":
        return Draws(*(values.to(device) for values in self.tensors))

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(values for values in self if values is not None)


def epoch_draws(seed: int, epoch: int, num_samples: int, padding: int = 0, flip: bool = False) -> Draws:
    """The same on every device; crops are uniform over the (2 padding + 1)^2 positions, flips a fair coin."""
    generator = torch.Generator().manual_seed(_mixed(seed, epoch))
    order = torch.randperm(num_samples, generator=generator)
    offset = torch.randint(0, 2 * padding + 1, (num_samples, 2), generator=generator)
    coin = torch.randint(0, 2, (num_samples,), generator=generator, dtype=torch.bool)
    return Draws(order, offset, coin if flip else torch.zeros_like(coin))


def initial_seed(seed: int) -> int:
    """The seed of the network's initialisation and of its dropout."""
    return _mixed(seed, 2**32)


def step_seed(seed: int, epoch: int, step: int, rank: int) -> int:
    """The seed of dropout in one of several processes at one step, whatever happened before."""
    return _mixed(seed, epoch, step, rank, 2**32 + 1)


def generator_of(*numbers: int) -> np.random.Generator:
    """numpy's random numbers, for distributions that torch draws from its global state only."""
    return np.random.default_rng(np.random.SeedSequence(numbers))


def _mixed(*numbers: int) -> int:
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))
