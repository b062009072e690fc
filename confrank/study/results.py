"""What is kept of a full run: one small JSON and one small npz, from which every table and figure can be drawn."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from confrank.config import RunFolder
from confrank.files import write_atomically
from confrank.metrics import evaluate
from confrank.predictions import Predictions, load_predictions


@dataclass(frozen=True)
class Result:
    """A finished run: flat config, environment, epoch log, test metrics; and its arrays by name."""

    name: str
    config: dict[str, Any]
    environment: dict[str, Any]
    log: list[dict[str, Any]]
    metrics: dict[str, float | None]
    undefined: dict[str, str]


def export_run(run: Path, results: Path) -> Path:
    """Write results/NAME.json and results/NAME.npz of a finished run folder."""
    folder = RunFolder(run)
    config = yaml.safe_load(folder.config.read_text())
    log = [json.loads(line) for line in folder.log.read_text().splitlines()]
    if not folder.metrics.exists() or len(log) != config["epochs"]:
        raise ValueError(f"expected a finished run in {run}, but it has {len(log)} of {config['epochs']} epochs")
    with np.load(folder.history) as history:
        counts = {name: history[name] for name in ("examined", "correct")}
    predictions = load_predictions(folder.predictions("test"))
    environment = json.loads(folder.environment.read_text())
    return _write(results / f"{run.name}.json", config, environment, log, predictions, counts)


def export_average(
    name: str, predictions: Predictions, config: dict[str, Any], environment: dict[str, Any], results: Path
) -> Path:
    """Write the same files for a method that averages runs; its config names the members."""
    return _write(results / f"{name}.json", config, environment, [], predictions, {})


def load_result(path: Path) -> Result:
    """Read a results JSON."""
    content = json.loads(path.read_text())
    keys = ("config", "environment", "log", "metrics", "undefined")
    missing = [key for key in keys if key not in content]
    if missing:
        raise ValueError(f"expected {', '.join(keys)} in {path}, but it lacks {', '.join(missing)}")
    return Result(path.stem, *(content[key] for key in keys))


def _write(
    path: Path,
    config: dict[str, Any],
    environment: dict[str, Any],
    log: list[dict[str, Any]],
    predictions: Predictions,
    counts: dict[str, NDArray[Any]],
) -> Path:
    evaluation = evaluate(**predictions.evaluation_inputs())
    content = {
        "config": config,
        "environment": environment,
        "metrics": evaluation.metrics,
        "undefined": evaluation.undefined,
        "log": log,
    }
    confidence, correct = predictions.ranked()
    # Whole precision: sure predictions differ from 1 by less than float32 can tell, and ties move the AURC.
    arrays = {"confidence": confidence, "correct": correct}
    arrays |= {f"history_{name}": values.astype(np.uint16) for name, values in counts.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path.with_suffix(".npz"), **arrays)  # type: ignore[arg-type]
    write_atomically(path, json.dumps(content, indent=None, separators=(",", ":")) + "\n")
    return path
