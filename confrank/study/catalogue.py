"""One recipe per table of the paper, and ours: which data sets, networks and methods, and what to expect.

You can run part of a recipe: `confrank study NAME --datasets cifar10 --models vgg16 --methods baseline --seeds 0,1`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from confrank.data import IMAGE_SETS, LOADERS, is_known
from confrank.method_facts import facts_of
from confrank.recipes import holds_texts
from confrank.study.active import ACTIVE_RECIPES

MODELS = ("vgg16", "resnet110", "densenet-bc")
# The networks of a study on texts, in place of these.
TEXT_NETWORKS = ("bag-of-embeddings", "text-encoder")
PAIR = ("baseline", "crl-softmax")
SINGLE = ("baseline", "aes-10", "aes-30", "mcdropout", "aleatoric-mc", "crl-softmax", "crl-entropy", "crl-margin")
FIVE = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class Recipe:
    """Cells of a table: every combination, trained with every seed.

    `training` is how to train, a name in `confrank.recipes`; it gives the epochs and the weight of the ranking loss
    unless they are given here. Each trained network is also tested against the images of the `out_sets`.
    """

    datasets: tuple[str, ...]
    models: tuple[str, ...]
    methods: tuple[str, ...]
    seeds: tuple[int, ...] = FIVE
    epochs: int | None = None
    weight: float | None = None
    training: str = "paper"
    holdout: float = 0.0
    out_sets: tuple[str, ...] = ()


def table_clf_perf() -> Recipe:
    """The main ranking table: five methods on three data sets.

    Command: confrank study table-clf-perf (180 runs).
    Expected (VGG-16, CIFAR-100): baseline AURC x10^3 77.33 ± 1.15, crl-softmax 71.83 ± 0.47.
    """
    methods = ("baseline", "aes-10", "mcdropout", "aleatoric-mc", "crl-softmax")
    return Recipe(("cifar10", "cifar100", "svhn"), MODELS, methods)


def stable_clf_perf_cifar10() -> Recipe:
    """All methods on CIFAR-10.

    Command: confrank study stable-clf-perf-cifar10 (90 runs).
    Expected (VGG-16): baseline AURC x10^3 7.10 ± 0.31, crl-softmax 6.78 ± 0.18.
    """
    return Recipe(("cifar10",), MODELS, SINGLE)


def stable_clf_perf_cifar100() -> Recipe:
    """All methods on CIFAR-100.

    Command: confrank study stable-clf-perf-cifar100 (90 runs).
    Expected (VGG-16): baseline AURC x10^3 77.33 ± 1.15, crl-softmax 71.83 ± 0.47.
    """
    return Recipe(("cifar100",), MODELS, SINGLE)


def stable_clf_perf_svhn() -> Recipe:
    """All methods on SVHN.

    Command: confrank study stable-clf-perf-svhn (90 runs).
    Expected (VGG-16): baseline AURC x10^3 5.97 ± 0.28.
    """
    return Recipe(("svhn",), MODELS, SINGLE)


def table_clf_ensemble_perf() -> Recipe:
    """Ensembles of five baseline and five CRL networks, weight 0.5.

    Command: confrank study table-clf-ensemble-perf (90 runs).
    Expected (VGG-16, CIFAR-10): baseline ensemble accuracy 95.02%, AURC x10^3 4.45.
    """
    methods = ("ensemble-baseline", "ensemble-crl-softmax")
    return Recipe(("cifar10", "cifar100", "svhn"), MODELS, methods, weight=0.5)


def stable_clf_ensemble_weight05() -> Recipe:
    """Ensembles of all CRL variants, weight 0.5.

    Command: confrank study stable-clf-ensemble-weight0.5 (180 runs).
    Expected (VGG-16, CIFAR-10): baseline ensemble accuracy 95.02%, AURC x10^3 4.45.
    """
    return Recipe(("cifar10", "cifar100", "svhn"), MODELS, _ENSEMBLES, weight=0.5)


def stable_clf_ensemble_weight1() -> Recipe:
    """Ensembles of all CRL variants, weight 1.

    Command: confrank study stable-clf-ensemble-weight1 (180 runs).
    Expected (VGG-16, CIFAR-10): baseline ensemble accuracy 95.02%, AURC x10^3 4.45.
    """
    return Recipe(("cifar10", "cifar100", "svhn"), MODELS, _ENSEMBLES)


_ENSEMBLES = ("ensemble-baseline", "ensemble-crl-softmax", "ensemble-crl-entropy", "ensemble-crl-margin")


def reproduction() -> tuple[Recipe, ...]:
    """Our part of the tables: what docs/evidence/reproduction.md shows, then what it still lacks.

    Command: confrank study reproduction (72 runs).
    Expected (VGG-16, CIFAR-100): baseline AURC x10^3 77.33 ± 1.15, crl-softmax 71.83 ± 0.47.
    """
    both, vgg, resnet, densenet = ("cifar10", "cifar100"), ("vgg16",), ("resnet110",), ("densenet-bc",)
    ensembles = ("ensemble-baseline", "ensemble-crl-softmax")
    others = ("aes-10", "aes-30", "mcdropout", "aleatoric-mc", "crl-entropy", "crl-margin")
    return (
        Recipe(both, vgg, PAIR, seeds=(0, 1, 2)),
        Recipe(("cifar10",), resnet, PAIR, seeds=(0, 1, 2)),
        Recipe(("cifar10",), vgg, ensembles, seeds=(0, 1, 2)),
        Recipe(("cifar100",), vgg, ensembles, seeds=(1, 2, 3)),
        Recipe(both, vgg, others, seeds=(0,)),
        Recipe(both, vgg, ("mcdropout",), seeds=(1,)),
        Recipe(("cifar100",), vgg, ensembles, seeds=(4, 5, 6, 7, 8)),
        Recipe(("cifar100",), vgg, ("aes-10", "aes-30"), seeds=(4, 5)),
        # An average needs predictions, which results/ does not have: new seeds for each ensemble.
        Recipe(("cifar10",), vgg, ensembles, seeds=(3, 4, 5, 6, 7)),
        Recipe(("cifar100",), vgg, ("ensemble-crl-softmax",), seeds=(4, 5, 6, 7, 8), weight=0.5),
        Recipe(("svhn",), vgg, PAIR, seeds=(0, 1, 2)),
        Recipe(("svhn",), vgg, others, seeds=(0,)),
        Recipe(("cifar100",), resnet, (*PAIR, "mcdropout", "aes-10", "aes-30"), seeds=(0,)),
        Recipe(both, densenet, PAIR, seeds=(0,)),
    )


def record() -> tuple[Recipe, ...]:
    """The best confidence that one network can give: training recipes compared on 45,000 training images.

    A tenth of the training images (5,000) is held out, and settings are chosen on those; the last weights are tested.
    Command: confrank study record (30 runs).
    Expected (ResNet-18, AURC x10^3 on CIFAR-10 and CIFAR-100): fmfp 3.56 and 55.0, sure 2.97 and 45.8.
    """
    cells: dict[str, Any] = {"seeds": (0, 1, 2), "holdout": 0.1}
    trained = {
        "paper": ("baseline", "crl-softmax"),
        "fmfp": ("baseline",),
        "sure": ("crl-softmax-stretched",),
        "best": ("baseline",),
    }
    both = ("cifar10", "cifar100")
    return tuple(Recipe(both, ("resnet18",), methods, training=name, **cells) for name, methods in trained.items())


def table_ood_perf() -> Recipe:
    """Out-of-distribution detection: maximum probability, ODIN and Mahalanobis on two out-sets.

    Command: confrank study table-ood-perf (40 runs).
    Expected (ResNet-110, CIFAR-10, TinyImageNet): ODIN FPR at 95% TPR 49.33 ± 4.19% (baseline), 43.08 ± 5.15% (CRL).
    """
    return Recipe(("svhn", "cifar10"), MODELS[1:], PAIR, out_sets=("tinyimagenet", "lsun"))


def stable_ood_perf() -> Recipe:
    """The same on three out-sets.

    Command: confrank study stable-ood-perf (40 runs).
    Expected (ResNet-110, CIFAR-10, TinyImageNet): ODIN FPR at 95% TPR 49.33 ± 4.19% (baseline), 43.08 ± 5.15% (CRL).
    """
    return replace(table_ood_perf(), out_sets=("tinyimagenet", "lsun", "isun"))


def ood() -> tuple[Recipe, ...]:
    """Our part of the detection tables, with the out-sets that we have; SVHN and CIFAR-10 as out-sets are ours.

    Command: confrank study ood (6 runs).
    Expected (ResNet-110, CIFAR-10, TinyImageNet): ODIN FPR at 95% TPR 49.33 ± 4.19% (baseline), 43.08 ± 5.15% (CRL).
    """
    return (
        Recipe(("cifar10",), MODELS[1:], PAIR, seeds=(0,), out_sets=("tinyimagenet", "svhn")),
        Recipe(("svhn",), ("vgg16",), PAIR, seeds=(0,), out_sets=("tinyimagenet", "cifar10")),
    )


RECIPES: dict[str, Callable[[], Recipe | tuple[Recipe, ...]]] = {
    "table-clf-perf": table_clf_perf,
    "table-clf-ensemble-perf": table_clf_ensemble_perf,
    "stable-clf-perf-cifar10": stable_clf_perf_cifar10,
    "stable-clf-perf-cifar100": stable_clf_perf_cifar100,
    "stable-clf-perf-svhn": stable_clf_perf_svhn,
    "stable-clf-ensemble-weight0.5": stable_clf_ensemble_weight05,
    "stable-clf-ensemble-weight1": stable_clf_ensemble_weight1,
    "table-ood-perf": table_ood_perf,
    "stable-ood-perf": stable_ood_perf,
    "reproduction": reproduction,
    "ood": ood,
    "record": record,
}


def recipe(name: str) -> tuple[Recipe, ...]:
    """The parts of the recipe of that name, or an error that lists the names."""
    if name not in RECIPES:
        raise ValueError(f"expected a study among {', '.join([*RECIPES, *ACTIVE_RECIPES])}, but got {name!r}")
    parts = RECIPES[name]()
    return parts if isinstance(parts, tuple) else (parts,)


def narrowed(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    training: Sequence[str] | None = None,
    out_sets: Sequence[str] | None = None,
    epochs: int | None = None,
    root: Path | None = None,
) -> tuple[Recipe, ...]:
    """The recipe of that name with these data sets, networks, methods, seeds and out-sets instead of its own.

    Custom data sets may be in `root`. A recipe in several parts is reduced to those given, without ensembles of
    fewer than two members, and any recipe to the parts that are trained like this. Texts get networks for texts.
    """
    given = {"datasets": datasets, "models": models, "methods": methods, "seeds": seeds, "out_sets": out_sets}
    wanted: dict[str, Any] = {
        key: tuple(dict.fromkeys(values)) for key, values in given.items() if values is not None
    }
    if empty := [key for key, values in wanted.items() if not values]:
        raise ValueError(f"expected at least one of {', '.join(empty)}, but got none")
    _check_data(wanted.get("datasets", ()), wanted.get("out_sets", ()), root)
    _check_networks(wanted.get("models", ()), wanted.get("datasets", ()))
    parts = _trained_like(training, name)
    parts = tuple(part if epochs is None else replace(part, epochs=epochs) for part in parts)
    if len(parts) > 1:
        return _reduced(name, parts, wanted)
    part = replace(parts[0], **wanted)
    if len(part.seeds) < 2 and any(facts_of(method).ensemble for method in part.methods):
        raise ValueError(f"expected two seeds or more for an ensemble, but got {part.seeds[0]}")
    return (part,) if models is not None else _by_kind(part)


def _reduced(name: str, parts: Sequence[Recipe], wanted: dict[str, Any]) -> tuple[Recipe, ...]:
    """What is left of the parts of a recipe; raise if none of them has what is wanted."""
    for key, values in wanted.items():
        planned = list(dict.fromkeys(one for part in parts for one in getattr(part, key)))
        if not planned:
            raise ValueError(f"expected a study with {key.replace('_', '-')}, such as ood, but got {name}")
        if unknown := [str(one) for one in values if one not in planned]:
            raise ValueError(
                f"expected {key.replace('_', '-')} of {name} among {', '.join(map(str, planned))},"
                f" but got {', '.join(unknown)}; use a table of the paper for others"
            )
    pairs = ((part, _cut_down(part, wanted)) for part in parts)
    cut = tuple(left for part, left in pairs if _has_cells(left) and bool(left.out_sets) == bool(part.out_sets))
    if not cut:
        raise ValueError(f"expected settings of one part of {name}, but no part has all of these")
    return cut


def _trained_like(training: Sequence[str] | None, name: str) -> tuple[Recipe, ...]:
    """The parts of the recipe of that name that follow these training recipes; all without any."""
    parts = recipe(name)
    known = tuple(dict.fromkeys(part.training for part in parts))
    if training is not None and (unknown := [one for one in training if one not in known]):
        raise ValueError(f"expected recipes of {name} among {', '.join(known)}, but got {', '.join(unknown)}")
    return parts if training is None else tuple(part for part in parts if part.training in training)


def _by_kind(part: Recipe) -> tuple[Recipe, ...]:
    """The recipe for its images with its networks, and for its texts with those for texts."""
    texts = tuple(one for one in part.datasets if holds_texts(one))
    images = tuple(one for one in part.datasets if one not in texts)
    parts = replace(part, datasets=images), replace(part, datasets=texts, models=TEXT_NETWORKS)
    return tuple(one for one in parts if one.datasets)


def _check_data(datasets: Sequence[str], out_sets: Sequence[str], root: Path | None) -> None:
    """Raise if a data set or out-set has neither a known name nor a path."""
    for one in datasets:
        if not is_known(one, root):
            raise ValueError(f"expected data sets among {', '.join(LOADERS)} or a path, but got {one!r}")
    for one in out_sets:
        if one not in IMAGE_SETS and not is_known(one, root):
            raise ValueError(
                f"expected out-sets among {', '.join([*IMAGE_SETS, *LOADERS])} or a path, but got {one!r}"
            )


def _check_networks(names: Sequence[str], datasets: Sequence[str]) -> None:
    """Raise if a network has neither a known name nor a factory, or is for another kind of data."""
    if names:
        from confrank.models import MODELS, TEXT_MODELS  # imports torch, which a plan without names does not need

        known = (*MODELS, *TEXT_MODELS)
        for one in names:
            if one not in known and ":" not in one:
                raise ValueError(f"expected networks among {', '.join(known)}, but got {one!r}")
        for dataset, one in product(datasets, names):
            fitting, others = (TEXT_MODELS, MODELS) if holds_texts(dataset) else (MODELS, TEXT_MODELS)
            if one in others:
                raise ValueError(f"expected networks for {dataset} among {', '.join(fitting)}, but got {one!r}")


def _cut_down(part: Recipe, wanted: dict[str, Any]) -> Recipe:
    common: dict[str, Any] = {
        key: tuple(one for one in getattr(part, key) if one in values) for key, values in wanted.items()
    }
    left = replace(part, **common)
    if len(left.seeds) < 2:
        left = replace(left, methods=tuple(method for method in left.methods if not facts_of(method).ensemble))
    return left


def _has_cells(part: Recipe) -> bool:
    return all((part.datasets, part.models, part.methods, part.seeds))
