"""A policy: a decision ready for new answers, and the rows that each part of it saw.

The parts, in the order of the computation (see `policy_parts` for their fields):

    table_calibrator       a temperature: divides the logits
    score                  the score that ranks (default: the file's confidence, or the largest probability)
    confidence_calibrator  isotonic: confidence -> probability of being right
    threshold              the acceptance rule: a threshold, or one per class or group
    sets                   conformal sets of classes

How a command adds a part:

    policy = Policy.load(path), or Policy.of(predictions) for a new one
    index, rows = policy.usable(predictions, "design" or "promise", file=name, seed=seed)
    confidence, correct = policy.confidence(predictions), policy.correct(predictions)   # all rows, select afterwards
    point = guaranteed_threshold(confidence[index], correct[index], risk)
    policy.add(ThresholdPart(point.threshold, rows, promise), path)

`policy.apply(predictions)` answers new predictions, with or without labels.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from confrank.decisions.drift import reference_of
from confrank.decisions.policy_apply import (
    Answers,
    accepted_by,
    calibrated_table,
    distinguished,
    ranking_confidence,
    refuse_other_scale,
    row_keys,
    unknown_groups,
)
from confrank.decisions.policy_file import locked, part_as_dict, part_from_dict, policy_text, read_policy, restored
from confrank.decisions.policy_parts import (
    FEEDS,
    SLOTS,
    WORDS,
    CalibratorPart,
    Input,
    Part,
    ScorePart,
    SetsPart,
    ThresholdPart,
    matched,
    the_parts,
)
from confrank.decisions.policy_rows import check_rows, usable_rows
from confrank.decisions.policy_words import replaced_sentences, sentences
from confrank.decisions.rows import UsedRows
from confrank.errors import InputError, joined, named
from confrank.files import write_atomically
from confrank.metrics.inputs import Array, Classes, Flags, Ints, as_flags
from confrank.predictions import Predictions, as_predictions
from confrank.provenance import SEQUENCES, Provenance

__all__ = [
    "Answers", "CalibratorPart", "Policy", "ScorePart", "SetsPart", "ThresholdPart",
]  # fmt: skip


@dataclass(frozen=True)
class Policy:
    """What a policy takes, its parts, and the model whose predictions it was made on, where they say so.

    `replaced` counts, for the digest of each file, the guarantees that were computed on it and then dropped.

    >>> new = {"probabilities": [[0.9, 0.1], [0.4, 0.6]]}
    >>> policy = Policy.of(new).with_part(ThresholdPart(0.8))
    >>> answers = policy.apply(new)
    >>> answers.prediction.tolist(), answers.confidence.tolist(), answers.accepted.tolist()
    ([0, 1], [0.9, 0.6], [True, False])
    """

    input: Input
    table_calibrator: CalibratorPart | None = None
    score: ScorePart | None = None
    confidence_calibrator: CalibratorPart | None = None
    threshold: ThresholdPart | None = None
    sets: SetsPart | None = None
    model: Mapping[str, Any] = field(default_factory=dict)
    replaced: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return "\n".join(self.sentences())

    @classmethod
    def of(cls, predictions: Predictions | Mapping[str, Classes]) -> "Policy":
        """A policy without parts, for predictions like these."""
        predictions = as_predictions(predictions)
        return cls(Input.of(predictions), model=_model(predictions))

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """The policy in a file; an error if the file was changed, or written by a later version."""
        values = read_policy(Path(path))
        try:
            parts: Any = {slot: part_from_dict(slot, values[slot]) for slot in SLOTS if slot in values}
            others = {name: values.get(name, {}) for name in ("model", "replaced")}
            return cls(restored(Input, values["input"]), **parts, **others)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: expected a policy that confrank wrote, but got: {error}") from None

    def save(self, path: str | Path) -> None:
        """Write the policy atomically, as JSON that people can read."""
        write_atomically(Path(path), self.as_text().encode(errors="surrogatepass"))  # JSON may have any name

    def add(self, part: Part, path: str | Path, *, replace: bool = False) -> "Policy":
        """Add a part to the policy's file, as that is now: parts that others have added since it was read stay.

        An error if they have changed what the part rests on.
        """
        path = Path(path)
        with locked(path):
            current = Policy.load(path) if path.exists() else self
            below = [slot for slot, above in FEEDS.items() if part.slot in above]
            if current.input != self.input or any(getattr(current, slot) != getattr(self, slot) for slot in below):
                raise InputError(
                    f"expected {path} as it was read, but another command has changed it since",
                    f"add {WORDS[part.slot]} again",
                )
            changed = current.with_part(part, replace=replace)
            changed.save(path)
        return changed

    def as_text(self) -> str:
        """The content of the policy's file."""
        parts = {slot: part_as_dict(part) for slot, part in self.parts().items()}
        others = {name: dict(values) for name in ("model", "replaced") if (values := getattr(self, name))}
        taken = {name: value for name, value in asdict(self.input).items() if value != {}}
        return policy_text({"summary": self.sentences(), "input": taken, **parts, **others})

    def parts(self) -> dict[str, Part]:
        """The parts by slot, in the order of the computation."""
        return {slot: part for slot in SLOTS if (part := getattr(self, slot)) is not None}

    @property
    def columns(self) -> list[str]:
        """The columns of groups that `apply` needs."""
        parts = [part for part in (self.threshold, self.sets) if part is not None]
        return [*dict.fromkeys(part.column for part in parts if part.column is not None)]

    @property
    def classes(self) -> list[str] | None:
        """The classes as a file names them, by number if they have no names; None for a confidence alone."""
        if self.input.num_classes is None:
            return None
        return [*(self.input.class_names or map(str, range(self.input.num_classes)))]

    def doubts(self, predictions: Predictions) -> list[str]:
        """Notes on predictions that may differ from those that the policy was made on."""
        notes, model = [], _model(predictions)
        if model.get("config") and self.model.get("config") and model["config"] != self.model["config"]:
            notes.append("the policy was made on predictions of another model, so its guarantees may not hold here")
        if self.input.calibrated_by and not Input.of(predictions).calibrated_by:
            notes.append(
                f"the policy was made on predictions calibrated by {self.input.calibrated_by}; these do not say"
                " whether they were"
            )
        if self.input.class_names and predictions.table is not None and not predictions.class_names:
            names = named(self.input.class_names)
            notes.append(f"these predictions do not name their classes, which are taken in the order {names}")
        return notes

    def sentences(self) -> list[str]:
        """What the policy does and guarantees, in words."""
        return [*sentences(self.input, self.parts()), *replaced_sentences(self.parts(), self.replaced)]

    def replaced_by(self, part: Part) -> list[str]:
        """The slots of the parts that a new part replaces, or whose input it changes."""
        return [slot for slot in (part.slot, *FEEDS.get(part.slot, ())) if getattr(self, slot) is not None]

    def with_part(self, part: Part, *, replace: bool = False) -> "Policy":
        """The policy with one more part; with `replace`, without the parts that the new one makes invalid."""
        dropped = self.replaced_by(part)
        if dropped and not replace:
            _refuse(part, dropped)
        check_rows(part, {slot: other for slot, other in self.parts().items() if slot not in dropped})
        dated: Any = part if part.date else dataclasses.replace(part, date=datetime.now(UTC).date().isoformat())
        changes: dict[str, Any] = dict.fromkeys(dropped) | {part.slot: dated, "replaced": self._replaced(dropped)}
        return dataclasses.replace(self, **changes)

    def _replaced(self, dropped: Sequence[str]) -> dict[str, int]:
        """How many guarantees were computed on each file and dropped, with those in these slots."""
        parts = [self.parts()[slot] for slot in dropped]
        counts = Counter(part.rows.digest for part in parts if part.promise and part.rows is not None)
        return dict(Counter(self.replaced) + counts)

    def usable(
        self,
        predictions: Predictions,
        kind: Literal["design", "promise"],
        *,
        file: str = "",
        seed: int = 0,
        every: bool = False,
    ) -> tuple[Ints, UsedRows]:
        """The positions of the rows that a new part may use, in ascending order, and the record of them.

        A part that is fitted or chosen ("design") uses the design half, or all rows with `every`. A guarantee
        ("promise") uses all rows of a file that no calibrator and no score saw, and the other half of a file of
        which they saw the design half. `file` is the name to record. The record of rows for a guarantee has quantiles
        of their confidences.
        """
        predictions = self.matched(predictions)
        index, rows = usable_rows(self.parts(), predictions, kind, file=file, seed=seed, every=every)
        if kind == "promise":
            rows = dataclasses.replace(rows, reference=reference_of(self.confidence(predictions)[index]))
        return index, rows

    def table(self, predictions: Predictions) -> dict[str, Array]:
        """The table [n, K] after calibration, as `logits` or `probabilities`; empty for a confidence alone."""
        return calibrated_table(self.table_calibrator, self.matched(predictions))

    def predicted(self, predictions: Predictions) -> tuple[Array | None, Array]:
        """The predicted classes [n], if known, and the confidence [n] that the acceptance rule compares."""
        predictions = self.matched(predictions)
        table = calibrated_table(self.table_calibrator, predictions)
        ranked = self.input.ranked and self.table_calibrator is None and self.score is None
        if ranked and predictions.confidence is None:
            raise InputError(
                "expected a column of confidence, by which the policy ranks, but there is none",
                "name it with {columns}, as in confidence=COLUMN",
            )
        confidence = predictions.confidence if ranked else None
        if confidence is not None and self.confidence_calibrator is None:
            refuse_other_scale(self.parts(), confidence)
        prediction = predictions.prediction
        if self.table_calibrator is not None and predictions.table is not None:
            # Ties survive a temperature, and rounding makes new ones: the prediction decides both.
            prediction = predictions.table.argmax(axis=1) if prediction is None else prediction
        return ranking_confidence(self.confidence_calibrator, self.score, confidence, table, prediction)

    def confidence(self, predictions: Predictions) -> Array:
        """The confidence [n] that the acceptance rule compares."""
        return self.predicted(predictions)[1]

    def correct(self, predictions: Predictions) -> Flags:
        """Whether each prediction is right [n]; a calibrator of logits may have changed predictions."""
        if predictions.correct is not None and self.table_calibrator is None:
            return as_flags(predictions.correct)
        predictions = self.matched(predictions)
        prediction, _ = self.predicted(predictions)
        if predictions.label is None or prediction is None:
            raise InputError("expected labels, but there are none", "name them with {columns}, as in label=COLUMN")
        right: Flags = prediction == predictions.label
        return right

    def apply(self, predictions: Predictions | Mapping[str, Classes]) -> Answers:
        """Answer new predictions: the class, its confidence, whether it is accepted, and the set of classes.

        Labels are not needed and not used. A mapping of arrays may have the column of the groups.
        """
        predictions = self.matched(as_predictions(predictions, self.columns))
        prediction, confidence = self.predicted(predictions)
        parts = [part for part in (self.threshold, self.sets) if part is not None]
        values = {part.slot: distinguished(part, predictions, prediction) for part in parts}
        unknown = [unknown_groups(part, values[part.slot]) for part in parts]
        return Answers(
            prediction,
            confidence,
            None if self.threshold is None else accepted_by(self.threshold, confidence, values["threshold"]),
            self._sets(predictions, values.get("sets")),
            predictions.class_names,
            len(np.unique(np.concatenate([np.zeros(0), *(rows for groups in unknown for rows in groups.values())]))),
            tuple(dict.fromkeys(name for groups in unknown for name in groups)),
        )

    def _sets(self, predictions: Predictions, group: Array | None) -> Flags | None:
        """The set of each row [n, K], if the policy has sets."""
        if self.sets is None:
            return None
        table = calibrated_table(self.table_calibrator, predictions)
        return self.sets.conformal().sets(**table, group=group, key=row_keys(predictions))

    def matched(self, predictions: Predictions) -> Predictions:
        """The predictions with their classes in the order of the policy; an error if they are of another kind."""
        return matched(self.input, predictions)


def _refuse(part: Part, dropped: Sequence[str]) -> NoReturn:
    """Raise because a part cannot be added without dropping others."""
    new, names = WORDS[part.slot], joined([WORDS[slot] for slot in dropped])
    start = "start a new policy"
    if part.slot in dropped:
        problem = f"expected a policy without {new}, but this one has {names}"
    else:
        problem = f"expected to add {new} before the parts that rest on it, but the policy already has {names}"
        start += f" with {new} first"
    raise InputError(problem, f"{start}, or use {{replace}}, which drops {the_parts(dropped)}")


def _model(predictions: Predictions) -> dict[str, Any]:
    """What the predictions say about the model; empty if nothing."""
    record = Provenance.from_metadata(predictions.metadata)
    values = {} if record is None else record.as_dict()
    return {name: value for name, value in values.items() if name not in SEQUENCES}
