"""One colour for a method, a strategy or a detector wherever it is drawn: in figures, and on pages by its place."""

import re
from collections.abc import Sequence
from itertools import chain, cycle

# The page has the same ones, and lighter ones where the reader prefers dark (`page.css`).
COLOURS = (
    "#2563c9", "#d9591a", "#12816a", "#a0329b", "#8a6a00", "#c02c56", "#7d4a26", "#5f6b76", "#0d84a8", "#6a48c9",
    "#5b8a1c", "#b0627f", "#1b2f6b", "#3f3a37",
)  # fmt: skip
METHODS = (
    "baseline", "crl-softmax", "aes-10", "ensemble-baseline", "ensemble-crl-softmax", "mcdropout", "aleatoric-mc",
    "aes-30", "crl-entropy", "crl-margin", "ensemble-crl-entropy", "ensemble-crl-margin", "crl-softmax-stretched",
    "ensemble-crl-softmax-stretched",
)  # fmt: skip
STRATEGIES = ("random", "least-confidence", "entropy", "core-set", "mc-entropy", "margin")
DETECTORS = ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn")
# The longest first: an ensemble is not its members.
_METHOD = re.compile(rf"(?<![a-z])({'|'.join(sorted(METHODS, key=len, reverse=True))})(?![a-z0-9])")
_KNOWN = {name: place for names in (METHODS, STRATEGIES, DETECTORS) for place, name in enumerate(names)}


def places_of(names: Sequence[str]) -> list[int]:
    """For each name the place of its colour: what is known has its own, others take those that are left, in order.

    A method's name may stand within that of a run or file; the first of a method has its colour.

    >>> places_of(["cifar10-vgg16-crl-softmax-seed0", "mine", "baseline lr 0.1", "baseline lr 0.01"])
    [1, 2, 0, 3]
    """
    places: dict[str, int] = {}
    for name in names:
        place = _known_place(name)
        if place is not None and place not in places.values():
            places[name] = place
    left = [place for place in range(len(COLOURS)) if place not in places.values()]
    others = chain(left, cycle(range(len(COLOURS))))
    for name in names:
        if name not in places:
            places[name] = next(others)
    return [places[name] for name in names]


def _known_place(name: str) -> int | None:
    found = _METHOD.search(name)
    return _KNOWN.get(found[0] if found else name.split(" ")[0])


def colours_of(names: Sequence[str]) -> list[str]:
    """The colours at `places_of` names."""
    return [COLOURS[place] for place in places_of(names)]
