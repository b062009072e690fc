"""The active-learning table as a study: its experiments, what is done and missing, and running the rest."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confrank.active.records import (
    Curves,
    Experiment,
    collect,
    load_stored,
    merged,
    save_curves,
)
from confrank.active.strategies import STRATEGIES, get
from confrank.config import RunConfig, short_name
from confrank.errors import InputError

if TYPE_CHECKING:
    import torch

# The folder of the curves in the folder of results.
ACTIVE = "active"
FIVE = (0, 1, 2, 3, 4)


@dataclass(frozen=True)
class ActiveRecipe:
    """An experiment of active learning, with these strategies in each of these trials."""

    experiment: Experiment
    trials: tuple[int, ...] = FIVE
    strategies: tuple[str, ...] = ("random", "entropy", "core-set", "mc-entropy", "least-confidence")

    @property
    def name(self) -> str:
        """Data set, network, and the settings that differ from the paper's: the name of its files.

        >>> ActiveRecipe(Experiment(lr=0.05, weight_decay=5e-4)).name
        'cifar10-resnet18-lr0.05-weight_decay0.0005'
        """
        wanted, usual = self.experiment, asdict(Experiment())
        settings = {key: value for key, value in wanted.settings().items() if key not in ("dataset", "model")}
        differing = "".join(f"-{key}{value:g}" for key, value in settings.items() if value != usual[key])
        return f"{short_name(wanted.dataset)}-{wanted.model}{differing}"

    def file(self, results: Path) -> Path:
        """The file of its curves."""
        return results / ACTIVE / f"{self.name}.json"

    def folder(self, out: Path) -> Path:
        """The folder of its runs."""
        return out / f"active-{self.name}"


def stable_al_perf() -> tuple[ActiveRecipe, ...]:
    """Active learning to the letter of the paper: learning rate and weight decay of its other experiments.

    Command: confrank study stable-al-perf (480 runs).
    Expected (CIFAR-10, 2,000 labels): random 64.86 ± 1.43%, crl-softmax 65.91 ± 1.44%.
    """
    return tuple(ActiveRecipe(Experiment(dataset=dataset)) for dataset in ("cifar10", "cifar100"))


def active() -> tuple[ActiveRecipe, ...]:
    """Active learning with another learning rate and weight decay, which did best in a first check.

    Command: confrank study active (144 runs).
    Expected (CIFAR-10, 2,000 labels): random 64.86 ± 1.43%, crl-softmax 65.91 ± 1.44%.
    """
    chosen = Experiment(lr=0.05, weight_decay=5e-4)  # docs/evidence/log.md; experiments/active_settings.py repeats it
    return ActiveRecipe(chosen, (0, 1)), ActiveRecipe(replace(chosen, dataset="cifar100"), (0,))


ACTIVE_RECIPES: dict[str, Callable[[], tuple[ActiveRecipe, ...]]] = {
    "stable-al-perf": stable_al_perf,
    "active": active,
}


def narrowed_active(
    name: str,
    *,
    datasets: Sequence[str] | None = None,
    strategies: Sequence[str] | None = None,
    trials: Sequence[int] | None = None,
    epochs: int | None = None,
) -> list[ActiveRecipe]:
    """The recipe of that name, reduced to these data sets, strategies and trials."""
    parts = ACTIVE_RECIPES[name]()
    known = [part.experiment.dataset for part in parts]
    if unknown := [one for one in datasets or () if one not in known]:
        raise InputError(
            f"expected data sets of {name} among {', '.join(known)}, but got {', '.join(unknown)}",
            "`confrank active run` takes others",
        )
    for strategy in strategies or ():
        get(strategy)
    return [
        replace(
            part,
            experiment=part.experiment if epochs is None else replace(part.experiment, epochs=epochs),
            strategies=tuple(dict.fromkeys(strategies or part.strategies)),
            trials=tuple(dict.fromkeys(part.trials if trials is None else trials)),
        )
        for part in parts
        if not datasets or part.experiment.dataset in datasets
    ]


def missing_trials(part: ActiveRecipe, results: Path) -> dict[int, list[str]]:
    """The strategies without complete curves in the results, for each trial that lacks one."""
    return _missing(part, results)[0]


def _missing(part: ActiveRecipe, results: Path) -> tuple[dict[int, list[str]], bool]:
    """`missing_trials`, and whether the results hold curves with fewer stages, which this experiment replaces."""
    path, done, replaces = part.file(results), dict[str, list[int]](), False
    if path.exists():
        stored = load_stored(path, part.experiment.settings())
        done, replaces = stored.trials, _replaces(part, path, stored)
    done = {} if replaces else done
    missing = {trial: [name for name in part.strategies if trial not in done.get(name, ())] for trial in part.trials}
    return {trial: names for trial, names in missing.items() if names}, replaces


def _replaces(part: ActiveRecipe, path: Path, stored: Curves) -> bool:
    """Whether the stored curves have fewer stages; an error if they would be lost."""
    if (stages := len(stored.labelled())) == part.experiment.stages:
        return False
    for name, trials in stored.trials.items():
        if name not in part.strategies or not {*trials} <= {*part.trials}:
            raise InputError(
                f"expected to replace {path}, but it has trials {', '.join(map(str, trials))} of {stages} stages with"
                f" {name}, and this study does not have all of them",
                "choose another {results}",
            )
    return True


def stage_runs(part: ActiveRecipe, missing: dict[int, list[str]]) -> list[RunConfig]:
    """The runs of these trials; strategies with one method share their first run."""
    wanted = part.experiment
    methods = {trial: [STRATEGIES[name].method for name in names] for trial, names in missing.items()}
    return [
        wanted.config(method, trial, stage)
        for trial, stage in product(missing, range(1, wanted.stages + 1))
        for method in (dict.fromkeys(methods[trial]) if stage == 1 else methods[trial])
    ]


def run_active(
    part: ActiveRecipe,
    out: Path,
    results: Path,
    *,
    together: int = 6,
    root: Path | None = None,
    device: "torch.device | None" = None,
    on_epoch: Callable[[RunConfig, dict[str, Any]], None] | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run the trials that the results lack, and add the curves of each to the results as soon as it is complete.

    After a kill at any time, the same call resumes.
    """
    from confrank.active.experiment import run_experiment  # imports torch, which a plan does not need

    path, folder, wanted = part.file(results), part.folder(out), part.experiment
    path.parent.mkdir(parents=True, exist_ok=True)
    missing, replaces = _missing(part, results)
    for trial, names in missing.items():
        run_experiment(
            wanted, names, [trial], folder,
            together=together, root=root, device=device, on_epoch=on_epoch, on_note=on_note,
        )  # fmt: skip
        if not replaces or trial == [*missing][-1]:  # curves with fewer stages stay until all trials are complete
            curves, arrays = collect(folder, wanted.settings(), wanted.stages)
            save_curves(path, *merged(path, curves, arrays))
