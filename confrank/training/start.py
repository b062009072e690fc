"""Before the first step: whether data, settings and network fit together, and other weights to start from."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from confrank import models
from confrank.config import RunConfig, usual_settings
from confrank.data import DataSet
from confrank.data.vocabulary import FIRST_WORD, UNKNOWN, renumbered
from confrank.errors import InputError, counted, first_line
from confrank.method_facts import facts_of
from confrank.provenance import Provenance
from confrank.runs.checkpoint import load_latest
from confrank.runs.folder import RunFolder
from confrank.runs.trained import read_provenance, weights_errors


def check_settings(config: RunConfig, data: DataSet, *, own_network: bool) -> None:
    """Raise if a setting is not for this kind of data, for this method, or for a network of the caller's."""
    if own_network and config.head != "linear":
        raise InputError(
            f"expected a linear head with your own network, but got {config.head}",
            "build the head into the network, and set {head} to linear",
        )
    if config.soft_labels and facts_of(config.method).variance_head:  # its loss is no cross-entropy of the logits
        raise InputError(
            f"expected a method with cross-entropy for soft labels, but got {config.method}",
            "choose another {method}, or set {soft_labels} to 0",
        )
    fitting, others = models.MODELS, models.TEXT_MODELS
    if data.is_text:
        fitting, others = others, fitting
    if not own_network and config.model in others:
        raise InputError(
            f"expected a network for {'texts' if data.is_text else 'images'}, but got {config.model}",
            f"set {{model}} to one of {', '.join(fitting)}",
        )
    if data.is_text and config.mix != "none":
        raise InputError(f"expected images to mix, but {config.dataset} holds texts", "set {mix} to none")
    if data.is_text and config.augment != "none":
        raise InputError(f"expected images to augment, but {config.dataset} holds texts", "set {augment} to none")
    if data.is_text and config.mirror:
        raise InputError(f"expected images to mirror, but {config.dataset} holds texts", "leave out {mirror}")


def refuse_unused(config: RunConfig, data: DataSet) -> None:
    """Raise if a setting of a new run would have no effect. A recipe or a study may set it: what it sets is usual."""
    unused = {
        "soft_labels": (
            config.epochs == 1,
            "two epochs or more for soft labels, whose share is 0 in the first, but got 1",
        ),
        "weight": (
            config.weight > 0 and not facts_of(config.method).weighted,  # 0 says what such a method does
            f"a crl-* method for a weight of the ranking loss, but got {config.method}",
        ),
        "text_length": (not data.is_text, f"texts to cut, but {config.dataset} holds images"),
        "vocabulary_size": (not data.is_text, f"texts with words to know, but {config.dataset} holds images"),
    }
    usual = usual_settings(config.as_dict())
    for name, (is_unused, expected) in unused.items():
        if is_unused and getattr(config, name) not in (usual[name], getattr(RunConfig, name)):
            raise InputError(f"expected {expected}", f"leave out {{{name}}}")


@torch.no_grad()
def check_network(network: nn.Module, config: RunConfig, data: DataSet) -> None:
    """Raise unless the network takes float32 images of this shape, or texts, and has an output for each class."""
    shape = data.train.images.shape[1:]
    was_training = network.training
    try:
        output = network.eval()(_one_sample(network, data))
    except Exception as error:  # a custom network may raise anything
        if kinds := {str(weights.dtype) for weights in network.parameters()} - {"torch.float32"}:
            raise ValueError(
                f"expected a network that takes float32 images, but {config.model} has weights in"
                f" {', '.join(sorted(kinds))} and does not; call .float() on it"
            ) from None
        kind = f"texts of {shape[0]} words" if data.is_text else f"images of {'x'.join(map(str, shape))}"
        raise ValueError(
            f"expected a network for {kind}, but {config.model} does not take them: {first_line(error)}"
        ) from None
    finally:
        network.train(was_training)
    logits = models.logits_of(output)
    got = list(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    if got != [1, data.num_classes]:
        raise ValueError(
            f"expected {config.model} to return {data.num_classes} logits, one for each class of {config.dataset},"
            f" but got {got} for one {'text' if data.is_text else 'image'}"
        )


@torch.no_grad()
def check_smallest_batch(network: nn.Module, config: RunConfig, data: DataSet) -> None:
    """Raise if an epoch has a batch of one sample and the network cannot train on it: batch norm may need two.

    The network and torch's random state stay as they are.
    """
    if len(data.train) % config.batch_size != 1 % config.batch_size or config.mix != "none":  # mixing adds a second
        return
    buffers, was_training = [values.clone() for values in network.buffers()], network.training
    probe = _one_sample(network, data)
    try:
        with torch.random.fork_rng([probe.device] if probe.is_cuda else []):
            network.train()(probe)
    except Exception as error:  # a custom network may raise anything, which is reported where training meets it
        if "more than 1 value per channel" in str(error):
            raise InputError(
                f"expected batches of two samples or more for {config.model}, but {len(data.train)} in batches of"
                f" {config.batch_size} give a batch of one: {first_line(error)}",
                "choose another {batch_size}",
            ) from None
    finally:
        network.train(was_training)
        for values, before in zip(network.buffers(), buffers, strict=True):
            values.copy_(before)


def _one_sample(network: nn.Module, data: DataSet) -> Tensor:
    """A black image, or a text of one word many times, on the device of the network."""
    shape = data.train.images.shape[1:]
    like = next(network.parameters(), torch.zeros(1))
    if data.is_text:
        return torch.ones(1, *shape, dtype=torch.int32, device=like.device)
    height, width, channels = shape
    return torch.zeros(1, channels, height, width, device=like.device)


@dataclass(frozen=True)
class InitialWeights:
    """Weights to start from, in float32, and the classes and words of their network; empty if not recorded."""

    source: Path
    weights: dict[str, Tensor]
    class_names: tuple[str, ...] = ()
    vocabulary: tuple[str, ...] = ()


def initial_weights(source: str | Path) -> InitialWeights:
    """The weights in a run folder (of its newest intact checkpoint) or in a weights file, as a start for another."""
    path = Path(source)
    with weights_errors(path):
        if path.suffix == ".safetensors":
            weights, record = load_file(path), read_provenance(path)
        elif RunFolder(path).config.exists():
            checkpoint = load_latest(RunFolder(path).checkpoint)[0]
            weights, record = checkpoint.weights, Provenance.from_dict(checkpoint.meta)
        elif path.exists():
            raise ValueError(f"expected a run folder or a .safetensors file, but {path} is neither")
        else:
            raise FileNotFoundError
    weights = {name: values.float() if values.is_floating_point() else values for name, values in weights.items()}
    return InitialWeights(path, weights, *((record.class_names, record.vocabulary) if record else ()))


def start_from(network: nn.Module, initial: InitialWeights, data: DataSet) -> list[str]:
    """Load weights of the same network, word vectors by word; what starts anew instead, in words.

    The last layer does if the classes are other ones, and so do the vectors of words without one.
    """
    weights, num_new = initial.weights, 0
    if data.is_text:
        weights, num_new = _by_word(network, initial, data.vocabulary)
    other_classes = bool(initial.class_names) and initial.class_names != data.class_names
    anew = models.start_from(network, weights, data.num_classes, other_classes=other_classes)
    return [
        *([f"{', '.join(anew)}: a row per class"] if anew else []),
        *([f"the vectors of {counted(num_new, 'word')} that it does not have"] if num_new else []),
    ]


def _by_word(
    network: nn.Module, initial: InitialWeights, vocabulary: tuple[str, ...]
) -> tuple[dict[str, Tensor], int]:
    """The weights with the vectors in the order of this vocabulary, and how many of its words have none."""
    if not initial.vocabulary:
        raise InputError(
            f"expected the words of the network in {initial.source}, but it does not name them",
            "give a run folder or a weights file of texts as {init}; plain weights do not have the words",
        )
    theirs = renumbered(np.arange(FIRST_WORD + len(vocabulary), dtype=np.int32), vocabulary, initial.vocabulary)
    new = torch.from_numpy(theirs == UNKNOWN)
    new[UNKNOWN] = False
    ordered = {}
    for name, layer in network.named_modules():
        if not isinstance(layer, nn.Embedding | nn.EmbeddingBag) or layer.num_embeddings != len(theirs):
            continue
        start, given = layer.weight.detach(), initial.weights.get(f"{name}.weight")
        if given is not None and len(given) == FIRST_WORD + len(initial.vocabulary):
            given = given.to(start.device)[theirs]
            ordered[f"{name}.weight"] = torch.where(new[:, None].to(start.device), start, given)
    if not ordered and vocabulary != initial.vocabulary:
        raise models.OtherWeightsError("its words are other ones, and no nn.Embedding has a row for each of them")
    return {**initial.weights, **ordered}, int(new.sum())
