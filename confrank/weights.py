"""Weights files: a network in half precision, with the record of the run that trained it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from confrank import models
from confrank.files import canonical_safetensors, write_atomically
from confrank.provenance import Provenance


def write_weights(path: Path, network: nn.Module, provenance: Provenance) -> None:
    """Write a network's weights in half precision; the statistics of batch norm keep their precision."""
    weights = {name: _halved(name, value).contiguous() for name, value in network.state_dict().items()}
    write_atomically(path, canonical_safetensors(save(weights, provenance.as_metadata())))


def _halved(name: str, value: Tensor) -> Tensor:
    if not value.is_floating_point() or name.endswith(("running_mean", "running_var")):
        return value
    half = value.half()
    if not half.isfinite().all():
        raise ValueError(f"expected weights within half precision, but {name} has {float(value.abs().max()):.3g}")
    return half


def read_provenance(path: Path) -> Provenance | None:
    """The record in a weights file; None if it has none."""
    with weights_errors(path), safe_open(path, "pt") as file:
        return Provenance.from_metadata(file.metadata() or {})


@contextmanager
def weights_errors(source: Path) -> Iterator[None]:
    """Report missing, unreadable and mismatched weights as a `ValueError` that names their source."""
    try:
        yield
    except FileNotFoundError:
        raise ValueError(f"expected a run folder or a .safetensors file, but {source} does not exist") from None
    except (SafetensorError, models.OtherWeightsError) as error:
        raise ValueError(
            f"expected weights of its network in {source}, but: {' '.join(str(error).split())[:200]}"
        ) from None
