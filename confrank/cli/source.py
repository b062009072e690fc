"""Read predictions from a file or a run folder, as the flags that several commands share say."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.cli.command import Arguments, Parser, add_option
from confrank.errors import about

if TYPE_CHECKING:
    from confrank.metrics import Samples
    from confrank.predictions import Predictions


@dataclass(frozen=True)
class Source:
    """What was read: its display name, its path, the predictions, and their values per sample."""

    name: str
    path: Path
    predictions: "Predictions"
    samples: "Samples"


def add_reading(parser: Parser, *, labelled: bool = True) -> None:
    """Add the flags that say how to read a file, for `reading_of`; without those about labels if there are none."""
    reading = parser.add_argument_group("reading")
    columns = "what columns hold, as in label=gold,prediction=answer,confidence=conf,probability:cat=p1"
    add_option(reading, "--columns", str, "ROLE=COLUMN,...", columns)
    if labelled:
        add_option(reading, "--truth", str, "FILE", "take the labels from this file")
        add_option(reading, "--on", str, "COLUMN", "column to join --truth by, or COLUMN=COLUMN if the names differ")
    add_option(reading, "--positive", str, "CLASS", "the score is the probability of this class")
    add_option(reading, "--scale", str, "X", "divide probabilities and confidence by this, e.g. 100; log: logarithms")
    reading.add_argument("--logits", action="store_true", help="class columns hold logits")
    reading.add_argument("--probabilities", action="store_true", help="class columns hold probabilities")
    skip = "leave out rows without a label, prediction or score, and count them"
    reading.add_argument("--skip-missing", action="store_true", help=skip)
    limit = "refuse a compressed file that unpacks to more (default: 2, or $CONFRANK_MAX_GIGABYTES)"
    add_option(reading, "--max-gigabytes", float, "X", limit)


def add_file(parser: Parser, what: str, metavar: str = "FILE", *, labelled: bool = True) -> None:
    """Add the file of predictions that a command reads, and the flags of `add_reading`."""
    parser.add_argument("file", type=str, metavar=metavar, help=what)
    add_reading(parser, labelled=labelled)


def reading_of(arguments: Arguments) -> dict[str, Any]:
    """What `confrank.predictions.read` takes, from the flags of `add_reading`."""
    names = ("truth", "on", "positive", "logits", "probabilities", "skip_missing", "max_gigabytes")
    given = {name: getattr(arguments, name) for name in names if name in arguments}
    return given | {"columns": columns_of(arguments.columns), "scale": _scale_of(arguments.scale)}


def role_columns(reading: Mapping[str, Any], role: str) -> list[str]:
    """The role as the name of a column, if --columns gives it one."""
    return [role] if role in reading["columns"] else []


def kept(reading: Mapping[str, Any], *columns: str | None) -> list[str]:
    """The columns that `read` has to keep: those that are given and that --columns does not name already."""
    return [*dict.fromkeys(column for column in columns if column is not None and column not in reading["columns"])]


def weight_column(arguments: Arguments, reading: Mapping[str, Any]) -> str | None:
    """The column of weights: that of --sample-weight, or the one that --columns calls so."""
    given: str | None = arguments.sample_weight
    return given or next(iter(role_columns(reading, "sample_weight")), None)


def refuse_weight_column(reading: Mapping[str, Any]) -> None:
    """Raise if --columns names weights: a guarantee takes none."""
    from confrank.decisions.guarantee import refuse_weights

    if role_columns(reading, "sample_weight"):
        refuse_weights([], "leave sample_weight out of {columns}")


def columns_of(text: str | None) -> dict[str, str]:
    """The column of each role.

    >>> columns_of("label=gold, probability:a=p1"), columns_of(None)
    ({'label': 'gold', 'probability:a': 'p1'}, {})
    """
    columns: dict[str, str] = {}
    for part in [] if text is None else text.split(","):
        role, mark, name = part.partition("=")
        if not mark or not role.strip() or not name.strip():
            raise ValueError(f"expected --columns ROLE=COLUMN,..., but got {part.strip()!r}")
        if role.strip() in columns:
            raise ValueError(f"expected each role once in --columns, but got {role.strip()!r} twice")
        columns[role.strip()] = name.strip()
    return columns


def _scale_of(text: str | None) -> Any:
    if text is None or text == "log":
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"expected a number or log for --scale, but got {text!r}") from None


def read_source(
    file: str, name: str | None = None, reading: Mapping[str, Any] | None = None, keep: Sequence[str] = ()
) -> Source:
    """Read a file of predictions or a run folder; its name is its path unless another is given.

    `reading` is what `reading_of` gives, and `keep` names columns to keep.
    """
    from confrank.metrics import sample_values
    from confrank.predictions import read

    path = predictions_path(file)
    if path != Path(file) and not path.exists():
        raise ValueError(
            f"expected a finished run in {file}, but it has no predictions yet; resume it with the same command"
        )
    predictions = read(path, **(reading or {}), keep=keep)
    with about(name or file):
        return Source(name or file, Path(file), predictions, sample_values(**predictions.evaluation_inputs()))


def print_read(
    predictions: "Predictions", samples: "Samples", *, guarantees: bool = True, policy: str | None = None
) -> None:
    """Print what was read, before anything can fail, and what a guarantee assumes of it.

    The notes of a `policy` say themselves which rows are copies.
    """
    notes = dependence_notes(predictions, "the guarantee does not hold") if guarantees else []
    notes += _copy_notes(predictions) if guarantees and policy is None else []
    print("\n".join([f"read {predictions.describe()}", *samples.notes, *notes]))


def read_weighted(arguments: Arguments) -> tuple["Predictions", "Samples"]:
    """The predictions of a command's file and their values per sample, with weights if there is a column of them."""
    from confrank.analysis.columns import weights_of
    from confrank.metrics.inputs import as_weights

    reading = reading_of(arguments)
    column = weight_column(arguments, reading)
    source = read_source(arguments.file, reading=reading, keep=kept(reading, arguments.sample_weight))
    if column is None:
        return source.predictions, source.samples
    weights = weights_of(source.predictions.extra[column], column)
    samples = source.samples.weighted(weights)
    return source.predictions.select(as_weights(weights, len(weights)) > 0), samples


def predictions_path(file: str) -> Path:
    """The path itself, or the predictions of the test split if it is a run folder."""
    from confrank.runs.folder import RunFolder

    path = Path(file)
    return RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path


def temperature_of(predictions: "Predictions", file: str) -> str | None:
    """The temperature that the logits were already divided by, as written in the file's metadata."""
    text = predictions.metadata.get("temperature")
    if text is None:
        return None
    try:
        if 0 < float(text) < math.inf:
            return text
    except ValueError:
        pass
    raise ValueError(f"expected the temperature recorded in {file} to be a positive number, but got {text[:80]!r}")


def confidence_rule(predictions: "Predictions") -> tuple[str | None, bool]:
    """The confidence that ranks, where it is known by name, and whether it is that of an average."""
    from confrank.method_facts import facts_of

    facts = facts_of(predictions.metadata.get("method", ""))
    if "calibrator" in predictions.metadata:  # SelectiveClassifier applies no calibrator but a temperature
        return None, False
    if "members" in predictions.metadata or facts.averaged:
        return None, True
    if predictions.table is not None and predictions.confidence is None:
        return "max_probability", False
    return facts.confidence, False


def dependence_notes(predictions: "Predictions", what: str) -> list[str]:
    """A line if several rows have one id, as images of one patient, and nobody said what rows belong to."""
    repeated = [name for name, role in predictions.roles.items() if role == "ignored (not unique)"]
    if predictions.key is not None or "cluster" in predictions.extra or not repeated:
        return []
    name = repeated[0]
    return [f"note: {name} is not unique; if rows of one {name} depend on each other, {what}"]


def _copy_notes(predictions: "Predictions") -> list[str]:
    import numpy as np

    from confrank.decisions.identity import copied_from, identity_of
    from confrank.decisions.policy_rows import copy_notes

    origin = copied_from(identity_of(predictions))
    return [f"note: {note}" for note in copy_notes(origin, np.arange(len(predictions)))]
