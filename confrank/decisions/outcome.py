"""What a policy does to labelled predictions: coverage, errors, cost, groups, and sizes of sets."""

import math
from dataclasses import dataclass

import numpy as np

from confrank.decisions.costs import cost_at
from confrank.decisions.operating import OperatingPoint
from confrank.decisions.policy import Answers, Policy
from confrank.decisions.policy_apply import distinguished
from confrank.decisions.policy_rows import made_on
from confrank.metrics.groups import rows_by_group
from confrank.metrics.inputs import Flags
from confrank.predictions import Predictions


@dataclass(frozen=True)
class Sets:
    """Sizes of conformal sets: how many have each number of classes, and how many include the true class."""

    sizes: dict[int, int]
    num_hits: int
    level: float

    @property
    def num_answers(self) -> int:
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Outcome:
    """What a policy does to predictions. `seen`: a part was made on rows among them.

    `overall` is None without an acceptance rule, `sets` without sets, and `cost`, the mean of all answers, without
    costs. `groups` are the classes or groups of `column`. A threshold is infinite if there is none.
    """

    overall: OperatingPoint | None
    groups: dict[str, OperatingPoint]
    column: str | None
    sets: Sets | None
    cost: float | None
    seen: bool


def outcome_of(policy: Policy, predictions: Predictions) -> Outcome:
    """Apply a policy to predictions with labels, and count."""
    answers, right = policy.apply(predictions), policy.correct(predictions)
    return Outcome(
        _overall(policy, answers, right),
        _groups(policy, predictions, answers, right),
        _column(policy),
        _sets(policy, predictions, answers),
        _cost(policy, answers, right),
        was_made_on(policy, predictions),
    )


def was_made_on(policy: Policy, predictions: Predictions) -> bool:
    """Whether a part of the policy was made on rows of this file."""
    used = [part.rows for part in policy.parts().values() if part.rows is not None]
    return made_on(used, policy.matched(predictions))


def _counted(accepted: Flags, right: Flags, threshold: float | None) -> OperatingPoint:
    reached = math.inf if threshold is None else threshold
    return OperatingPoint(reached, int(accepted.sum()), int((accepted & ~right).sum()), len(right))


def _overall(policy: Policy, answers: Answers, right: Flags) -> OperatingPoint | None:
    if answers.accepted is None:
        return None
    return _counted(answers.accepted, right, None if policy.threshold is None else policy.threshold.threshold)


def _column(policy: Policy) -> str | None:
    part = policy.threshold
    return None if part is None or part.per == "all" else part.column or "class"


def _groups(policy: Policy, predictions: Predictions, answers: Answers, right: Flags) -> dict[str, OperatingPoint]:
    """Each class or group that has a threshold, or occurs."""
    part, accepted = policy.threshold, answers.accepted
    if part is None or part.per == "all" or accepted is None:
        return {}
    values = distinguished(part, policy.matched(predictions), answers.prediction)
    found = {} if values is None else rows_by_group(values)
    rows = {name: found.get(name, np.zeros(0, dtype=np.int64)) for name in [*part.thresholds, *found]}
    return {name: _counted(accepted[at], right[at], part.thresholds.get(name)) for name, at in rows.items()}


def _sets(policy: Policy, predictions: Predictions, answers: Answers) -> Sets | None:
    label = policy.matched(predictions).label
    if answers.sets is None or policy.sets is None or label is None:
        return None
    sizes = np.bincount(answers.sets.sum(axis=1))
    hits = int(answers.sets[np.arange(len(label)), label].sum())
    return Sets({size: int(count) for size, count in enumerate(sizes) if count}, hits, policy.sets.level)


def _cost(policy: Policy, answers: Answers, right: Flags) -> float | None:
    """The mean cost, if the threshold was chosen for one cost of an error and one of a rejection."""
    part = policy.threshold
    costs = {} if part is None else part.settings
    error, reject = costs.get("cost_error"), costs.get("cost_reject")
    if answers.accepted is None or error is None or reject is None or part is None or part.threshold is None:
        return None
    return cost_at(answers.confidence, right, part.threshold, cost_error=error, cost_reject=reject).value
