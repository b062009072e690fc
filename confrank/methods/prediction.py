"""A method's trained network over a whole split."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from confrank.data import Split
from confrank.methods.method import Method
from confrank.metrics.arrays import to_numpy
from confrank.models import Network
from confrank.predictions import Predictions


def normalise(image: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """Bytes [n, h, w, c] -> float32 [n, c, h, w] in channels-last memory, (x / 255 - mean) / std."""
    return ((image.float() / 255 - mean) / std).permute(0, 3, 1, 2)


def predict_split(
    method: Method,
    model: nn.Module,
    split: Split,
    mean: Sequence[float],
    std: Sequence[float],
    *,
    batch_size: int = 1000,
    seed: int = 0,
    metadata: dict[str, str] | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Predictions:
    """Predictions of the network (on its own device, in float32) for every image of the split, in order.

    `on_progress` is called with how many images are done and how many there are. A stochastic method
    draws from `seed`: the same call gives the same predictions, and torch's own random state is left as it was.
    """
    device = next(model.parameters()).device
    centre, scale = torch.tensor(mean, device=device), torch.tensor(std, device=device)
    was_training = model.training
    model.eval()
    outputs = []
    # Whole float32: the tensor cores' shortened form of it would move confidences and make ties.
    # No gradients, but not inference mode: what a network keeps from here must still serve its training.
    with torch.no_grad(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False), _seeded(method, device, seed):
        for start in range(0, len(split), batch_size):
            image = torch.from_numpy(np.ascontiguousarray(split.images[start : start + batch_size])).to(device)
            outputs.append(method.predict(model, normalise(image, centre, scale)))
            if on_progress:
                on_progress(start + len(image), len(split))
    model.train(was_training)

    def joined(name: str) -> np.ndarray | None:
        parts = [getattr(output, name) for output in outputs]
        return None if not parts or parts[0] is None else to_numpy(torch.cat(parts))

    return Predictions(
        logits=joined("logits"),
        probabilities=joined("probabilities"),
        confidence=joined("confidence"),
        label=split.labels,
        index=split.index,
        metadata=metadata or {},
    )


@torch.inference_mode()
def penultimate(
    model: nn.Module, split: Split, mean: Sequence[float], std: Sequence[float], *, batch_size: int = 1000
) -> Tensor:
    """What the network's head sees of every image of the split, in order: float32 [n, d] on the network's device."""
    if not isinstance(model, Network):
        raise ValueError(
            f"expected one of confrank's own networks, which show their features, but got {type(model).__name__}"
        )
    device = next(model.parameters()).device
    centre, scale = torch.tensor(mean, device=device), torch.tensor(std, device=device)
    was_training = model.training
    model.eval()
    parts = []
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for start in range(0, len(split), batch_size):
            image = torch.from_numpy(np.ascontiguousarray(split.images[start : start + batch_size])).to(device)
            parts.append(model.features(normalise(image, centre, scale)).penultimate.float())
    model.train(was_training)
    return torch.cat(parts)


@contextmanager
def _seeded(method: Method, device: torch.device, seed: int) -> Iterator[None]:
    if not method.stochastic:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield
