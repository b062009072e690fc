"""The correctness ranking loss in a transformers `Trainer` (extra `transformers`)."""

from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.utils.data import IterableDataset
from transformers import EvalPrediction, Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, get_last_checkpoint
from transformers.utils import logging

from confrank import confidence as confidences
from confrank.adapters import findings, metrics_of, one_per_label
from confrank.confidence import ConfidenceName
from confrank.distributed import SharedHistory
from confrank.files import write_atomically
from confrank.history import CorrectnessHistory
from confrank.indexed import IndexedDataset
from confrank.loss import CorrectnessRankingLoss

HISTORY_FILE = "correctness_history.safetensors"
logger = logging.get_logger(__name__)


class RankingTrainer(Trainer):
    """A `Trainer` for classifiers with the loss `criterion`; everything else is as in transformers.

    Classifiers of texts, images and audio, with one label or several, and of tokens; labels of -100 are ignored.
    Each training sample gets the column "index"; those of a stream must have it. The history is saved in every
    checkpoint, restored from it, and added up over all processes at the end of an epoch and before a checkpoint.
    After training, `findings` holds the messages of `audit`, without those about samples examined too often, which
    samplers explain, and one if every batch had a single sample.
    """

    def __init__(self, *arguments: Any, criterion: CorrectnessRankingLoss, **options: Any) -> None:
        super().__init__(*arguments, **options)
        _check_loss(self, criterion)
        self.criterion = criterion.to(self.args.device)
        self.shared = SharedHistory(criterion.history)
        self.findings: list[str] = []
        self._number_samples()
        # The loss is a mean over its batch, so the Trainer must divide it when it accumulates gradients.
        self.model_accepts_loss_kwargs = False
        self.add_callback(_EpochEnds(self))

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The ranking loss of a training batch; in evaluation, the loss of the model."""
        index = inputs.pop("index", None)
        if not model.training:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        if index is None:
            raise ValueError(
                "expected the column 'index' in a training batch, but got"
                f" {', '.join(inputs)}; your data_collator must pass it on, and a stream must have it: the position"
                " of each sample in the set that the history counts"
            )
        if "labels" not in inputs:
            raise ValueError(f"expected labels in a training batch, but got {', '.join(inputs)}")
        label = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        loss = self.criterion(_classes_second(logits, label), label, index)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        inputs.pop("index", None)
        return super().prediction_step(model, inputs, *arguments, **options)

    def train(self, resume_from_checkpoint: str | bool | None = None, *arguments: Any, **options: Any) -> Any:
        """As in transformers; the history resumes with the network and starts empty with `model_init`."""
        folder = resume_from_checkpoint
        if folder is True:
            folder = get_last_checkpoint(self.args.output_dir)  # type: ignore[no-untyped-call]
        history = self.criterion.history
        if folder:
            history.load_state_dict(_load(Path(folder)))
        elif self.model_init is not None:
            history.load_state_dict(CorrectnessHistory(history.num_samples, history.resolution).state_dict())
        return super().train(resume_from_checkpoint, *arguments, **options)

    def get_train_dataloader(self) -> Any:
        self._number_samples()
        return super().get_train_dataloader()

    def _number_samples(self) -> None:
        if self.train_dataset is not None:
            self.train_dataset = _numbered(self.train_dataset, self.criterion.history.num_samples)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self.shared.add_up()  # called in every process
        if self.args.should_save:  # first: writing the rest removes older checkpoints
            folder = Path(self._get_output_dir(trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            try:
                write_atomically(folder / HISTORY_FILE, save(self.criterion.history.state_dict()))
            except OSError:
                with suppress(OSError):
                    folder.rmdir()  # an empty folder would count as the last checkpoint
                raise
        super()._save_checkpoint(model, trial)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        # Columns that the model does not take are removed from the batch, except this one.
        columns = [*{*(self._signature_columns or ()), "index"}]
        self._signature_columns = columns  # type: ignore[assignment]


class _EpochEnds(TrainerCallback):
    def __init__(self, trainer: RankingTrainer) -> None:
        self.trainer = trainer

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.trainer.shared.add_up()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        criterion = self.trainer.criterion
        paired = args.train_batch_size > 1 or criterion.ring is not None
        self.trainer.findings = findings([criterion.history], paired=paired)
        for finding in self.trainer.findings:
            logger.warning_once(finding)


def confidence_metrics(
    prediction: EvalPrediction, confidence: ConfidenceName = "max_probability"
) -> dict[str, float]:
    """Every metric of `confrank.evaluate`, for `Trainer(compute_metrics=...)`; NaN if undefined or not finite.

    Each label that is not -100 is one prediction: of a sample, of a token, or of one of several labels. To rank by
    another confidence, use `functools.partial(confidence_metrics, confidence="margin")`.
    """
    outputs = prediction.predictions[0] if isinstance(prediction.predictions, tuple) else prediction.predictions
    logits, label = torch.as_tensor(outputs), torch.as_tensor(prediction.label_ids)
    rows, classes = one_per_label(_classes_second(logits, label), label)
    return metrics_of(rows, classes, confidences.get(confidence)(rows.double()))


def _classes_second(logits: Tensor, label: Tensor) -> Tensor:
    """transformers has the classes of a token last, [b, tokens, K]; those of a pixel come second, [b, K, h, w]."""
    return logits.movedim(-1, 1) if logits.ndim == 3 and label.ndim == 2 else logits


def _check_loss(trainer: Trainer, criterion: CorrectnessRankingLoss) -> None:
    if not isinstance(criterion, CorrectnessRankingLoss):
        raise ValueError(f"expected criterion to be a CorrectnessRankingLoss, but got {criterion!r}")
    if trainer.compute_loss_func is not None:
        raise ValueError("expected one loss, but got criterion and compute_loss_func; omit compute_loss_func")
    if trainer.args.label_smoothing_factor:
        raise ValueError(
            "expected label smoothing in the criterion, but got label_smoothing_factor="
            f"{trainer.args.label_smoothing_factor}; set label_smoothing on the CorrectnessRankingLoss"
        )


def _numbered(train_set: Any, num_samples: int) -> Any:
    if isinstance(train_set, IterableDataset):
        return train_set  # only the stream itself knows the positions of its samples
    numbered = train_set if isinstance(train_set, IndexedDataset) else IndexedDataset(train_set)
    if len(numbered) != num_samples:
        raise ValueError(
            f"expected a history of the {len(numbered):,} training samples, but got one of {num_samples:,};"
            " create it with CorrectnessHistory(len(train_set))"
        )
    return numbered


def _load(checkpoint: Path) -> dict[str, Tensor]:
    for name in (HISTORY_FILE, TRAINER_STATE_NAME):  # the first and the last file of a checkpoint
        if not (checkpoint / name).exists():
            raise ValueError(
                f"expected {name} in {checkpoint}, but it is missing; resume from a complete checkpoint of a"
                " RankingTrainer"
            )
    return load_file(checkpoint / HISTORY_FILE)
