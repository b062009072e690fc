"""The settings and files of an experiment: labelled set and metrics of each stage, and all curves in one file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confrank.active.strategies import STRATEGIES, Rows
from confrank.config import RunConfig
from confrank.data import changed_settings
from confrank.errors import InputError
from confrank.files import is_lock, packed, write_atomically
from confrank.runs.folder import RunFolder

STORED = ("config", "environment", "curves")  # and "trials", which the first files lack: all strategies had the same
Metrics = dict[str, float | None]


@dataclass(frozen=True)
class Experiment:
    """The defaults are the paper's protocol (CIFAR-10, ResNet18)."""

    dataset: str = "cifar10"
    model: str = "resnet18"
    stages: int = 10
    per_stage: int = 2000
    subset: int = 10_000
    epochs: int = 200
    batch_size: int = 128
    lr: float = 0.1
    weight_decay: float = 1e-4

    def __post_init__(self) -> None:
        if not 1 <= self.stages <= 99:
            raise ValueError(f"expected 1 to 99 stages, but got {self.stages}")
        if self.per_stage < 1:
            raise ValueError(f"expected at least 1 label per stage, but got {self.per_stage}")
        if self.subset < self.per_stage:
            raise ValueError(f"expected a subset of at least {self.per_stage}, but got {self.subset}")
        self.config("baseline", 0, 1)

    def config(self, method: str, trial: int, stage: int) -> RunConfig:
        """The run of a stage; its seed is the same for all strategies."""
        return RunConfig(
            dataset=self.dataset,
            model=self.model,
            method=method,
            epochs=self.epochs,
            batch_size=self.batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            lr_drops=(0.6, 0.8),
            seed=stage_seed(trial, stage),
        )

    def settings(self) -> dict[str, Any]:
        """The settings that two calls on one folder must share: all except the number of stages."""
        return {key: value for key, value in asdict(self).items() if key != "stages"}


def stage_seed(trial: int, stage: int) -> int:
    """
    >>> stage_seed(3, 10)
    310
    """
    return 100 * trial + stage


@dataclass(frozen=True)
class StageFiles:
    """The files of a stage of a strategy. All strategies with the same method share the run of the first stage."""

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

    def read_labelled(self) -> Rows:
        """Rows of the training split, in the order in which they were chosen."""
        return np.array(json.loads(self.labelled.read_text()), dtype=np.int64)

    def read_metrics(self) -> Metrics:
        metrics: Metrics = json.loads(self.metrics.read_text())
        return metrics

    def write_labelled(self, labelled: Rows) -> None:
        write_atomically(self.labelled, json.dumps(labelled.tolist()) + "\n")

    def write_metrics(self, metrics: Metrics) -> None:
        write_atomically(self.metrics, json.dumps(metrics, indent=1) + "\n")


def check_settings(out: Path, settings: dict[str, Any]) -> None:
    """Raise unless the folder is new or holds an experiment with these settings; a new folder gets them as a file."""
    path = out / "experiment.json"
    if path.exists():
        if differing := changed_settings(settings, json.loads(path.read_text())):
            raise InputError(
                f"expected a new folder or an experiment with the same settings, but {out} differs in {differing}",
                "choose another {out}",
            )
    elif any(not is_lock(item) for item in out.iterdir()):
        raise InputError(
            f"expected a new folder or an experiment, but {out} holds other files", "choose another {out}"
        )
    else:
        write_atomically(path, json.dumps(settings, indent=1) + "\n")


@dataclass(frozen=True)
class Curves:
    """A finished experiment. `curves`: strategy -> trials -> stages -> {"labelled": n, "metrics": {...}}.

    `trials` are the numbers of the trials of each strategy, in the order of its curves.
    """

    config: dict[str, Any]
    environment: dict[str, Any]
    curves: dict[str, list[list[dict[str, Any]]]]
    trials: dict[str, list[int]]

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
    """The curves of every strategy and trial of an experiment folder with all `stages` finished, and arrays.

    The array "STRATEGY-trialN" holds the chosen rows in order; "-loss" and "-acc" the epoch logs [stages, epochs].
    """
    curves: dict[str, list[list[dict[str, Any]]]] = {}
    trials: dict[str, list[int]] = {}
    arrays: dict[str, NDArray[Any]] = {}
    environment: dict[str, Any] = {}
    for name in STRATEGIES:
        for trial in trials_in(out):
            files = stage_files(out, trial, name, stages)
            if not _is_finished(files):
                continue
            labelled = [stage.read_labelled() for stage in files]
            trials.setdefault(name, []).append(trial)
            curves.setdefault(name, []).append(
                [
                    {"labelled": len(rows), "metrics": stage.read_metrics()}
                    for stage, rows in zip(files, labelled, strict=True)
                ]
            )
            arrays[f"{name}-trial{trial}"] = labelled[-1].astype(np.int32)
            logs = [RunFolder(stage.run).read_log() for stage in files]
            for key in ("loss", "acc"):
                arrays[f"{name}-trial{trial}-{key}"] = np.array(
                    [[record[key] for record in log] for log in logs], dtype=np.float32
                )
            environment = environment or json.loads(RunFolder(files[0].run).environment.read_text())
    complete = {**config, "stages": stages, **_entered(trials)}
    return Curves(complete, environment, curves, trials), arrays


def _entered(trials: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    """The strategies and trials of an experiment, for its config."""
    return {"strategies": [*trials], "trials": sorted({trial for numbers in trials.values() for trial in numbers})}


def check_results(
    path: Path, out: Path, settings: dict[str, Any], names: Sequence[str], trials: Sequence[int], stages: int
) -> None:
    """Raise if writing the results of this experiment to the file `path` would lose curves that it holds."""
    if not path.exists():
        return
    stored = load_stored(path, settings)
    for name, there in stored.trials.items():
        planned = {*trials} if name in names else set()
        done = {trial for trial in trials_in(out) if _is_finished(stage_files(out, trial, name, stages))}
        if not {*there} <= planned | done or stages < len(stored.labelled()):
            raise InputError(
                f"expected to add to {path}, but it has {len(there)} trials of {len(stored.labelled())} stages with"
                f" {name}, and {out} would have fewer with {stages} stages",
                "set {stages}, {strategy} and {trials} to cover these curves, or choose another {results}",
            )


def trials_in(out: Path) -> list[int]:
    """The trials in an experiment folder."""
    return sorted(int(path.name.removeprefix("trial")) for path in out.glob("trial[0-9]*") if path.is_dir())


def stage_files(out: Path, trial: int, name: str, stages: int) -> list[StageFiles]:
    """All stages of a strategy in a trial."""
    return [StageFiles(out, trial, name, STRATEGIES[name].method, stage) for stage in range(1, stages + 1)]


def _is_finished(files: Sequence[StageFiles]) -> bool:
    return all(stage.metrics.exists() and stage.labelled.exists() for stage in files)


def save_curves(path: Path, curves: Curves, arrays: dict[str, NDArray[Any]]) -> None:
    """Write the JSON, and the arrays as an .npz with the same name.

    After a kill between the two, the arrays also have what the JSON does not name yet; the next call adds it.
    """
    write_atomically(path.with_suffix(".npz"), packed(**arrays))
    write_atomically(path, json.dumps(asdict(curves), separators=(",", ":")) + "\n")


def merged(path: Path, curves: Curves, arrays: dict[str, NDArray[Any]]) -> tuple[Curves, dict[str, NDArray[Any]]]:
    """Curves and arrays with those that the file `path` has of other trials and strategies, e.g. of another machine.

    Curves with another number of stages are left out.
    """
    if not path.exists() or len((stored := load_curves(path)).labelled()) != curves.config["stages"]:
        return curves, arrays
    by_name: dict[str, dict[int, list[dict[str, Any]]]] = {}
    for one in (stored, curves):  # the newer ones last
        for name, numbers in one.trials.items():
            by_name.setdefault(name, {}).update(zip(numbers, one.curves[name], strict=True))
    trials = {name: sorted(by_name[name]) for name in STRATEGIES if name in by_name}
    lists = {name: [by_name[name][trial] for trial in numbers] for name, numbers in trials.items()}
    config, environment = {**curves.config, **_entered(trials)}, curves.environment or stored.environment
    return Curves(config, environment, lists, trials), {**load_arrays(path), **arrays}


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """The arrays of a file that `save_curves` wrote."""
    with np.load(path.with_suffix(".npz"), allow_pickle=False) as file:
        return {name: file[name] for name in file.files}


def load_curves(path: Path) -> Curves:
    """Read a file that `save_curves` wrote."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"expected the curves of an experiment, but {path} does not exist") from None
    except ValueError:
        content = None
    missing = [key for key in STORED if not isinstance(content, dict) or key not in content]
    if missing:
        raise ValueError(f"expected {', '.join(STORED)} in {path}, but it lacks {', '.join(missing)}")
    trials = content.get("trials") or dict.fromkeys(content["curves"], content["config"]["trials"])
    return Curves(content["config"], content["environment"], content["curves"], trials)


def load_stored(path: Path, settings: dict[str, Any]) -> Curves:
    """The curves in a file of results, which must be of an experiment with these settings."""
    stored = load_curves(path)
    if differing := changed_settings(settings, stored.config):
        raise InputError(
            f"expected {path} to hold this experiment, but it differs in {differing}", "choose another {results}"
        )
    return stored
