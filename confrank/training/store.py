"""A training set on the device, and the batch at a position of an epoch."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from confrank.data import DataSet
from confrank.methods import normalise
from confrank.training.draws import Draws
from confrank.training.trivial_augment import change


class Store(NamedTuple):
    """A training set in bytes: images zero-padded [n, h + 2p, w + 2p, c], labels [n], normalisation [c].

    Texts are numbers of words int32 [n, length], without normalisation.
    """

    images: Tensor
    labels: Tensor
    mean: Tensor
    std: Tensor
    height: int
    width: int


class Batch(NamedTuple):
    """The input of a step: row numbers in the set [b], normalised images [b, c, h, w] or texts, labels [b]."""

    index: Tensor  # type: ignore[assignment]  # this field hides tuple.index, which nobody calls
    image: Tensor
    label: Tensor


def store_on(device: torch.device, data: DataSet) -> Store:
    """Put the training split of a data set on the device."""
    if data.is_text:
        tokens, labels = (torch.from_numpy(values).to(device) for values in (data.train.images, data.train.labels))
        return Store(tokens, labels, torch.zeros(0, device=device), torch.ones(0, device=device), 0, 0)
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
    """The batch of `size` samples from position `start` of the epoch on: cropped, flipped, changed, normalised.

    A single gather picks each output pixel by its sample, row and column; texts are taken as they are. Nothing here
    waits for the device.
    """
    position = torch.arange(size, device=store.labels.device) + start
    index, offset, flip = draws.order[position], draws.offset[position], draws.flip[position]
    if store.images.ndim == 2:
        return Batch(index, store.images[index], store.labels[index])
    row = offset[:, :1] + torch.arange(store.height, device=index.device)
    column = torch.arange(store.width, device=index.device).expand(size, -1)
    column = offset[:, 1:] + torch.where(flip[:, None], store.width - 1 - column, column)
    image = store.images[index[:, None, None], row[:, :, None], column[:, None, :]]
    if draws.changes is not None:
        image = change(image, draws.changes[position])
    return Batch(index, normalise(image, store.mean, store.std), store.labels[index])
