"""The paper's experiment: at each stage, each strategy chooses more labels and trains from scratch on all of them."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from confrank.active import strategies
from confrank.active.records import Experiment, StageFiles, check_settings, stage_seed
from confrank.active.selection import draw, select, values_of
from confrank.active.strategies import Rows, Strategy
from confrank.config import RunConfig
from confrank.data import DataSet, Split, load
from confrank.files import LOCK, Lock
from confrank.runs.checkpoint import DamagedCheckpointError
from confrank.runs.trained import Trained, load_trained
from confrank.training import Failed, train_together

Listener = Callable[[RunConfig, dict[str, Any]], None]


def first_labelled(num_samples: int, per_stage: int, trial: int) -> Rows:
    """The random set from which all strategies of a trial start."""
    rng = np.random.default_rng((trial, 0))
    return rng.choice(num_samples, per_stage, replace=False)


def ask(
    strategy: Strategy, trained: Trained, train: Split, labelled: Rows, *, count: int, subset: int, seed: int
) -> Rows:
    """The rows of `train` to label next, chosen from a random `subset` of the unlabelled ones."""
    candidates = draw(np.setdiff1d(np.arange(len(train)), labelled), subset, seed)
    values = values_of(strategy, trained, train.select(candidates), seed=seed)
    is_covering = strategy.needs == "features"
    centres = values_of(strategy, trained, train.select(np.sort(labelled))) if is_covering else None
    both: dict[str, Any] = {"scores": values, "features": values}
    return candidates[select(strategy.name, **both, labelled_features=centres, count=count, seed=seed)]


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
    """Run all stages of all trials. After a kill at any time, the same call resumes and makes the same choices.

    Runs of one stage train `together` on a GPU. Strategies with the same method share the run of the first stage,
    which has the same samples and seed. Weights of later stages are removed once the next set is chosen.
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
    """One trial in its folder; every choice is written to a file before it is used."""

    experiment: Experiment
    data: DataSet
    trial: int
    out: Path
    device: torch.device | None

    def files(self, strategy: Strategy, stage: int) -> StageFiles:
        return StageFiles(self.out, self.trial, strategy.name, strategy.method, stage)

    def label(self, strategy: Strategy, stage: int) -> None:
        """Choose and write the labelled set of a stage, unless it is written already."""
        here = self.files(strategy, stage)
        if here.labelled.exists():
            return
        wanted = self.experiment
        if stage == 1:
            here.write_labelled(first_labelled(len(self.data.train), wanted.per_stage, self.trial))
            return
        before = self.files(strategy, stage - 1)
        labelled, seed = before.read_labelled(), stage_seed(self.trial, stage)
        try:
            trained = load_trained(before.run, self.device)
        except DamagedCheckpointError:
            before.metrics.unlink(missing_ok=True)  # the same command then trains that stage again
            raise
        train = self.data.train_in_words_of(trained.provenance.vocabulary)
        asked = ask(strategy, trained, train, labelled, count=wanted.per_stage, subset=wanted.subset, seed=seed)
        grown = np.concatenate([labelled, asked])
        assert len(np.unique(grown)) == stage * wanted.per_stage, "a sample was asked twice"
        here.write_labelled(grown)
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
        """Train the unfinished runs of a stage and write their metrics."""
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
                    item.write_metrics(result.evaluations["test"].metrics)
            for result in results:
                if isinstance(result, Failed):
                    raise result.error

    def _subset(self, labelled: Rows) -> DataSet:
        return replace(self.data, train=self.data.train.select(np.sort(labelled)))
