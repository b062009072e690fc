"""Sharpness-aware minimisation (SAM, Foret et al. 2021): step by the gradient at the worst weights nearby."""

import math
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from confrank.errors import InputError, ParameterError


class Sharpness:
    """SAM around any loop, in tensors that are never replaced; nothing waits for the device.

    A step is: `remember`, forward and backward pass, `climb` (to the weights a distance `rho` up the gradient), zero
    the gradients, forward and backward pass again, `descend`, optimizer step. `buffers` are tensors that a forward
    pass changes, such as batch norm statistics and the counts of a history: the second pass sees them as the first
    did, and leaves no trace in them.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], rho: float, buffers: Iterable[Tensor] = ()) -> None:
        if not 0 <= rho < math.inf:
            raise ParameterError("rho", f"to be a finite number of at least 0, but got {rho}")
        self.rho = rho
        self.parameters, self.buffers = list(parameters), list(buffers)
        self._weights = [torch.zeros_like(values) for values in self.parameters]
        self._before = [torch.zeros_like(values) for values in self.buffers]
        self._after = [torch.zeros_like(values) for values in self.buffers]
        self._remembers = False

    def remember(self) -> None:
        """Save the buffers as the first pass sees them."""
        _copy(self._before, self.buffers)
        self._remembers = True

    @torch.no_grad()
    def climb(self) -> None:
        """Move the weights by rho along the normalised gradient of the first pass."""
        moved: list[Tensor] = [values for values in self.parameters if values.grad is not None]
        gradients = [values.grad for values in moved if values.grad is not None]
        if not gradients:
            raise InputError("expected gradients, but no parameter has one", "call loss.backward() before `climb`")
        if self.buffers and not self._remembers:
            raise InputError("expected saved buffers, but there are none", "call `remember` before the first pass")
        self._remembers = False
        _copy(self._after, self.buffers)
        _copy(self.buffers, self._before)
        _copy(self._weights, self.parameters)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        steps = list(torch._foreach_mul(gradients, self.rho / (norm + 1e-12)))
        torch._foreach_add_(moved, steps)

    @torch.no_grad()
    def descend(self) -> None:
        """Restore the weights, to the bit, and the buffers that the first pass left."""
        _copy(self.parameters, self._weights)
        _copy(self.buffers, self._after)


def _copy(targets: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors in one kernel for each of their types."""
    for kind in dict.fromkeys(values.dtype for values in targets):
        torch._foreach_copy_(
            [values for values in targets if values.dtype == kind],
            [values for values in sources if values.dtype == kind],
        )
