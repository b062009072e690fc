"""Names that help texts list: copies of the registries' keys, since importing a registry imports torch."""

NAMES = {
    "dataset": ("digits", "cifar10", "cifar100", "svhn"),
    "images": ("tinyimagenet", "lsun", "isun"),
    "model": ("small", "mlp", "vgg16", "resnet110", "densenet-bc", "resnet18"),
    "method": (
        "baseline",
        "crl-softmax",
        "crl-entropy",
        "crl-margin",
        "crl-softmax-stretched",
        "mcdropout",
        "aleatoric-mc",
    ),
    "strategy": ("random", "entropy", "margin", "core-set", "mc-entropy", "least-confidence"),
    "detector": ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn"),
}


def with_names(text: str, kind: str) -> str:
    """A help text that also lists the known names of that kind, if there are any.

    >>> with_names("data set", "dataset"), with_names("seed", "seed")
    ('data set; names: digits, cifar10, cifar100, svhn', 'seed')
    """
    return f"{text}; names: {', '.join(NAMES[kind])}" if kind in NAMES else text
