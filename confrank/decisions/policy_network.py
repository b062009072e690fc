"""What one pass of a network can carry out of a policy: a temperature, a named confidence and a threshold."""

import math
from typing import TYPE_CHECKING, NoReturn

from confrank.decisions.policy import Policy, ThresholdPart
from confrank.errors import InputError, class_text, joined
from confrank.method_facts import facts_of

if TYPE_CHECKING:  # that module needs torch
    from confrank.confidence import ConfidenceName

SCORES: "dict[str, ConfidenceName]" = {
    "max-probability": "max_probability",
    "margin": "margin",
    "negative-entropy": "negative_entropy",
}


def network_rule(policy: Policy) -> "tuple[float | list[float], ConfidenceName, float]":
    """The threshold (for all answers, or for each class), confidence and temperature by which a network follows it.

    An error says what a network cannot compute.
    """
    rule, calibrator = policy.threshold, policy.table_calibrator
    if rule is None or rule.per == "group" or (rule.per == "all" and rule.threshold is None):
        _refuse("a threshold for all answers or for each class")
    others = {"a calibrator of confidence": policy.confidence_calibrator is not None}
    others |= {"conformal sets": policy.sets is not None, "calibrated predictions": bool(policy.input.calibrator)}
    if given := [name for name, there in others.items() if there]:
        _refuse("only a temperature, a confidence and a threshold", joined(given))
    temperature = 1.0 if calibrator is None else float(calibrator.parameters["temperature"])
    return _limits(policy, rule), _confidence(policy), temperature * float(policy.input.temperature or 1)


def _limits(policy: Policy, rule: ThresholdPart) -> float | list[float]:
    """The threshold, or that of each class; one that accepts nothing, or was never made, is infinite."""
    if rule.threshold is not None and rule.per == "all":
        return rule.threshold
    given = [
        rule.thresholds.get(class_text(policy.input.class_names, number))
        for number in range(policy.input.num_classes or 0)
    ]
    return [math.inf if limit is None else limit for limit in given]


def _confidence(policy: Policy) -> "ConfidenceName":
    """The confidence that the policy ranks by, if a network gives it in one pass."""
    if policy.score is not None:
        if policy.score.name not in SCORES:
            _refuse(f"a score among {', '.join(SCORES)}", policy.score.name)
        return SCORES[policy.score.name]
    if policy.table_calibrator is not None or not policy.input.ranked:
        return "max_probability"
    method = policy.model.get("config", {}).get("method")
    name = None if method is None else facts_of(method).confidence
    if name is None:
        _refuse("a confidence that one pass of a network gives", f"that of {method or 'an unknown method'}")
    return name


def _refuse(expected: str, given: str = "something else") -> NoReturn:
    raise InputError(
        f"expected a policy with {expected}, which a network can carry out by itself, but this one has {given}",
        "apply the policy to predictions of the network instead",
    )
