"""Core-sets: k-center greedy (Sener & Savarese 2018), a 2-approximation of covering all samples with a few."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

# Distances to many centres are computed in blocks of this size.
BLOCK = 64
Features = Tensor | NDArray[np.floating]


@torch.inference_mode()
def k_center_greedy(
    features: Features,
    count: int,
    *,
    centres: Features | None = None,
    seed: int = 0,
    device: torch.device | None = None,
) -> NDArray[np.int64]:
    """Rows of `features` [n, d], each the farthest (l2) from all centres so far, starting from `centres` [m, d].

    An order drawn from `seed` breaks ties, and gives the first centre if there is none. The work is done on the
    device without synchronisation; apart from the features it needs O(n) numbers there.

    >>> k_center_greedy(np.array([[0.0], [1.0], [5.0], [9.0]]), 2, centres=np.array([[0.0]])).tolist()
    [3, 2]
    """
    points = _on_device(features, device)
    if not 1 <= count <= len(points):
        raise ValueError(f"expected to choose within 1..{len(points)} samples, but got {count}")
    priority = torch.from_numpy(np.random.default_rng(seed).permutation(len(points))).to(points.device)
    gap = _gaps(points, points[:0] if centres is None or not len(centres) else _on_device(centres, device, points))
    chosen = torch.empty(count, dtype=torch.int64, device=points.device)
    for number in range(count):
        row = torch.where(gap == gap.max(), priority, len(points)).argmin().view(1)
        chosen[number] = row[0]
        torch.minimum(gap, _distance(points, points.index_select(0, row))[:, 0], out=gap)
        gap.index_fill_(0, row, -1.0)  # a sample is not chosen twice, even if all distances are zero
    return chosen.cpu().numpy()


@torch.inference_mode()
def covering_radius(features: Features, centres: Features, *, device: torch.device | None = None) -> float:
    """The largest distance (l2) of a row of `features` [n, d] to the nearest of `centres` [m, d].

    >>> covering_radius(np.array([[0.0], [1.0], [5.0]]), np.array([[0.0]]))
    5.0
    """
    return float(nearest(features, centres, device=device).max())


@torch.inference_mode()
def nearest(features: Features, centres: Features, *, device: torch.device | None = None) -> NDArray[np.floating]:
    """The distance (l2) of each row of `features` [n, d] to the nearest of `centres` [m, d]."""
    points = _on_device(features, device)
    return _gaps(points, _on_device(centres, device, points)).cpu().numpy()


def _gaps(points: Tensor, centres: Tensor) -> Tensor:
    """The distance of each point to its nearest centre [n]; infinite without centres."""
    gap = torch.full((len(points),), torch.inf, dtype=points.dtype, device=points.device)
    for start in range(0, len(centres), BLOCK):
        torch.minimum(gap, _distance(points, centres[start : start + BLOCK]).amin(dim=1), out=gap)
    return gap


def _distance(points: Tensor, centres: Tensor) -> Tensor:
    # By differences: the form with a matrix product loses digits, which changes the order of near ties.
    return torch.cdist(points, centres, compute_mode="donot_use_mm_for_euclid_dist")


def _on_device(features: Features, device: torch.device | None, like: Tensor | None = None) -> Tensor:
    if not isinstance(features, Tensor):
        # Copied only if torch rejects it: negative strides, other byte orders, read-only arrays.
        features = np.require(features, np.asarray(features).dtype.newbyteorder("="), ["C", "W"])
    values = torch.as_tensor(features)
    if values.ndim != 2 or not len(values):
        raise ValueError(f"expected features of shape [n, d] with n of at least 1, but got {list(values.shape)}")
    if like is not None and values.shape[1] != like.shape[1]:
        raise ValueError(f"expected centres of {like.shape[1]} dimensions, but got {values.shape[1]}")
    if not values.isfinite().all():
        bad = (~values.isfinite().all(dim=1)).nonzero().flatten()[:5].tolist()
        raise ValueError(f"expected finite features, but got NaN or infinite ones in rows {bad}")
    kind = torch.float64 if values.dtype == torch.float64 else torch.float32
    return values.to(device or values.device, kind if like is None else like.dtype)
