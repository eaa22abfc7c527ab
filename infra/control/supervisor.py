"""Role processes as children: started, watched, restarted, stopped in order."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from infra.control.restarts import Failures, after_failure
from infra.control.role import PARENT_PID
from infra.control.scheduler import MODULES, STOP_ORDER, Assignment
from infra.errors import RollstreamError
from infra.settings import Settings

STOP_DEADLINE_S = 6.0
# Of that, what the learner is left with for its last checkpoint.
LEARNER_STOP_S = 4.0
_POLL_S = 0.02

# Arithmetic libraries start a thread for each core in every process: slower here.
_ONE_THREAD = {
    name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
}


class RoleFailed(RollstreamError):
    """A role process failed again and again."""


@dataclass
class _Child:
    process: subprocess.Popen[bytes]
    started_at_s: float
    failures: Failures = field(default_factory=Failures)


@dataclass(frozen=True)
class Exit:
    """A role process that ended without being asked to."""

    assignment: Assignment
    code: int
    restarts: int
    gave_up: bool
    log: Path
    last_line: str


class Supervisor:
    """Keeps the role processes of one experiment running."""

    def __init__(self, settings: Settings, experiment: str, log_dir: Path) -> None:
        self._settings = settings
        self._experiment = experiment
        self._log_dir = log_dir
        self._children: dict[Assignment, _Child] = {}
        log_dir.mkdir(parents=True, exist_ok=True)

    def start(self, assignments: Iterable[Assignment]) -> None:
        """Start the processes that do not run yet."""
        for assignment in assignments:
            if assignment not in self._children:
                self._children[assignment] = self._spawn(assignment, Failures())

    def poll(self) -> list[Exit]:
        """Look at every child once; restart those that ended and are due.

        Returns:
            the exits seen now. One that ``gave_up`` stays down.
        """
        now_s = time.monotonic()
        exits = []
        for assignment, child in list(self._children.items()):
            if child.process.poll() is None:
                continue
            if child.failures.retry_at_s == 0.0:  # not seen before
                exits.append(self._note_exit(assignment, child, now_s))
            if not child.failures.gave_up and now_s >= child.failures.retry_at_s:
                self._children[assignment] = self._spawn(assignment, child.failures)
        return exits

    def pids(self) -> dict[Assignment, int]:
        """Return the pids of the processes that run."""
        return {
            assignment: child.process.pid
            for assignment, child in self._children.items()
            if child.process.poll() is None
        }

    def log_path(self, assignment: Assignment) -> Path:
        """Return where a process writes what it has to say."""
        return self._log_dir / f"{assignment.role}-{assignment.index}.log"

    def stop(self, timeout_s: float = STOP_DEADLINE_S) -> dict[Assignment, int]:
        """Stop role by role in STOP_ORDER: SIGTERM, and SIGKILL at its deadline.

        Returns:
            the exit code of each; negative: the signal that ended it.
        """
        end_s = time.monotonic() + timeout_s
        learner_s = min(LEARNER_STOP_S, timeout_s / 2)
        others = [role for role in STOP_ORDER if role != "learner"]
        for position, role in enumerate(others):
            # Each role may use what the ones before it left over.
            left_s = end_s - learner_s - time.monotonic()
            share_s = left_s / (len(others) - position)
            self._stop_role(role, time.monotonic() + max(share_s, 0.1))
        self._stop_role("learner", end_s)
        codes = {a: child.process.wait() for a, child in self._children.items()}
        self._children.clear()
        return codes

    def _stop_role(self, role: str, deadline_s: float) -> None:
        children = [c for a, c in self._children.items() if a.role == role]
        for child in children:
            if child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        while any(child.process.poll() is None for child in children):
            if time.monotonic() > deadline_s:
                for child in children:
                    child.process.kill()
                return
            time.sleep(_POLL_S)

    def _spawn(self, assignment: Assignment, failures: Failures) -> _Child:
        with self.log_path(assignment).open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    MODULES[assignment.role],
                    self._experiment,
                    "--index",
                    str(assignment.index),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=self.environment(),
                # Its own session: Ctrl-C in the terminal reaches only us.
                start_new_session=True,
            )
        failures = Failures(failures.count, failures.total)
        return _Child(process, time.monotonic(), failures)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a role process."""
        settings = self._settings
        return {
            **os.environ,
            **_ONE_THREAD,
            "KAFKA_BOOTSTRAP_SERVERS": settings.bootstrap_servers or "",
            "ROLLSTREAM_ZOOKEEPER": settings.zookeeper or "",
            "ROLLSTREAM_DATA_DIR": str(settings.data_dir),
            PARENT_PID: str(os.getpid()),
            "ROLLSTREAM_ENV_MODULES": ",".join(settings.env_modules),
            "ROLLSTREAM_LEARNER_MODULES": ",".join(settings.learner_modules),
        }

    def _note_exit(self, assignment: Assignment, child: _Child, now_s: float) -> Exit:
        child.failures = after_failure(
            child.failures, child.started_at_s, now_s, random.random()
        )
        path = self.log_path(assignment)
        return Exit(
            assignment,
            child.process.returncode,
            child.failures.total,
            child.failures.gave_up,
            path,
            _last_line(path),
        )


def _last_line(path: Path) -> str:
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - 4096))
        lines = log.read().decode("utf-8", "replace").splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
