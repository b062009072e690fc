"""A trained network and a split of its data set -> predictions."""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from confrank.data import DataSet
from confrank.predictions import Predictions
from confrank.trained import load_run


def predict(
    run: str | Path,
    split: str = "test",
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    network: nn.Module | None = None,
    data: DataSet | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions of a finished run (or a weights file) for "train", "test" or "holdout" of its data set.

    `network` receives the weights if the run was trained with your own network; `data` is the data set if it was
    trained with one that has no name. `on_progress` is called with the numbers of images done and in all.
    """
    trained = load_run(run, root=root, device=device, network=network, data=data, test_only=split == "test")
    used, held_out = trained.data, trained.held_out
    splits = {"train": used.train, "test": used.test} | ({"holdout": held_out} if held_out else {})
    if split not in splits:
        raise ValueError(f"expected a split among {', '.join(splits)}, but got {split!r}")
    metadata = trained.provenance.of_predictions(split)
    return trained.predict(splits[split], metadata=metadata, on_progress=on_progress)
