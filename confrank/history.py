"""Per training sample: how often it was examined, and how often it was classified correctly."""

from collections.abc import Mapping, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_NO_LABEL = torch.iinfo(torch.int64).max
FINEST = 100_000  # each sample may then be examined 21,474 times
SQUEEZED = "squeeze() removes the dimension of a batch of one sample too: use squeeze(1)"


class CorrectnessHistory(nn.Module):
    """Counts, for each training sample, how often it was examined and how often correctly classified.

    The counters are buffers: they move with `.to(device)`, are saved with `state_dict()`, and recording
    never waits for the device. In evaluation mode (`.eval()`) nothing is recorded.

    With several labels per sample (pixels, tokens, multi-label), an event is the share of them that is right.
    Shares are counted as integers in units of 1/`resolution`, so that sums over processes are exact; 1,000 is a good
    choice. The default, 1, counts right and wrong.

    >>> history = CorrectnessHistory(3)
    >>> history.update(torch.tensor([0, 2]), torch.tensor([True, False]))
    >>> history.update(torch.tensor([0, 1]), torch.tensor([False, True]))
    >>> history.rate(torch.tensor([0, 1, 2])).tolist()
    [0.5, 1.0, 0.0]
    """

    examined: Tensor
    correct: Tensor
    lowest_label: Tensor
    highest_label: Tensor
    agreed: Tensor | None

    def __init__(self, num_samples: int, resolution: int = 1) -> None:
        super().__init__()
        self.num_samples = num_samples = _positive(num_samples, "num_samples")
        self.resolution = _positive(resolution, "resolution")
        if self.resolution > FINEST:
            raise ValueError(
                f"expected resolution to be at most {FINEST:,}, since counts have 32 bits, but got"
                f" {self.resolution:,}; 1,000 is a good choice"
            )
        for name in ("examined", "correct"):
            self.register_buffer(name, torch.zeros(num_samples, dtype=torch.int32))
        # A sample has one label, so the lowest and the highest label seen with it must agree.
        self.register_buffer("lowest_label", torch.full((num_samples,), _NO_LABEL))
        self.register_buffer("highest_label", torch.full((num_samples,), -1))
        # With several processes: the counts of all of them together when they last added up.
        self.register_buffer("agreed", None, persistent=False)
        if self.resolution != 1:  # so that a state is not read in other units
            self.register_buffer("units", torch.tensor(self.resolution))

    def rate(self, index: Tensor, *, stretched: bool = False) -> Tensor:
        """Share of correct events among the examinations so far (the paper's c), 0 before the first. [b] -> [b]

        `stretched`: (correct - m) / (examined - m), where m is how often the worst of the examined samples was
        correct, as far as this process knows.
        """
        self._check_index(index)
        return self._rate(index, stretched=stretched)

    def update(self, index: Tensor, correct: Tensor, label: Tensor | None = None) -> None:
        """Record one examination of each sample in `index` [b]; a repeated index counts each time.

        `correct` holds booleans or, in a history with a resolution, shares between 0 and 1, which are rounded to it.
        With `label` [b], `audit` can report indices that came with different labels.
        """
        self._check_index(index)
        for name, value in {"correct": correct, **({} if label is None else {"label": label})}.items():
            check_tensor(value, name)
            if value.shape != index.shape:
                raise ValueError(
                    f"expected {name} of shape {tuple(index.shape)} like index, but got {tuple(value.shape)}"
                )
        self._check_events(correct)
        if label is not None and not is_whole(label):
            raise ValueError(f"expected label to hold class numbers, but got {label.dtype}")
        self._update(index, self._in_units(correct), None if label is None else label.long())

    def audit(self, epochs: int | None = None) -> "Audit":
        """Check that the indices were correct: which samples have counts that cannot be right (see `Audit`).

        `epochs` is how often each sample should have been examined. Without it, the most common count of the examined
        samples is assumed, and samples examined less often are not reported.
        """
        seen = self.examined[self.examined > 0]
        expected = epochs if epochs is not None else int(seen.mode().values) if len(seen) else 0
        seldom = (self.examined > 0) & (self.examined < (0 if epochs is None else epochs))
        return Audit(
            num_samples=self.num_samples,
            epochs=expected,
            never_seen=_where(self.examined == 0),
            too_often=_where(self.examined > expected),
            too_seldom=_where(seldom),
            conflicting_labels=_where(self.lowest_label < self.highest_label),
        )

    def resize(self, num_samples: int) -> None:
        """Make room for samples that were appended to the data set; the counts of the others stay.

        Capture a CUDA graph and create `Sharpness` again afterwards. With several processes, resize in each of them.
        """
        if _positive(num_samples, "num_samples") < self.num_samples:
            raise ValueError(
                f"expected at least the {self.num_samples:,} samples that the history has, but got {num_samples:,};"
                " create a new history for another data set"
            )
        more, self.num_samples = int(num_samples) - self.num_samples, int(num_samples)
        for name, start in (("examined", 0), ("correct", 0), ("lowest_label", _NO_LABEL), ("highest_label", -1)):
            counter = getattr(self, name)
            # The same tensor object: who holds it, as `Sharpness` does, must not go on with the old counts unnoticed.
            counter.data = torch.cat((counter, counter.new_full((more,), start)))
        if self.agreed is not None:
            self.agreed = torch.cat((self.agreed, self.agreed.new_zeros(2, more)), dim=1)

    def agree(self) -> None:
        """Declare the counts to be those of all processes together (see `confrank.SharedHistory`)."""
        self.agreed = self.counts()

    def counts(self) -> Tensor:
        """A copy of both counters, [2, num_samples]: examined, correct."""
        return torch.stack((self.examined, self.correct))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any, **options: Any) -> None:
        resolution = int(state_dict.get(f"{prefix}units", 1))
        if resolution != self.resolution and f"{prefix}examined" in state_dict:
            raise ValueError(
                f"expected the state of a history with resolution {self.resolution:,}, but got {resolution:,};"
                f" create it with CorrectnessHistory({self.num_samples}, resolution={resolution})"
            )
        stored = state_dict.get(f"{prefix}examined")
        if stored is not None and len(stored) != self.num_samples:
            raise ValueError(
                f"expected the state of a history of {self.num_samples:,} samples, but got {len(stored):,}; "
                + (
                    f"create it with CorrectnessHistory({len(stored)}), load the state, then call"
                    f" resize({self.num_samples})"
                    if len(stored) < self.num_samples
                    else "create it with the length of the data set that the state was counted on"
                )
            )
        super()._load_from_state_dict(state_dict, prefix, *arguments, **options)
        if self.agreed is not None:  # all processes resume from the loaded counts; none of them counted these itself
            self.agree()

    def extra_repr(self) -> str:
        return f"num_samples={self.num_samples}" + f", resolution={self.resolution}" * (self.resolution != 1)

    def _rate(self, index: Tensor, *, stretched: bool = False) -> Tensor:
        with torch.no_grad():
            correct, examined = self.correct.index_select(0, index), self.examined.index_select(0, index)
            possible = examined if self.resolution == 1 else examined * self.resolution
            # Dividing integers would give torch's default type, which may be bfloat16.
            if not stretched:
                return correct.float() / possible.clamp_min(1)
            # Computed as 1 - wrong share, so that a sample that was never wrong has 1 even if all are equally good.
            least = torch.where(self.examined > 0, self.correct, torch.iinfo(torch.int32).max).min()
            wrong = (possible - correct).float() / (possible - least).clamp_min(1)
            return torch.where(examined > 0, 1 - wrong, 0.0)

    def _update(self, index: Tensor, units: Tensor, label: Tensor | None = None, keep: Tensor | None = None) -> None:
        """Record the samples where `keep` is true, or all if it is None. The inputs are not checked.

        `units` [b] int32 is the event of each sample: 0 if wrong, `resolution` if right.
        """
        if not self.training:
            return
        with torch.no_grad():
            events = units if keep is None else torch.where(keep, units, 0)
            examined = torch.ones_like(events) if keep is None else keep.to(torch.int32)
            self.correct.scatter_add_(0, index, events)
            self.examined.scatter_add_(0, index, examined)
            if label is not None:
                low = label if keep is None else torch.where(keep, label, _NO_LABEL)
                high = label if keep is None else torch.where(keep, label, -1)
                self.lowest_label.scatter_reduce_(0, index, low, "amin")
                self.highest_label.scatter_reduce_(0, index, high, "amax")

    def _in_units(self, correct: Tensor) -> Tensor:
        """Booleans or shares as integers; halves are rounded up."""
        if self.resolution == 1:
            return correct.bool().to(torch.int32)
        return (correct.float() * self.resolution + 0.5).to(torch.int32)

    def _check_events(self, correct: Tensor) -> None:
        if correct.dtype == torch.bool or not can_read(correct):
            return
        shares = self.resolution > 1
        fine = (correct >= 0) & (correct <= 1) if shares else (correct == 0) | (correct == 1)
        if not fine.all():
            raise ValueError(
                f"expected correct to hold {'shares within 0..1' if shares else 'booleans, or 0 and 1'},"
                f" but got {correct[~fine][0].item()}; it says whether the prediction is the label"
                + (", or which share of it" if shares else "")
            )

    def _check_index(self, index: Tensor) -> None:
        check_tensor(index, "index")
        if index.ndim != 1 or index.dtype != torch.int64:
            raise ValueError(
                "expected index to be a 1-D int64 tensor of data set positions,"
                f" but got shape {tuple(index.shape)} of {index.dtype}"
                + ("; convert it with index.long()" if index.ndim == 1 and is_whole(index) else "")
                + (f"; {SQUEEZED}" if index.ndim == 0 else "")
            )
        if index.device != self.examined.device:
            raise ValueError(
                f"expected index on {self.examined.device}, where the history is, but got it on {index.device};"
                " use criterion.to(device) and index.to(device)"
            )
        if can_read(index) and index.numel():
            low, high = (int(bound) for bound in index.aminmax())
            if low < 0 or high >= self.num_samples:
                raise ValueError(
                    f"expected index within 0..{self.num_samples - 1} for a history of {self.num_samples} samples,"
                    f" but got {low if low < 0 else high}; pass positions in the data set, as IndexedDataset returns"
                    " them, and create the history with the length of that data set"
                )


@dataclass(frozen=True)
class Audit:
    """The result of `CorrectnessHistory.audit`; `str(audit)` explains it.

    never_seen: samples that no batch contained. too_often, too_seldom: samples examined more often, or less often
    (but at least once), than there were epochs; the latter only if `epochs` was given.
    conflicting_labels: samples whose index came with different labels.
    """

    num_samples: int
    epochs: int
    never_seen: list[int]
    too_often: list[int]
    too_seldom: list[int]
    conflicting_labels: list[int]

    @property
    def ok(self) -> bool:
        return not (self.never_seen or self.too_often or self.too_seldom or self.conflicting_labels)

    def __str__(self) -> str:
        times = "once" if self.epochs == 1 else f"{self.epochs} times"
        if self.ok:
            return f"ok: {self.num_samples} samples, each examined at most {times}, one label each"
        findings = [
            (
                self.conflicting_labels,
                "came with different labels: these are not data set positions (batch positions, perhaps?),"
                " or labels change between epochs",
            ),
            (
                self.too_often,
                f"were examined more than {times}: a DistributedSampler, which repeats a few,"
                " a weighted sampler or one with replacement, second passes without record=False,"
                " an earlier training with this history, or wrong indices (and, if you did not pass epochs:"
                " an epoch that is not over, drop_last, or a data set that grew)",
            ),
            (
                self.too_seldom,
                f"were examined fewer than {times}: the history was not restored when training resumed,"
                " the counts of several processes were not added up (SharedHistory),"
                " or, for some of them, drop_last or a weighted sampler",
            ),
            (
                self.never_seen,
                "were never examined: an epoch that is not over, drop_last in the first epochs, a weighted sampler,"
                " counts of several processes that were not added up (SharedHistory), a history of more samples than"
                " you train on, or positions in a subset instead of those in the data set",
            ),
        ]
        return "\n".join(
            f"{len(rows)} of {self.num_samples} samples {what}; e.g. {rows[:5]}" for rows, what in findings if rows
        )


def check_tensor(value: object, name: str) -> None:
    """Raise if the value is not a tensor (an array, a list, a number)."""
    if not isinstance(value, Tensor):
        holds_logits = hasattr(value, "logits") or (isinstance(value, Mapping) and "logits" in value)
        remedy = f"convert it with torch.as_tensor({name})"
        if holds_logits:
            remedy = "pass its logits"
        elif isinstance(value, tuple):
            remedy = "pass the tensor that it contains"
        raise ValueError(
            f"expected {name} to be a torch tensor, but got {type(value).__module__}.{type(value).__qualname__};"
            f" {remedy}"
        )


def can_read(values: Tensor) -> bool:
    """Whether reading values is free: on the CPU; elsewhere it would stall the device or break a compiled graph."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def is_whole(values: Tensor) -> bool:
    """Whether a tensor holds integers of any width."""
    return not (values.is_floating_point() or values.is_complex() or values.dtype == torch.bool)


def _positive(value: object, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        remedy = "; pass its length" if isinstance(value, Sized) and not isinstance(value, str) else ""
        raise ValueError(f"expected {name} to be a positive integer, but got {value!r}{remedy}")
    return int(value)


def _where(mask: Tensor) -> list[int]:
    return mask.nonzero().flatten().tolist()
