"""From configs to finished run folders: one run, or several side by side on one GPU."""

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Literal, NamedTuple, Self, TypedDict, TypeVar, Unpack, get_args

import torch
from torch import nn

from confrank.config import RunConfig
from confrank.data import DataSet, load
from confrank.environment import default_device
from confrank.errors import InputError, first_line
from confrank.metrics import Evaluation
from confrank.runs.folder import RunFolder
from confrank.training.captured import CapturedRun
from confrank.training.jobs import Job, Note, Record, open_job
from confrank.training.kernels import fused
from confrank.training.run import DivergedError, Run

EpochListener = Callable[[RunConfig, Record], None]
# Errors of one run that need not stop the others.
RUN_ERRORS = (ValueError, OSError, DivergedError)
CAPTURED, UNCOMPILED, EAGER = "captured graph, bfloat16", "captured graph, bfloat16, not compiled", "eager float32"
FUSED = "captured graph, bfloat16, fused kernels"
Computation = Literal["auto", "compiled", "plain"]
Result = TypeVar("Result")


class InterruptedRunError(RuntimeError):
    """A signal stopped training between two steps; the checkpoints are saved."""

    def __init__(self, signal_number: int, folders: Sequence[Path]) -> None:
        where = ", ".join(map(str, folders))
        super().__init__(f"stopped; run the same command again to resume ({where})")
        self.signal_number = signal_number


@dataclass(frozen=True)
class Finished:
    """A finished run: its folder, and the evaluation of the test split (and of the held-out one)."""

    folder: RunFolder
    evaluations: dict[str, Evaluation]


@dataclass(frozen=True)
class Failed:
    """A run that could not be finished, and why."""

    folder: RunFolder
    error: Exception

    @property
    def reason(self) -> Exception:
        """The error to report: one that a custom network raised says its type, and can go to another process."""
        if isinstance(self.error, RUN_ERRORS):
            return self.error
        return RuntimeError(": ".join(filter(None, (type(self.error).__name__, str(self.error)))))


class Options(TypedDict, total=False):
    """What `train` and `train_together` take in addition to configs and folders."""

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
    """Train one run to its end, or resume it; options as in `train_together`."""
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
    """Train runs side by side on one GPU, each with its own stream and graphs; on the CPU one after the other.

    `data` replaces the named data set, one for all runs or one for each; `networks`, one for each, the networks.
    `path` "plain" is eager float32; "auto" is the captured path on a GPU, with fused kernels for ResNet-110 and
    DenseNet-BC; "compiled" is the same without them. `on_start` is called with each run before it is trained. A run
    that cannot start, diverges, cannot be written or whose network raises an error becomes `Failed` and does not stop
    the others; only running out of memory is raised. SIGINT, SIGTERM and SIGHUP (unless ignored, as under nohup) save
    every run and raise `InterruptedRunError`; a second SIGINT or SIGTERM ends the process at once.
    """
    if path not in get_args(Computation):
        raise ValueError(f"expected a path among {', '.join(get_args(Computation))}, but got {path!r}")
    where = default_device() if device is None else torch.device(device)
    sets = list(data) if isinstance(data, Sequence) else [data] * len(configs)
    own = [None] * len(configs) if networks is None else networks
    plans = [_Plan(*plan) for plan in zip(configs, map(Path, outs), sets, own, strict=True)]
    # Graphs are captured on the current GPU.
    with stop_signals() as stopped, torch.cuda.device(where) if where.type == "cuda" else nullcontext():
        listeners = on_start or _ignore, on_epoch or _ignore, on_note or _ignore
        training = _Training(where, path, root, checkpoint_minutes, checkpoint_epochs, *listeners, stopped)
        groups = [plans] if training.captures else [[plan] for plan in plans]
        return [result for group in groups for result in training.train(group)]


def _ignore(*values: object) -> None:
    """A listener that does nothing."""


class _Plan(NamedTuple):
    """A run to train; `data` and `network` replace those that the config names."""

    config: RunConfig
    out: Path
    data: DataSet | None
    network: nn.Module | None


@dataclass
class _Training:
    """What the runs of one call share: device, listeners, data sets read once, and the signals received."""

    device: torch.device
    path: Computation
    root: str | Path | None
    checkpoint_minutes: float
    checkpoint_epochs: int
    on_start: Callable[[Job], None]
    on_epoch: EpochListener
    note: Note
    stopped: list[int]
    data_sets: dict[tuple[str | int | None, ...], DataSet] = field(default_factory=dict)
    has_explained: bool = False

    @property
    def captures(self) -> bool:
        return self.path != "plain" and self.device.type == "cuda"

    def train(self, plans: Sequence[_Plan]) -> list[Finished | Failed]:
        """Open, train and evaluate runs side by side."""
        results: dict[int, Finished | Failed] = {}
        jobs: dict[int, Job] = {}
        with ExitStack() as locks:
            for number, plan in enumerate(plans):
                try:
                    jobs[number] = self.open(plan)
                except RUN_ERRORS as error:
                    results[number] = Failed(RunFolder(plan.out), error)
                    continue
                locks.callback(jobs[number].release)
                self.on_start(jobs[number])
            is_trained = any(not job.run.finished for job in jobs.values())
            if is_trained and self.path != "plain" and not self.has_explained:
                self.explain()
            results |= self.step_through(jobs)
            for number, job in jobs.items():
                if number not in results:
                    judged = self.attempt(job, job.judge)
                    results[number] = judged if isinstance(judged, Failed) else Finished(job.folder, judged)
                job.release()
                if self.stopped:  # the folders are complete, but the user wants to stop
                    raise self.interrupted(jobs.values())
        return [results[number] for number in range(len(plans))]

    def explain(self) -> None:
        """Say why no graphs are captured, or nothing is compiled."""
        self.has_explained = True
        if not self.captures:
            self.note("training eagerly in float32: graphs and bfloat16 need a CUDA device")
        elif find_spec("triton") is None:
            self.note("training without compiled code and fused kernels: they need Triton, which is not installed")

    def open(self, plan: _Plan) -> Job:
        return open_job(
            plan.config,
            plan.out,
            device=self.device,
            path=self.path_of,
            data=partial(self.data_of, plan),
            network=plan.network,
            note=self.note,
        )

    def path_of(self, run: Run) -> str:
        """How a run is going to be computed, unless that fails."""
        if not self.captures:
            return EAGER
        has_kernels = self.path == "auto" and fused(run.called, run.store.height, run.store.width) is not None
        return FUSED if has_kernels else CAPTURED

    def data_of(self, plan: _Plan) -> DataSet:
        if plan.data is not None:
            return plan.data
        name, reading = plan.config.dataset, plan.config.reading
        key = name, *reading.values()
        if key not in self.data_sets:
            self.data_sets[key] = load(name, self.root, **reading)
        return self.data_sets[key]

    def step_through(self, jobs: dict[int, Job]) -> dict[int, Failed]:
        """Step all jobs in turn until each has finished or failed."""
        for job in jobs.values():
            for past in job.log:
                self.on_epoch(job.run.config, past)
        active = {number: (job, self.stepper(job.run)) for number, job in jobs.items() if not job.run.finished}
        for job, stepper in active.values():
            job.write_environment(_label(stepper))
            if self.captures:
                self.note(f"path of {job.run.config.model}: {job.environment['path']}")
        failures: dict[int, Failed] = {}
        while active:
            for number, (job, stepper) in list(active.items()):
                record = self.attempt(job, partial(self.advance, job, stepper))
                if isinstance(record, Failed):
                    failures[number] = record
                elif record:
                    self.on_epoch(job.run.config, record)
                if number in failures or job.run.finished:
                    del active[number]
            if self.stopped and active:
                for job, stepper in active.values():
                    self.save(job, stepper)
                raise self.interrupted([job for job, _ in active.values()])
        return failures

    def interrupted(self, jobs: Iterable[Job]) -> InterruptedRunError:
        return InterruptedRunError(self.stopped[0], [job.folder.path for job in jobs])

    def attempt(self, job: Job, work: Callable[[], Result]) -> Result | Failed:
        try:
            return work()
        except torch.OutOfMemoryError:  # no single run is to blame: together they are too large
            raise
        except Exception as error:  # a custom network may raise anything; the other runs continue
            return Failed(job.folder, error)

    def stepper(self, run: Run) -> Run | CapturedRun:
        """The fastest way to step that works for this network: in fused kernels, compiled, captured, or plain."""
        if not self.captures:
            return run
        ways = {"compiled and captured": (True, False), "captured": (False, False)}
        if self.path_of(run) == FUSED:
            ways = {"computed in fused kernels": (True, True), **ways}
        for what, (compiled, kernels) in ways.items():
            try:
                return CapturedRun(run, compiled=compiled, kernels=kernels)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # a custom network may do what a compiler or a graph cannot
                self.note(f"{run.config.run_name} cannot be {what}: {first_line(error)}")
        self.note(f"{run.config.run_name} is trained eagerly in float32")
        return run

    def advance(self, job: Job, stepper: Run | CapturedRun) -> Record | None:
        """Take one step. At the end of an epoch, log it and return its record; save a checkpoint when one is due."""
        stepper.step()
        with _stream_of(stepper):
            record = job.end_epoch() if job.run.next_step == job.run.num_steps else None
            if self.save_is_due(job):
                job.save()
        return record

    def save_is_due(self, job: Job) -> bool:
        at_epoch = bool(self.checkpoint_epochs) and job.run.next_step == 0
        return (
            job.run.finished
            or (at_epoch and job.run.epoch % self.checkpoint_epochs == 0)
            or time.monotonic() - job.last_saved > 60 * self.checkpoint_minutes
        )

    def save(self, job: Job, stepper: Run | CapturedRun) -> None:
        try:
            with _stream_of(stepper):
                job.save()
        except RUN_ERRORS as error:  # the other runs must still be saved
            self.note(f"{job.run.config.run_name} could not be saved: {error}")


def _label(stepper: Run | CapturedRun) -> str:
    if isinstance(stepper, CapturedRun):
        if stepper.fused is not None:
            return FUSED
        return CAPTURED if stepper.compiled else UNCOMPILED
    return EAGER


@contextmanager
def _stream_of(stepper: Run | CapturedRun) -> Iterator[None]:
    """Work that follows a captured step runs on its stream."""
    if isinstance(stepper, CapturedRun):
        with torch.cuda.stream(stepper.stream):
            yield
    else:
        yield


@contextmanager
def stop_signals() -> Iterator[list[int]]:
    """A list to which handlers append the signals received; the training loop checks it.

    A second signal reaches the previous handlers. SIGHUP is ignored then: the shell repeats the one of the system.
    """
    stopped: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        stopped.append(number)
        for known, handler in previous.items():
            signal.signal(known, signal.SIG_IGN if known == hangup else handler)

    hangup = getattr(signal, "SIGHUP", None)  # absent on Windows
    numbers = [signal.SIGINT, signal.SIGTERM]
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    try:
        previous = {number: signal.signal(number, handle) for number in numbers}
    except ValueError:  # outside the main thread, signals cannot be handled
        yield stopped
        return
    try:
        yield stopped
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class TensorBoardLog:
    """A listener for `on_epoch` that writes the numbers of each epoch into `tensorboard/` of the run's folder.

    `folders` maps the names of runs to their folders. Of a resumed run, the epochs since its checkpoint are replaced.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise InputError(
                "expected the package tensorboard, but it is not installed",
                "run pip install 'confrank[tensorboard]', or leave out {log}",
            ) from None
        self._writer, self._folders = SummaryWriter, folders
        self._open: dict[str, Any] = {}

    def __call__(self, config: RunConfig, record: Mapping[str, Any]) -> None:
        name, epoch = config.run_name, record["epoch"]
        if name not in self._open:
            self._open[name] = self._writer(str(self._folders[name] / "tensorboard"), purge_step=epoch)
        test = {f"test/{key}": value for key, value in record.get("test", {}).items() if value is not None}
        for key, value in {**record, **test}.items():
            if isinstance(value, int | float) and key != "epoch":
                self._open[name].add_scalar(key, value, epoch)
        self._open[name].flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for writer in self._open.values():
            writer.close()
