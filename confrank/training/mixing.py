"""RegMixup (Pinto et al. 2022) and its form with CutMix: an additional loss on mixed images and labels.

Each image is mixed with its predecessor in the batch, whose order is random. A mask [h, w] says how much of each
pixel stays: a constant lambda ~ Beta(10, 10) for mixup; for CutMix (Yun et al. 2019), 0 in a box that covers the
share 1 - lambda of the image, lambda ~ Beta(1, 1), and 1 outside. A label keeps the mean of the mask.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from confrank.errors import InputError, ParameterError
from confrank.training.draws import generator_of

Kind = Literal["mixup", "cutmix", "both"]
MIXUP_BETA, CUTMIX_BETA = 10.0, 1.0
# An epoch's mixing has a random stream of its own: order, crops and flips are the same with and without it.
STREAM = 1


class Mixing(NamedTuple):
    """For each step of an epoch: lambda [s], the box (top, bottom, left, right) [s, 4], whether to cut it [s].

    `size` is the height and width of the images that the boxes were drawn for; None: any.
    """

    share: Tensor
    box: Tensor
    cuts: Tensor
    size: tuple[int, int] | None = None

    def to(self, device: torch.device | str) -> "Mixing":
        """The same draws on a device."""
        return self._each(lambda values: values.to(device))

    def at(self, step: Tensor | int) -> "Mixing":
        """What is drawn for one step, given by its number, or by its number as a tensor [1] on the device."""
        if isinstance(step, Tensor):
            return self._each(lambda values: values.index_select(0, step))
        if not 0 <= step < len(self.share):
            raise ParameterError("step", f"to be within 0..{len(self.share) - 1}, but got {step}")
        return self._each(lambda values: values[step : step + 1])

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.share, self.box, self.cuts

    def _each(self, function: Callable[[Tensor], Tensor]) -> "Mixing":
        return Mixing(function(self.share), function(self.box), function(self.cuts), self.size)


def epoch_mixing(kind: Kind, seed: int, epoch: int, num_steps: int, height: int, width: int) -> Mixing:
    """The mixing of an epoch depends on (seed, epoch) alone; "both" tosses a fair coin at each step."""
    if kind not in get_args(Kind):
        raise ValueError(f"expected a kind of mixing among {', '.join(get_args(Kind))}, but got {kind!r}")
    random = generator_of(seed, epoch, STREAM)
    mixup, cutmix = (random.beta(beta, beta, num_steps) for beta in (MIXUP_BETA, CUTMIX_BETA))
    centre = random.random((num_steps, 2))
    coin = random.random(num_steps) < 0.5
    cuts = coin if kind == "both" else np.full(num_steps, kind == "cutmix")
    bounds = []
    for number, size in enumerate((height, width)):
        length = (size * np.sqrt(1 - cutmix)).astype(np.int64)
        start = (size * centre[:, number]).astype(np.int64) - length // 2
        bounds += [start.clip(0, size), (start + length).clip(0, size)]
    box = torch.from_numpy(np.stack(bounds, axis=1))
    return Mixing(torch.from_numpy(mixup).float(), box, torch.from_numpy(cuts), (height, width))


def mix(image: Tensor, mixing: Mixing, previous: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mixed images [b, c, h, w], and the share of its own label that each keeps, a tensor [1].

    `previous` are the predecessors of the images, if these are only a part of the batch.
    """
    _check(image, mixing)
    previous = image.roll(1, 0) if previous is None else previous
    height, width = image.shape[2:]
    top, bottom, left, right = mixing.box[0]
    row = torch.arange(height, device=image.device)[:, None]
    column = torch.arange(width, device=image.device)
    inside = (row >= top) & (row < bottom) & (column >= left) & (column < right)
    mask = torch.where(mixing.cuts, 1 - inside.float(), mixing.share)
    return mask * image + (1 - mask) * previous, mask.mean().view(1)


def _check(image: Tensor, mixing: Mixing) -> None:
    if image.ndim != 4:
        raise InputError(
            f"expected images [b, c, h, w] to mix, but got a tensor of shape {list(image.shape)}",
            'reshape vectors to [b, d, 1, 1], and draw "mixup" for images of 1 x 1',
        )
    if len(mixing.share) != 1:
        raise InputError(
            f"expected the mixing of one step, but got that of {len(mixing.share)}", "use mixing.at(step)"
        )
    if mixing.size is not None and mixing.size != tuple(image.shape[2:]):
        drawn, given = (f"{height} x {width}" for height, width in (mixing.size, image.shape[2:]))
        raise InputError(
            f"expected images of {drawn}, for which the mixing was drawn, but got {given}",
            "give `epoch_mixing` the size of your images",
        )


def mixed_loss(logits: Tensor, label: Tensor, share: Tensor, previous: Tensor | None = None) -> Tensor:
    """Cross-entropy of the logits of mixed images with their mixed labels; `previous` as in `mix`.

    The labels of the images are classes [b] or probabilities [b, K].
    """
    logits, previous = logits.float(), label.roll(1, 0) if previous is None else previous
    own, other = cross_entropy(logits, label), cross_entropy(logits, previous)
    return (share * own + (1 - share) * other).squeeze(0)
