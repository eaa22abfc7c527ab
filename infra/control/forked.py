"""Our end of a fork server, and of the processes that it forks for us."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from infra.control.fork_server import Report, Request, receive

EXIT_UNKNOWN = 255
"""The exit code of a process of which nobody told it: its fork server had died."""

START_S = 60.0
ANSWER_S = 10.0
CLOSE_S = 2.0
# After their server's death children stop by themselves; who has not by then hangs.
ORPHANS_S = 15.0
_UNTOLD_S = 2.0
_POLL_S = 0.01
# An interpreter looks at these only when it starts, and libraries when first imported.
_AT_START = ("PYTHON", "LD_", "OMP_", "OPENBLAS_", "MKL_", "ROLLSTREAM_ENV_MODULES")


class ForkRefused(Exception):
    """Nothing can be forked; the text says why."""


class ForkServerGone(Exception):
    """The server has died; another one may do better."""


class ForkServerProcess:
    """A fork server that was started from here.

    Attributes:
        pid: its process id.
    """

    def __init__(
        self, modules: Sequence[str], preload: Sequence[str], env: Mapping[str, str]
    ) -> None:
        """Start it; what it imports is not waited for.

        Args:
            modules: whose processes it is to fork.
            preload: more modules that it imports, before those.
            env: its environment variables.
        """
        self._env_at_start = _at_start(env)
        self._ready: Report = {}
        self._answers: list[tuple[Report, int | None]] = []
        self._unwanted = 0  # answers to come that nobody waits for any more
        self._codes: dict[int, int] = {}
        self._gone_at_s: float | None = None
        self._lock = threading.RLock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        words = (str(theirs.fileno()), ",".join(modules), *preload)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "infra.control.fork_server", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=dict(env),
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.pid = self._process.pid

    @property
    def gone_for_s(self) -> float | None:
        """How long it has been dead; None while it lives."""
        with self._lock:
            self._hear()
            gone_at_s = self._gone_at_s
        return None if gone_at_s is None else time.monotonic() - gone_at_s

    def fits(self, env: Mapping[str, str]) -> bool:
        """Whether a process with these variables can be forked from it."""
        return _at_start(env) == self._env_at_start

    def wait_until_ready(self) -> None:
        """Wait for its imports.

        Raises:
            ForkRefused: it says that forking is not safe.
            ForkServerGone: it died.
        """
        with self._lock:
            self._hear_until(lambda: bool(self._ready), START_S)
            if not self._ready.get("ready", True):
                self.close()
                raise ForkRefused(self._ready["reason"])

    def fork(self, request: Request) -> ForkedProcess:
        """Have a process forked.

        Raises:
            ForkRefused: it says that forking is not safe, or does not answer.
            ForkServerGone: it died.
        """
        with self._lock:
            try:
                self._socket.send(json.dumps(request).encode())
            except (BrokenPipeError, ConnectionResetError):
                self._note_gone()
                raise ForkServerGone(self._epitaph()) from None
            except OSError as exc:  # too large for a packet, or it is frozen
                raise ForkRefused(f"the fork server takes nothing: {exc}") from exc
            try:
                self._hear_until(lambda: bool(self._answers), ANSWER_S)
            except ForkRefused:
                self._unwanted += 1
                raise
            report, pidfd = self._answers.pop()
        if pidfd is None:
            raise ForkRefused(report["reason"])
        return ForkedProcess(self, report["pid"], pidfd)

    def code_of(self, pid: int) -> int | None:
        """Return the exit code that it told of a process, once; else None."""
        with self._lock:
            self._hear()
            return self._codes.pop(pid, None)

    def close(self) -> None:
        """End it; it ends by itself when it finds that we are gone."""
        with self._lock:
            self._note_gone()
        try:
            self._process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _hear_until(self, heard: Callable[[], bool], timeout_s: float) -> None:
        deadline_s = time.monotonic() + timeout_s
        self._hear()
        while not heard():
            if self._gone_at_s is not None:
                raise ForkServerGone(self._epitaph())
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise ForkRefused(f"no answer within {timeout_s:g} s")
            select.select([self._socket], [], [], left_s)
            self._hear()

    def _hear(self) -> None:
        """Take in what it has reported by now."""
        while self._gone_at_s is None:
            try:
                report, pidfd = receive(self._socket)
            except BlockingIOError:
                return
            except ConnectionResetError:
                report, pidfd = {}, None
            if not report:
                self._note_gone()
            elif "ended" in report:
                self._codes[report["ended"]] = report["code"]
            elif "ready" in report:
                self._ready = report
            elif self._unwanted:
                self._unwanted -= 1
                _kill(pidfd)
            else:
                self._answers.append((report, pidfd))

    def _note_gone(self) -> None:
        if self._gone_at_s is None:
            self._gone_at_s = time.monotonic()
            self._socket.close()

    def _epitaph(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        return f"the fork server ended with code {self._process.returncode}"


class ForkedProcess:
    """A process that a server has forked: not our child, watched by its pidfd.

    Attributes:
        pid: its process id.
        returncode: None until ``poll`` has seen its end.
    """

    def __init__(self, server: ForkServerProcess, pid: int, pidfd: int) -> None:
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
                code = EXIT_UNKNOWN
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


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def _kill(pidfd: int | None) -> None:
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
