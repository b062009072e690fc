"""Processes that start in milliseconds: forked from one that has imported torch but computed nothing."""

import multiprocessing
import os
import signal
import sys
from contextlib import suppress

SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload([
    "confrank.cli", "confrank.training", "confrank.study.grid", "confrank.active.experiment",
    "confrank.report.progress", "confrank.report.table", "cyclopts", "sklearn.datasets", "torch._dynamo",
])  # fmt: skip
UNREAD = "a pipe without a reader"


def start_command(*arguments, output, errors, hangups=signal.SIG_DFL):
    """`confrank ...` as a process, its output and errors in these files or `UNREAD`.

    A terminal as the file of the output becomes the one that controls the process.
    """
    process = SERVER.Process(target=_command, args=([*map(str, arguments)], (str(output), str(errors)), hangups))
    process.start()
    return process


def _command(arguments, streams, hangups):
    from confrank.cli import main

    os.setsid()
    signal.signal(signal.SIGHUP, hangups)
    for number, stream in enumerate(streams, 1):
        os.dup2(_opened(stream), number)
    sys.stdout, sys.stderr = (open(number, "w", buffering=1, closefd=False) for number in (1, 2))  # noqa: SIM115
    try:
        main(arguments)
    finally:
        with suppress(OSError):  # as the interpreter does in the end
            sys.stderr.flush()
        sys.stderr = None


def _opened(stream):
    if stream != UNREAD:
        return os.open(stream, os.O_RDWR | os.O_CREAT)
    reader, writer = os.pipe()
    os.close(reader)
    return writer
