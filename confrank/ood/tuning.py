"""Settings tuned on out-of-distribution images.

For Mahalanobis, one half fits the weights of the layers and the other chooses the step; ODIN has nothing to fit and
chooses on all of them.

The best setting has the highest true-negative rate at 95% true-positive rate; among equals, the first wins.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
from torch import Tensor

from confrank.errors import InputError
from confrank.metrics.inputs import Ints
from confrank.metrics.ranking_metrics import fpr_at_tpr_of
from confrank.metrics.separation import rank_sets
from confrank.ood import mahalanobis, odin
from confrank.ood.features import repeatable
from confrank.ood.images import Images, over
from confrank.ood.mahalanobis import LayerWeights, Mahalanobis
from confrank.ood.odin import Odin, odin_scores
from confrank.ood.results import Scores

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class Division:
    """Indices into a set of images: `fit` and `choose` are for tuning, `test` is the rest in order."""

    fit: Ints
    choose: Ints
    test: Ints

    def __post_init__(self) -> None:
        tuned = np.concatenate([self.fit, self.choose])
        assert not np.isin(tuned, self.test).any(), "a tuning image reached the test"
        assert len(np.unique(tuned)) == len(tuned), "a tuning image was drawn twice"


def divide(num_images: int, num_tuning: int, seed: int, name: str = "the set") -> Division:
    """Draw `num_tuning` images for tuning, half of them to fit and half to choose; the choice depends on `seed`.

    >>> [len(part) for part in vars(divide(10, 4, seed=0)).values()]
    [2, 2, 6]
    """
    if not num_images:
        raise ValueError(f"expected images in {name}, but got none")
    if num_tuning % 2 or not 0 <= num_tuning < num_images:
        better = "an even number" if 0 <= num_tuning < num_images else "a smaller number"
        raise InputError(
            f"expected an even number of tuning images below the {num_images} in {name}, but got {num_tuning}",
            f"set {{tuning_images}} to {better}, or {{tuning}} to none to use no out-of-distribution images",
        )
    drawn = np.random.default_rng(seed).permutation(num_images)
    test = np.sort(drawn[num_tuning:])
    return Division(np.sort(drawn[: num_tuning // 2]), np.sort(drawn[num_tuning // 2 : num_tuning]), test)


@dataclass(frozen=True)
class TuningImages:
    """In-distribution and out-of-distribution images to fit on and to choose by."""

    fit_inside: Images
    fit_outside: Images
    choose_inside: Images
    choose_outside: Images

    @classmethod
    def of(cls, inside: Images, rows: Division, outside: Images, out_rows: Division) -> "TuningImages":
        pairs = (inside, rows.fit), (outside, out_rows.fit), (inside, rows.choose), (outside, out_rows.choose)
        return cls(*(images.select(part) for images, part in pairs))


def tune_odin(detector: Odin, images: TuningImages) -> Odin:
    """Temperature and step size from the paper's grid, chosen on all tuning images."""
    sides = (images.fit_inside, images.choose_inside), (images.fit_outside, images.choose_outside)

    def tried() -> Iterable[tuple[tuple[float, float], Scores, Scores]]:
        for temperature in odin.TEMPERATURES:
            inside, outside = (_odin_sweep(detector, temperature, parts) for parts in sides)
            for number, eps in enumerate(odin.EPS):
                yield (temperature, eps), inside[number], outside[number]

    temperature, eps = best(tried())
    return replace(detector, temperature=temperature, eps=eps)


def _odin_sweep(detector: Odin, temperature: float, parts: Iterable[Images]) -> Scores:
    """Scores [step sizes, images] of several sets of images."""

    def scores(batch: Tensor) -> Tensor:
        return odin_scores(detector.model, batch, temperature, odin.EPS, detector.std)

    with repeatable(detector.model):
        return np.concatenate([over(images, scores, dim=1) for images in parts], axis=1)


def tune_mahalanobis(detector: Mahalanobis, images: TuningImages) -> Mahalanobis:
    """Step size from the paper's grid, each with its own logistic regression over the layers."""
    sets = (images.fit_inside, images.fit_outside, images.choose_inside, images.choose_outside)
    fit_in, fit_out, choose_in, choose_out = (
        over(part, lambda batch: detector.layer_scores(batch, mahalanobis.EPS), dim=1) for part in sets
    )

    def tried() -> Iterable[tuple[tuple[float, LayerWeights], Scores, Scores]]:
        for number, eps in enumerate(mahalanobis.EPS):
            weights = fit_weights(fit_in[number], fit_out[number])
            inside, outside = (scores[number] @ weights.weight + weights.bias for scores in (choose_in, choose_out))
            yield (eps, weights), inside, outside

    eps, weights = best(tried())
    return replace(detector, eps=eps, weights=weights)


def fit_weights(inside: Scores, outside: Scores) -> LayerWeights:
    """Logistic regression of "inside" on standardised layer scores [n, L], rescaled to the raw scores."""
    from sklearn.linear_model import LogisticRegression

    scores = np.concatenate([inside, outside])
    mean, spread = scores.mean(axis=0), scores.std(axis=0)
    spread[spread == 0] = 1
    label = np.repeat([1, 0], [len(inside), len(outside)])
    fitted = LogisticRegression(max_iter=1000).fit((scores - mean) / spread, label)
    weight = fitted.coef_[0] / spread
    return LayerWeights(tuple(weight.tolist()), float(fitted.intercept_[0] - weight @ mean))


def best(tried: Iterable[tuple[Setting, Scores, Scores]]) -> Setting:
    """The setting with the highest true-negative rate at 95% true-positive rate; the first of equals."""

    def accepted(trial: tuple[Setting, Scores, Scores]) -> float:
        rate = fpr_at_tpr_of(rank_sets(*trial[1:]))
        assert rate is not None  # both sides have images
        return rate

    return min(tried, key=accepted)[0]
