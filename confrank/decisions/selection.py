"""Select new items such that the expected share of wrong ones among them is controlled.

Jin & Candes, "Selection by Prediction with Conformal p-values" (2023). The p-value of a new item counts the wrong
calibration items that are at least as sure; the Benjamini-Hochberg procedure at level q selects. The expected share
of wrong items among the selected (the false-discovery rate) is then at most q.
"""

import math
from dataclasses import dataclass

import numpy as np

from confrank.decisions.guarantee import check_shares, refuse_weights
from confrank.errors import aligned, counted
from confrank.metrics.inputs import TOLERANCE, Array, ArrayLike, Flags, Floats, Ints, as_scores, scores_and_flags


@dataclass(frozen=True)
class Selection:
    """Which new items [m] are selected, and why.

    `wrong` are the confidences of the wrong calibration items, ascending, and `num_calibration` counts all of them.
    """

    selected: Flags
    p_value: Floats
    fdr: float
    wrong: Floats
    num_calibration: int

    @property
    def num_selected(self) -> int:
        return int(np.count_nonzero(self.selected))

    def __repr__(self) -> str:
        rows = [
            ["selected", f"{self.num_selected:,} of {len(self.selected):,}"],
            ["calibration rows", f"{self.num_calibration:,} ({len(self.wrong):,} wrong)"],
        ]
        return f"{aligned(rows)}\n{self.shortage() or self.promise()}"

    def promise(self) -> str:
        """What is guaranteed, to whom, and under which assumption, in one sentence."""
        return (
            f"the share of wrong answers among those selected is at most {self.fdr:g} on average over calibration"
            f" files and new files, if the new rows and the {counted(self.num_calibration, 'calibration row')} are"
            " exchangeable (conformal p-values, Benjamini-Hochberg)"
        )

    def shortage(self) -> str | None:
        """Why nothing was selected, and how many calibration rows would be needed; None if anything was."""
        if self.num_selected or not len(self.selected):
            return None
        needed = selection_rows_needed(self)
        if needed is None:
            return (
                "nothing can be selected: among the most confident calibration rows too many answers are wrong"
                f" ({len(self.wrong):,} of {self.num_calibration:,} in all)"
            )
        few = counted(self.num_calibration, "calibration row")
        return f"nothing can be selected with {few}; at least about {needed:,} are needed"


def select_with_fdr(
    confidence: ArrayLike,
    correct: ArrayLike,
    new_confidence: ArrayLike,
    fdr: float = 0.05,
    *,
    sample_weight: ArrayLike | None = None,
) -> Selection:
    """Select new items with a false-discovery rate of at most `fdr`, from labelled calibration items [n].

    The items are judged together: other new items may change the choice.

    >>> sure = np.linspace(0.5, 1, 200)
    >>> select_with_fdr(sure, sure > 0.6, [0.99, 0.9, 0.55], fdr=0.1).selected.tolist()
    [True, True, False]
    """
    refuse_weights(sample_weight)
    check_shares(fdr=fdr)
    scores, flags = scores_and_flags(confidence, correct, "labelled rows to compare new ones with")
    wrong = np.sort(scores[~flags].astype(np.float64))
    p_value = conformal_p_values(as_scores(new_confidence).astype(np.float64), wrong, len(scores))
    return Selection(benjamini_hochberg(p_value, fdr), p_value, fdr, wrong, len(scores))


def conformal_p_values(new_confidence: Array, wrong: Array, num_calibration: int) -> Floats:
    """(1 + number of wrong calibration items at least as sure) / (n + 1) of each new item; `wrong` is ascending.

    >>> conformal_p_values(np.array([0.9, 0.8, 0.1]), np.array([0.2, 0.8]), 9).tolist()
    [0.1, 0.2, 0.3]
    """
    at_least = len(wrong) - np.searchsorted(wrong, new_confidence - TOLERANCE, side="left")
    return (1 + at_least) / (num_calibration + 1)


def benjamini_hochberg(p_value: Array, level: float) -> Flags:
    """Which hypotheses are rejected: those up to the largest p-value with p <= level x rank / m.

    >>> benjamini_hochberg(np.array([0.03, 0.2, 0.04]), 0.06).tolist()
    [True, False, True]
    """
    ordered = np.sort(p_value)
    # Rounding must not decide whether p equals its limit.
    below = np.flatnonzero(ordered <= level * np.arange(1, len(ordered) + 1) / max(1, len(ordered)) + TOLERANCE)
    return p_value <= (ordered[below[-1]] if len(below) else -1)


def selection_rows_needed(selection: Selection) -> int | None:
    """About how many calibration items like these would let something be selected; None if no number is likely to.

    A p-value is at least 1 / (n + 1), so at least 1 / fdr - 1 items are needed. With as many, the share of wrong
    items at least as sure is taken to be (number of them + 1/2) / n: none among n does not mean that there are none.
    """
    ordered, size = np.sort(selection.p_value), selection.num_calibration
    limits = selection.fdr * np.arange(1, len(ordered) + 1) / len(ordered)
    wrong: Ints = np.round(ordered * (size + 1)).astype(np.int64) - 1
    least = math.ceil(1 / selection.fdr - 1 - TOLERANCE)
    if size < least and len(selection.wrong) < size and not wrong[0]:
        return least
    rate = (wrong + 0.5) / size
    # (1 + rate n) / (n + 1) <= limit, solved for n.
    possible = limits > rate
    if not possible.any():
        return None
    return max(least, math.ceil(float(((1 - limits[possible]) / (limits[possible] - rate[possible])).min())))
