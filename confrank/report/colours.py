"""One colour for each method, strategy and detector, the same in all figures and on all pages."""

import re
from collections.abc import Sequence
from itertools import chain, cycle

# The page uses the same colours, by number, and lighter ones in dark mode (`page.css`).
COLOURS = (
    "#2563c9", "#d9591a", "#12816a", "#a0329b", "#8a6a00", "#c02c56", "#7d4a26", "#5f6b76", "#0d84a8", "#6a48c9",
    "#5b8a1c", "#b0627f", "#1b2f6b", "#3f3a37",
)  # fmt: skip
METHOD_NAMES = (
    "baseline", "crl-softmax", "aes-10", "ensemble-baseline", "ensemble-crl-softmax", "mcdropout", "aleatoric-mc",
    "aes-30", "crl-entropy", "crl-margin", "ensemble-crl-entropy", "ensemble-crl-margin", "crl-softmax-stretched",
    "ensemble-crl-softmax-stretched",
)  # fmt: skip
STRATEGY_NAMES = ("random", "least-confidence", "entropy", "core-set", "mc-entropy", "margin")
DETECTOR_NAMES = ("max-probability", "odin", "mahalanobis", "max-logit", "energy", "negative-entropy", "knn")
# The longest first: an ensemble is not its members.
_METHOD = re.compile(rf"(?<![a-z])({'|'.join(sorted(METHOD_NAMES, key=len, reverse=True))})(?![a-z0-9])")
_KNOWN = {
    name: number for names in (METHOD_NAMES, STRATEGY_NAMES, DETECTOR_NAMES) for number, name in enumerate(names)
}


def colour_numbers(names: Sequence[str]) -> list[int]:
    """The number of each name's colour: known names have a fixed one, others take the free ones in order.

    A method's name may be part of the name of a run or file; the first such name gets the method's colour.

    >>> colour_numbers(["cifar10-vgg16-crl-softmax-seed0", "mine", "baseline lr 0.1", "baseline lr 0.01"])
    [1, 2, 0, 3]
    """
    numbers: dict[str, int] = {}
    for name in names:
        number = _known_number(name)
        if number is not None and number not in numbers.values():
            numbers[name] = number
    free = [number for number in range(len(COLOURS)) if number not in numbers.values()]
    others = chain(free, cycle(range(len(COLOURS))))
    for name in names:
        if name not in numbers:
            numbers[name] = next(others)
    return [numbers[name] for name in names]


def _known_number(name: str) -> int | None:
    match = _METHOD.search(name)
    return _KNOWN.get(match[0] if match else name.split(" ")[0])


def colours_of(names: Sequence[str]) -> list[str]:
    """The colour of each name."""
    return [COLOURS[number] for number in colour_numbers(names)]
