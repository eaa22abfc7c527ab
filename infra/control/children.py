"""A process that was started here, is about to be, or could not be."""

from __future__ import annotations

import signal
import time
from typing import Protocol

EXIT_NOT_STARTED = 126
"""The exit code of what could not be started, as a shell has it."""

_POLL_S = 0.02


class Child(Protocol):
    """A process that was started here; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Its process id; -1: it is not started yet, or never was."""

    @property
    def returncode(self) -> int | None:
        """What ``poll`` returned last; negative: the signal that ended it."""

    def poll(self) -> int | None:
        """Return the exit code; None while it runs."""

    def wait(self) -> int:
        """Wait for its end; return the exit code."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal; nothing happens when it has ended."""

    def kill(self) -> None:
        """End it with SIGKILL."""


class NotStarted:
    """What could not be started, as a process that has ended at once.

    Attributes:
        reason: why: a full disk, no more processes or descriptors.
    """

    pid = -1
    returncode = EXIT_NOT_STARTED

    def __init__(self, reason: str) -> None:
        """Take the reason."""
        self.reason = reason

    def poll(self) -> int:
        """Return the exit code."""
        return self.returncode

    def wait(self) -> int:
        """Return the exit code."""
        return self.returncode

    def send_signal(self, sig: int, /) -> None:
        """Nothing is there to get it."""

    def kill(self) -> None:
        """Nothing is there to be killed."""


class NeverStarted(Exception):
    """A start that has been waited for long enough; the text says for what."""


class Start(Protocol):
    """The way to a process; each step is short."""

    def advance(self) -> Child | None:
        """Take the next step; return the process once it is there.

        Raises:
            NeverStarted, OSError: it cannot be started.
        """

    def cancel(self) -> None:
        """Let no process come of it."""


class Pending:
    """A process whose start waits for something; whoever polls it helps it along.

    A signal that comes before it is started ends it, as it would have.

    Attributes:
        child: what it has become; None: it is not started yet.
        reason: why it could not be started; "" otherwise.
    """

    def __init__(self, start: Start) -> None:
        """Take the way to it; nothing happens before ``poll``."""
        self.child: Child | None = None
        self.reason = ""
        self._start = start
        self._code: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; -1: it is not started yet, or never was."""
        return -1 if self.child is None else self.child.pid

    @property
    def returncode(self) -> int | None:
        """What ``poll`` returned last."""
        return self._code if self.child is None else self.child.returncode

    def poll(self) -> int | None:
        """Return the exit code; None while it runs, or is not started yet."""
        if self.child is None and self._code is None:
            try:
                self.child = self._start.advance()
            except (NeverStarted, OSError) as exc:
                self.reason = f"it cannot be started: {exc}"
                self._code = EXIT_NOT_STARTED
        return self._code if self.child is None else self.child.poll()

    def wait(self) -> int:
        """Wait for its start and its end; return the exit code."""
        while (code := self.poll()) is None:
            time.sleep(_POLL_S)
        return code

    def send_signal(self, sig: int, /) -> None:
        """Send a signal; one that is not started never will be."""
        if self.child is not None:
            self.child.send_signal(sig)
        elif self._code is None:
            self._code = -sig
            self._start.cancel()

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)


def why_not_started(child: Child) -> str:
    """Return why a process could not be started; "" when it could, or may yet."""
    return child.reason if isinstance(child, NotStarted | Pending) else ""
