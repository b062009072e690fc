"""What commands take: kinds of values, options that several commands share, and how a command is declared."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from cyclopts import App, Group, Parameter
from cyclopts.token import Token

from confrank.errors import about, counted, did_you_mean

if TYPE_CHECKING:
    from confrank.metrics import Samples
    from confrank.predictions import Predictions

Function = TypeVar("Function", bound=Callable[..., None])
Format = Literal["terminal", "markdown", "latex", "csv"]


def _shown(value: Any) -> Any:
    """A default as help shows it: None and False say nothing."""
    return None if value is None or value is False else value


DEFAULTS = Parameter(negative=(), allow_repeating=True, show_default=_shown, show_choices=False)
APP: App = App(
    name="confrank",
    help="Train classifiers that know what they do not know; evaluate any model.",
    default_parameter=DEFAULTS,
    group_arguments=Group.create_ordered("arguments"),
    group_parameters=Group.create_ordered("options"),
    help_formatter="default",
)
DOORS: dict[str, list[str]] = {"measure": [], "decide": [], "train": [], "research": []}
GROUPS = {
    name: Group.create_ordered(name)
    for name in (
        "network and method",
        "training",
        "recipe",
        "data",
        "detectors",
        "costs",
        "groups and weights",
        "new rows",
        "texts",
        "output",
        "computing",
        "reading",
    )
}


def command(door: str, guide: str, example: str, app: App = APP) -> Callable[[Function], Function]:
    """Make a function a command: its parameters are the options, its docstring is the help."""

    def declare(function: Function) -> Function:
        if app is APP:
            DOORS[door].append(function.__name__)
        epilogue = f"example: {example}\n\nguide: docs/{guide}"
        app.command(function, help_epilogue=epilogue, group=door if app is APP else None)
        return function

    return declare


def actions(door: str, name: str, summary: str) -> App:
    """A command that consists of actions."""
    app = App(name=name, help=summary, group=door)
    DOORS[door].append(name)
    APP.command(app)
    return app


def _number(kind: Any, tokens: Sequence[Token]) -> Any:
    """A whole or real number; a share may be mistaken for per cent."""
    text, name = tokens[0].value, tokens[0].keyword
    try:
        value = kind(text)
        if math.isfinite(value):
            return value
    except ValueError:
        pass
    share = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", text) if kind is float else None
    what, hint = "a number" if kind is float else "a whole number", ""
    if share:
        hint = f"; did you mean {float(share[1]) / 100:g}?"
    raise ValueError(f"expected {what} for {name}, but got {text!r}{hint}")


def at_least(minimum: int) -> Callable[[Any, Any], None]:
    """A validator of whole numbers."""

    def check(kind: Any, value: Any) -> None:
        if value is not None and value < minimum:
            raise ValueError(f"to be at least {minimum}, but got {value}")

    return check


def _check_share(kind: Any, value: Any) -> None:
    _check_coverage(kind, value, "(0, 1)")


def _check_coverage(kind: Any, value: Any, limits: str = "(0, 1]") -> None:
    if value is not None and not (0 < value < 1 or (value == 1 and limits.endswith("]"))):
        hint = f"; did you mean {value / 100:g}?" if 1 < value < 100 else ""
        raise ValueError(f"in {limits}, but got {value:g}{hint}")


def _path_ending_in(*suffixes: str, stream: bool = False) -> Callable[[Any, Sequence[Token]], Path]:
    """A converter to the path of a file to write with one of these endings, or of a pipe or device."""

    def convert(kind: Any, tokens: Sequence[Token]) -> Path:
        from confrank.files import is_stream

        path, flag = Path(tokens[0].value), tokens[0].keyword
        if not tokens[0].value:
            raise ValueError("expected a path to write, but got an empty one")
        if path.is_dir():
            raise ValueError(f"expected a file to write, but {path} is a folder; name a file in it")
        if path.suffix not in suffixes and not (stream and is_stream(path)):
            endings = " or ".join(filter(None, [", ".join(suffixes[:-1]), suffixes[-1]]))
            raise ValueError(f"expected {flag} to name a file ending in {endings}, but got {path}")
        return path

    return convert


def _folder(kind: Any, tokens: Sequence[Token]) -> Path:
    if not tokens[0].value:
        raise ValueError("expected a path to write, but got an empty one")
    return Path(tokens[0].value)


def _listed(kind: Any, tokens: Sequence[Token]) -> list[str]:
    return listed(",".join(token.value for token in tokens))


def listed(text: str) -> list[str]:
    """
    >>> listed("random, entropy,")
    ['random', 'entropy']
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ValueError(f"expected values separated by commas, but got {text!r}")
    return parts


def _seeds(kind: Any, tokens: Sequence[Token]) -> list[int]:
    text = tokens[0].value
    try:
        seeds = [int(part) for part in listed(text)]
    except ValueError:
        seeds = []
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"expected --seeds to be distinct whole numbers like 0,1,2,3, but got {text!r}")
    return seeds


def shares(kind: Any, tokens: Sequence[Token]) -> tuple[float, ...]:
    """Numbers separated by commas, in brackets or not."""
    text = tokens[0].value
    try:
        return tuple(map(float, listed(text.strip("[] "))))
    except ValueError:
        raise ValueError(f"expected --lr-drops to be numbers like 0.5,0.8, but got {text!r}") from None


def _device(kind: Any, tokens: Sequence[Token]) -> str:
    name = tokens[0].value
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", name):
        hint = did_you_mean(name, ("auto", "cpu", "cuda", "cuda:0"))
        raise ValueError(f"expected --device to be one of auto, cpu, cuda, cuda:N, but got {name!r}{hint}")
    return name


Whole = Annotated[int, Parameter(converter=_number, metavar="N")]
Natural = Annotated[int, Parameter(converter=_number, validator=at_least(0), metavar="N")]
Count = Annotated[int, Parameter(converter=_number, validator=at_least(1), metavar="N")]
Folds = Annotated[int, Parameter(converter=_number, validator=at_least(2), metavar="N")]
Number = Annotated[float, Parameter(converter=_number, metavar="X")]
Minutes = Annotated[float, Parameter(converter=_number, validator=at_least(0), metavar="X")]
Share = Annotated[float, Parameter(converter=_number, validator=_check_share, metavar="SHARE")]
Part = Annotated[float, Parameter(converter=_number, metavar="SHARE")]  # which the library checks
Coverage = Annotated[float, Parameter(converter=_number, validator=_check_coverage, metavar="SHARE")]
Name = Annotated[str, Parameter(metavar="NAME")]
Names = Annotated[list[str], Parameter(converter=_listed, n_tokens=1, metavar="NAME,...")]
ManyNames = Annotated[list[str], Parameter(converter=_listed, consume_multiple=1, metavar="NAME")]
Seeds = Annotated[list[int], Parameter(converter=_seeds, n_tokens=1, metavar="N,...")]
Column = Annotated[str, Parameter(metavar="COLUMN")]
Columns = Annotated[list[str], Parameter(converter=_listed, n_tokens=1, metavar="COLUMN,...")]
InFile = Annotated[str, Parameter(metavar="FILE")]
JsonFile = Annotated[Path, Parameter(converter=_path_ending_in(".json", stream=True), metavar="FILE")]
PolicyFile = Annotated[Path, Parameter(converter=_path_ending_in(".json"), metavar="FILE")]
CsvFile = Annotated[Path, Parameter(converter=_path_ending_in(".csv"), metavar="FILE")]
Calibrated = Annotated[Path, Parameter(converter=_path_ending_in(".safetensors", ".csv"), metavar="FILE")]
Picture = Annotated[Path, Parameter(converter=_path_ending_in(".png", ".svg", ".pdf"), metavar="FILE")]
Page = Annotated[Path, Parameter(converter=_path_ending_in(".html", ".htm"), metavar="FILE")]
OutFolder = Annotated[Path, Parameter(converter=_folder, metavar="FOLDER")]
OutFile = Annotated[Path, Parameter(metavar="FILE")]
# Said once, for the commands that take them.
Device = Annotated[
    str,
    Parameter(
        converter=_device, metavar="NAME", help="device to compute on: auto, cpu, cuda or cuda:N",
        group=GROUPS["computing"],
    ),
]  # fmt: skip
Root = Annotated[
    Path,
    Parameter(metavar="FOLDER", help="folder of data sets (default: $CONFRANK_DATA or a user cache)"),
]


@dataclass(frozen=True)
class Source:
    """What was read: its display name, its path, the predictions, and their values per sample."""

    name: str
    path: Path
    predictions: "Predictions"
    samples: "Samples"


@Parameter(name="*", group=GROUPS["reading"])
@dataclass(frozen=True)
class ReadingNew:
    """How to read a file of predictions; see docs/reference/prediction-files.md.

    Args:
        columns: what columns hold, as in label=gold,confidence=conf,probability:cat=p1
        positive: the score is the probability of this class
        scale: divide probabilities and confidence by this, e.g. 100; log: logarithms
        logits: class columns hold logits
        probabilities: class columns hold probabilities
        skip_missing: leave out rows without a label, prediction or score; count them
        max_gigabytes: refuse a compressed file that unpacks to more (default: 2, or $CONFRANK_MAX_GIGABYTES)
    """

    columns: Annotated[str | None, Parameter(metavar="ROLE=COLUMN,...")] = None
    positive: Annotated[str | None, Parameter(metavar="CLASS")] = None
    scale: Annotated[str | None, Parameter(metavar="X")] = None
    logits: bool = False
    probabilities: bool = False
    skip_missing: bool = False
    max_gigabytes: Number | None = None

    def options(self) -> dict[str, Any]:
        """What `confrank.predictions.read` takes."""
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        return given | {"columns": self.roles(), "scale": self._scale()}

    def roles(self) -> dict[str, str]:
        """The column of each role.

        >>> ReadingNew(columns="label=gold, probability:a=p1").roles()
        {'label': 'gold', 'probability:a': 'p1'}
        """
        columns: dict[str, str] = {}
        for part in [] if self.columns is None else self.columns.split(","):
            role, mark, name = part.partition("=")
            if not mark or not role.strip() or not name.strip():
                raise ValueError(f"expected --columns ROLE=COLUMN,..., but got {part.strip()!r}")
            if role.strip() in columns:
                raise ValueError(f"expected each role once in --columns, but got {role.strip()!r} twice")
            columns[role.strip()] = name.strip()
        return columns

    def _scale(self) -> Any:
        if self.scale is None or self.scale == "log":
            return self.scale
        try:
            return float(self.scale)
        except ValueError:
            raise ValueError(f"expected a number or log for --scale, but got {self.scale!r}") from None

    def column(self, given: str | None, role: str) -> str | None:
        """The column given, or the one to which --columns gives this role."""
        return role if given is None and role in self.roles() else given

    def read(self, file: str, keep: Sequence[str | None] = (), **options: Any) -> "Predictions":
        """The predictions of a file or run folder, with these columns kept."""
        from confrank.predictions import read

        path, given = predictions_path(file), {**self.options(), **options}
        if path != Path(file) and not path.exists():
            raise ValueError(
                f"expected a finished run in {file}, but it has no predictions yet; resume it with the same command"
            )
        columns = [column for column in keep if column is not None and column not in given["columns"]]
        return read(path, **given, keep=list(dict.fromkeys(columns)))

    def answers(self, file: str, policy: Any) -> tuple["Predictions", Any]:
        """The predictions of a file, read without labels, and what a policy answers."""
        from confrank.decisions.answers import row_names

        new = {"labelled": False, "classes": policy.classes, "like": policy.input.reading}
        known = ("label", "correct", "sample_weight")  # roles that new rows need not have
        roles = self.roles()
        if isinstance(self, Reading):
            roles = {role: column for role, column in roles.items() if role not in known}
            new |= {"truth": None, "on": None}
        predictions = self.read(file, policy.columns, columns=roles, **new)
        if self.skip_missing and "row" in row_names(predictions):
            raise ValueError(
                f"expected a column that identifies rows in {file}, since --skip-missing may leave some out,"
                " but got none; add a column id"
            )
        with about(file):
            return predictions, policy.apply(predictions)


@Parameter(name="*", group=GROUPS["reading"])
@dataclass(frozen=True)
class Reading(ReadingNew):
    """How to read a file of predictions with labels.

    Args:
        truth: take the labels from this file
        on: column to join --truth by, or COLUMN=COLUMN if the names differ
    """

    truth: InFile | None = None
    on: Column | None = None

    def source(self, file: str, name: str | None = None, keep: Sequence[str | None] = (), **options: Any) -> Source:
        """Read a file of predictions or a run folder; its name is its path unless another is given."""
        from confrank.metrics import sample_values

        predictions = self.read(file, keep, **options)
        with about(name or file):
            samples = sample_values(**predictions.evaluation_inputs())
        return Source(name or file, Path(file), predictions, samples)

    def weighted(self, file: str, sample_weight: str | None) -> tuple["Predictions", "Samples"]:
        """The predictions of a file and their values per sample, with weights if there is a column of them."""
        from confrank.analysis.columns import weights_of
        from confrank.metrics.inputs import as_weights

        column = self.column(sample_weight, "sample_weight")
        source = self.source(file, keep=[column])
        if column is None:
            return source.predictions, source.samples
        weights = weights_of(source.predictions.extra[column], column)
        samples = source.samples.weighted(weights)
        return source.predictions.select(as_weights(weights, len(weights)) > 0), samples

    def refuse_weights(self) -> None:
        """Raise if --columns names weights: a guarantee takes none."""
        from confrank.decisions.guarantee import refuse_weights

        if "sample_weight" in self.roles():
            refuse_weights([], "leave sample_weight out of {columns}")


@Parameter(name="*", group=GROUPS["output"])
@dataclass(frozen=True)
class Output:
    """Where the numbers go.

    Args:
        json: write the numbers to this file (.json)
    """

    json: JsonFile | None = None

    def write(self, values: Any) -> None:
        from confrank.runs.outputs import write_json

        write_json(self.json, values)


def predictions_path(file: str) -> Path:
    """The path itself, or the predictions of the test split if it is a run folder."""
    from confrank.runs.folder import RunFolder

    path = Path(file)
    return RunFolder(path).predictions("test") if RunFolder(path).config.exists() else path


def device_of(name: str, ray: str | None = None) -> Any:
    """The torch device of a --device flag; on a Ray cluster it is meant for the tasks, and None for auto."""
    import torch

    from confrank.environment import default_device, keep_freed_memory

    if ray is not None:
        return None if name == "auto" else torch.device(name)
    kind, _, number = name.partition(":")
    available = torch.cuda.device_count()
    if kind == "cuda" and int(number or 0) >= available:
        found, remedy = counted(available, "GPU") if available else "none", "use --device auto"
        if available > 1:
            remedy = f"use --device cuda:0 to cuda:{available - 1}"
        raise ValueError(f"expected a GPU for --device {name}, but torch finds {found}; {remedy}")
    device = default_device() if name == "auto" else torch.device(name)
    if device.type == "cpu":
        keep_freed_memory()  # a command has its process to itself
    return device
