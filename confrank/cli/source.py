"""Read predictions from a file or a run folder."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confrank.metrics import Samples
    from confrank.predictions import Predictions


@dataclass(frozen=True)
class Source:
    """What was read: its display name, its path, the predictions, and their values per sample."""

    name: str
    path: Path
    predictions: "Predictions"
    samples: "Samples"


def read_source(file: str, name: str | None = None) -> Source:
    """Read a file of predictions or a run folder; its name is its path unless another is given."""
    from confrank.metrics import sample_values
    from confrank.predictions import load_predictions

    path = predictions_path(file)
    if path != Path(file) and not path.exists():
        raise ValueError(
            f"expected a finished run in {file}, but it has no predictions yet; resume it with the same command"
        )
    predictions = load_predictions(path)
    try:
        return Source(name or file, Path(file), predictions, sample_values(**predictions.evaluation_inputs()))
    except ValueError as error:
        raise ValueError(f"{name or file}: {error}") from None


def predictions_path(file: str) -> Path:
    """The path itself, or the predictions of the test split if it is a run folder."""
    from confrank.run_folder import RunFolder

    path = Path(file)
    return RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path


def temperature_of(predictions: "Predictions", file: str) -> str | None:
    """The temperature that the logits were already divided by, as written in the file's metadata."""
    text = predictions.metadata.get("temperature")
    if text is None:
        return None
    try:
        if 0 < float(text) < math.inf:
            return text
    except ValueError:
        pass
    raise ValueError(f"expected the temperature recorded in {file} to be a positive number, but got {text[:80]!r}")
