"""Ctrl-C once: the work is interrupted and cleans up; more often: it goes on to."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
LEAVE_S = 1.5
"""What a command that has nothing to clean up has, to end by itself."""

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
    hook, sys.unraisablehook = sys.unraisablehook, _on_unraisable
    try:
        yield
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


def _on_unraisable(told: sys.UnraisableHookArgs) -> None:
    """Say what was dropped, unless it was a Ctrl-C: that is no news."""
    if not isinstance(told.exc_value, KeyboardInterrupt | Terminated):
        sys.__unraisablehook__(told)


@contextmanager
def leaves_soon(within_s: float = LEAVE_S) -> Iterator[None]:
    """End this process soon after Ctrl-C or SIGTERM, whatever it is doing.

    For what has nothing to clean up. Native code, as of a client that waits for brokers
    which are away, lets no handler run for half a minute.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    watch = threading.Thread(
        target=_leave_when_told, args=(reader, within_s), name="leaves", daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)


def _leave_when_told(reader: int, within_s: float) -> None:
    codes: dict[int, int] = {
        signal.SIGINT: EXIT_INTERRUPTED,
        signal.SIGTERM: EXIT_TERMINATED,
    }
    while numbers := os.read(reader, 1):
        if (code := codes.get(numbers[0])) is not None:
            time.sleep(within_s)
            os._exit(code)
    os.close(reader)
