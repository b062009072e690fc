"""Networks by name: image [n, c, h, w], or text as numbers of words [n, length], -> logits [n, K]."""

from collections.abc import Callable

from torch import nn

from confrank.errors import InputError
from confrank.extension import load_object, with_kind
from confrank.models.images import convnet, densenet_bc, mlp, resnet18, resnet110, small, vgg16
from confrank.models.network import (
    HEADS,
    CosineHead,
    Features,
    Network,
    OtherWeightsError,
    load_weights,
    logits_of,
    start_from,
)
from confrank.models.text import TextNetwork, bag_of_embeddings, text_encoder

MODELS: dict[str, Callable[..., Network]] = {
    "small": small,
    "convnet": convnet,
    "mlp": mlp,
    "vgg16": vgg16,
    "resnet110": resnet110,
    "densenet-bc": densenet_bc,
    "resnet18": resnet18,
}
TEXT_MODELS: dict[str, Callable[..., Network]] = {
    "bag-of-embeddings": bag_of_embeddings,
    "text-encoder": text_encoder,
}


def create(
    name: str,
    num_classes: int,
    dropout: bool = False,
    variance_head: bool = False,
    *,
    in_channels: int = 3,
    head: str = "linear",
) -> nn.Module:
    """The network of that name, initialised from torch's random state.

    "package.module:factory" calls your own `factory(num_classes)`; it also gets `in_channels`, `dropout` and
    `variance_head` if they differ from their defaults. For texts, `in_channels` is the number of numbers that words
    can have (`confrank.data.vocabulary`). `head` "cosine" replaces the last layer of our own networks
    (see `CosineHead`).

    >>> sum(p.numel() for p in create("vgg16", 10).parameters())
    15253578
    """
    if head not in HEADS:
        raise ValueError(f"expected a head among {', '.join(HEADS)}, but got {head!r}")
    if ":" in name:
        if head != "linear":
            raise InputError(
                f"expected one of confrank's networks for a {head} head, but got {name!r}", "set {head} to linear"
            )
        return _custom(name, num_classes, dropout, variance_head, in_channels)
    known = {**MODELS, **TEXT_MODELS}
    if name not in known:
        raise ValueError(f"expected a model among {', '.join(known)} or package.module:factory, but got {name!r}")
    network = known[name](num_classes, in_channels=in_channels, dropout=dropout, variance_head=variance_head)
    if head == "cosine":
        network.head = CosineHead(network.head.in_features, num_classes)
    return network


def _custom(name: str, num_classes: int, dropout: bool, variance_head: bool, in_channels: int) -> nn.Module:
    factory = load_object(name, "package.module:factory")
    if not callable(factory):
        raise ValueError(f"expected {name} to be a function that builds a network, but got {type(factory).__name__}")
    options: dict[str, object] = {}
    options |= {"in_channels": in_channels} if in_channels != 3 else {}
    options |= {"dropout": True} if dropout else {}
    options |= {"variance_head": True} if variance_head else {}
    try:
        model = factory(num_classes, **options)
    except TypeError as error:
        wanted = ", ".join(["num_classes", *options])
        remedy = f"; add the argument {' and '.join(options)}" if options else ""
        raise ValueError(f"expected {name} to take {wanted}, but it does not: {error}{remedy}") from None
    except (Exception, SystemExit) as error:  # custom code can raise anything
        raise ValueError(f"expected {name} to build a network, but it failed: {with_kind(error)}") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"expected {name} to return a torch.nn.Module, but got {type(model).__name__}")
    return model


__all__ = [
    "HEADS",
    "MODELS",
    "TEXT_MODELS",
    "CosineHead",
    "Features",
    "Network",
    "OtherWeightsError",
    "TextNetwork",
    "create",
    "load_weights",
    "logits_of",
    "start_from",
]
