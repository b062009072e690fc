"""The logits and the outputs of named layers of any `nn.Module`."""

import difflib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from confrank.errors import first_line
from confrank.methods import evaluating
from confrank.models import Network

# With deterministic convolutions: the same images always get the same scores.
repeatable = partial(evaluating, deterministic=True)


def block_layers(model: nn.Module) -> list[str]:
    """The layers of confrank's networks that Mahalanobis uses: the stem and each stage.

    A last stage that ends before its norm and ReLU is taken after them.
    """
    network = _network(model)
    names = [f"blocks.{number}" for number in range(len(network.blocks))]
    if [type(layer) for layer in list(network.neck.children())[:2]] == [nn.BatchNorm2d, nn.ReLU]:
        names[-1] = "neck.1"
    return names


def penultimate_layer(model: nn.Module) -> str:
    """The layer of confrank's networks whose output is the head's input."""
    _network(model)
    return "neck"


def _network(model: nn.Module) -> Network:
    """The model if it is one of confrank's; otherwise an error that asks for layer names."""
    if isinstance(model, Network):
        return model
    names = [name for name, _ in model.named_children()]
    raise ValueError(
        f"expected the names of layers to look at in {type(model).__name__}, but got none;"
        f" name some of model.named_modules(), e.g. {', '.join(names[-4:])}"
    )


def check_layers(model: nn.Module, layers: Sequence[str]) -> None:
    """Raise if the network lacks one of the layers; the error suggests similar names."""
    known = dict(model.named_modules())
    for name in layers:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=4) or [child for child, _ in model.named_children()]
            raise ValueError(
                f"expected a layer of {type(model).__name__}, but got {name!r}; did you mean {', '.join(near)}?"
            )


def forward_logits(model: nn.Module, images: Tensor) -> Tensor:
    """The logits [n, K] of a batch: the output of the network, or the first of several."""
    try:
        output = model(_as_input(model, images))
    except RuntimeError as error:
        if isinstance(error, torch.OutOfMemoryError) or "CUDA" in str(error):
            raise
        raise ValueError(
            f"expected images that the network accepts, but got shape {list(images.shape)}: {first_line(error)}"
        ) from error
    logits = output[0] if isinstance(output, tuple | list) else output
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        shape = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"expected the network to return logits [samples, classes], but got {shape}")
    return logits


def _as_input(model: nn.Module, images: Tensor) -> Tensor:
    """A copy, which the network may overwrite, in the precision of its weights."""
    kinds = (weights.dtype for weights in model.parameters() if weights.is_floating_point())
    return images.to(next(kinds, images.dtype) if images.is_floating_point() else images.dtype, copy=True)


def features_of(model: nn.Module, images: Tensor, layers: Sequence[str]) -> tuple[Tensor, list[Tensor]]:
    """Logits [n, K] and, for each named layer, its features [n, d]; a layer that runs twice gives its last output."""
    check_layers(model, layers)
    outputs: dict[str, Tensor] = {}
    modules = dict(model.named_modules())
    with ExitStack() as stack:
        for name in layers:
            handle = modules[name].register_forward_hook(partial(_store, outputs, name))
            stack.callback(handle.remove)
        logits = forward_logits(model, images)
    if silent := [name for name in layers if name not in outputs]:
        raise ValueError(f"expected layer {silent[0]!r} to run in a forward pass, but it did not; name another one")
    return logits, [outputs[name] for name in layers]


class _ReachedError(Exception):
    """A forward pass has computed the layer it was started for."""


def feature_of(model: nn.Module, images: Tensor, layer: str) -> Tensor:
    """The features [n, d] of one layer; in confrank's networks nothing behind the layer is computed."""
    if not isinstance(model, Network):  # a layer may run twice
        return features_of(model, images, [layer])[1][0]
    outputs: dict[str, Tensor] = {}

    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        _store(outputs, layer, module, inputs, output)
        raise _ReachedError

    handle = model.get_submodule(layer).register_forward_hook(stop)
    try:
        forward_logits(model, images)
    except _ReachedError:
        return outputs[layer]
    finally:
        handle.remove()
    raise ValueError(f"expected layer {layer!r} to run in a forward pass, but it did not; name another one")


def _store(outputs: dict[str, Tensor], name: str, module: nn.Module, inputs: Any, output: Any) -> None:
    # Copied at once: a later layer may overwrite the output in place.
    outputs[name] = as_vectors(output, name)


def as_vectors(output: Any, name: str) -> Tensor:
    """Features [n, d]: spatial means of maps [n, d, h, w], means over tokens [n, t, d], copies of vectors.

    >>> as_vectors(torch.ones(2, 5, 4, 4), "stem").shape
    torch.Size([2, 5])
    """
    if isinstance(output, Tensor) and output.is_floating_point():
        if output.ndim == 4:
            return output.mean(dim=(2, 3))
        if output.ndim == 3:
            return output.mean(dim=1)
        if output.ndim == 2:
            return output.clone()
    got = f"shape {list(output.shape)}" if isinstance(output, Tensor) else type(output).__name__
    raise ValueError(f"expected layer {name!r} to give maps, tokens or vectors (4, 3 or 2 dimensions), but got {got}")


def labelled_batches(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """(images, labels) of each batch of a training loader, which must have one; further elements are ignored."""
    batch = None
    for batch in loader:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise ValueError(f"expected batches of (images, labels, ...), but got {type(batch).__name__}")
        try:
            images, label = torch.as_tensor(batch[0]), torch.as_tensor(batch[1])
        except (TypeError, ValueError, RuntimeError):
            kinds = ", ".join(type(part).__name__ for part in batch[:2])
            raise ValueError(f"expected batches of (images, labels, ...) as tensors, but got {kinds}") from None
        yield images, label
    if batch is None:
        raise ValueError("expected batches of training samples to fit on, but the loader is empty")
