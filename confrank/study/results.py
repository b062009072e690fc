"""The result of a full run: a small JSON and a small npz, enough to redraw every table and figure."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.config import RunConfig
from confrank.errors import InputError
from confrank.files import packed, write_atomically
from confrank.method_facts import facts_of
from confrank.metrics import Samples, evaluation_of, sample_values
from confrank.predictions import Predictions, load_predictions
from confrank.runs.folder import RunFolder, load_config
from confrank.scores import choose, score

STORED = ("config", "environment", "log", "metrics", "undefined")
# What only some results have.
FURTHER = ("validation", "scores", "mirrored", "shift")
DAMAGED = "if it is damaged, remove it, and run the command that wrote it again"


@dataclass(frozen=True)
class Result:
    """A finished run: flat config, environment, epoch log and test metrics.

    `validation` are the metrics of the held-out images. `scores` name the score that these choose, and rank both
    splits by every score. `mirrored` and `shift` are from `confrank.research.exam`.
    """

    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    log: list[dict[str, Any]]
    metrics: dict[str, float | None]
    undefined: dict[str, str]
    validation: dict[str, float | None] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    mirrored: dict[str, dict[str, float | None]] = field(default_factory=dict)
    shift: dict[str, dict[str, dict[str, float | None]]] = field(default_factory=dict)


def export_run(run: Path, results: Path) -> Path:
    """Write results/NAME.json and results/NAME.npz of a finished run folder, with its held-out images if any."""
    result, arrays = read_run(run)
    held_out = RunFolder(run).predictions("holdout")
    if held_out.exists():
        validation = load_predictions(held_out)
        samples = sample_values(**validation.evaluation_inputs())
        scores = _scores(validation, load_predictions(RunFolder(run).predictions("test")))
        result = replace(result, validation=evaluation_of(samples).metrics, scores=scores)
        arrays |= _stored(samples, "validation_")
    return _write(results / f"{run.name}.json", result, arrays)


def extend_result(path: Path, further: Mapping[str, Any]) -> Path:
    """Add further measurements, by their names in `FURTHER`, to a result."""
    assert not {*further} - {*FURTHER}
    load_result(path)  # raises if it is damaged
    write_atomically(path, _json({**json.loads(path.read_text()), **further}))
    return path


def _scores(validation: Predictions, test: Predictions) -> dict[str, Any]:
    """The score chosen on one split; by score, its ranking of that split (of the judged half) and of the other."""
    try:
        choice = choose(logits=validation.logits, probabilities=validation.probabilities, label=validation.label)
    except InputError as error:  # too few images
        return {"undefined": error.problem}
    metrics = {}
    correct = sample_values(**test.evaluation_inputs()).correct
    for name, parameters in choice.fitted.items():
        values = score(name, logits=test.logits, probabilities=test.probabilities, **parameters)
        all_metrics = evaluation_of(sample_values(confidence=values, correct=correct)).metrics
        metrics[name] = {key: all_metrics[key] for key in choice.judged.metrics[name]}
    # A matrix has as many values as pairs of classes.
    parameters = {name: given for name, given in choice.fitted.items() if given and "matrix" not in given}
    return {
        "chosen": choice.name,
        "candidate": choice.candidate,
        "parameters": parameters,
        "validation": choice.judged.metrics,
        "test": metrics,
    }


def read_run(path: Path) -> tuple[Result, dict[str, NDArray[Any]]]:
    """A finished run from its folder, or from a results JSON and its npz.

    Arrays: `confidence` and `correct` on the test split, `probability` if the method ranks by another score,
    `history_examined`, `history_correct`, `history_index`; a results JSON may also have `validation_confidence` and
    `validation_correct`, on the held-out split.
    """
    if path.suffix == ".json":
        for part in (path, path.with_suffix(".npz")):
            if not part.is_file():
                raise ValueError(f"expected the .json and the .npz of a result, but {part} does not exist")
        return load_result(path), _arrays(path.with_suffix(".npz"), "confidence", "correct")
    folder, config, log = finished_run(path)
    names = ("examined", "correct", "index")
    counts = {f"history_{name}": values for name, values in _arrays(folder.history, *names).items()}
    predictions = load_predictions(folder.predictions("test"))
    return _judged(path.name, config.as_dict(), environment_of(folder), log, predictions, counts)


def environment_of(folder: RunFolder) -> dict[str, Any]:
    """The versions, hardware and data digests of a run."""
    try:
        environment = json.loads(folder.environment.read_text())
    except ValueError:
        environment = None
    if not isinstance(environment, dict):
        raise ValueError(f"expected a JSON object in {folder.environment}, but got something else; {DAMAGED}")
    return environment


def has_other_data(path: Path, folder: RunFolder) -> bool:
    """Whether a result comes from other data than the run in a folder; early ones do not say."""
    then = load_result(path).environment.get("data")
    now = environment_of(folder).get("data") if folder.environment.exists() else None
    return None not in (now, then) and now != then


def is_of_run(path: Path, run: Path) -> bool:
    """Whether a result is of the training in this folder: no two have the same log, which holds seconds."""
    return load_result(path).log == RunFolder(run).read_log()


def finished_run(path: Path) -> tuple[RunFolder, RunConfig, list[dict[str, Any]]]:
    """The folder, config and epoch log of a run, which must be finished."""
    folder, config = RunFolder(path), load_config(path)
    log = folder.read_log()
    if not folder.history.exists() or len(log) != config.epochs:
        raise ValueError(f"expected a finished run in {path}, but it has {len(log)} of {config.epochs} epochs")
    return folder, config, log


def samples_in(arrays: dict[str, NDArray[Any]], prefix: str = "") -> Samples:
    """The test samples among the arrays of `read_run`, or those of another split by the prefix of its names."""
    confidence = arrays[f"{prefix}confidence"]
    probability = arrays.get(f"{prefix}probability", confidence)
    return Samples(confidence, arrays[f"{prefix}correct"], probability=probability)


def export_average(
    name: str, predictions: Predictions, config: dict[str, Any], environment: dict[str, Any], results: Path
) -> Path:
    """Write the same files for a method that averages runs; its config lists the members."""
    return _write(results / f"{name}.json", *_judged(name, config, environment, [], predictions, {}))


def load_result(path: Path) -> Result:
    """Read a results JSON."""
    try:
        content = json.loads(path.read_text())
    except (ValueError, OSError) as error:
        raise ValueError(f"expected a result in {path}, but it cannot be read ({error}); {DAMAGED}") from None
    if problem := _problem(content):
        raise ValueError(f"expected {', '.join(STORED)} of a run in {path}, but {problem}; {DAMAGED}")
    further = {key: content[key] for key in FURTHER if key in content}
    return Result(path.stem, *(content[key] for key in STORED), **further)


def _problem(content: Any) -> str:
    """Why a JSON value is not a result; empty if it is one."""
    if missing := [key for key in STORED if not isinstance(content, dict) or key not in content]:
        return f"it lacks {', '.join(missing)}"
    for key in STORED:
        kind = list if key == "log" else dict
        if not isinstance(content[key], kind):
            return f"its {key} is not a {'list' if kind is list else 'mapping'}"
    for key in ("dataset", "model", "method"):
        if key not in content["config"]:
            return f"its config lacks {key}"
    if facts_of(content["config"]["method"]).ensemble and not content["config"].get("members"):
        return "its config lacks members"
    for key in FURTHER:
        if not isinstance(content.get(key, {}), dict):
            return f"its {key} is not a mapping"
    for metric, value in content["metrics"].items():
        if value is not None and not (isinstance(value, int | float) and math.isfinite(value)):
            return f"its {metric} is {value!r}"
    return ""


def _arrays(path: Path, *names: str) -> dict[str, NDArray[Any]]:
    """All arrays of an npz file, which must include these."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception as error:  # numpy raises zipfile, value, key, memory and OS errors for broken archives
        raise ValueError(f"expected an npz archive in {path}, but it cannot be read ({error}); {DAMAGED}") from None
    if missing := [name for name in names if name not in arrays]:
        raise ValueError(f"expected {', '.join(names)} in {path}, but it lacks {', '.join(missing)}; {DAMAGED}")
    return arrays


def _judged(
    name: str,
    config: dict[str, Any],
    environment: dict[str, Any],
    log: list[dict[str, Any]],
    predictions: Predictions,
    counts: dict[str, NDArray[Any]],
) -> tuple[Result, dict[str, NDArray[Any]]]:
    samples = sample_values(**predictions.evaluation_inputs())
    evaluation = evaluation_of(samples)
    arrays = _stored(samples) | counts
    return Result(name, config, environment, log, evaluation.metrics, evaluation.undefined), arrays


def _stored(samples: Samples, prefix: str = "") -> dict[str, NDArray[Any]]:
    """The arrays of a split to store. In float64: float32 rounds confidences close to 1 to ties, which change the
    AURC.
    """
    arrays = {"confidence": samples.confidence, "correct": samples.correct}
    # The softmax of two libraries differs in the last digits.
    if samples.probability is not None and not np.allclose(samples.probability, samples.confidence, 0, 1e-12):
        arrays["probability"] = samples.probability
    return {f"{prefix}{name}": values for name, values in arrays.items()}


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":")) + "\n"


def _write(path: Path, result: Result, arrays: dict[str, NDArray[Any]]) -> Path:
    content = {key: getattr(result, key) for key in STORED}
    content |= {key: value for key in FURTHER if (value := getattr(result, key))}
    path.parent.mkdir(parents=True, exist_ok=True)
    small = {
        name: values.astype(np.int32) if values.dtype.kind in "iu" else values for name, values in arrays.items()
    }
    write_atomically(path.with_suffix(".npz"), packed(**small))
    write_atomically(path, _json(content))
    return path
