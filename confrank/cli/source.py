"""A file of predictions, or those of a run folder, as commands read them."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from confrank.metrics import Samples
    from confrank.predictions import Predictions


@dataclass(frozen=True)
class Source:
    """What was read: the name it is shown by, where it lies, its predictions, and their values sample by sample."""

    name: str
    place: Path
    predictions: "Predictions"
    samples: "Samples"


def read_source(place: str, name: str | None = None) -> Source:
    """Read a file of predictions or a run folder; it is called by its place unless a name is given."""
    from confrank.metrics import sample_values
    from confrank.predictions import load_predictions

    path = predictions_path(place)
    if path != Path(place) and not path.exists():
        raise ValueError(
            f"expected a finished run in {place}, but it has no predictions yet;"
            " go on with the command that trained it"
        )
    predictions = load_predictions(path)
    try:
        return Source(name or place, Path(place), predictions, sample_values(**predictions.evaluation_inputs()))
    except ValueError as error:
        raise ValueError(f"{name or place}: {error}") from None


def predictions_path(place: str) -> Path:
    """A file of predictions, or that of a run folder's test split."""
    from confrank.run_folder import RunFolder

    path = Path(place)
    return RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path


def temperature_of(predictions: "Predictions", file: str) -> str | None:
    """The temperature that a file says it was divided by already, as written there."""
    told = predictions.metadata.get("temperature")
    if told is None:
        return None
    try:
        if 0 < float(told) < math.inf:
            return told
    except ValueError:
        pass
    raise ValueError(f"expected the temperature told in {file} to be a positive number, but got {told[:80]!r}")
