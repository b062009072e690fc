"""Names of columns and arrays whose role is recognised."""

import re

ROLES: dict[str, tuple[str, ...]] = {
    "label": (
        "label", "labels", "target", "targets", "y_true", "true_label", "ground_truth", "gold", "gold_label", "truth",
        "true_class", "actual", "actual_class", "actual_label", "gt", "gt_label",
    ),
    "prediction": (
        "prediction", "predictions", "predicted", "pred", "preds", "y_pred", "predicted_label", "pred_label",
        "predicted_class", "y_hat",
    ),
    "confidence": ("confidence", "confidences", "conf", "score", "y_score"),
    "correct": ("correct", "is_correct"),
    "index": ("index",),
    "probabilities": ("probabilities", "probs", "y_prob", "y_proba"),
    "logits": ("logits",),
    "class_names": ("class_names", "classes"),
}  # fmt: skip
# Natural logarithms of the confidence.
LOG_NAMES = ("logprob", "log_prob", "logprobs", "log_probability", "mean_logprob", "avg_logprob")
# Roles of columns that no other column has, in a file with labels.
WEAK_ROLES = {
    **dict.fromkeys(("answer", "response", "model_answer", "output"), "prediction"),
    **dict.fromkeys(("probability", "prob", "max_probability", "max_prob", *LOG_NAMES), "confidence"),
}
# The label if no other column is one; it may also be a class.
WEAK_LABEL = "y"
# Next to them, y is a coordinate or a class.
COORDINATES = {"x", "z", "n"}
PREFIXES = {
    "probabilities": ("probability_", "probabilities_", "proba_", "prob_", "p_"),
    "logits": ("logit_", "logits_"),
}
# Common names of columns that identify samples, the most specific first; the first is what the caller calls one.
FILES = ("path", "image_path", "filename", "file_name", "file")
KEY_NAMES = ("key", *FILES, "image_id", "sample_id", "question_id", "example_id", "uid", "id")
# Never a class. pandas writes the index of a table without a name in the second line.
ROW_NAMES = {"", "row", "unnamed: 0", "__index_level_0__", *KEY_NAMES}
_ROLE_OF = {alias: role for role, aliases in ROLES.items() for alias in aliases}


def role_of(name: str) -> str | None:
    """
    >>> role_of("Y_true"), role_of("Predicted label"), role_of("colour")
    ('label', 'prediction', None)
    """
    return _ROLE_OF.get(re.sub(r"[ -]+", "_", name.strip().lower()))


def holds_class_names(name: str) -> bool:
    """
    >>> holds_class_names("Classes"), holds_class_names("class")
    (True, False)
    """
    return role_of(name) == "class_names"


def key_of(name: str) -> str | None:
    """
    >>> key_of("ID "), key_of("label")
    ('id', None)
    """
    return key if (key := name.strip().lower()) in KEY_NAMES else None
