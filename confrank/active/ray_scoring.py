"""Chunks of a pool scored as tasks on a Ray cluster, whose nodes have the pool and the run at the same paths."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from confrank.active.pool import SamplePool
from confrank.active.scoring import score_chunks
from confrank.active.strategies import Rows, Strategy
from confrank.cluster import Ray, Tasks, reason_of
from confrank.trained import Trained, load_trained
from confrank.training import InterruptedRunError
from confrank.training.signals import stop_signals


@dataclass(frozen=True)
class Settings:
    """What all tasks share. Relative paths start at `folder`; `network` is the digest of the run's weights."""

    folder: Path
    run: Path
    network: str
    strategy: Strategy
    device: str
    threads: int


def score_task(pool: SamplePool, number: int, rows: Rows, settings: Settings) -> bytes:
    """Score a chunk on a node: the content of its file."""
    os.chdir(settings.folder)
    torch.set_num_threads(settings.threads)
    trained = _trained(settings.run, settings.network, settings.device)
    return dict(score_chunks(pool, trained, settings.strategy, {number: rows}))[number]


@lru_cache(maxsize=1)
def _trained(run: Path, network: str, device: str) -> Trained:
    return load_trained(run, device)


def score_on_ray(
    ray: Ray, pool: SamplePool, settings: Settings, folder: Path, chunks: Mapping[int, Rows]
) -> Iterator[tuple[int, bytes]]:
    """`score_chunks` with each chunk as one task; a signal raises `InterruptedRunError`, which names `folder`."""
    tasks: Tasks[int] = Tasks(ray, score_task, settings.device, settings.threads)
    with stop_signals() as stopped:
        shared = ray.put(pool)
        for number, rows in chunks.items():
            tasks.submit(number, shared, number, rows, settings)
        while tasks.keys:
            for number, result in tasks.collect():
                if isinstance(result, Exception):
                    tasks.stop()
                    raise _explained(result)
                yield number, result
            if stopped:
                tasks.stop()
                raise InterruptedRunError(stopped[0], [folder])


def _explained(error: Exception) -> Exception:
    """The error of a task, if it is about the pool or the run; otherwise what became of the task."""
    if isinstance(error, ValueError | OSError):
        return error
    return ValueError(
        f"expected the tasks to score the pool, but one failed: {reason_of(error)}; the same command resumes"
    )
