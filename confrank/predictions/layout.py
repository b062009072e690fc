"""The role of each column or array: as the caller says, or recognised by its name in any format.

Case does not matter. Class columns are `probability_NAME` or `logit_NAME`; in a table with a label and no confidence,
all other columns are taken as classes, and their values decide between probabilities and logits.
A single column of probabilities with labels 0 and 1 is that of class 1.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from confrank.errors import InputError, named
from confrank.predictions.cells import number
from confrank.predictions.names import (
    COORDINATES,
    PREFIXES,
    ROW_NAMES,
    WEAK_LABELS,
    WEAK_ROLES,
    key_of,
    may_be_outputs,
    role_of,
)
from confrank.predictions.reading import CLASS_ROLES, EXTRA_ROLES, PLAIN, TRUE_ROLES, Reading

FORMS = (
    "label with probability_NAME or logit_NAME of each class (or arrays probabilities or logits),"
    " or label, prediction and confidence, or confidence and correct"
)
# Roles of columns that hold all classes, or one of two; `outputs` are probabilities or logits, as their values say.
TABLES = {"probabilities", "logits", "outputs", "submitted"}
UNLABELLED = "probability_NAME or logit_NAME of each class (or arrays probabilities or logits), or a confidence"


@dataclass(frozen=True)
class Layout:
    """Column numbers of each role, and of the class columns in class order.

    `kind` is probabilities or logits, or None if the values must decide; `class_names` is None if the classes are
    numbered from 0; `ignored` names the unused columns. Columns that may identify samples are roles too, under
    their own names (those of `KEY_NAMES`). `extra` are the columns to keep as they are. `declared` are the roles that
    the caller gave, and `names` the names of columns in the file, by role.
    """

    roles: dict[str, int]
    table: list[int]
    kind: str | None
    class_names: list[str] | None
    ignored: list[str]
    extra: dict[str, int] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    names: dict[str, str] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        """The column numbers of roles and extra columns; the latter are called `extra:NAME`."""
        return self.roles | {f"extra:{name}": number for name, number in self.extra.items()}


def layout_of(
    header: Sequence[str],
    *,
    lists: Collection[str] = (),
    reading: Reading = PLAIN,
    elsewhere: Collection[str] = (),
    bare: bool = True,
) -> Layout:
    """The role of each column; a `ValueError` says what is missing or repeated.

    The columns among `lists` hold a list in each row, such as the probabilities or logits of all classes. Another
    file has the roles `elsewhere`. Without `bare`, columns are never classes for want of another role.
    """
    check_distinct(header)
    declared, classes = _declared(header, reading)
    outputs = {} if classes else _outputs(header, lists, declared)
    taken = {*declared.values(), *classes.values(), *outputs.values()}
    extra = {name: column_number(header, name) for name in reading.keep}
    extra |= {role: declared.pop(role) for role in EXTRA_ROLES if role in declared}
    roles = declared | outputs | _recognised(header, taken, {*declared}, {*elsewhere}, labelled=reading.labelled)
    kind, table = _class_table(header, reading, classes, taken)
    no_classes = {*roles.values(), *extra.values(), *(at for at, name in enumerate(header) if name in lists)}
    unknown = _bare_columns(header, no_classes, reading.classes) if bare else {}
    if not reading.labelled:
        roles, elsewhere = _without_truth(header, roles, has_table=bool(table), reading=reading), TRUE_ROLES
    single = {role: roles[role] for role in PREFIXES if role in roles and (table or header[roles[role]] not in lists)}
    roles = {role: column for role, column in roles.items() if role not in single}
    has_label = "label" in roles or "label" in elsewhere
    is_scored = table or single or {"confidence", *TABLES} & {*roles}
    if has_label and not is_scored:
        table = unknown
    numbers, names = _in_class_order(table)
    known = {*roles, *elsewhere}
    is_needed = has_label and not is_complete(known, has_table=bool(numbers), reading=reading)
    for role in single if is_needed and not numbers else ():
        if role in declared or not unknown:
            kind, numbers = role, [single[role]]
    for column, name in enumerate(header):
        if (key := key_of(name)) and column not in taken:
            roles.setdefault(key, column)
    used = {*roles.values(), *numbers, *extra.values()}
    ignored = [name for column, name in enumerate(header) if column not in used]
    if not is_complete(known, has_table=bool(numbers), reading=reading):
        scored = ["probabilities"] if numbers else []
        _refuse_incomplete(header, {*known, *scored}, single, FORMS if reading.labelled else UNLABELLED)
    at = {role: header[column] for role, column in roles.items()}
    return Layout(roles, numbers, reading.kind or kind, names, ignored, extra, frozenset(declared), at)


def is_complete(names: Collection[str], *, has_table: bool, reading: Reading = PLAIN) -> bool:
    """Whether the named arrays are one of the forms that can be evaluated."""
    if has_table or TABLES & {*names}:
        return "label" in names
    if reading.positive is not None and {"label", "confidence"} <= {*names}:
        return True
    return "confidence" in names and ("correct" in names or {"label", "prediction"} <= {*names})


def check_distinct(header: Sequence[str]) -> None:
    """Raise if two columns have the same name."""
    first: dict[str, int] = {}
    for column, name in enumerate(name.strip() for name in header):
        if name and name in first:
            raise InputError(
                f"expected distinct columns, but got {name[:80]!r} twice, as columns {first[name] + 1} and"
                f" {column + 1}",
                "rename one of them",
            )
        first[name] = column


def column_number(header: Sequence[str], name: str) -> int:
    """The number of a column, by its name as written, or else without regard to case and spaces."""
    if name in header:
        return list(header).index(name)
    plain = [item.strip().lower() for item in header]
    if name.strip().lower() in plain:
        return plain.index(name.strip().lower())
    raise InputError(f"expected a column {name!r}, but got the columns {shown(header)}")


def shown(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _outputs(header: Sequence[str], lists: Collection[str], declared: Collection[str]) -> dict[str, int]:
    """The column of lists that is named as the outputs of a network, if no other column has scores."""
    others = {role_of(name) for name in header if name not in lists or not may_be_outputs(name)}
    prefixes = tuple(prefix for group in PREFIXES.values() for prefix in group)
    is_scored = {"confidence", "correct", *TABLES} & (others | {*declared})
    if is_scored or any(name.strip().lower().startswith(prefixes) for name in header if name not in lists):
        return {}
    found = [column for column, name in enumerate(header) if name in lists and may_be_outputs(name)]
    if len(found) > 1:
        raise InputError(
            "expected one array of the outputs of all classes, but got"
            f" {named([header[column] for column in found])}",
            f"choose with {{columns}}, as in logits={header[found[0]]}",
        )
    return {"outputs": found[0]} if found else {}


def _prefix(role: str) -> str:
    return next((prefix for prefix in CLASS_ROLES if role.startswith(prefix)), "")


def _declared(header: Sequence[str], reading: Reading) -> tuple[dict[str, int], dict[str, int]]:
    """The columns that the caller named: by role, and by class."""
    roles, classes = {}, {}
    for role, name in reading.columns.items():
        if prefix := _prefix(role):
            classes[role.removeprefix(prefix)] = column_number(header, name)
        else:
            roles[role] = column_number(header, name)
    return roles, classes


def _recognised(
    header: Sequence[str],
    taken: Collection[int],
    declared: Collection[str],
    elsewhere: Collection[str],
    *,
    labelled: bool,
) -> dict[str, int]:
    """The columns with a role by their names, except those already taken; an error if two claim one role."""
    candidates: dict[str, list[int]] = {}
    for column, name in enumerate(header):
        role = role_of(name)
        if role and role != "class_names" and column not in taken and role not in declared:
            candidates.setdefault(role, []).append(column)
    _label_as_prediction(header, candidates, {*declared}, {*elsewhere})
    for role, columns in candidates.items():
        if len(columns) > 1:
            names = [header[column].strip() for column in columns]
            raise InputError(
                f"expected one column of the role {role}, but got {named([repr(name) for name in names])}",
                f"choose with {{columns}}, as in {role}={names[0]}",
            )
    roles = {role: columns[0] for role, columns in candidates.items()}
    if labelled and not {"label", "correct"} & {*roles, *declared, *elsewhere}:
        plain = [name.strip().lower() for name in header]
        weak_label = next((name for name in WEAK_LABELS if name in plain), "")
        if weak_label and plain.index(weak_label) not in taken and not COORDINATES & {*plain}:
            roles["label"] = plain.index(weak_label)
    known = {*roles, *declared}
    for column, name in enumerate(header):
        weak = WEAK_ROLES.get(name.strip().lower())
        if column in taken or weak is None or (labelled and "label" not in known and not elsewhere):
            continue
        needs_prediction = name.strip().lower() in ("prob", "probability") and "correct" not in elsewhere
        if weak == "confidence" and needs_prediction and "prediction" not in known:
            weak = "probabilities"
        if weak not in known:
            roles[weak] = column
            known.add(weak)
    return roles


def _label_as_prediction(
    header: Sequence[str], candidates: dict[str, list[int]], declared: set[str], elsewhere: set[str]
) -> None:
    """A column `label` is the prediction next to a score and a gold column: so do pipelines of transformers write it.

    A label next to a file of labels is what was submitted: the prediction, or the probability of class 1.
    """
    labels = candidates.get("label", [])
    has_score = "confidence" in candidates or "confidence" in declared
    predicted = "prediction" in candidates or "prediction" in declared
    if "label" in elsewhere or "label" in declared:
        if len(labels) == 1 and not predicted:
            candidates["prediction" if has_score else "submitted"] = candidates.pop("label")
        return
    named_label = [column for column in labels if header[column].strip().lower() == "label"]
    if len(labels) == 2 and len(named_label) == 1 and has_score and not predicted:
        candidates["prediction"] = named_label
        candidates["label"] = [column for column in labels if column not in named_label]


def _class_table(
    header: Sequence[str], reading: Reading, classes: dict[str, int], taken: Collection[int]
) -> tuple[str | None, dict[int, str]]:
    """Probabilities or logits, and the class columns: those that the caller named, or else those with a prefix."""
    tables: dict[str, dict[int, str]]
    if classes:
        kinds = [*dict.fromkeys(CLASS_ROLES[_prefix(role)] for role in reading.columns if _prefix(role))]
        tables = {kind: {number: name for name, number in classes.items()} for kind in kinds}
    else:
        found = {kind: _class_columns(header, prefixes, taken) for kind, prefixes in PREFIXES.items()}
        tables = {kind: columns for kind, columns in found.items() if columns}
    if len(tables) > 1:
        raise InputError(
            f"expected columns of probabilities or of logits, but got both: {shown(header)}",
            "choose with {columns}, as in probability:NAME=COLUMN",
        )
    return next(iter(tables.items()), (None, {}))


def _class_columns(header: Sequence[str], prefixes: tuple[str, ...], taken: Collection[int]) -> dict[int, str]:
    columns = {}
    for column, name in enumerate(header):
        prefix = next((item for item in prefixes if name.strip().lower().startswith(item)), None)
        if prefix and role_of(name) is None and column not in taken:
            columns[column] = name.strip()[len(prefix) :]
    return columns if len(columns) > 1 else {}  # a single one is something else, like p_value


def _without_truth(
    header: Sequence[str], roles: dict[str, int], *, has_table: bool, reading: Reading
) -> dict[str, int]:
    """The roles without the truth; a column `label` next to a score alone is the prediction of a pipeline."""
    others = {"prediction", "correct", "probabilities", "logits", "outputs"} & {*roles}
    predicted = {}
    if {"label", "confidence"} <= {*roles} and not others and not has_table and reading.positive is None:
        named_label = header[roles["label"]].strip().lower() == "label" and "label" not in reading.columns
        predicted = {"prediction": roles["label"]} if named_label else {}
    return {role: column for role, column in roles.items() if role not in TRUE_ROLES} | predicted


def _bare_columns(
    header: Sequence[str], others: Collection[int], classes: Collection[str] | None = None
) -> dict[int, str]:
    """The columns without a known name: the classes, if there are two or more; only `classes` if all are there."""
    columns = {
        column: name.strip()
        for column, name in enumerate(header)
        if role_of(name) is None and name.strip().lower() not in ROW_NAMES and column not in others
    }
    if classes and {*classes} <= {*columns.values()}:
        columns = {column: name for column, name in columns.items() if name in classes}
    return columns if len(columns) > 1 else {}


def _in_class_order(table: dict[int, str]) -> tuple[list[int], list[str] | None]:
    """Numbered classes (0..K-1) by number; named ones in the order of the file, with their names."""
    names = list(table.values())
    if len(set(names)) < len(names):
        raise ValueError(f"expected distinct classes, but got {shown(names)}")
    columns = {name: column for column, name in table.items()}
    if {*names} == {str(number) for number in range(len(names))}:
        return [columns[str(number)] for number in range(len(names))], None
    return list(table), names


def _refuse_incomplete(
    header: Sequence[str], known: Collection[str], single: dict[str, int], forms: str = FORMS
) -> None:
    if single and "label" not in known:
        raise InputError(
            f"expected a column of labels, but got the columns {shown(header)}",
            "name it with {columns}, as in label=COLUMN, or give the labels with {truth} FILE",
        )
    for role, column in single.items():
        raise InputError(
            f"expected a column of {role} for each class, named {PREFIXES[role][0]}NAME, or an array [n, K],"
            f" but got the single column {header[column][:80]!r}",
            "add those of the other classes",
        )
    problem = f"expected {forms}, but got the columns {shown(header)}"
    if forms != FORMS:
        raise InputError(problem, "say what they are with {columns}, as in confidence=COLUMN")
    if {"label", "confidence"} <= {*known}:
        raise InputError(problem, "use {positive} NAME if the score is the probability of the class NAME")
    if {"label", "prediction"} <= {*known}:
        raise InputError(problem, "say which column is the confidence with {columns}, as in confidence=COLUMN")
    if {"prediction", "confidence"} <= {*known} or {"probabilities", "logits", "outputs"} & {*known}:
        raise InputError(problem, "give the labels with {columns}, as in label=COLUMN, or with {truth} FILE")
    if any(number(name) is not None for name in header):
        raise InputError(problem, "add a line with the names of the columns if the file has none")
    raise InputError(
        problem,
        "say what they are with {columns}, as in label=COLUMN,prediction=COLUMN,confidence=COLUMN, or add the labels"
        " with {truth} FILE",
    )
