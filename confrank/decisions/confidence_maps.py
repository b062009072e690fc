"""Maps from the confidence of a prediction to its probability of being right: isotonic, Platt, beta, histogram.

Each is a pair of functions: one fits the parameters (plain numbers and lists) to confidence [n] and correct [n], the
other applies them. Predictions never change. The Platt and beta maps are fitted to Platt's (1999) targets instead of
1 and 0: (r + 1) / (r + 2) for r right and 1 / (w + 2) for w wrong predictions. So there is always a finite best fit.
"""

import warnings
from typing import Any

import numpy as np

from confrank.errors import InputError
from confrank.metrics.arrays import Flags, Floats
from confrank.metrics.calibration import equal_mass_edges

Parameters = dict[str, Any]
TINY, EPSILON = float(np.finfo(np.float64).tiny), float(np.finfo(np.float64).epsneg)
MAX_BINS, ROWS_PER_BIN = 15, 20


def fit_isotonic(confidence: Floats, correct: Flags) -> tuple[Parameters, list[str]]:
    """The increasing step function nearest to `correct`, joined by straight lines, as scikit-learn fits it."""
    from sklearn.isotonic import IsotonicRegression  # slow to import

    fitted = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(confidence, correct)
    return {"confidence": fitted.X_thresholds_.tolist(), "probability": fitted.y_thresholds_.tolist()}, []


def apply_isotonic(confidence: Floats, parameters: Parameters) -> Floats:
    """Linear between the points, constant outside them."""
    return np.interp(confidence, parameters["confidence"], parameters["probability"])


def fit_histogram(confidence: Floats, correct: Flags) -> tuple[Parameters, list[str]]:
    """The share of right predictions in up to 15 bins of equal size, at least 20 rows (Zadrozny & Elkan, 2001)."""
    bins = min(MAX_BINS, max(1, len(confidence) // ROWS_PER_BIN))
    edges = equal_mass_edges(confidence, bins)
    bin_of = np.searchsorted(edges, confidence, side="right")
    share = np.bincount(bin_of, weights=correct) / np.bincount(bin_of)
    return {"edges": edges.tolist(), "probability": share.tolist()}, []


def apply_histogram(confidence: Floats, parameters: Parameters) -> Floats:
    """The share of right predictions in the bin of each confidence."""
    bin_of = np.searchsorted(np.asarray(parameters["edges"], dtype=np.float64), confidence, side="right")
    return np.asarray(parameters["probability"], dtype=np.float64)[bin_of]


def fit_platt(confidence: Floats, correct: Flags) -> tuple[Parameters, list[str]]:
    """sigmoid(slope * x + intercept), x the log-odds of a confidence in [0, 1], or else the score itself."""
    is_share = bool(confidence.min() >= 0 and confidence.max() <= 1)
    limits, notes = _limits(confidence) if is_share else ([], [])
    inputs = _log_odds(np.clip(confidence, limits[0], limits[1])) if is_share else confidence
    (slope,), intercept = _logistic(inputs[:, None], correct)
    if slope < 0:
        notes.append("the slope is negative: surer predictions are wrong more often")
    return {
        "input": "log-odds" if is_share else "score",
        "slope": slope,
        "intercept": intercept,
        "limits": limits,
    }, notes


def apply_platt(confidence: Floats, parameters: Parameters) -> Floats:
    if parameters["input"] == "score":
        return _sigmoid(parameters["slope"] * confidence + parameters["intercept"])
    inputs = _log_odds(_clipped(confidence, parameters["limits"], "platt"))
    return _sigmoid(parameters["slope"] * inputs + parameters["intercept"])


def fit_beta(confidence: Floats, correct: Flags) -> tuple[Parameters, list[str]]:
    """sigmoid(a ln c - b ln(1 - c) + m) with a, b >= 0 for a confidence c in [0, 1] (Kull et al., 2017)."""
    _check_shares(confidence, "beta")
    limits, notes = _limits(confidence)
    clipped = np.clip(confidence, limits[0], limits[1])
    inputs = np.stack([np.log(clipped), -np.log1p(-clipped)], axis=1)
    if len(np.unique(clipped)) < 3:  # two points do not determine three numbers: a = b
        (slope,), intercept = _logistic(inputs.sum(axis=1, keepdims=True), correct)
        weights = [max(slope, 0.0)] * 2
        intercept = intercept if slope >= 0 else _constant(correct)
    else:
        weights, intercept = _nonnegative(inputs, correct)
    return {"a": weights[0], "b": weights[1], "intercept": intercept, "limits": limits}, notes


def apply_beta(confidence: Floats, parameters: Parameters) -> Floats:
    clipped = _clipped(confidence, parameters["limits"], "beta")
    return _sigmoid(
        parameters["a"] * np.log(clipped) - parameters["b"] * np.log1p(-clipped) + parameters["intercept"]
    )


def _nonnegative(inputs: Floats, correct: Flags) -> tuple[list[float], float]:
    """The best weights [2] that are not negative, and the intercept: the best of all choices of weights set to 0."""
    tried: list[tuple[list[float], float]] = [([0.0, 0.0], _constant(correct))]
    for chosen in ([0], [1], [0, 1]):
        found, intercept = _logistic(inputs[:, chosen], correct)
        if min(found) >= 0:
            weights = [0.0, 0.0]
            for column, weight in zip(chosen, found, strict=True):
                weights[column] = weight
            tried.append((weights, intercept))
    return min(tried, key=lambda one: _loss(inputs @ np.array(one[0]) + one[1], correct))


def _targets(correct: Flags) -> tuple[float, float]:
    """Platt's targets of right and wrong predictions."""
    right = int(np.count_nonzero(correct))
    return (right + 1) / (right + 2), 1 / (len(correct) - right + 2)


def _constant(correct: Flags) -> float:
    """The best intercept without any input."""
    target = float(np.where(correct, *_targets(correct)).mean())
    return float(np.log(target / (1 - target)))


def _loss(score: Floats, correct: Flags) -> float:
    target = np.where(correct, *_targets(correct))
    return float((np.logaddexp(0, score) - target * score).mean())


def _logistic(inputs: Floats, correct: Flags) -> tuple[list[float], float]:
    """Weights and intercept of the logistic regression of Platt's targets on inputs [n, d], without a penalty."""
    from scipy.linalg import LinAlgWarning
    from sklearn.linear_model import LogisticRegression  # slow to import

    unit = np.abs(inputs).max(axis=0)  # scaled first, so that no sum overflows
    unit[unit == 0] = 1
    scaled = inputs / unit
    mean, spread = scaled.mean(axis=0), scaled.std(axis=0)
    if (spread <= 1e-12).any():
        return [0.0] * inputs.shape[1], _constant(correct)
    target = np.where(correct, *_targets(correct))
    # A target between 0 and 1 is a right row and a wrong row with weights.
    rows, kinds = np.tile((scaled - mean) / spread, (2, 1)), np.repeat([1, 0], len(correct))
    model = LogisticRegression(C=np.inf, solver="newton-cholesky", tol=1e-10, max_iter=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LinAlgWarning)  # it falls back to another solver
        fitted = model.fit(rows, kinds, sample_weight=np.concatenate([target, 1 - target]))
    weight = fitted.coef_[0] / spread
    return (weight / unit).tolist(), float(fitted.intercept_[0] - weight @ mean)


def _sigmoid(score: Floats) -> Floats:
    from scipy.special import expit

    result: Floats = expit(score)
    return result


def _log_odds(share: Floats) -> Floats:
    return np.log(share) - np.log1p(-share)


def _limits(confidence: Floats) -> tuple[list[float], list[str]]:
    """What 0 and 1 count as, since their logarithms are infinite, and a note if there are any.

    They move halfway to the nearest other confidence. If there is none, they move by half a prediction of n.
    """
    others = confidence[(confidence > 0) & (confidence < 1)]
    low, high = (others.min(), 1 - others.max()) if len(others) else (1 / len(confidence),) * 2
    limits = [max(float(low) / 2, TINY), 1 - max(float(high) / 2, EPSILON)]
    notes = [
        f"{count:,} of {len(confidence):,} confidences are {end} and count as {limit:.12g}"
        for end, limit in zip((0, 1), limits, strict=True)
        if (count := int(np.count_nonzero(confidence == end)))
    ]
    return limits, notes


def _clipped(confidence: Floats, limits: list[float], method: str) -> Floats:
    _check_shares(confidence, method)
    return np.clip(confidence, limits[0], limits[1])


def _check_shares(confidence: Floats, method: str) -> None:
    low, high = confidence.min(initial=0), confidence.max(initial=1)
    if low < 0 or high > 1:
        raise InputError(
            f"expected confidence within [0, 1] for {method}, but got {low if low < 0 else high:g}",
            "choose the {method} isotonic or histogram for a score",
        )
