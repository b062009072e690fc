"""From configs to finished run folders: one run, or several side by side on one GPU."""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Literal, TypedDict, Unpack, get_args

import torch
from torch import nn

from confrank.config import RunConfig
from confrank.data import DataSet, load
from confrank.environment import default_device
from confrank.metrics import Evaluation
from confrank.run_folder import RunFolder
from confrank.training.captured import CapturedRun
from confrank.training.jobs import Job, Note, Record, open_job
from confrank.training.run import DivergedError, Run

EpochListener = Callable[[RunConfig, Record], None]
# What goes wrong with one run and need not stop the others.
RUN_ERRORS = (ValueError, OSError, DivergedError)
CAPTURED, UNCOMPILED, EAGER = "captured graph, bfloat16", "captured graph, bfloat16, not compiled", "eager float32"
Computation = Literal["auto", "plain"]


class InterruptedRunError(RuntimeError):
    """A signal stopped training between two steps; the checkpoints are saved."""

    def __init__(self, signal_number: int, folders: Sequence[Path]) -> None:
        where = ", ".join(map(str, folders))
        super().__init__(f"stopped; the same command goes on from there ({where})")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Finished:
    """What training leaves behind: the folder, and the evaluation of the test split (and of the held-out one)."""

    folder: RunFolder
    evaluations: dict[str, Evaluation]


@dataclass(frozen=True)
class Failed:
    """A run that did not get to its end, and why."""

    folder: RunFolder
    error: Exception

    @property
    def why(self) -> str:
        """The error in words: its kind too, where somebody's network raised it."""
        kind = "" if isinstance(self.error, RUN_ERRORS) else type(self.error).__name__
        return ": ".join(filter(None, (kind, str(self.error))))


class Options(TypedDict, total=False):
    """What `train` and `train_together` take beside configs and folders."""

    root: str | Path | None
    device: str | torch.device | None
    data: DataSet | Sequence[DataSet] | None
    networks: Sequence[nn.Module] | None
    path: Computation
    checkpoint_minutes: float
    checkpoint_epochs: int
    on_start: Callable[[Job], None] | None
    on_epoch: EpochListener | None
    on_note: Note | None


def train(config: RunConfig, out: str | Path, **options: Unpack[Options]) -> Finished:
    """Train one run to its end, or go on where an earlier call stopped; options as in `train_together`."""
    (result,) = train_together([config], [out], **options)
    if isinstance(result, Failed):
        raise result.error
    return result


def train_together(
    configs: Sequence[RunConfig],
    outs: Sequence[str | Path],
    *,
    root: str | Path | None = None,
    device: str | torch.device | None = None,
    data: DataSet | Sequence[DataSet] | None = None,
    networks: Sequence[nn.Module] | None = None,
    path: Computation = "auto",
    checkpoint_minutes: float = 2.0,
    checkpoint_epochs: int = 0,
    on_start: Callable[[Job], None] | None = None,
    on_epoch: EpochListener | None = None,
    on_note: Note | None = None,
) -> list[Finished | Failed]:
    """Train runs at once on one GPU, each with its own stream and graphs; on the CPU one after the other.

    `data` replaces the named data set, one for all runs or one for each; `networks` (one each) the named networks.
    `path` "plain" is eager float32; "auto" is the captured path on a GPU. `on_start` is called with each run that can
    be trained, before it is. A run that cannot start, diverges, cannot be written or whose network raises an error is
    reported as `Failed` and does not stop the others; only a lack of memory is raised. SIGINT, SIGTERM and SIGHUP
    (unless it is ignored, as under nohup) save every run and raise `InterruptedRunError`; a second SIGINT or SIGTERM
    ends the process at once.
    """
    if path not in get_args(Computation):
        raise ValueError(f"expected a path among {', '.join(get_args(Computation))}, but got {path!r}")
    note = on_note or (lambda text: None)
    where = default_device() if device is None else torch.device(device)
    fast = path == "auto" and where.type == "cuda"
    slow = path == "auto" and not fast
    # Runs on one named data set share it: it is read once.
    named = cache(lambda name, image_size: load(name, root, image_size=image_size))
    sets = list(data) if isinstance(data, Sequence) else [data] * len(configs)
    openers = {
        place: partial(
            open_job,
            config,
            Path(out),
            device=where,
            path=CAPTURED if fast else EAGER,
            data=partial(_data_of, config, sets[place], named),
            network=None if networks is None else networks[place],
            note=note,
        )
        for place, (config, out) in enumerate(zip(configs, outs, strict=True))
    }
    groups = [openers] if fast else [{place: opener} for place, opener in openers.items()]
    results: dict[int, Finished | Failed] = {}
    with _stop_signals() as stopped, ExitStack() as locks:
        watch = _Watch(checkpoint_minutes, checkpoint_epochs, on_epoch, note, stopped)
        for group in groups:
            jobs: dict[int, Job] = {}
            for place, opener in group.items():
                try:
                    jobs[place] = opener()
                except RUN_ERRORS as error:
                    results[place] = Failed(RunFolder(Path(outs[place])), error)
                    continue
                locks.callback(jobs[place].lock.release)
                if on_start:
                    on_start(jobs[place])
            if jobs and slow:
                note("training eagerly in float32: graphs and bfloat16 need a CUDA device")
                slow = False
            results |= _train_jobs(jobs, watch, fast)
            for place, job in jobs.items():
                if place not in results:
                    results[place] = _judged(job)
                job.lock.release()
                if stopped:  # the folders are whole, but somebody wants an end
                    raise InterruptedRunError(stopped[0], [job.folder.path for job in jobs.values()])
    return [results[place] for place in range(len(configs))]


def _judged(job: Job) -> Finished | Failed:
    try:
        return Finished(job.folder, job.judge())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return Failed(job.folder, error)


def _data_of(config: RunConfig, given: DataSet | None, named: Callable[[str, int | None], DataSet]) -> DataSet:
    return named(config.dataset, config.image_size) if given is None else given


@dataclass(frozen=True)
class _Watch:
    """When to save, whom to tell, and the signals that have come."""

    checkpoint_minutes: float
    checkpoint_epochs: int
    on_epoch: EpochListener | None
    note: Note
    stopped: list[int]

    def save_is_due(self, job: Job) -> bool:
        at_epoch = bool(self.checkpoint_epochs) and job.run.next_step == 0
        return (
            job.run.finished
            or (at_epoch and job.run.epoch % self.checkpoint_epochs == 0)
            or time.monotonic() - job.last_saved > 60 * self.checkpoint_minutes
        )


def _train_jobs(jobs: dict[int, Job], watch: _Watch, fast: bool) -> dict[int, Failed]:
    """Step through all jobs in turn until each is finished or has failed."""
    for job in jobs.values():
        for past in job.log:
            if watch.on_epoch:
                watch.on_epoch(job.run.config, past)
    active = {place: job for place, job in jobs.items() if not job.run.finished}
    steppers = {place: _stepper(job.run, fast, watch.note) for place, job in active.items()}
    for place, stepper in steppers.items():
        active[place].write_environment(_label(stepper))
    failures: dict[int, Failed] = {}
    while active:
        for place, job in list(active.items()):
            try:
                steppers[place].step()
                with _stream_of(steppers[place]):
                    record = _after_step(job, watch)
            except torch.OutOfMemoryError:  # nobody's own fault: all of them together are too large
                raise
            except Exception as error:  # anybody's network may raise anything, and need not stop the others
                failures[place] = Failed(job.folder, error)
            else:
                if record and watch.on_epoch:
                    watch.on_epoch(job.run.config, record)
            if place in failures or job.run.finished:
                del active[place], steppers[place]
        if watch.stopped and active:
            for place, job in active.items():
                try:
                    with _stream_of(steppers[place]):
                        job.save()
                except RUN_ERRORS as error:  # the others are still to be saved
                    watch.note(f"{job.run.config.run_name} could not be saved: {error}")
            raise InterruptedRunError(watch.stopped[0], [job.folder.path for job in active.values()])
    return failures


def _stepper(run: Run, fast: bool, note: Note) -> Run | CapturedRun:
    """The fastest way of stepping that works for this network: compiled and captured, captured, or plain."""
    if not fast:
        return run
    for compiled in (True, False):
        try:
            return CapturedRun(run, compiled=compiled)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # anybody's network may do what a compiler or a graph cannot
            what = "compiled and captured" if compiled else "captured"
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            note(f"{run.config.run_name} cannot be {what}: {reason}")
    note(f"{run.config.run_name} is trained eagerly in float32")
    return run


def _label(stepper: Run | CapturedRun) -> str:
    if isinstance(stepper, CapturedRun):
        return CAPTURED if stepper.compiled else UNCOMPILED
    return EAGER


def _after_step(job: Job, watch: _Watch) -> Record | None:
    """Write down an epoch that has ended, and save if it is time; the record of the epoch."""
    record = job.end_epoch() if job.run.next_step == job.run.num_steps else None
    if watch.save_is_due(job):
        job.save()
    return record


@contextmanager
def _stream_of(stepper: Run | CapturedRun) -> Iterator[None]:
    """Work that follows a captured step belongs on its stream."""
    if isinstance(stepper, CapturedRun):
        with torch.cuda.stream(stepper.stream):
            yield
    else:
        yield


@contextmanager
def _stop_signals() -> Iterator[list[int]]:
    """A list that signals append to: handlers only set this flag, the loop looks at it.

    A second signal finds the handlers that were there before, but for SIGHUP: the shell repeats what the system says.
    """
    stopped: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        for known, handler in previous.items():
            signal.signal(known, signal.SIG_IGN if known == hangup else handler)

    hangup = getattr(signal, "SIGHUP", None)  # there is none on Windows
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    try:
        previous = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # not in the main thread: signals are somebody else's business
        yield stopped
        return
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
