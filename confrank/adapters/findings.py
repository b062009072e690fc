"""What an adapter reports after training: wrong indices, and batches in which nothing was ranked."""

from collections.abc import Iterable
from dataclasses import replace

from confrank.history import CorrectnessHistory

NO_PAIRS = (
    "every batch had one sample, so the ranking loss was 0: samples are paired within a batch, not over the batches"
    " whose gradients are accumulated; use a larger batch size and accumulate fewer batches"
)


def findings(histories: Iterable[CorrectnessHistory], *, paired: bool) -> list[str]:
    """A message for each history with a finding, and one if no batch had two samples to pair.

    Samples examined too often are not reported, since samplers explain them.
    """
    audits = [replace(history.audit(), too_often=[]) for history in histories]
    return [str(audit) for audit in audits if not audit.ok] + ([] if paired else [NO_PAIRS])
