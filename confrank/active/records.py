"""What an experiment leaves: the labelled set and the metrics of each stage, and one small file of all curves."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.active.strategies import STRATEGIES
from confrank.atomic import packed, write_atomically
from confrank.data import changed_settings
from confrank.folders import is_lock
from confrank.run_folder import RunFolder

KEYS = ("config", "environment", "curves")
Metrics = dict[str, float | None]


@dataclass(frozen=True)
class StageFiles:
    """Where a stage of a strategy lies. The run of the first stage belongs to all strategies of a method."""

    out: Path
    trial: int
    strategy: str
    method: str
    stage: int

    @property
    def folder(self) -> Path:
        return self.out / f"trial{self.trial}" / self.strategy

    @property
    def labelled(self) -> Path:
        return self.folder / f"stage{self.stage:02d}-labelled.json"

    @property
    def run(self) -> Path:
        shared = self.out / f"trial{self.trial}" / "first" / self.method
        return shared if self.stage == 1 else self.folder / f"stage{self.stage:02d}"

    @property
    def metrics(self) -> Path:
        return self.run.with_name(f"{self.run.name}-metrics.json")

    def read_labelled(self) -> NDArray[np.int64]:
        """Rows of the training split, in the order in which they were asked."""
        return np.array(json.loads(self.labelled.read_text()), dtype=np.int64)

    def read_metrics(self) -> Metrics:
        metrics: Metrics = json.loads(self.metrics.read_text())
        return metrics


def write_labelled(files: StageFiles, labelled: NDArray[np.int64]) -> None:
    write_atomically(files.labelled, json.dumps(labelled.tolist()) + "\n")


def write_metrics(files: StageFiles, metrics: Metrics) -> None:
    write_atomically(files.metrics, json.dumps(metrics, indent=1) + "\n")


def check_settings(out: Path, settings: dict[str, Any]) -> None:
    """Raise unless the folder is new or holds an experiment of these settings, which are then written down."""
    path = out / "experiment.json"
    if path.exists():
        if differing := changed_settings(settings, json.loads(path.read_text())):
            raise ValueError(
                f"expected a new folder or an experiment of the same settings, but {out} differs in {differing};"
                " give another --out"
            )
    elif any(not is_lock(item) for item in out.iterdir()):
        raise ValueError(f"expected a new folder or an experiment, but {out} holds other files; give another --out")
    else:
        write_atomically(path, json.dumps(settings, indent=1) + "\n")


@dataclass(frozen=True)
class Curves:
    """A finished experiment. `curves`: strategy -> trials -> stages -> {"labelled": n, "metrics": {...}}."""

    config: dict[str, Any]
    environment: dict[str, Any]
    curves: dict[str, list[list[dict[str, Any]]]]

    def values(self, key: str = "acc") -> dict[str, list[list[float]]]:
        """One metric of each strategy, [trials][stages]."""
        return {
            name: [[stage["metrics"][key] for stage in trial] for trial in trials]
            for name, trials in self.curves.items()
        }

    def labelled(self) -> list[int]:
        """The number of labels of each stage."""
        return [stage["labelled"] for stage in next(iter(self.curves.values()))[0]]


def collect(out: Path, config: dict[str, Any], stages: int) -> tuple[Curves, dict[str, NDArray[Any]]]:
    """The curves of every strategy and trial in an experiment folder that has so many stages, and arrays.

    "STRATEGY-trialN" are the rows asked for, in order; with "-loss" and "-acc" the epoch logs [stages, epochs].
    """
    curves: dict[str, list[list[dict[str, Any]]]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    environment: dict[str, Any] = {}
    trials = trials_in(out)
    for name in STRATEGIES:
        for trial in trials:
            places = stage_files(out, trial, name, stages)
            if not _is_finished(places):
                continue
            labelled = [place.read_labelled() for place in places]
            curves.setdefault(name, []).append(
                [
                    {"labelled": len(rows), "metrics": place.read_metrics()}
                    for place, rows in zip(places, labelled, strict=True)
                ]
            )
            arrays[f"{name}-trial{trial}"] = labelled[-1].astype(np.int32)
            logs = [RunFolder(place.run).read_log() for place in places]
            for key in ("loss", "acc"):
                arrays[f"{name}-trial{trial}-{key}"] = np.array(
                    [[record[key] for record in log] for log in logs], dtype=np.float32
                )
            environment = environment or json.loads(RunFolder(places[0].run).environment.read_text())
    entered = [trial for trial in trials if any(f"{name}-trial{trial}" in arrays for name in curves)]
    whole = {**config, "stages": stages, "strategies": list(curves), "trials": entered}
    return Curves(whole, environment, curves), arrays


def check_kept(
    kept: Path, out: Path, settings: dict[str, Any], names: Sequence[str], trials: Sequence[int], stages: int
) -> None:
    """Raise if writing the results of this experiment would lose others that lie in the file `kept`."""
    if not kept.exists():
        return
    there = load_curves(kept)
    if differing := changed_settings(settings, there.config):
        raise ValueError(
            f"expected {kept} to hold this experiment, but it differs in {differing}; give another --results"
        )
    for name, curves in there.curves.items():
        asked = {*trials} if name in names else set()
        done = {trial for trial in trials_in(out) if _is_finished(stage_files(out, trial, name, stages))}
        if len(asked | done) < len(curves) or stages < len(there.labelled()):
            raise ValueError(
                f"expected to add to {kept}, but it has {len(curves)} trials of {len(there.labelled())} stages with"
                f" {name}, and {out} would have fewer with {stages} stages; give --stages, --strategy and --trials"
                " that cover what is there, or --results FOLDER to keep these curves apart"
            )


def trials_in(out: Path) -> list[int]:
    """The numbers of the trials in an experiment folder."""
    return sorted(int(path.name.removeprefix("trial")) for path in out.glob("trial[0-9]*") if path.is_dir())


def stage_files(out: Path, trial: int, name: str, stages: int) -> list[StageFiles]:
    """All stages of a strategy in a trial."""
    return [StageFiles(out, trial, name, STRATEGIES[name].method, stage) for stage in range(1, stages + 1)]


def _is_finished(places: Sequence[StageFiles]) -> bool:
    return all(place.metrics.exists() and place.labelled.exists() for place in places)


def save_curves(path: Path, curves: Curves, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the JSON, and the arrays as an npz beside it."""
    write_atomically(path.with_suffix(".npz"), packed(**arrays))
    write_atomically(path, json.dumps({key: getattr(curves, key) for key in KEYS}, separators=(",", ":")) + "\n")


def load_curves(path: Path) -> Curves:
    """Read a file that `save_curves` wrote."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"expected the curves of an experiment, but {path} does not exist") from None
    except ValueError:
        content = None
    missing = [key for key in KEYS if not isinstance(content, dict) or key not in content]
    if missing:
        raise ValueError(f"expected {', '.join(KEYS)} in {path}, but it lacks {', '.join(missing)}")
    return Curves(*(content[key] for key in KEYS))
