"""How a role process is started: forked from a warm server, or from nothing."""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from infra.control.children import EXIT_NOT_STARTED as EXIT_NOT_STARTED
from infra.control.children import Child as Child
from infra.control.children import NeverStarted, Pending
from infra.control.children import NotStarted as NotStarted
from infra.control.fork_client import (
    Asked,
    ForkRefused,
    ForkServerGone,
    ForkServerProcess,
)
from infra.control.forked import ForkedProcess
from infra.control.role import PARENT_PID

START_S = 50.0
"""How long a start waits for imports; less than what counts as a healthy life."""

PATIENT_START_S = 120.0
"""Likewise, where nothing else has to be done meanwhile."""

HOPELESS_S = 300.0
"""A server that has imported for so long is ended, and another one tries."""

_PROMPT_S = 0.2
_WAIT_S = 0.1
_log = logging.getLogger("rollstream")


class Spawner(Protocol):
    """Starts processes, each in a session of its own: Ctrl-C reaches only us."""

    def spawn(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> Child:
        """Start ``python -m module argv...``, or what is like it.

        It may come to be a while later: then its pid is -1 until it does.

        Args:
            module: what to run.
            argv: its arguments.
            env: all of its environment variables.
            log_path: its output is appended there.
        """

    def warm(self, env: Mapping[str, str]) -> None:
        """Do what processes with these variables would wait for; return at once."""

    def close(self) -> None:
        """Let go of what starting needed; the processes have ended before."""


class ExecSpawner:
    """Each process starts from nothing and imports for itself."""

    def spawn(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> subprocess.Popen[bytes]:
        """Start ``python -m module argv...``."""
        with log_path.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", module, *argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(env),
                start_new_session=True,
            )

    def warm(self, env: Mapping[str, str]) -> None:
        """There is nothing to do."""

    def close(self) -> None:
        """There is nothing to let go of."""


@dataclass(frozen=True)
class _Wish:
    """A process that is wanted; see `Spawner.spawn`."""

    module: str
    argv: Sequence[str]
    env: Mapping[str, str]
    log_path: Path


class ForkServerSpawner:
    """Forks the processes of some modules from a server that has imported them.

    The server is started by ``warm`` or at the first process, and again when it has
    died. Other modules, and what cannot be forked, are started from nothing.

    Attributes:
        server: the one that serves now.
    """

    def __init__(
        self,
        modules: Sequence[str],
        preload: Sequence[str] = (),
        *,
        is_patient: bool = True,
    ) -> None:
        """Start nothing yet.

        Args:
            modules: whose processes are forked; see `infra.control.fork_server`.
            preload: more modules that the server imports.
            is_patient: whether ``spawn`` waits for the server's imports. Else it
                returns at once, and what it returns is started as it is polled.
        """
        self.server: ForkServerProcess | None = None
        self.is_patient = is_patient
        self._modules = tuple(modules)
        self._preload = tuple(preload)
        self._refused = ""
        self._told = {""}
        self._epitaph = ""
        self._exec = ExecSpawner()
        # Processes are polled by one thread for each experiment when an agent stops.
        self._lock = threading.RLock()

    def spawn(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> Child:
        """Fork, once the server is ready; or start from nothing."""
        wish = _Wish(module, argv, env, log_path)
        if module not in self._modules:
            return self.start_from_nothing(wish, "")
        start = _Fork(self, wish)
        try:
            child = start.advance()
            while child is None and self.is_patient:
                start.wait(_WAIT_S)
                child = start.advance()
        except NeverStarted as exc:
            return NotStarted(f"it cannot be started: {exc}")
        return child or Pending(start)

    def warm(self, env: Mapping[str, str]) -> None:
        """Start the server if there is none that lives."""
        with contextlib.suppress(ForkRefused):
            self.living(env)

    def close(self) -> None:
        """End the server."""
        with self._lock:
            if self.server is not None:
                self.server.close()
                self.server = None

    def living(self, env: Mapping[str, str]) -> ForkServerProcess:
        """Return the server, a new one where it has died or imports for ever.

        Raises:
            ForkRefused: it was found before that nothing can be forked.
        """
        with self._lock:
            if self._refused:
                raise ForkRefused(self._refused)
            server = self.server
            if server is not None and server.refusal:
                raise self.refuse(server.refusal)
            if server is not None and (trouble := _trouble_of(server)):
                self._epitaph = server.close()
                _log.warning("the fork server %d %s", server.pid, trouble)
                self.server = None
            if self.server is None:
                self.server = ForkServerProcess(self._modules, self._preload, env)
            return self.server

    def refuse(self, reason: str = "") -> ForkRefused:
        """Fork nothing any more: another time it would not work either.

        Args:
            reason: why; "": of how the last server ended.
        """
        with self._lock:
            self._refused = self._refused or reason or self._epitaph
            self.close()
            return ForkRefused(self._refused)

    def start_from_nothing(self, wish: _Wish, reason: str) -> subprocess.Popen[bytes]:
        """Start a process that is not forked; tell why, of each reason once."""
        with self._lock:
            is_news = reason not in self._told
            self._told.add(reason)
        if is_news:
            _log.warning("%s is started from nothing: %s", wish.module, reason)
        return self._exec.spawn(wish.module, wish.argv, wish.env, wish.log_path)


class _Fork:
    """The way to a forked process: the server is ready, is asked, and has answered."""

    def __init__(self, spawner: ForkServerSpawner, wish: _Wish) -> None:
        self._spawner = spawner
        self._wish = wish
        self._began_s = time.monotonic()
        self._server: ForkServerProcess | None = None
        self._asked: Asked | None = None
        self._deaths = 0

    def advance(self) -> Child | None:
        try:
            return self._step()
        except ForkServerGone:
            return None  # killed, perhaps: the next step finds another
        except ForkRefused as exc:
            return self._spawner.start_from_nothing(self._wish, str(exc))

    def wait(self, timeout_s: float) -> None:
        if self._server is not None:
            self._server.wait(timeout_s)

    def cancel(self) -> None:
        if self._server is not None and self._asked is not None:
            self._server.drop(self._asked)

    def _step(self) -> ForkedProcess | None:
        server = self._spawner.living(self._wish.env)
        if server is not self._server:
            if self._server is not None:
                self._note_death()
            self._server, self._asked = server, None
        if self._asked is None:
            self._asked = self._ask(server)
        return None if self._asked is None else server.answer_to(self._asked)

    def _ask(self, server: ForkServerProcess) -> Asked | None:
        wish = self._wish
        if not server.fits(wish.env):
            raise ForkRefused("it has other variables than the fork server")
        if not server.is_ready():
            self._check_time(server)
            return None
        is_prompt = not server.is_behind
        asked = server.ask(
            {
                "module": wish.module,
                "argv": list(wish.argv),
                # The server is its parent, whose end has to be its own.
                "env": {**wish.env, PARENT_PID: str(server.pid)},
                "log": str(wish.log_path.absolute()),
            }
        )
        if is_prompt:
            server.wait(_PROMPT_S)
        return asked

    def _note_death(self) -> None:
        """Give up what cannot be done twice; once may be anybody's kill."""
        self._deaths += 1
        if self._deaths > 1:
            raise self._spawner.refuse()

    def _check_time(self, server: ForkServerProcess) -> None:
        waited_s, longest_s = time.monotonic() - self._began_s, START_S
        if self._spawner.is_patient:
            # Who comes later need not wait as long again.
            waited_s, longest_s = server.importing_for_s, PATIENT_START_S
        if waited_s > longest_s:
            raise NeverStarted(
                f"module {server.importing} hangs at import, or takes longer than "
                f"{longest_s:g} s"
            )


def _trouble_of(server: ForkServerProcess) -> str:
    """Return why another server is needed; "" when it is not."""
    if server.gone_for_s is not None:
        return "has died"
    is_hopeless = server.importing_for_s > HOPELESS_S
    return f"still imports {server.importing}" if is_hopeless else ""
