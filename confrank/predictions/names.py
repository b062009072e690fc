"""Names of columns and arrays whose role is recognised."""

import re

ROLES: dict[str, tuple[str, ...]] = {
    "label": (
        "label", "labels", "target", "targets", "y_true", "true_label", "ground_truth", "gold", "gold_label", "truth",
        "true_class", "actual", "actual_class", "actual_label", "gt", "gt_label", "y_test", "label_ids",
    ),
    "prediction": (
        "prediction", "predictions", "predicted", "pred", "preds", "y_pred", "predicted_label", "pred_label",
        "predicted_class", "y_hat", "predict", ".pred_class",
    ),
    "confidence": ("confidence", "confidences", "conf", "score", "y_score"),
    "correct": ("correct", "is_correct"),
    "index": ("index",),
    "probabilities": ("probabilities", "probs", "y_prob", "y_proba"),
    "logits": ("logits",),
    "class_names": ("class_names", "classes"),
}  # fmt: skip
# Lists or arrays [n, K] of such names are the outputs of a network: probabilities or logits, as their values say.
OUTPUT_NAMES = (
    "output", "outputs", "scores", "proba", "predict_proba", "pred_probs", "pred_proba", "softmax", "class_scores",
)  # fmt: skip
# Natural logarithms of the confidence.
LOG_NAMES = ("logprob", "log_prob", "logprobs", "log_probability", "mean_logprob", "avg_logprob")
# Roles of columns that no other column has, in a file with labels.
WEAK_ROLES = {
    **dict.fromkeys(("answer", "response", "model_answer", "output"), "prediction"),
    **dict.fromkeys(("probability", "prob", "max_probability", "max_prob", *LOG_NAMES), "confidence"),
}
# The label if no other column is one: y may also be a class, and obs (of caret in R) the number of an observation.
WEAK_LABELS = ("y", "obs", "observed")
# Next to them, y is a coordinate or a class.
COORDINATES = {"x", "z", "n"}
PREFIXES = {
    "probabilities": ("probability_", "probabilities_", "proba_", "prob_", "p_", ".pred_"),
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


def may_be_outputs(name: str) -> bool:
    """Whether an array [n, K] of this name holds the outputs of a network: "predictions" may be classes or these.

    >>> may_be_outputs("Outputs"), may_be_outputs("y_pred"), may_be_outputs("features")
    (True, True, False)
    """
    return name.strip().lower() in OUTPUT_NAMES or role_of(name) in ("prediction", "confidence")


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
