"""A study on a Ray cluster, whose nodes share its folders: groups of runs as tasks that can be stopped."""

import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch

from confrank.environment import keep_freed_memory
from confrank.errors import InputError, first_line
from confrank.study.group import Outcome, Problems, Runs, Sharing, train_group, train_shared
from confrank.training import InterruptedRunError, Options
from confrank.training.loop import stop_signals

Ray = Any  # the module, which is optional
# Tasks read and write files, and send little through Ray.
STORE_BYTES = 100 << 20
# How often a task is started again after its process or node died, or a signal stopped it.
RETRIES = 20
CONNECT_SECONDS, STOP_SECONDS = 10.0, 300.0
# A network file system may show a new file to another host with a delay.
VISIBLE_SECONDS = 60.0


class StoppedTaskError(RuntimeError):
    """A signal stopped a task, which has saved its work; Ray starts it again."""


def train_on_ray(
    address: str,
    runs: Runs,
    grouped: Callable[[Runs, str], Sequence[Runs]],
    out: Path,
    results: Path,
    options: Options,
    shift: bool,
    sharing: Sharing,
) -> Outcome:
    """`train_shared` with each group of runs as a task, which has a GPU, or as many CPUs as this process has threads.

    All nodes need the current folder and those of the runs, results and data. If the device of the `options` is None,
    tasks use GPUs if a node has one. SIGINT, SIGTERM and SIGHUP stop the tasks, which save checkpoints first, and
    raise `InterruptedRunError`.
    """
    wanted, threads = options["device"], torch.get_num_threads()
    if str(wanted or "cpu") not in ("cpu", "cuda"):
        problem = f"expected auto, cpu or cuda as device of tasks, but got {wanted}"
        raise InputError(problem, "leave out {device}: Ray gives each task its GPU")
    with connected(address) as ray, stop_signals() as stopped:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        has_gpu = any(node.get("GPU") for node in nodes)
        device = str(wanted or ("cuda" if has_gpu else "cpu"))
        share = {"num_gpus": 1, "num_cpus": 1}
        if device == "cpu":
            share = {"num_cpus": min(threads, max(node.get("CPU", 1) for node in nodes))}
        elif not has_gpu:
            raise InputError("expected a cluster with GPUs, but no node has one", "leave out {device}")
        task = ray.remote(max_retries=RETRIES, retry_exceptions=[StoppedTaskError], **share)(train_task)
        given = Path.cwd(), threads, out, results, {**options, "device": device}, shift

        def train(needed: Runs) -> Outcome:
            outcome = Outcome()
            pending = {task.remote(group, *given): group for group in grouped(needed, device)}
            while pending and not stopped:
                done, _ = ray.wait([*pending], timeout=1.0)
                for group in pending.values():
                    sharing.follow(group)
                for reference in done:
                    ended, notes = _result(ray, reference, pending.pop(reference))
                    for text in notes:
                        sharing.note(text)
                    outcome.problems.update(ended.problems)
                    outcome.held.update(ended.held)
            if stopped:
                for reference in pending:
                    ray.cancel(reference)  # as SIGINT would
                if pending:
                    ray.wait([*pending], num_returns=len(pending), timeout=STOP_SECONDS)
                raise InterruptedRunError(stopped[0], [out])
            return outcome

        outcome = train_shared([runs], train, sharing)
    return arrived(runs, outcome, sharing, f"{out} and {results}")


@contextmanager
def connected(address: str) -> Iterator[Ray]:
    """The module ray while it is connected to a cluster; a connection that exists already is used, and stays.

    The address "local" starts a cluster on this machine for as long.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        problem = "expected the package ray, but it is not installed"
        raise InputError(problem, "run pip install 'confrank[ray]', or leave out {ray}") from None
    if ray.is_initialized():
        yield ray
        return
    before = signal.getsignal(signal.SIGTERM)
    local = {"object_store_memory": STORE_BYTES, "include_dashboard": False} if address == "local" else {}
    try:
        try:
            if match := re.fullmatch("([^:/]+):([0-9]+)", address):  # Ray would try for two minutes, then exit
                socket.create_connection((match[1], int(match[2])), CONNECT_SECONDS).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", **local)
        except (ValueError, OSError, RuntimeError) as error:
            problem = f"expected a Ray cluster at {address}, but could not connect: {first_line(error)}"
            raise InputError(problem, "start one with `ray start --head`, or set {ray} to local") from None
        yield ray
    finally:
        ray.shutdown()
        with suppress(ValueError):  # outside the main thread, where Ray has not set its own
            signal.signal(signal.SIGTERM, before)


def train_task(
    group: Runs, folder: Path, threads: int, out: Path, results: Path, options: Options, shift: bool
) -> tuple[Outcome, list[str]]:
    """Train a group on a node; the outcome and the notes. Relative paths start at `folder`."""
    os.chdir(folder)
    torch.set_num_threads(threads)
    if options["device"] == "cpu":
        keep_freed_memory()
    notes: list[str] = []
    try:
        return train_group(group, out, results, {**options, "on_note": notes.append}, shift), notes
    except InterruptedRunError as error:
        raise StoppedTaskError(str(error)) from None


def _result(ray: Ray, reference: Any, group: Runs) -> tuple[Outcome, list[str]]:
    """What a task that has ended returned; a task that failed is a problem of each of its runs."""
    try:
        return ray.get(reference)  # type: ignore[no-any-return]
    except Exception as error:  # a task may raise anything
        cause = getattr(error, "cause", None) or error
        kind = "" if isinstance(cause, ValueError | OSError) else f"{type(cause).__name__}: "
        problem = RuntimeError(kind + " ".join(str(cause).split()))
        return Outcome({config.run_name: problem for config in group}), []


def arrived(runs: Runs, outcome: Outcome, sharing: Sharing, where: str) -> Outcome:
    """The outcome, with a problem for each run whose files do not arrive in our folders."""
    ended = [config for config in runs if config.run_name not in {*outcome.problems, *outcome.held}]
    give_up = time.monotonic() + VISIBLE_SECONDS
    while (left := sharing.missing(ended)) and time.monotonic() < give_up:
        time.sleep(1)
    why = f"expected its files in {where}, but a node wrote them elsewhere"
    lost: Problems = {config.run_name: InputError(why, "let all nodes share these folders") for config in left}
    return Outcome(outcome.problems | lost, outcome.held)
