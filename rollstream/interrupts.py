"""Ctrl-C once: the work is interrupted and cleans up; more often: it goes on to."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_TERMINATED = 143
AGAIN_S = 10.0
"""A clean-up may take so long; who asks again after that, is heard again."""


class Terminated(SystemExit):
    """SIGTERM: cleans up as Ctrl-C does, with an exit code of its own."""

    def __init__(self) -> None:
        super().__init__(EXIT_TERMINATED)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn SIGINT or SIGTERM into an exception, and ignore further ones for a while.

    Without this, a second Ctrl-C would cut the clean-up short and leave processes. But
    an exception can be lost: what is raised while a destructor runs is dropped.
    """
    heard_at_s = -math.inf

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal heard_at_s
        now_s = time.monotonic()
        if now_s - heard_at_s < AGAIN_S:
            return
        heard_at_s = now_s
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
