"""The section of the page about a policy: its guarantee in words, what it does here, and the file to download."""

import base64
import math
from typing import Any

from confrank.decisions import OperatingPoint
from confrank.decisions.costs import ACCEPT_ALL
from confrank.decisions.outcome import Outcome, Sets
from confrank.decisions.policy import Policy
from confrank.decisions.policy_parts import the_parts
from confrank.report.verdict import percent

# The parts after which the confidence is no longer that of the file.
CHANGES = ("table_calibrator", "score", "confidence_calibrator")
NO_THRESHOLD = "no threshold: nothing is accepted"


def policy_section(policy: Policy, outcome: Outcome, name: str, content: bytes) -> dict[str, Any]:
    """What the page shows; `content` is the policy file as it is, offered for download under `name`."""
    promises = [part.promise for part in policy.parts().values() if part.promise]
    return {
        "parts": [{"text": text, "promise": text in promises} for text in policy.sentences()],
        "overall": None if outcome.overall is None else _counts("all", outcome.overall),
        "cost": None if outcome.cost is None else f"{outcome.cost:.4g}",
        "column": outcome.column,
        "groups": [_counts(name, point) for name, point in outcome.groups.items()],
        "sets": None if outcome.sets is None else _sets(outcome.sets),
        "seen": outcome.seen,
        "changes": the_parts([slot for slot in CHANGES if slot in policy.parts()]),
        "name": name,
        "href": f"data:application/json;base64,{base64.b64encode(content).decode()}",
    }


def _counts(name: str, one: OperatingPoint) -> dict[str, Any]:
    return {
        "name": name,
        "threshold": _threshold(one.threshold),
        "n": one.num_samples,
        "accepted": f"{one.accepted:,}",
        "wrong": f"{one.wrong:,}",
        "coverage": "-" if one.coverage is None else percent(one.coverage, 2),
        "risk": "-" if one.risk is None else percent(one.risk, 2),
        "sort": [one.num_samples, one.coverage or 0.0, -1.0 if one.risk is None else one.risk],
    }


def _threshold(threshold: float) -> str:
    if threshold == math.inf:
        return NO_THRESHOLD
    return "accepts all" if threshold == ACCEPT_ALL else f"{threshold:.6g}"


def _sets(sets: Sets) -> dict[str, Any]:
    total = sets.num_answers
    mean = sum(size * count for size, count in sets.sizes.items()) / total
    return {
        "mean": f"{mean:.2f}",
        "hits": percent(sets.num_hits / total, 2),
        "level": percent(sets.level),
        "rows": [
            {"size": size, "count": f"{count:,}", "share": 100 * count / total, "text": percent(count / total)}
            for size, count in sorted(sets.sizes.items())
        ],
    }
