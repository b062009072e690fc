"""A file of texts and a trained network -> answers: the class of each text, and the confidence."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from confrank.classify_images import Answers
from confrank.data import split_of
from confrank.data.texts import is_text_file, read_texts
from confrank.data.vocabulary import encode
from confrank.errors import similar_path
from confrank.recipes import TEXT_SUFFIXES
from confrank.runs.trained import load_trained


def answer_texts(
    run: str | Path,
    file: str | Path,
    *,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Answers:
    """Classify the texts of a .csv, .tsv or .jsonl file with a finished run (or a weights file), in their order.

    The file has a column `text` and optionally `id`; labels, if any, are not read. The run's vocabulary is used.
    """
    run, file = Path(run), Path(file)
    if not file.exists():
        raise ValueError(f"expected a file of texts, but {file} does not exist{similar_path(file)}")
    if not is_text_file(file):
        state = f"does not end in {' or '.join(TEXT_SUFFIXES)}" if file.is_file() else "is not a file"
        raise ValueError(f"expected a file of texts, but {file} {state}")
    content = read_texts(file, labelled=False)
    trained = load_trained(run, device, network)
    record = trained.provenance
    if record.input_kind != "text":
        raise ValueError(f"expected a run that was trained on texts, but {run} was trained on images")
    tokens = encode(content.texts, record.vocabulary, record.input_shape[0])
    keys = np.array([key.encode() for key in content.keys])
    unlabelled = split_of(tokens, np.zeros(len(tokens), dtype=np.int64), keys)
    raw = trained.predict(unlabelled, metadata=record.of_predictions("texts"), on_progress=on_progress)
    return Answers(content.keys, replace(raw, label=None, index=None), [], [])
