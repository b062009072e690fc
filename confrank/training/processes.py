"""The processes that train one run together: who writes, what all agree on, and what happens if one of them fails."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
from torch import distributed

Result = TypeVar("Result")
LAUNCHED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
TIMEOUT = timedelta(minutes=30)


class PeerError(RuntimeError):
    """Another process reported an error, and all of them stop. The first process explains it, the others do not."""

    exit_code = 2
    silent = True


class LostPeerError(PeerError):
    """Another process ended without a word: it was killed, or raised an error of its own."""

    exit_code = 1

    def __init__(self, processes: "Processes") -> None:
        super().__init__(
            "another process of this training has ended (see its output); run the same command again to resume"
        )
        self.silent = not processes.leads


@dataclass(frozen=True)
class Processes:
    """This process's number among those that train together; the default is one process alone.

    Every method is called by all processes in the same order. With one process, none of them communicates.
    """

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that locks and writes the folder and calls the listeners."""
        return self.rank == 0

    def gathered(self, value: Result) -> list[Result]:
        """The values of all processes, in their order."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        with reporting_lost_peers(self):
            distributed.all_gather_object(values, value)
        return values

    def shared(self, value: Result) -> Result:
        """The value of the first process, in all of them."""
        if self.size == 1:
            return value
        values = [value]
        with reporting_lost_peers(self):
            distributed.broadcast_object_list(values, src=0)
        return values[0]

    def highest(self, *numbers: int) -> list[int]:
        """The highest value of each number over all processes; no GPU waits for it."""
        if self.size == 1:
            return list(numbers)
        values = torch.tensor(numbers)
        with reporting_lost_peers(self):
            distributed.all_reduce(values, distributed.ReduceOp.MAX)
        highest: list[int] = values.tolist()
        return highest

    def together(self, work: Callable[[], Result]) -> Result:
        """Do the work in each process; if it fails in one of them, raise an error in all."""
        if self.size == 1:
            return work()
        try:
            result, error = work(), None
        except Exception as failure:
            error = failure
        reports = self.gathered(None if error is None else str(error) or type(error).__name__)
        failed = [rank for rank, report in enumerate(reports) if report is not None]
        if not failed:
            return result
        if error is not None and self.leads:
            raise error
        if self.leads:
            raise ValueError(f"{reports[failed[0]]} (in process {failed[0]} of 0..{self.size - 1})")
        raise PeerError(reports[failed[0]])

    def lead(self, work: Callable[[], Result]) -> Result:
        """Do the work in the first process; all get its result or, if it fails, an error."""
        result = self.together(work if self.leads else lambda: None)
        return self.shared(cast(Result, result))

    def part(self, num_samples: int) -> range:
        """The samples of a batch or a split that this process takes: consecutive ones, sizes as equal as possible.

        >>> [Processes(rank, 3).part(8) for rank in range(3)]
        [range(0, 3), range(3, 6), range(6, 8)]
        """
        each, more = divmod(num_samples, self.size)
        start = self.rank * each + min(self.rank, more)
        return range(start, start + each + (self.rank < more))


ALONE = Processes()


@contextmanager
def reporting_lost_peers(processes: Processes) -> Iterator[None]:
    """Turn the errors of a connection to a process that has ended into a `LostPeerError`."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise LostPeerError(processes) from error


def _is_lost(error: RuntimeError) -> bool:
    if isinstance(error, PeerError):
        return False
    # gloo's errors are plain RuntimeErrors that name their source file or the connection.
    words = ("gloo", "Connection closed by peer", "Connection reset", "Broken pipe", "NCCL")
    return isinstance(error, distributed.DistError) or any(word in str(error) for word in words)


def launched() -> bool:
    """Whether torchrun, or a launcher that sets the same variables, started this process as one of several."""
    return all(name in os.environ for name in LAUNCHED) and os.environ["WORLD_SIZE"] != "1"


def _check_launched() -> None:
    if missing := [name for name in LAUNCHED if name not in os.environ]:
        raise ValueError(
            f"expected a process that torchrun started, but {', '.join(missing)} is not set;"
            " start the program with torchrun --nproc-per-node N"
        )


def local_device(kind: str) -> torch.device:
    """The device of this process: the CPU, or on each machine one GPU for each process."""
    _check_launched()
    if kind == "cpu":
        return torch.device("cpu")
    number, available = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
    if number >= available:
        raise ValueError(
            f"expected a GPU for each process of a machine, but process {number} has none of the {available} here;"
            " start at most as many processes as there are GPUs, or train on the CPU"
        )
    return torch.device("cuda", number)


@contextmanager
def connected(device: torch.device) -> Iterator[Processes]:
    """Connect the processes that torchrun started: gloo between CPUs, nccl between GPUs."""
    # Builds of torch without distributed training lack these modules.
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    _check_launched()
    if device.type == "cuda":
        torch.cuda.set_device(device)
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # When torchrun starts the processes again, the store may still hold the addresses of those that are gone.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"attempt {attempt}", store)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    processes = Processes(rank, size)
    yield processes
    # Only after a success: a process that fails must leave at once, so that the others notice.
    processes.gathered(None)
    distributed.destroy_process_group()
