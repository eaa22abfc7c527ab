"""A process that a fork server has forked for us."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infra.control.fork_client import ForkServerProcess

EXIT_UNKNOWN = 255
"""The exit code of a process of which nobody told it: its fork server had died."""

# After their server's death children stop by themselves; who has not by then hangs.
ORPHANS_S = 15.0
# Its server tells at once, but for one that is frozen, or has waited for a core.
_UNTOLD_S = 8.0
_POLL_S = 0.01


class ForkedProcess:
    """A process that a server has forked: not our child, watched by its pidfd.

    Attributes:
        pid: its process id.
        returncode: None until ``poll`` has seen its end.
    """

    def __init__(self, server: ForkServerProcess, pid: int, pidfd: int) -> None:
        """Take what the server has told of it; ``pidfd`` is closed at its end."""
        self.pid = pid
        self.returncode: int | None = None
        self._server = server
        self._pidfd = pidfd
        self._ended_at_s: float | None = None

    def poll(self) -> int | None:
        """Return the exit code; None while it runs, or its server may yet tell it."""
        if self.returncode is None:
            code = self._server.code_of(self.pid)
            if code is None and self._is_untold():
                # It may have told just now, with its last words.
                code = self._server.code_of(self.pid)
                code = EXIT_UNKNOWN if code is None else code
            if code is not None:
                self.returncode = code
                os.close(self._pidfd)
        return self.returncode

    def wait(self) -> int:
        """Wait for its end; return the exit code."""
        while (code := self.poll()) is None:
            time.sleep(_POLL_S)
        return code

    def send_signal(self, sig: int) -> None:
        """Send a signal; nothing happens when it has ended."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, sig)

    def kill(self) -> None:
        """End it with SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def _is_untold(self) -> bool:
        """Whether it has ended, and its server, dead or frozen, does not tell how."""
        gone_for_s = self._server.gone_for_s
        if select.select([self._pidfd], [], [], 0)[0]:
            now_s = time.monotonic()
            self._ended_at_s = self._ended_at_s or now_s
            return gone_for_s is not None or now_s - self._ended_at_s > _UNTOLD_S
        if gone_for_s is not None and gone_for_s > ORPHANS_S:
            self.kill()
        return False
