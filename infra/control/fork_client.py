"""Our end of a fork server: what it is asked for, and what it says."""

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
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from infra.control.fork_server import Report, Request, receive
from infra.control.forked import ForkedProcess

ANSWER_S = 10.0
CLOSE_S = 2.0
# An interpreter looks at these only when it starts, and libraries when first imported.
_AT_START = ("PYTHON", "LD_", "OMP_", "OPENBLAS_", "MKL_", "ROLLSTREAM_ENV_MODULES")


class ForkRefused(Exception):
    """Nothing can be forked; the text says why."""


class ForkServerGone(Exception):
    """The server has died; another one may do better."""


@dataclass
class Asked:
    """A process that a server was asked for, in monotonic time.

    Attributes:
        answer: what the server said, and the process's pidfd; None: nothing yet.
        is_unwanted: the process is to be killed when it comes.
    """

    at_s: float
    answer: tuple[Report, int | None] | None = None
    is_unwanted: bool = False


class ForkServerProcess:
    """A fork server that was started from here; nothing that it says is waited for.

    Attributes:
        pid: its process id.
        importing: the module that it was about to import last.
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
        self._started_at_s = time.monotonic()
        self.importing = "nothing"
        self._ready: Report = {}
        self._asked: deque[Asked] = deque()  # it answers in this order
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

    @property
    def importing_for_s(self) -> float:
        """How long it has been importing; 0 once it is done with that, or dead."""
        with self._lock:
            self._hear()
            is_over = self._ready or self._gone_at_s is not None
        return 0.0 if is_over else time.monotonic() - self._started_at_s

    def is_ready(self) -> bool:
        """Whether its imports are done, and it forks."""
        with self._lock:
            self._hear()
            return self._ready.get("ready", False) and self._gone_at_s is None

    @property
    def refusal(self) -> str:
        """Why it does not fork, if it has said so: it has ended then."""
        with self._lock:
            self._hear()
            return self._ready.get("reason", "")

    @property
    def is_behind(self) -> bool:
        """Whether it was asked for what it has not answered yet."""
        return bool(self._asked)

    def ask(self, request: Request) -> Asked:
        """Have a process forked; `answer_to` says what came of it.

        Raises:
            ForkRefused: it takes no requests.
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
            self._asked.append(Asked(time.monotonic()))
            return self._asked[-1]

    def answer_to(self, asked: Asked) -> ForkedProcess | None:
        """Return the process that was asked for; None: it has not answered yet.

        Raises:
            ForkRefused: it says that forking is not safe, or does not answer.
            ForkServerGone: it died.
        """
        with self._lock:
            self._hear()
            if asked.answer is None:
                if self._gone_at_s is not None:
                    raise ForkServerGone(self._epitaph())
                if time.monotonic() - asked.at_s > ANSWER_S:
                    asked.is_unwanted = True
                    raise ForkRefused(f"no answer within {ANSWER_S:g} s")
                return None
        report, pidfd = asked.answer
        if pidfd is None:
            raise ForkRefused(report["reason"])
        return ForkedProcess(self, report["pid"], pidfd)

    def drop(self, asked: Asked) -> None:
        """Have a process killed that is not wanted any more, now or when it comes."""
        with self._lock:
            self._hear()
            asked.is_unwanted = True
            if asked.answer is not None:
                _kill(asked.answer[1])

    def wait(self, timeout_s: float) -> None:
        """Wait until it says something, or dies."""
        with self._lock:
            if self._gone_at_s is None:
                select.select([self._socket], [], [], timeout_s)

    def code_of(self, pid: int) -> int | None:
        """Return the exit code that it told of a process, once; else None."""
        with self._lock:
            self._hear()
            return self._codes.pop(pid, None)

    def close(self) -> str:
        """End it; return how it ended. By itself it does not while it imports."""
        imports = self.importing_for_s > 0
        with self._lock:
            self._note_gone()
        try:
            self._process.wait(0.0 if imports else CLOSE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._epitaph()

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
            elif "importing" in report:
                self.importing = report["importing"]
            elif (asked := self._asked.popleft()).is_unwanted:
                _kill(pidfd)
            else:
                asked.answer = report, pidfd

    def _note_gone(self) -> None:
        if self._gone_at_s is None:
            self._gone_at_s = time.monotonic()
            self._socket.close()

    def _epitaph(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(CLOSE_S)
        return f"the fork server ended with code {self._process.returncode}"


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START)}


def _kill(pidfd: int | None) -> None:
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
