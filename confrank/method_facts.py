"""What each method is, in plain values: what it trains, how it predicts, which settings matter to it.

Nothing here needs torch, so configs, studies and commands can use it. `confrank.methods` adds losses and predictors.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # that module needs torch
    from confrank.confidence import ConfidenceName


@dataclass(frozen=True)
class MethodFacts:
    """The facts about one method.

    confidence: its confidence function in `confrank.confidence`, if one pass of one network gives it.
    weighted: whether the weight of the ranking loss matters.
    stretched: whether the ranking loss uses the stretched rates of the published code, not those of the paper's text.
    dropout, variance_head: the form of the network it trains.
    stochastic: whether it averages random passes, which are drawn from a seed.
    member: the method of the networks it averages, if it trains none of its own.
    snapshots: how many epochs of one run it averages.
    """

    name: str
    confidence: "ConfidenceName | None" = None
    weighted: bool = False
    stretched: bool = False
    dropout: bool = False
    variance_head: bool = False
    stochastic: bool = False
    member: str | None = None
    snapshots: int = 0

    @property
    def ensemble(self) -> bool:
        """Whether it averages several runs."""
        return self.member is not None and not self.snapshots

    @property
    def averaged(self) -> bool:
        """Whether it averages several passes, snapshots or runs."""
        return self.stochastic or self.member is not None


_TRAINED = (
    MethodFacts("baseline", "max_probability"),
    MethodFacts("crl-softmax", "max_probability", weighted=True),
    MethodFacts("crl-entropy", "negative_entropy", weighted=True),
    MethodFacts("crl-margin", "margin", weighted=True),
    MethodFacts("crl-softmax-stretched", "max_probability", weighted=True, stretched=True),
    MethodFacts("crl-entropy-stretched", "negative_entropy", weighted=True, stretched=True),
    MethodFacts("crl-margin-stretched", "margin", weighted=True, stretched=True),
    MethodFacts("mcdropout", dropout=True, stochastic=True),
    MethodFacts("aleatoric-mc", dropout=True, variance_head=True, stochastic=True),
    MethodFacts("aleatoric-mc-mean-logits", dropout=True, variance_head=True, stochastic=True),
)
_SNAPSHOTS = (
    MethodFacts("aes-10", member="baseline", snapshots=10),
    MethodFacts("aes-30", member="baseline", snapshots=30),
)
_ENSEMBLES = tuple(
    replace(facts, name=f"ensemble-{facts.name}", confidence=None, member=facts.name) for facts in _TRAINED
)
FACTS: dict[str, MethodFacts] = {facts.name: facts for facts in (*_TRAINED, *_SNAPSHOTS, *_ENSEMBLES)}


def facts_of(method: str) -> MethodFacts:
    """The facts about a method; nothing is assumed about an unknown one.

    >>> facts_of("ensemble-crl-softmax").member, facts_of("aes-10").snapshots, facts_of("mine").averaged
    ('crl-softmax', 10, False)
    """
    return FACTS.get(method, MethodFacts(method))


def aes_epochs(epochs: int, counts: Iterable[int] = (10, 30)) -> list[int]:
    """The epochs (1..T) that AES averages: for each k, k evenly spaced ones from 0.4 T to T; sorted, no repeats.

    >>> aes_epochs(300, [10])
    [120, 140, 160, 180, 200, 220, 240, 260, 280, 300]
    """
    spaced = {round(0.4 * epochs + 0.6 * epochs * step / (count - 1)) for count in counts for step in range(count)}
    return sorted(epoch for epoch in spaced if epoch >= 1)
