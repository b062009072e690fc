"""A training set on the device, and the batch that a place in an epoch stands for."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from confrank.data import DataSet
from confrank.methods import normalise
from confrank.training.draws import Draws


class Store(NamedTuple):
    """The whole training set in bytes: images zero-padded [n, h + 2p, w + 2p, c], labels [n], normalisation [c]."""

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    height: int
    width: int


class Batch(NamedTuple):
    """What a step sees: positions in the training set [b], normalised images [b, c, h, w], labels [b]."""

    index: Tensor  # type: ignore[assignment]  # the field is what callers mean, not tuple.index
    image: Tensor
    label: Tensor


def store_on(device: torch.device, data: DataSet) -> Store:
    """Put the training split of a data set on the device."""
    height, width, _ = data.train.images.shape[1:]
    p = data.padding
    return Store(
        pad(torch.from_numpy(data.train.images), (0, 0, p, p, p, p)).to(device),
        torch.from_numpy(data.train.labels).to(device),
        torch.tensor(data.mean, device=device),
        torch.tensor(data.std, device=device),
        height,
        width,
    )


def fetch(store: Store, draws: Draws, start: Tensor | int, size: int) -> Batch:
    """The batch of `size` samples whose first one has place `start` in the epoch: cropped, flipped, normalised.

    One gather does it: each output pixel knows its sample, row and column. Nothing here waits for the device.
    """
    place = torch.arange(size, device=store.labels.device) + start
    index, offset, flip = draws.order[place], draws.offset[place], draws.flip[place]
    row = offset[:, :1] + torch.arange(store.height, device=index.device)
    column = torch.arange(store.width, device=index.device).expand(size, -1)
    column = offset[:, 1:] + torch.where(flip[:, None], store.width - 1 - column, column)
    image = store.images[index[:, None, None], row[:, :, None], column[:, None, :]]
    return Batch(index, normalise(image, store.mean, store.std), store.labels[index])
