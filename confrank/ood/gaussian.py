"""Class-conditional Gaussians with one covariance: features [n, d] -> negative squared Mahalanobis distance."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

# Rows whitened at once: their float64 copies stay in the processor's cache.
BLOCK = 1024


@dataclass(frozen=True)
class Gaussians:
    """Class means [K, d], tied covariance [d, d] and a whitening [d, rank] of it; float64.

    The whitening's columns are eigenvectors over the root of their eigenvalues, so whitening x whitening^T is the
    inverse of the covariance, or its pseudo-inverse where eigenvalues vanish.
    """

    mean: Tensor
    covariance: Tensor
    whitening: Tensor

    @property
    def rank(self) -> int:
        return self.whitening.shape[1]

    def distances(self, features: Tensor) -> Tensor:
        """Squared Mahalanobis distances [n, K] of features [n, d] to the class means."""
        centre = self.mean.mean(dim=0)  # differences of centred points lose no digits
        means = (self.mean - centre) @ self.whitening
        squares = means.pow(2).sum(dim=1)
        parts = []
        for start in range(0, max(1, len(features)), BLOCK):  # one block even without rows: the graph must reach them
            points = torch.sub(features[start : start + BLOCK], centre) @ self.whitening
            length = torch.einsum("nd,nd->n", points, points)
            parts.append((torch.addmm(squares, points, means.T, alpha=-2) + length[:, None]).clamp_min(0))
        return torch.cat(parts)

    def score(self, features: Tensor) -> Tensor:
        """Minus the squared distance to the nearest class mean [n]."""
        return -self.distances(features).amin(dim=1)


@dataclass
class Moments:
    """Running sums over the training features: K x d and d x d numbers, for any number of samples.

    >>> moments = Moments(num_classes=2)
    >>> moments.add(torch.tensor([[0.0], [2.0], [5.0], [7.0]]), torch.tensor([0, 0, 1, 1]))
    >>> moments.gaussians().covariance.item()
    1.0
    """

    num_classes: int
    count: Tensor = field(init=False)
    total: Tensor = field(init=False)
    square: Tensor = field(init=False)
    shift: Tensor | None = None
    precision: float = 0.0

    def add(self, features: Tensor, label: Tensor) -> None:
        """Count features [n, d] with labels [n]."""
        if self.shift is None:
            # Squares of values near zero lose no digits; any constant near the mean will do.
            self.shift = features.double().mean(dim=0)
            self.precision = torch.finfo(features.dtype).eps
            size = features.shape[1]
            self.count = torch.zeros(self.num_classes, dtype=torch.float64, device=features.device)
            self.total = torch.zeros(self.num_classes, size, dtype=torch.float64, device=features.device)
            self.square = torch.zeros(size, size, dtype=torch.float64, device=features.device)
        values = torch.sub(features, self.shift)
        # A matrix product sums in a fixed order; index_add_ on a GPU does not.
        member = torch.nn.functional.one_hot(label, self.num_classes).double()
        self.count += member.sum(dim=0)
        self.total += member.T @ values
        self.square += values.T @ values

    def gaussians(self) -> Gaussians:
        """Means, pooled covariance (divided by n) and its whitening.

        Eigenvalues that rounding alone can explain count as zero: sums are in float64, and features of precision
        eps carry an error of variance eps^2.
        """
        if self.shift is None:
            raise ValueError("expected training samples to fit on, but got none")
        if empty := torch.nonzero(self.count == 0).flatten().tolist():
            shown = ", ".join(map(str, empty[:8]))
            raise ValueError(f"expected training samples of every class, but got none of class {shown}")
        mean = self.total / self.count[:, None]
        covariance = (self.square - (mean * self.count[:, None]).T @ mean) / self.count.sum()
        if not bool(covariance.isfinite().all()):
            raise ValueError("expected finite features, but got NaN or infinity; look at the network's weights")
        values, vectors = torch.linalg.eigh(covariance)
        positive = values > self._rounding()
        if not bool(positive.any()):
            raise ValueError("expected features that vary within a class, but they are constant; name another layer")
        return Gaussians(mean + self.shift, covariance, vectors[:, positive] / values[positive].sqrt())

    def _rounding(self) -> Tensor:
        """The largest variance that rounding alone can explain."""
        assert self.shift is not None  # features have been added
        size, count = len(self.square), float(self.count.sum())
        mean_square = self.square.diagonal() / count + self.shift.square()
        # Rounding of sums of n numbers grows about as the root of n, measured below 2 x root in units of eps.
        sums = (size + 4 * count**0.5) * torch.finfo(torch.float64).eps
        share: float = max(sums, 4 * self.precision**2)
        return mean_square.amax() * share
