"""Read predictions from files of any supported format, and write them."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from safetensors.numpy import save

from confrank.atomic import canonical_safetensors, write_atomically
from confrank.phrasing import InputError
from confrank.predictions.arrays import named_arrays, read_npy, read_npz, read_safetensors
from confrank.predictions.cost import check_cost
from confrank.predictions.csv_file import read_csv
from confrank.predictions.layout import KEY_NAMES
from confrank.predictions.parquet import read_parquet
from confrank.predictions.reading import Reading
from confrank.predictions.schema import Predictions

READERS: dict[str, Callable[[Path, Reading], Predictions]] = {
    ".safetensors": read_safetensors,
    ".npz": read_npz,
    ".npy": read_npy,
    ".csv": read_csv,
    ".tsv": read_csv,
    ".parquet": read_parquet,
}


def load_predictions(path: str | Path) -> Predictions:
    """Read a file of predictions as it is; see `read`."""
    return read(path)


def read(path: str | Path, *, keep: Sequence[str] = (), max_gigabytes: float | None = None) -> Predictions:
    """Read .safetensors, .npz, .npy, .csv, .tsv or .parquet; a `ValueError` gives the file and what was expected.

    The columns named in `keep` are in `.extra` of the result, as they are in the file. A compressed file that unpacks
    to more than `max_gigabytes` (default: 4) is refused before it is unpacked.
    """
    path = Path(path)
    if not path.exists():
        raise ValueError(f"expected a predictions file, but {path} does not exist")
    if path.is_dir():
        raise ValueError(f"expected a predictions file, but {path} is a folder")
    if path.suffix.lower() not in READERS:
        raise ValueError(f"expected a file ending in {', '.join(READERS)}, but got {path}")
    if path.stat().st_size == 0:
        raise ValueError(f"expected a predictions file, but {path} is empty")
    try:
        check_cost(path, max_gigabytes)
        predictions = READERS[path.suffix.lower()](path, Reading(keep))
    except InputError as error:
        raise InputError(f"{path}: {error.problem}", error.remedy) from None
    except ValueError as error:
        raise ValueError(f"{path}: {' '.join(str(error).splitlines())}") from None
    if not len(predictions):
        raise ValueError(f"{path}: expected rows of predictions, but there are none")
    return predictions


def save_predictions(path: str | Path, predictions: Predictions) -> None:
    """Write a safetensors file of predictions atomically, after checking that `load_predictions` can read it."""
    path = Path(path)
    if path.suffix.lower() != ".safetensors":
        raise ValueError(f"expected a predictions file ending in .safetensors to write, but got {path}")
    checked = predictions.arrays()
    checked.pop("key", None)
    named_arrays(checked, predictions.metadata, [])
    arrays = {name: np.ascontiguousarray(value) for name, value in predictions.arrays().items()}
    arrays.pop("key", None)
    for name, keys in predictions.keys.items():  # the format has no strings
        if name not in KEY_NAMES:
            raise ValueError(f"expected keys to be named one of {', '.join(KEY_NAMES)}, but got {name!r}")
        arrays[name] = np.ascontiguousarray(keys).view(np.uint8).reshape(len(keys), -1)
    write_atomically(path, canonical_safetensors(save(arrays, metadata=predictions.metadata)))
