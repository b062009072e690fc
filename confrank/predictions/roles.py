"""Which column is what: as the caller says, or by its name in any format. Case does not matter.

Class columns are `probability_NAME` or `logit_NAME`; in a table with a label and no score, all other columns are
taken as classes, and their values decide between probabilities and logits. A single column of probabilities with
labels 0 and 1 is that of class 1.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from confrank.errors import InputError, named
from confrank.predictions.tables import Table, check_distinct, number

Scale = float | Literal["log"]
Kind = Literal["probabilities", "logits"]
# Roles of columns that are kept, under the name of the role.
EXTRA_ROLES = ("group", "cluster", "sample_weight", "text", "time")
COLUMN_ROLES = (
    "label", "prediction", "confidence", "correct", "probabilities", "logits", "index", "key", *EXTRA_ROLES
)  # fmt: skip
CLASS_ROLES: dict[str, Kind] = {"probability:": "probabilities", "logit:": "logits"}
TRUE_ROLES = ("label", "correct")
# Roles that another file of the same kind need not have: its record leaves them out.
UNRECORDED = ("cluster", "sample_weight", "text", "time")
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
# Next to these, they are coordinates or classes.
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
# Roles of all classes at once; `outputs` are probabilities or logits, as their values say.
TABLES = {"probabilities", "logits", "outputs", "submitted"}
FORMS = (
    "label with probability_NAME or logit_NAME of each class (or arrays probabilities or logits),"
    " or label, prediction and confidence, or confidence and correct"
)
UNLABELLED = "probability_NAME or logit_NAME of each class (or arrays probabilities or logits), or a confidence"


@dataclass(frozen=True)
class Said:
    """What the caller said about a source; see `read`. `kind` says what class columns hold, whatever their names."""

    columns: Mapping[str, str] = field(default_factory=dict)
    keep: Sequence[str] = ()
    positive: str | None = None
    scale: Scale | None = None
    kind: Kind | None = None
    skip_missing: bool = False
    labelled: bool = True
    classes: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for role in self.columns:
            if role not in COLUMN_ROLES and not (_prefix(role) and role != _prefix(role)):
                known = ", ".join([*COLUMN_ROLES, *(f"{prefix}NAME" for prefix in CLASS_ROLES)])
                raise InputError(f"expected a role among {known}, but got {role!r}", "change {columns}")
        if self.scale is not None and self.scale != "log" and not 0 < self.scale < math.inf:
            raise InputError(f"expected a positive number or 'log', but got {self.scale!r}", "change {scale}")

    def record(self, values: Sequence[str]) -> dict[str, Any]:
        """What to read other files like this one by; {} if nothing was said. `values` are the columns of its scores.

        >>> Said(columns={"label": "gold"}, scale=100).record(["score"])
        {'columns': {'label': 'gold'}, 'scale': 100, 'values': ['score']}
        """
        columns = {role: name for role, name in self.columns.items() if role not in UNRECORDED}
        said = {"columns": columns, "positive": self.positive, "scale": self.scale, "kind": self.kind}
        given = {name: value for name, value in said.items() if value}
        return given | {"values": [*values]} if given else {}

    def recalling(self, record: Mapping[str, Any], names: Collection[str]) -> tuple["Said", list[str]]:
        """This, completed by the record of another file, for a file with columns of these names; and a note on that.

        Columns of the record count where the file has them, and the rest if it has the columns of the scores and the
        caller names no others. What the caller says overrides it, except that another positive class is an error.
        """
        present = {_plain(name) for name in names}
        settled = {*self.columns, *(() if self.labelled else TRUE_ROLES)}
        columns = {
            role: name
            for role, name in record.get("columns", {}).items()
            if _plain(name) in present and role not in settled and name not in self.columns.values()
        }
        values = {_plain(name) for name in record.get("values", ())}
        scores = ("confidence", "probabilities", "logits")
        chosen = {_plain(name) for role, name in self.columns.items() if role in scores or ":" in role}
        is_alike = values <= present and chosen <= values
        said = {name: record.get(name) for name in ("positive", "scale", "kind")} if is_alike else {}
        if self.positive is not None and said.get("positive") not in (None, self.positive):
            raise InputError(
                f"expected the probability of {said['positive']!r}, as in the file that the policy was made on, but"
                f" got that of {self.positive!r}",
                "leave out {positive}",
            )
        added: dict[str, Any] = {
            name: value for name, value in said.items() if value is not None and getattr(self, name) is None
        }
        shown = []
        for name, value in (columns | added).items():
            shown.append(f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}")
        keep = [name for name in self.keep if name not in columns]
        completed = replace(self, keep=keep, columns={**self.columns, **columns}, **added)
        return completed, [f"read as the policy records: {', '.join(shown)}"] if shown else []


@dataclass(frozen=True)
class Roles:
    """The column of each role, those of the classes in their order, and of what to keep; the rest is `ignored`.

    Columns that may identify samples are roles too, under their own names (those of `KEY_NAMES`). `kind` is
    probabilities or logits, or None if the values must decide; `class_names` is None if the classes are numbered from
    0; `is_bare` if classes are just the columns without another role. The caller `declared` some roles.
    """

    columns: dict[str, str]
    classes: list[str]
    kind: str | None
    class_names: list[str] | None
    is_bare: bool
    extra: dict[str, str]
    ignored: list[str]
    declared: frozenset[str]


def assign_roles(table: Table, said: Said) -> Roles:
    """The role of each column; a `ValueError` says what is missing, repeated or in doubt."""
    names = table.names
    check_distinct(names)
    declared: dict[str, str] = {}
    classes: dict[str, str] = {}  # columns by the names of classes
    for role, name in said.columns.items():
        if prefix := _prefix(role):
            classes[role.removeprefix(prefix)] = column_named(names, name)
        else:
            declared[role] = column_named(names, name)
    extra = {role: declared.pop(role) for role in EXTRA_ROLES if role in declared}
    roles = declared | ({} if classes else _outputs(table, declared))
    taken = {*roles.values(), *classes.values(), *extra.values()}
    extra = {name: column_named(names, name) for name in said.keep} | extra
    roles |= _recognised(table, taken, declared, said)
    kind, classes = _classes(names, said, classes, taken)
    bare = _bare(table, {*roles.values(), *extra.values()}, said.classes)
    if not said.labelled:
        roles = _without_truth(roles, said, has_classes=bool(classes))
    single = {}  # a column of the probabilities or logits of all classes that has no lists, if others may be meant
    for role in PREFIXES:
        if role in roles and (classes or roles[role] not in table.lists):
            single[role] = roles.pop(role)
    has_label = "label" in roles or not said.labelled
    is_bare = False
    if has_label and not (classes or single or {"confidence", *TABLES} & {*roles}):
        classes, is_bare = bare, bool(bare)
    known = {*roles, *(() if said.labelled else TRUE_ROLES)}
    columns, class_names = _in_class_order(classes)
    for role, name in single.items():
        if has_label and not _is_complete(known, bool(columns), said) and (role in declared or not bare):
            kind, columns = role, [name]
    for name in names:
        if (key := key_of(name)) and name not in taken:
            roles.setdefault(key, name)
    used = {*roles.values(), *columns, *extra.values()}
    ignored = [name for name in names if name not in used]
    if not _is_complete(known, bool(columns), said):
        _refuse_incomplete(names, {*known, *(["probabilities"] if columns else [])}, single, said)
    return Roles(roles, columns, said.kind or kind, class_names, is_bare, extra, ignored, frozenset(declared))


def column_named(names: Sequence[str], name: str) -> str:
    """A column by its name as written, or else without regard to case and spaces."""
    for one in names:
        if one == name:
            return one
    for one in names:
        if _plain(one) == _plain(name):
            return one
    raise InputError(f"expected a column {name!r}, but got the columns {shown(names)}")


def has_column(names: Sequence[str], name: str) -> bool:
    return _plain(name) in map(_plain, names)


def shown(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 200 else f"{text[:200]}..."


def role_of(name: str) -> str | None:
    """
    >>> role_of("Y_true"), role_of("Predicted label"), role_of("colour")
    ('label', 'prediction', None)
    """
    return _ROLE_OF.get(re.sub(r"[ -]+", "_", _plain(name)))


def key_of(name: str) -> str | None:
    """
    >>> key_of("ID "), key_of("label")
    ('id', None)
    """
    return key if (key := _plain(name)) in KEY_NAMES else None


def holds_class_names(name: str) -> bool:
    """
    >>> holds_class_names("Classes"), holds_class_names("class")
    (True, False)
    """
    return role_of(name) == "class_names"


def _plain(name: str) -> str:
    return name.strip().lower()


def _prefix(role: str) -> str:
    return next((prefix for prefix in CLASS_ROLES if role.startswith(prefix)), "")


def _outputs(table: Table, declared: Mapping[str, str]) -> dict[str, str]:
    """The column of lists that is named as the outputs of a network, if no other column has scores."""
    found, others = [], {*declared}
    for name in table.names:
        role = role_of(name)
        if name in table.lists and (_plain(name) in OUTPUT_NAMES or role in ("prediction", "confidence")):
            found.append(name)
        elif any(_plain(name).startswith(prefixes) for prefixes in PREFIXES.values()) and name not in table.lists:
            others.add("probabilities")
        elif role is not None:
            others.add(role)
    if not found or {"confidence", "correct", *TABLES} & others:
        return {}
    if len(found) > 1:
        raise InputError(
            f"expected one array of the outputs of all classes, but got {named(found)}",
            f"choose with {{columns}}, as in logits={found[0]}",
        )
    return {"outputs": found[0]}


def _recognised(table: Table, taken: Collection[str], declared: Mapping[str, str], said: Said) -> dict[str, str]:
    """The columns with a role by their names, except those already taken; an error if two claim one role."""
    candidates: dict[str, list[str]] = {}
    for name in table.names:
        role = role_of(name)
        if role and role != "class_names" and name not in taken and (role not in declared or role == table.truth):
            candidates.setdefault(role, []).append(name)
    labels = candidates.get("label", [])
    predicted = "prediction" in candidates or "prediction" in declared
    has_score = "confidence" in candidates or "confidence" in declared
    if table.truth == "label":  # a label next to a file of labels is what was submitted
        if len(labels) == 1 and not predicted:
            candidates["prediction" if has_score else "submitted"] = labels
        candidates.pop("label", None)
    elif len(labels) == 2 and has_score and not predicted:  # as pipelines of transformers write them
        submitted = [name for name in labels if _plain(name) == "label"]
        if len(submitted) == 1:
            candidates["prediction"] = submitted
            candidates["label"] = [name for name in labels if name not in submitted]
    if table.truth == "correct":
        candidates.pop("correct", None)
    for role, found in candidates.items():
        if len(found) > 1:
            raise InputError(
                f"expected one column of the role {role}, but got {named([repr(name.strip()) for name in found])}",
                f"choose with {{columns}}, as in {role}={found[0].strip()}",
            )
    roles = {role: found[0] for role, found in candidates.items()}
    known = {*roles, *declared}
    plain = {_plain(name): name for name in table.names}
    weak_labels = [plain[name] for name in WEAK_LABELS if name in plain and plain[name] not in taken]
    if said.labelled and weak_labels and not {"label", "correct"} & known and not COORDINATES & {*plain}:
        roles["label"] = weak_labels[0]
        known.add("label")
    for name in table.names:
        weak = WEAK_ROLES.get(_plain(name))
        if name in taken or weak is None or (said.labelled and "label" not in known and table.truth is None):
            continue
        if _plain(name) in ("prob", "probability") and "prediction" not in known and table.truth != "correct":
            weak = "probabilities"  # of class 1
        if weak not in known:
            roles[weak] = name
            known.add(weak)
    return roles


def _classes(
    names: Sequence[str], said: Said, classes: dict[str, str], taken: Collection[str]
) -> tuple[str | None, dict[str, str]]:
    """Probabilities or logits, and the class columns: those that the caller named, or else those with a prefix."""
    tables: dict[str, dict[str, str]] = {}
    if classes:
        tables = {CLASS_ROLES[_prefix(role)]: classes for role in said.columns if _prefix(role)}
    for kind, prefixes in {} if classes else PREFIXES.items():
        found = []
        for name in names:
            prefix = next((one for one in prefixes if _plain(name).startswith(one)), None)
            if prefix and role_of(name) is None and name not in taken:
                found.append((name.strip()[len(prefix) :], name))
        if len({one for one, _ in found}) < len(found):
            raise ValueError(f"expected distinct classes, but got {shown([one for one, _ in found])}")
        if len(found) > 1:  # a single one is something else, like p_value
            tables[kind] = dict(found)
    if len(tables) > 1:
        raise InputError(
            f"expected columns of probabilities or of logits, but got both: {shown(names)}",
            "choose with {columns}, as in probability:NAME=COLUMN",
        )
    return next(iter(tables.items()), (None, {}))


def _bare(table: Table, others: Collection[str], known: Collection[str] | None) -> dict[str, str]:
    """The columns without a known name: the classes, if there are two or more; only `known` ones if all are there."""
    columns = {}
    for name in table.names:
        if (
            role_of(name) is None
            and _plain(name) not in ROW_NAMES
            and name not in {*others, *table.lists, *table.never}
        ):
            columns[name.strip()] = name
    if known and {*known} <= columns.keys():
        columns = {name: columns[name] for name in columns if name in known}
    return columns if len(columns) > 1 else {}


def _without_truth(roles: dict[str, str], said: Said, *, has_classes: bool) -> dict[str, str]:
    """The roles without the truth; a column `label` next to a score alone is the prediction of a pipeline."""
    others = {"prediction", "correct", "probabilities", "logits", "outputs"} & {*roles}
    found = {role: name for role, name in roles.items() if role not in TRUE_ROLES}
    is_alone = {"label", "confidence"} <= {*roles} and not others and not has_classes and said.positive is None
    if is_alone and _plain(roles["label"]) == "label" and "label" not in said.columns:
        found["prediction"] = roles["label"]
    return found


def _in_class_order(classes: dict[str, str]) -> tuple[list[str], list[str] | None]:
    """Numbered classes (0..K-1) by number; named ones in the order of the file, with their names."""
    numbers = [str(number) for number in range(len(classes))]
    if {*classes} == {*numbers}:
        return [classes[number] for number in numbers], None
    return [*classes.values()], [*classes]


def _is_complete(known: Collection[str], has_classes: bool, said: Said) -> bool:
    """Whether the roles are one of the forms that can be evaluated."""
    if has_classes or TABLES & {*known}:
        return "label" in known
    if said.positive is not None and {"label", "confidence"} <= {*known}:
        return True
    return "confidence" in known and ("correct" in known or {"label", "prediction"} <= {*known})


def _refuse_incomplete(names: Sequence[str], known: Collection[str], single: Mapping[str, str], said: Said) -> None:
    if single and "label" not in known:
        raise InputError(
            f"expected a column of labels, but got the columns {shown(names)}",
            "name it with {columns}, as in label=COLUMN, or give the labels with {truth} FILE",
        )
    for role, name in single.items():
        raise InputError(
            f"expected a column of {role} for each class, named {PREFIXES[role][0]}NAME, or an array [n, K],"
            f" but got the single column {name[:80]!r}",
            "add those of the other classes",
        )
    problem = f"expected {FORMS if said.labelled else UNLABELLED}, but got the columns {shown(names)}"
    if not said.labelled:
        raise InputError(problem, "say what they are with {columns}, as in confidence=COLUMN")
    if {"label", "confidence"} <= {*known}:
        raise InputError(problem, "use {positive} NAME if the score is the probability of the class NAME")
    if {"label", "prediction"} <= {*known}:
        raise InputError(problem, "say which column is the confidence with {columns}, as in confidence=COLUMN")
    if {"prediction", "confidence"} <= {*known} or TABLES & {*known}:
        raise InputError(problem, "give the labels with {columns}, as in label=COLUMN, or with {truth} FILE")
    if any(number(name) is not None for name in names):
        raise InputError(problem, "add a line with the names of the columns if the file has none")
    raise InputError(
        problem,
        "say what they are with {columns}, as in label=COLUMN,prediction=COLUMN,confidence=COLUMN, or add the labels"
        " with {truth} FILE",
    )
