"""The correctness ranking loss in a transformers `Trainer` (pip install 'confrank[transformers]')."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
from transformers.utils import logging

from confrank.data import IndexedDataset
from confrank.loss import CorrectnessRankingLoss
from confrank.metrics import KEYS, evaluate
from confrank.training.distributed import SharedHistory

HISTORY_FILE = "correctness_history.safetensors"
logger = logging.get_logger(__name__)


class RankingTrainer(Trainer):
    """A `Trainer` of classifiers with the loss `criterion`; everything else is as in transformers.

    Each training sample gets the column "index". The history is kept in every checkpoint and restored from it, and
    added up over all processes at the end of an epoch and before a checkpoint. `findings` holds what `audit` found
    after training, in words; that samplers show some samples more often than others is no finding here.
    """

    def __init__(self, *arguments: Any, criterion: CorrectnessRankingLoss, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _check_loss(self, criterion)
        if self.train_dataset is not None:
            self.train_dataset = _numbered(self.train_dataset, criterion.history.num_samples)
        self.criterion = criterion.to(self.args.device)
        self.findings: list[str] = []
        # The loss is a mean over its batch: where the gradients of several add up, it has to be divided.
        self.model_accepts_loss_kwargs = False
        self.add_callback(_HistoryKeeper(self))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The ranking loss of a training batch; in evaluation the model's own."""
        index = inputs.pop("index", None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if index is None:
            raise ValueError(
                "expected the column 'index' in a training batch, but got"
                f" {', '.join(inputs)}; let your data_collator keep it"
            )
        label = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        loss = self.criterion(logits, label, index)
        return (loss, outputs) if return_outputs else loss

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """As in transformers; where training goes on from a checkpoint, so does the history."""
        folder = resume_from_checkpoint
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
        if folder:
            self.criterion.history.load_state_dict(_load(Path(folder)))
        return super().train(resume_from_checkpoint, *arguments, **options)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        # What the model does not take is removed from the batch, but for this.
        columns = [*{*(self._signature_columns or ()), "index"}]
        self._signature_columns = columns  # type: ignore[assignment]


class _HistoryKeeper(TrainerCallback):
    def __init__(self, trainer: RankingTrainer) -> None:
        self.trainer = trainer
        self.shared = SharedHistory(trainer.criterion.history)

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if control.should_save:
            self.shared.add_up()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.shared.add_up()

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if args.should_save:
            folder = Path(args.output_dir or "") / f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}"
            save_file(self.shared.history.state_dict(), folder / HISTORY_FILE)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        audit = replace(self.shared.history.audit(), too_often=[])
        self.trainer.findings = [] if audit.ok else [str(audit)]
        for finding in self.trainer.findings:
            logger.warning_once(finding)


def confidence_metrics(prediction: EvalPrediction) -> dict[str, float]:
    """Every metric of `confrank.evaluate`, for `Trainer(compute_metrics=...)`; NaN where undefined."""
    logits = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    found = evaluate(logits=torch.as_tensor(logits), label=torch.as_tensor(prediction.label_ids)).metrics
    return {key: float("nan") if (value := found[key]) is None else value for key in KEYS}


def _check_loss(trainer: Trainer, criterion: CorrectnessRankingLoss) -> None:
    if not isinstance(criterion, CorrectnessRankingLoss):
        raise ValueError(f"expected criterion to be a CorrectnessRankingLoss, but got {criterion!r}")
    if trainer.compute_loss_func is not None:
        raise ValueError("expected one loss, but got criterion and compute_loss_func; leave the latter out")
    if trainer.args.label_smoothing_factor:
        raise ValueError(
            "expected label smoothing in the criterion, but got label_smoothing_factor="
            f"{trainer.args.label_smoothing_factor}; give CorrectnessRankingLoss label_smoothing"
        )


def _numbered(train_set: Any, num_samples: int) -> IndexedDataset:
    numbered = train_set if isinstance(train_set, IndexedDataset) else IndexedDataset(train_set)
    if len(numbered) != num_samples:
        raise ValueError(
            f"expected a history of the {len(numbered):,} training samples, but got one of {num_samples:,};"
            " make it with CorrectnessHistory(len(train_set))"
        )
    return numbered


def _load(checkpoint: Path) -> dict[str, Tensor]:
    file = checkpoint / HISTORY_FILE
    if not file.exists():
        raise ValueError(
            f"expected {HISTORY_FILE} in {checkpoint}, but it is not there; go on from a checkpoint that a"
            " RankingTrainer wrote whole"
        )
    return load_file(file)
