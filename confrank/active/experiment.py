"""The paper's experiment: stage by stage, each strategy asks for more labels and trains anew on all it has."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from confrank.active import strategies
from confrank.active.records import StageFiles, check_settings, write_labelled, write_metrics
from confrank.active.strategies import Strategy, confidence_of, select
from confrank.checkpoint import DamagedCheckpointError
from confrank.config import RunConfig
from confrank.data import DataSet, Split, load
from confrank.folders import LOCK, Lock
from confrank.methods import penultimate, predict_split
from confrank.trained import Trained, load_trained
from confrank.training import Failed, train_together

Rows = NDArray[np.int64]
Listener = Callable[[RunConfig, dict[str, Any]], None]


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

    def __post_init__(self) -> None:
        if not 1 <= self.stages <= 99:
            raise ValueError(f"expected 1 to 99 stages, but got {self.stages}")
        if self.per_stage < 1:
            raise ValueError(f"expected at least 1 label a stage, but got {self.per_stage}")
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
            lr_drops=(0.6, 0.8),
            seed=stage_seed(trial, stage),
        )

    def settings(self) -> dict[str, Any]:
        """What two calls on one folder must agree in: everything but the number of stages."""
        return {key: value for key, value in asdict(self).items() if key != "stages"}


def stage_seed(trial: int, stage: int) -> int:
    """
    >>> stage_seed(3, 10)
    310
    """
    return 100 * trial + stage


def first_labelled(num_samples: int, per_stage: int, trial: int) -> Rows:
    """The random set that all strategies of a trial start from."""
    rng = np.random.default_rng((trial, 0))
    return rng.choice(num_samples, per_stage, replace=False)


def ask(
    strategy: Strategy, trained: Trained, train: Split, labelled: Rows, *, count: int, subset: int, seed: int
) -> Rows:
    """The rows of `train` to label next: chosen from a random `subset` of those not yet labelled."""
    pool = np.setdiff1d(np.arange(len(train)), labelled)
    rng = np.random.default_rng((seed, 1))
    candidates = rng.choice(pool, min(subset, len(pool)), replace=False)
    mean, std = trained.provenance.mean, trained.provenance.std
    if strategy.needs == "nothing":
        return candidates[select(strategy.name, scores=candidates, count=count, seed=seed)]
    if strategy.needs == "features":
        features, known = (
            penultimate(trained.network, train.select(rows), mean, std) for rows in (candidates, np.sort(labelled))
        )
        chosen = select(strategy.name, features=features, labelled_features=known, count=count, seed=seed)
        return candidates[chosen]
    split = train.select(candidates)
    predictions = predict_split(trained.method, trained.network, split, mean, std, seed=seed)
    scores = confidence_of(strategy, logits=predictions.logits, probabilities=predictions.probabilities)
    return candidates[select(strategy.name, scores=scores, count=count, seed=seed)]


def run_experiment(
    experiment: Experiment,
    names: Sequence[str],
    trials: Sequence[int],
    out: Path,
    *,
    together: int = 6,
    root: Path | None = None,
    device: torch.device | None = None,
    on_epoch: Listener | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run all stages of all trials; killed at any time and called again, it goes on and makes the same choices.

    Runs of one stage train `together` on a GPU. The strategies that train the same method share the first stage's
    run: it has the same samples and the same seed. Of later stages, the weights go when the next set is chosen.
    """
    chosen = [strategies.get(name) for name in names]
    data = load(experiment.dataset, root)
    if experiment.stages * experiment.per_stage > len(data.train):
        raise ValueError(
            f"expected at most {len(data.train)} labels in all, the size of {experiment.dataset},"
            f" but got {experiment.stages} stages of {experiment.per_stage}"
        )
    out.mkdir(parents=True, exist_ok=True)
    lock = Lock(out / LOCK)
    try:
        check_settings(out, experiment.settings())
        for trial in trials:
            work = Trial(experiment, data, trial, out, device)
            for stage in range(1, experiment.stages + 1):
                for strategy in chosen:
                    work.label(strategy, stage)
                work.train(chosen, stage, together=together, on_epoch=on_epoch, on_note=on_note)
    finally:
        lock.release()


@dataclass(frozen=True)
class Trial:
    """One trial in its folder: everything it decides is in files before it is used."""

    experiment: Experiment
    data: DataSet
    trial: int
    out: Path
    device: torch.device | None

    def files(self, strategy: Strategy, stage: int) -> StageFiles:
        return StageFiles(self.out, self.trial, strategy.name, strategy.method, stage)

    def label(self, strategy: Strategy, stage: int) -> None:
        """Write down the labelled set of a stage, unless it is there."""
        here = self.files(strategy, stage)
        if here.labelled.exists():
            return
        wanted = self.experiment
        if stage == 1:
            write_labelled(here, first_labelled(len(self.data.train), wanted.per_stage, self.trial))
            return
        before = self.files(strategy, stage - 1)
        labelled, seed = before.read_labelled(), stage_seed(self.trial, stage)
        try:
            trained = load_trained(before.run, self.device)
        except DamagedCheckpointError:
            before.metrics.unlink(missing_ok=True)  # the same command then trains that stage to its end again
            raise
        asked = ask(
            strategy, trained, self.data.train, labelled, count=wanted.per_stage, subset=wanted.subset, seed=seed
        )
        grown = np.concatenate([labelled, asked])
        assert len(np.unique(grown)) == stage * wanted.per_stage, "a sample was asked twice"
        write_labelled(here, grown)
        if stage > 2:
            shutil.rmtree(before.run / "checkpoint", ignore_errors=True)

    def train(
        self,
        chosen: Sequence[Strategy],
        stage: int,
        *,
        together: int,
        on_epoch: Listener | None,
        on_note: Callable[[str], None] | None,
    ) -> None:
        """Train the runs of a stage that are not finished, and write down their metrics."""
        missing: dict[Path, StageFiles] = {}
        for strategy in chosen:
            here = self.files(strategy, stage)
            if not here.metrics.exists():
                missing.setdefault(here.run, here)
        waiting = list(missing.values())
        for start in range(0, len(waiting), together):
            group = waiting[start : start + together]
            results = train_together(
                [self.experiment.config(item.method, self.trial, stage) for item in group],
                [item.run for item in group],
                data=[self._subset(item.read_labelled()) for item in group],
                device=self.device,
                on_epoch=on_epoch,
                on_note=on_note,
            )
            for item, result in zip(group, results, strict=True):
                if not isinstance(result, Failed):
                    write_metrics(item, result.evaluations["test"].metrics)
            for result in results:
                if isinstance(result, Failed):
                    raise result.error

    def _subset(self, labelled: Rows) -> DataSet:
        return replace(self.data, train=self.data.train.select(np.sort(labelled)))
