"""Tasks on a Ray cluster: connect, submit, collect, and stop them so that they can save their work."""

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from confrank.errors import InputError, first_line

Key = TypeVar("Key")
Ray = Any  # the module, which is optional
# Tasks read and write files, and send little through Ray.
STORE_BYTES = 100 << 20
# How often a task is started again after its process or node died, or a signal stopped it.
RETRIES = 20
CONNECT_SECONDS, STOP_SECONDS = 10.0, 300.0


class StoppedTaskError(RuntimeError):
    """A signal stopped a task, which has saved its work; Ray starts it again."""


@contextmanager
def connected(address: str, device: str | None = None) -> Iterator[tuple[Ray, str]]:
    """The module ray while it is connected to a cluster, and the device of tasks, "cuda" or "cpu".

    The address "local" starts a cluster on this machine for as long. A connection that exists already is used, and
    stays. Without a `device`, tasks use GPUs if a node has one.
    """
    if device not in (None, "cpu", "cuda"):
        problem = f"expected auto, cpu or cuda as device of tasks, but got {device}"
        raise InputError(problem, "leave out {device}: Ray gives each task its GPU")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        problem = "expected the package ray, but it is not installed"
        raise InputError(problem, "run pip install 'confrank[ray]', or leave out {ray}") from None
    if ray.is_initialized():
        yield ray, _device_on(ray, device)
        return
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGTERM)
    try:
        _connect(ray, address)
        yield ray, _device_on(ray, device)
    finally:
        ray.shutdown()
        if in_main_thread:
            signal.signal(signal.SIGTERM, before)


def _connect(ray: Ray, address: str) -> None:
    local = {"object_store_memory": STORE_BYTES, "include_dashboard": False} if address == "local" else {}
    try:
        _check_reachable(address)
        ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
    except (ValueError, OSError, RuntimeError) as error:
        raise InputError(
            f"expected a Ray cluster at {address}, but could not connect: {first_line(error)}",
            "start one with `ray start --head`, or set {ray} to local",
        ) from None


def _check_reachable(address: str) -> None:
    """Raise if nothing listens at HOST:PORT: Ray itself would try for two minutes, then exit."""
    if match := re.fullmatch(r"([^:/]+):([0-9]+)", address):
        socket.create_connection((match[1], int(match[2])), CONNECT_SECONDS).close()


def _device_on(ray: Ray, wanted: str | None) -> str:
    has_gpu = any(node.get("GPU") for node in _nodes(ray))
    if wanted == "cuda" and not has_gpu:
        raise InputError("expected a cluster with GPUs, but no node has one", "leave out {device}")
    return wanted or ("cuda" if has_gpu else "cpu")


def _nodes(ray: Ray) -> list[dict[str, float]]:
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


class Tasks(Generic[Key]):
    """Calls of one function as tasks, each known by a key. A task whose node dies is started again elsewhere.

    On a GPU a task has the GPU to itself. On CPUs it asks for as many as it has threads, or as any node has.
    """

    def __init__(self, ray: Ray, function: Callable[..., Any], device: str, threads: int) -> None:
        most = max((node.get("CPU", 1) for node in _nodes(ray)), default=1)
        share = {"num_gpus": 1, "num_cpus": 1} if device == "cuda" else {"num_cpus": max(1, min(threads, most))}
        options = {"max_retries": RETRIES, "retry_exceptions": [StoppedTaskError], **share}
        self._ray, self._remote = ray, ray.remote(**options)(function)
        self._pending: dict[Any, Key] = {}

    @property
    def keys(self) -> list[Key]:
        """The calls that are waiting or running."""
        return list(self._pending.values())

    def submit(self, key: Key, *arguments: Any) -> None:
        self._pending[self._remote.remote(*arguments)] = key

    def collect(self, seconds: float = 1.0) -> list[tuple[Key, Any]]:
        """The calls that have ended, after at most so many seconds: each with its result or its exception."""
        if not self._pending:
            time.sleep(seconds)
            return []
        done, _ = self._ray.wait(list(self._pending), num_returns=1, timeout=seconds)
        ended = []
        for reference in done:
            key = self._pending.pop(reference)
            try:
                ended.append((key, self._ray.get(reference)))
            except Exception as error:  # a task may raise anything
                ended.append((key, getattr(error, "cause", None) or error))
        return ended

    def stop(self) -> None:
        """Interrupt all tasks, as SIGINT would, and wait until they have saved their work and ended."""
        for reference in self._pending:
            self._ray.cancel(reference)
        if self._pending:
            self._ray.wait(list(self._pending), num_returns=len(self._pending), timeout=STOP_SECONDS)
        self._pending.clear()


def reason_of(error: Exception) -> str:
    """Why a task failed, in one line.

    >>> reason_of(KeyError("label")), reason_of(ValueError("expected a network, but got none"))
    ("KeyError: 'label'", 'expected a network, but got none')
    """
    kind = "" if isinstance(error, ValueError | OSError) else type(error).__name__
    return ": ".join(filter(None, (kind, " ".join(str(error).split()))))
