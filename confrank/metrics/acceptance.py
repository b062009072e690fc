"""Risk and coverage of accepting the most confident predictions."""

from confrank.metrics.arrays import EQUAL_SHARES, ArrayLike
from confrank.metrics.curve import risk_coverage_curve


def risk_at_coverage(
    confidence: ArrayLike, correct: ArrayLike, coverage: float, *, sample_weight: ArrayLike | None = None
) -> float | None:
    """Error rate among the accepted at the highest threshold that accepts at least this share.

    Tied predictions are accepted together, so the share may be larger than asked for. None for no predictions.

    >>> risk_at_coverage([0.9, 0.8, 0.8, 0.6], [True, True, False, True], 0.5)
    0.3333333333333333
    """
    if not 0 < coverage <= 1:
        raise ValueError(f"expected coverage in (0, 1], but got {coverage}")
    curve = risk_coverage_curve(confidence, correct, sample_weight=sample_weight)
    if not curve.num_samples:
        return None
    position = curve.last_accepted(curve.threshold[curve.at_coverage(coverage)])
    return float(curve.risk[position])


def coverage_at_risk(
    confidence: ArrayLike, correct: ArrayLike, risk: float, *, sample_weight: ArrayLike | None = None
) -> float | None:
    """Largest share that a threshold accepts with an error rate of at most `risk`; None for no predictions.

    0 if no threshold reaches the risk. The error rate is the one measured on these predictions; for a bound on new
    ones use `confrank.decisions.guaranteed_threshold`.

    >>> coverage_at_risk([0.9, 0.8, 0.8, 0.6], [True, True, False, True], 0.25)
    1.0
    """
    if not 0 <= risk <= 1:
        raise ValueError(f"expected risk in [0, 1], but got {risk}")
    curve = risk_coverage_curve(confidence, correct, sample_weight=sample_weight)
    if not curve.num_samples:
        return None
    positions = curve.last_accepted(curve.threshold)
    return float(curve.coverage[positions].max(initial=0, where=curve.risk[positions] <= risk + EQUAL_SHARES))
