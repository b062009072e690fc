"""The functions of a step's forward pass, which a run calls as they are or compiled."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from confrank import models
from confrank.forms import are_correct
from confrank.training.draws import Draws
from confrank.training.mixing import Mixing, mix, mixed_loss
from confrank.training.soft_labels import SoftLabels, soften
from confrank.training.store import Batch, Store, fetch

Output = Tensor | tuple[Tensor, Tensor]


class StepFunctions(NamedTuple):
    """One set of functions. Each can be compiled once for all runs that share it: `infer` depends on
    neither data nor method, and `judge` does not depend on the network.
    """

    fetch: Callable[[Store, Draws, Tensor, int], Batch]
    infer: Callable[[nn.Module, Tensor, bool], Output]
    judge: Callable[[nn.Module, Output, Tensor, Tensor], tuple[Tensor, Tensor]]
    mix: Callable[[Tensor, Mixing, Tensor | None], tuple[Tensor, Tensor]] = mix
    mixed_loss: Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor] = mixed_loss
    soften: Callable[[SoftLabels, Tensor, Tensor, Tensor, Tensor], Tensor] = soften


def infer(model: nn.Module, image: Tensor, bf16: bool) -> Output:
    """The network's output for a batch."""
    with torch.autocast(image.device.type, dtype=torch.bfloat16, enabled=bf16):
        output: Output = model(image)
    return output


def judge(criterion: nn.Module, output: Output, label: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    """The loss and the number of correct samples of a batch."""
    loss = criterion(output, label, index)
    return loss, are_correct(models.logits_of(output).detach(), label).sum()


PLAIN = StepFunctions(fetch, infer, judge)
