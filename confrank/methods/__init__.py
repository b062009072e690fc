"""The methods by name. A new one is one file here and one line in this table."""

from confrank.methods.averages import average
from confrank.methods.dropout import ALEATORIC_MC, MC_DROPOUT
from confrank.methods.method import Method, Output
from confrank.methods.prediction import evaluating, normalise, normalised, penultimate, predict_split
from confrank.methods.single_pass import BASELINE, CRL_ENTROPY, CRL_MARGIN, CRL_SOFTMAX, CRL_SOFTMAX_STRETCHED

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        BASELINE,
        CRL_SOFTMAX,
        CRL_ENTROPY,
        CRL_MARGIN,
        CRL_SOFTMAX_STRETCHED,
        MC_DROPOUT,
        ALEATORIC_MC,
    )
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
    "normalise",
    "normalised",
    "penultimate",
    "predict_split",
]
