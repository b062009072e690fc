"""Every metric of one model, from arrays, a data frame or predictions that were read."""

from __future__ import annotations  # so that `help` shows the signature as it is written

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from confrank.metrics.evaluation import Evaluation, evaluation_of
from confrank.metrics.inputs import column_names, describe, to_numpy
from confrank.metrics.samples import LOGITS_LIKE_PROBABILITIES, sample_values, unknown_name

if TYPE_CHECKING:
    from confrank.metrics.inputs import ArrayLike, Classes
    from confrank.predictions import Predictions


def evaluate(
    label: Classes | Predictions | Mapping[str, Classes] | None = None,
    probabilities: ArrayLike | None = None,
    *,
    logits: ArrayLike | None = None,
    confidence: ArrayLike | None = None,
    correct: ArrayLike | None = None,
    prediction: Classes | None = None,
    classes: Classes | None = None,
    sample_weight: ArrayLike | None = None,
    **others: object,
) -> Evaluation:
    """Every metric that the given arrays define.

    Give `label` [n] with `probabilities` or `logits` [n, K], or `confidence` [n] with `correct` [n] (or with
    `label` and `prediction` [n]). With two classes, `probabilities` [n] are those of class 1, and `logits` [n] its
    logit. If you give a table and `confidence`, the ranking metrics use `confidence`, and ECE, NLL and Brier use the
    table. With `sample_weight` [n], each prediction counts with its weight. Alone, the first argument may also be a
    data frame whose columns are those of a file, what `confrank.predictions.read` returns, or arrays by name.
    Labels and predictions are class numbers or names. `classes` [K] names the columns of the table in their order, as
    `model.classes_` does in scikit-learn; a data frame does so itself. Rows of pandas must agree in their index.
    Rows of rounded probabilities (sums within 0.01 of 1, or more for many classes) are divided by their sum; logits
    that look like probabilities raise a warning.

    >>> result = evaluate([0, 1], [[0.75, 0.25], [0.5, 0.5]])
    >>> result.metrics["acc"], result.metrics["aurc"], result.metrics["brier"]
    (0.5, 0.25, 0.3125)
    >>> evaluate(confidence=[3.0, 7.5], correct=[True, True]).undefined["ece"]
    'confidence is outside [0, 1]: it is a score, not a probability'
    """
    given: dict[str, Any] = {
        "label": label, "probabilities": probabilities, "logits": logits, "confidence": confidence,
        "correct": correct, "prediction": prediction, "classes": classes, "sample_weight": sample_weight,
    }  # fmt: skip
    if others:
        raise unknown_name([*others], [*given])
    table: Any = label
    is_frame, alone = (
        column_names(table) is not None,
        [name for name in given if given[name] is not None] == ["label"],
    )
    if alone and (is_frame or isinstance(table, Mapping) or hasattr(table, "evaluation_inputs")):
        from confrank.predictions import as_predictions, read  # only what has columns needs it

        given = (read(table) if is_frame else as_predictions(table)).evaluation_inputs()
    elif label is not None and to_numpy(table).ndim == 2 and (probabilities is None or np.ndim(probabilities) == 1):
        raise ValueError(
            f"expected the label of each row [n], but got {describe(to_numpy(table))}; the label comes first, as in"
            " evaluate(label, probabilities)"
        )
    samples = sample_values(**given)
    if LOGITS_LIKE_PROBABILITIES in samples.notes:
        warnings.warn(LOGITS_LIKE_PROBABILITIES, stacklevel=2)
    return evaluation_of(samples)
