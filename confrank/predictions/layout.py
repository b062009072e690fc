"""The role of each column or array, recognised by its name in any format.

Case does not matter. Class columns are `probability_NAME` or `logit_NAME`; in a table with a label and no confidence,
all other columns are taken as classes, and their values decide between probabilities and logits.
A single column of probabilities with labels 0 and 1 is that of class 1.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

ROLES: dict[str, tuple[str, ...]] = {
    "label": ("label", "labels", "target", "targets", "y_true", "true_label", "ground_truth"),
    "prediction": ("prediction", "predictions", "predicted", "pred", "preds", "y_pred", "predicted_label"),
    "confidence": ("confidence", "confidences", "conf", "score"),
    "correct": ("correct", "is_correct"),
    "index": ("index",),
    "probabilities": ("probabilities", "probs", "y_prob", "y_proba"),
    "logits": ("logits",),
    "class_names": ("class_names", "classes"),
}
PREFIXES = {"probabilities": ("probability_", "prob_", "p_"), "logits": ("logit_",)}
FORMS = (
    "label with probability_NAME or logit_NAME of each class (or arrays probabilities or logits),"
    " or label, prediction and confidence, or confidence and correct"
)
# Common names of columns that identify samples, the most specific first.
FILES = ("path", "image_path", "filename", "file_name", "file")
KEY_NAMES = (*FILES, "image_id", "sample_id", "id")
# Never a class.
ROW_NAMES = {"", "row", "unnamed: 0", *KEY_NAMES}
_ROLE_OF = {alias: role for role, aliases in ROLES.items() for alias in aliases}


@dataclass(frozen=True)
class Layout:
    """Column numbers of each role, and of the class columns in class order.

    `kind` is probabilities or logits, or None if the values must decide; `class_names` is None if the classes are
    numbered from 0; `ignored` names the unused columns. Columns that may identify samples are roles too, under
    their own names (those of `KEY_NAMES`). `extra` are the columns asked for by name, which are kept as they are.
    """

    roles: dict[str, int]
    table: list[int]
    kind: str | None
    class_names: list[str] | None
    ignored: list[str]
    extra: dict[str, int] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        """The column numbers of roles and extra columns; the latter are called `extra:NAME`."""
        return self.roles | {f"extra:{name}": number for name, number in self.extra.items()}


def role_of(name: str) -> str | None:
    """
    >>> role_of("Y_true"), role_of("colour")
    ('label', None)
    """
    return _ROLE_OF.get(name.strip().lower())


def key_of(name: str) -> str | None:
    """
    >>> key_of("ID "), key_of("label")
    ('id', None)
    """
    return key if (key := name.strip().lower()) in KEY_NAMES else None


def layout_of(header: Sequence[str], *, lists: Collection[str] = (), keep: Collection[str] = ()) -> Layout:
    """The role of each column; a `ValueError` says what is missing or repeated.

    The columns among `lists` hold a list in each row, such as the probabilities or logits of all classes; those
    among `keep` are kept as extra columns, and are not classes.
    """
    extra = _kept(header, keep)
    roles = _roles(header)
    roles.pop("class_names", None)  # an array in other formats, never a column
    tables = {kind: _class_columns(header, prefixes) for kind, prefixes in PREFIXES.items()}
    kinds = [kind for kind, columns in tables.items() if columns]
    if len(kinds) > 1:
        raise ValueError(f"expected columns of probabilities or of logits, but got both: {_shown(header)}")
    kind = kinds[0] if kinds else None
    table, bare = tables[kind] if kind else {}, _bare_columns(header, {*extra.values()})
    single = {role: roles[role] for role in PREFIXES if role in roles and (table or header[roles[role]] not in lists)}
    roles = {role: column for role, column in roles.items() if role not in single}
    if not table and not single and "label" in roles and not {"confidence", "probabilities", "logits"} & {*roles}:
        table = bare
    classes, names = _in_class_order(table)
    is_needed = "label" in roles and not is_complete(roles, has_table=bool(classes))
    if is_needed and "probabilities" in single and not bare:
        kind, classes = "probabilities", [single["probabilities"]]
    for column, name in enumerate(header):
        if key := key_of(name):
            roles.setdefault(key, column)
    used = {*roles.values(), *classes, *extra.values()}
    ignored = [name for column, name in enumerate(header) if column not in used]
    if not is_complete(roles, has_table=bool(classes)):
        for role, column in single.items():
            raise ValueError(
                f"expected a column of {role} for each class, named {PREFIXES[role][0]}NAME,"
                f" but got the single column {header[column][:80]!r}; add those of the other classes"
            )
        raise ValueError(f"expected {FORMS}, but got the columns {_shown(header)}")
    return Layout(roles, classes, kind, names, ignored, extra)


def is_complete(names: "set[str] | dict[str, int]", *, has_table: bool) -> bool:
    """Whether the named arrays are one of the forms that can be evaluated."""
    has_table = has_table or "probabilities" in names or "logits" in names
    if has_table:
        return "label" in names
    return "confidence" in names and ("correct" in names or {"label", "prediction"} <= {*names})


def _roles(header: Sequence[str]) -> dict[str, int]:
    roles: dict[str, int] = {}
    seen: set[str] = set()
    for column, name in enumerate(header):
        role = role_of(name)
        if (name.strip() and name in seen) or (role and role in roles):
            raise ValueError(
                f"expected distinct columns, but got {name[:80]!r} for the second time: {_shown(header)}"
            )
        seen.add(name)
        if role:
            roles[role] = column
    return roles


def _class_columns(header: Sequence[str], prefixes: tuple[str, ...]) -> dict[int, str]:
    columns = {}
    for column, name in enumerate(header):
        prefix = next((item for item in prefixes if name.strip().lower().startswith(item)), None)
        if prefix and role_of(name) is None:
            columns[column] = name.strip()[len(prefix) :]
    return columns if len(columns) > 1 else {}  # a single one is something else, like p_value


def _kept(header: Sequence[str], keep: Collection[str]) -> dict[str, int]:
    """The columns asked for by name, as they are written or else without regard to case and spaces."""
    plain = [name.strip().lower() for name in header]
    extra = {}
    for name in keep:
        if name in header:
            extra[name] = list(header).index(name)
        elif (wanted := name.strip().lower()) in plain:
            extra[name] = plain.index(wanted)
        else:
            raise ValueError(f"expected a column {name!r}, but got the columns {_shown(header)}")
    return extra


def _bare_columns(header: Sequence[str], others: Collection[int]) -> dict[int, str]:
    """The columns without a known name: the classes, if there are two or more."""
    columns = {column: name for column, name in enumerate(header) if role_of(name) is None}
    columns = {
        column: name
        for column, name in columns.items()
        if name.strip().lower() not in ROW_NAMES and column not in others
    }
    return columns if len(columns) > 1 else {}


def _in_class_order(table: dict[int, str]) -> tuple[list[int], list[str] | None]:
    """Numbered classes (0..K-1) by number; named ones in the order of the file, with their names."""
    names = list(table.values())
    if len(set(names)) < len(names):
        raise ValueError(f"expected distinct classes, but got {_shown(names)}")
    columns = {name: column for column, name in table.items()}
    if {*names} == {str(number) for number in range(len(names))}:
        return [columns[str(number)] for number in range(len(names))], None
    return list(table), names


def _shown(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 200 else f"{text[:200]}..."
