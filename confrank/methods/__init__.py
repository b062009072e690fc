"""The methods by name. To add one, add its facts in `confrank.method_facts` and, if needed, a line to `METHODS`."""

from confrank.method_facts import FACTS
from confrank.methods.averages import average
from confrank.methods.dropout import ALEATORIC_MC, ALEATORIC_MC_MEAN_LOGITS, MC_DROPOUT
from confrank.methods.method import Method, Output
from confrank.methods.prediction import (
    evaluating,
    joined,
    mirrored_probabilities,
    normalise,
    normalised,
    penultimate,
    predict_split,
)
from confrank.methods.single_pass import single_pass

METHODS: dict[str, Method] = {
    **{name: single_pass(facts) for name, facts in FACTS.items() if facts.confidence is not None},
    "mcdropout": MC_DROPOUT,
    "aleatoric-mc": ALEATORIC_MC,
    "aleatoric-mc-mean-logits": ALEATORIC_MC_MEAN_LOGITS,
}


def get(name: str) -> Method:
    """The method of that name, or an error that lists the names."""
    if name not in METHODS:
        raise ValueError(f"expected a method among {', '.join(METHODS)}, but got {name!r}")
    return METHODS[name]


__all__ = [
    "METHODS",
    "Method",
    "Output",
    "average",
    "evaluating",
    "get",
    "joined",
    "mirrored_probabilities",
    "normalise",
    "normalised",
    "penultimate",
    "predict_split",
]
