"""Ctrl-C once: the work is interrupted and cleans up; more often: it goes on to."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_TERMINATED = 143


class Terminated(SystemExit):
    """SIGTERM: cleans up as Ctrl-C does, with an exit code of its own."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn the first SIGINT or SIGTERM into an exception, and ignore further ones.

    Without this, a second Ctrl-C would cut the clean-up short and leave processes.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, signal.SIG_IGN)
        raise Terminated if number == signal.SIGTERM else KeyboardInterrupt

    before = {
        number: signal.signal(number, on_signal)
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
