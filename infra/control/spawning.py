"""How a role process is started: forked from a warm server, or from nothing."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from infra.control.forked import (
    ForkedProcess,
    ForkRefused,
    ForkServerGone,
    ForkServerProcess,
)
from infra.control.role import PARENT_PID

# As a shell has it for a command that cannot be run.
EXIT_NOT_STARTED = 126
_log = logging.getLogger("rollstream")


class Child(Protocol):
    """A process that was started here; `subprocess.Popen` is one."""

    @property
    def pid(self) -> int:
        """Its process id."""

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


class Spawner(Protocol):
    """Starts processes, each in a session of its own: Ctrl-C reaches only us."""

    def spawn(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> Child:
        """Start ``python -m module argv...``, or what is like it.

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


class ForkServerSpawner:
    """Forks the processes of some modules from a server that has imported them.

    The server is started by ``warm`` or at the first process, and again when it has
    died. Other modules, and what cannot be forked, are started from nothing.

    Attributes:
        server: the one that serves now.
    """

    def __init__(self, modules: Sequence[str], preload: Sequence[str] = ()) -> None:
        """Start nothing yet.

        Args:
            modules: whose processes are forked; see `infra.control.fork_server`.
            preload: more modules that the server imports.
        """
        self.server: ForkServerProcess | None = None
        self._modules = tuple(modules)
        self._preload = tuple(preload)
        self._refused = False
        self._exec = ExecSpawner()

    def spawn(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> ForkedProcess | subprocess.Popen[bytes]:
        """Fork, waiting for the server's imports if need be; or start from nothing."""
        if module in self._modules and not self._refused:
            try:
                return self._fork(module, argv, env, log_path)
            except ForkRefused as exc:
                _log.warning("%s is started from nothing: %s", module, exc)
        return self._exec.spawn(module, argv, env, log_path)

    def warm(self, env: Mapping[str, str]) -> None:
        """Start the server if there is none that lives."""
        if not self._refused:
            self._living(env)

    def close(self) -> None:
        """End the server."""
        if self.server is not None:
            self.server.close()
            self.server = None

    def _fork(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> ForkedProcess:
        try:
            return self._fork_once(module, argv, env, log_path)
        except ForkServerGone:
            pass  # killed, perhaps
        try:
            return self._fork_once(module, argv, env, log_path)
        except ForkServerGone as exc:
            self._refused = True
            raise ForkRefused(str(exc)) from exc

    def _fork_once(
        self, module: str, argv: Sequence[str], env: Mapping[str, str], log_path: Path
    ) -> ForkedProcess:
        server = self._living(env)
        try:
            server.wait_until_ready()
        except ForkRefused:
            self._refused = True  # nor will it another time
            raise
        if not server.fits(env):
            raise ForkRefused("it has other variables than the fork server")
        return server.fork(
            {
                "module": module,
                "argv": list(argv),
                # The server is its parent, whose end has to be its own.
                "env": {**env, PARENT_PID: str(server.pid)},
                "log": str(log_path.absolute()),
            }
        )

    def _living(self, env: Mapping[str, str]) -> ForkServerProcess:
        if self.server is not None and self.server.gone_for_s is not None:
            _log.warning("the fork server %d has died", self.server.pid)
            self.server.close()
            self.server = None
        if self.server is None:
            self.server = ForkServerProcess(self._modules, self._preload, env)
        return self.server
