"""The correctness history inside a LightningModule (extra `lightning`)."""

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning_utilities.core.rank_zero import rank_zero_info
from torch.optim.swa_utils import AveragedModel

from confrank.adapters import findings
from confrank.distributed import SharedHistory, leave_counters_alone
from confrank.history import CorrectnessHistory
from confrank.loss import CorrectnessRanking


class RankingCallback(Callback):
    """Adds up the histories of all processes, and reports after training if the indices were wrong.

    Make a `CorrectnessRankingLoss` an attribute of your module: it then moves with the module and is part of its
    checkpoints. With several processes, each counts the samples of its own batches, and the counts are added up at
    the end of an epoch, before validation and before a checkpoint is written (except for checkpoints of weights only,
    which Lightning does not announce). After training, `findings` holds the messages of `audit`, without those about
    samples examined too often, which samplers explain, and one if every batch had a single sample. Callbacks that
    average weights must not average buffers, among which are the counts.
    """

    def __init__(self) -> None:
        self.findings: list[str] = []
        self._shared: list[SharedHistory] = []

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        histories = [part for part in pl_module.modules() if isinstance(part, CorrectnessHistory)]
        if not histories:
            raise ValueError(
                f"expected a CorrectnessRankingLoss as an attribute of {type(pl_module).__name__}, but got none;"
                " write self.criterion = CorrectnessRankingLoss(CorrectnessHistory(len(train_set))) in its __init__"
            )
        self._shared = [SharedHistory(history) for history in histories]
        leave_counters_alone(pl_module)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            for value in vars(callback).values():
                if isinstance(value, AveragedModel):
                    _share_counts(value, pl_module, type(callback).__name__)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._add_up()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._add_up()  # a checkpoint may follow, before the epoch ends

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        # The checkpoint holds the counters themselves, not copies. Lightning calls this in every process.
        self._add_up()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        criteria = [part for part in pl_module.modules() if isinstance(part, CorrectnessRanking)]
        alone = getattr(trainer.train_dataloader, "batch_size", None) == 1
        paired = not alone or any(criterion.ring is not None for criterion in criteria)
        self.findings = findings((shared.history for shared in self._shared), paired=paired)
        for finding in self.findings:
            rank_zero_info(finding)

    def _add_up(self) -> None:
        for shared in self._shared:
            shared.add_up()


def _share_counts(average: AveragedModel, module: LightningModule, callback: str) -> None:
    """Give the histories of the averaged copy of a module the counters of the module; an error if they are averaged.

    A copy would be older than the counters if not every step is averaged, and Lightning copies it back.
    """
    if average.use_buffers:
        raise ValueError(
            f"expected {callback} to average weights only, since averages of a history's counts are wrong, but got"
            f" use_buffers=True; use {callback}(use_buffers=False)"
        )
    for name, part in module.named_modules():
        if isinstance(part, CorrectnessHistory):
            average.module.get_submodule(name)._buffers = part._buffers
