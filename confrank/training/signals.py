"""Signals that stop training between two steps."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
