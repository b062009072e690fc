"""Fine-tuning: a network that starts from the weights of a run on other classes or other words."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from confrank import models
from confrank.data import DataSet
from confrank.data.vocabulary import FIRST_WORD, UNKNOWN, renumbered
from confrank.errors import InputError, counted
from confrank.provenance import Provenance
from confrank.runs.checkpoint import load_latest
from confrank.runs.folder import RunFolder
from confrank.runs.trained import read_provenance, weights_errors


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
    ordered = {
        name: torch.where(new[:, None].to(start.device), start, initial.weights[name].to(start.device)[theirs])
        for name, start in _word_vectors(network, len(theirs)).items()
        if len(initial.weights.get(name, ())) == FIRST_WORD + len(initial.vocabulary)
    }
    if not ordered and vocabulary != initial.vocabulary:
        raise models.OtherWeightsError("its words are other ones, and no nn.Embedding has a row for each of them")
    return {**initial.weights, **ordered}, int(new.sum())


def _word_vectors(network: nn.Module, num_words: int) -> dict[str, Tensor]:
    """The embeddings with a row for each number that a word can have, by the names of their weights."""
    return {
        f"{name}.weight": layer.weight.detach()
        for name, layer in network.named_modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.num_embeddings == num_words
    }
