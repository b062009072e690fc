"""Names that help texts list: copies of the registries' keys, since importing a registry imports torch."""

from confrank.method_facts import FACTS
from confrank.recipes import RECIPES

NAMES = {
    "dataset": ("digits", "cifar10", "cifar100", "svhn"),
    "images": ("tinyimagenet", "lsun", "isun"),
    "model": (
        "small",
        "convnet",
        "mlp",
        "vgg16",
        "resnet110",
        "densenet-bc",
        "resnet18",
        "bag-of-embeddings",
        "text-encoder",
    ),
    "method": tuple(name for name, facts in FACTS.items() if facts.member is None),
    "recipe": tuple(RECIPES),
    "strategy": ("random", "entropy", "margin", "core-set", "mc-entropy", "least-confidence"),
    "detector": ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn"),
}


def with_names(text: str, *kinds: str) -> str:
    """A help text that also lists the known names of these kinds, if there are any.

    >>> with_names("images", "images", "dataset"), with_names("seed", "seed")
    ('images; names: tinyimagenet, lsun, isun, digits, cifar10, cifar100, svhn', 'seed')
    """
    names = [name for kind in kinds for name in NAMES.get(kind, ())]
    return f"{text}; names: {', '.join(names)}" if names else text
