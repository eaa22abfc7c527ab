"""Role processes as children: started, watched, restarted, stopped in order."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from infra.control.health import Condition
from infra.control.reconcile import (
    Changes,
    Known,
    Launch,
    MayStart,
    View,
    next_steps,
)
from infra.control.restarts import MAX_FAILURES, Failures, after_failure
from infra.control.role_environment import role_environment
from infra.control.scheduler import FORKED, MODULES, STOP_ORDER, Assignment
from infra.control.spawning import Child, ForkServerSpawner, NotStarted, Spawner
from infra.errors import RollstreamError
from infra.log_files import last_words
from infra.logs import LOG_FILE
from infra.settings import Settings

STOP_DEADLINE_S = 6.0
# Of that, what the learner is left with for its last checkpoint.
LEARNER_STOP_S = 4.0
_POLL_S = 0.02


class RoleFailed(RollstreamError):
    """A role process failed again and again."""


@dataclass
class _Child:
    process: Child
    started_at_s: float
    failures: Failures = field(default_factory=Failures)
    launch: Launch | None = None
    # When it is killed, as it was asked to stop; None: it was not.
    kill_at_s: float | None = None
    last_line: str = ""
    killed_as: Condition | None = None


@dataclass(frozen=True)
class Exit:
    """A role process that ended without being asked to.

    Attributes:
        killed_as: what was found of it, and why it was killed; None: it was not.
    """

    assignment: Assignment
    code: int
    restarts: int
    gave_up: bool
    log: Path
    last_line: str
    killed_as: Condition | None = None


class Supervisor:
    """Keeps the role processes of one experiment running.

    Attributes:
        max_failures: a process that failed so often in a row is started no more.
    """

    def __init__(
        self,
        settings: Settings,
        experiment: str,
        log_dir: Path,
        spawner: Spawner | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: where the processes run.
            experiment: its name.
            log_dir: what they say goes here.
            spawner: starts them, and is its maker's to close; None: one of our own,
                closed by ``stop``.
        """
        self._settings = settings
        self._own_spawner = ForkServerSpawner(FORKED, settings.env_modules)
        self._spawner = spawner or self._own_spawner
        self._experiment = experiment
        self._log_dir = log_dir
        self._children: dict[Assignment, _Child] = {}
        self.max_failures = MAX_FAILURES

    def start(self, assignments: Iterable[Assignment]) -> None:
        """Start the processes that do not run yet."""
        new = [a for a in assignments if a not in self._children]
        if any(MODULES[assignment.role] in FORKED for assignment in new):
            self._spawner.warm(self.environment())
        for assignment in new:
            self._children[assignment] = self._spawn(assignment, Failures())

    def reconcile(
        self, wanted: Mapping[Assignment, Launch], may_start: MayStart
    ) -> Changes:
        """Bring what runs nearer to what is wanted; never waits for a process to end.

        Args:
            wanted: all that is to run.
            may_start: whether a role may be started now; asked before each.
        """
        ended = self._reap()
        steps = next_steps(wanted, self._known())
        for assignment in steps.forget:
            del self._children[assignment]
        for assignment in steps.stop:
            child = self._children[assignment]
            child.process.send_signal(signal.SIGTERM)
            child.kill_at_s = time.monotonic() + STOP_DEADLINE_S
        started = []
        for assignment in steps.start:
            if may_start(assignment):
                launch = wanted[assignment]
                self._children[assignment] = self._spawn(assignment, Failures(), launch)
                started.append(assignment)
        return Changes(tuple(started), steps.stop, ended, steps.forget)

    def views(self) -> dict[Assignment, View]:
        """Return how each process is."""
        return {
            assignment: View(
                _state_of(child),
                child.process.pid,
                child.failures.total,
                child.last_line,
                child.launch,
            )
            for assignment, child in self._children.items()
        }

    def _reap(self) -> dict[Assignment, int]:
        """Forget who stopped as asked; kill who does not."""
        ended = {}
        for assignment, child in list(self._children.items()):
            if child.kill_at_s is None:
                continue
            if (code := child.process.poll()) is not None:
                ended[assignment] = code
                del self._children[assignment]
            elif time.monotonic() > child.kill_at_s:
                child.process.kill()
        return ended

    def _known(self) -> dict[Assignment, Known]:
        return {
            assignment: Known(
                child.launch or Launch(-1, ""),
                alive=child.process.poll() is None,
                gave_up=child.failures.gave_up,
                stopping=child.kill_at_s is not None,
            )
            for assignment, child in self._children.items()
        }

    def poll(self, may_start: MayStart = lambda assignment: True) -> list[Exit]:
        """Look at every child once; restart those that ended and are due.

        Args:
            may_start: whether a role may be started now.

        Returns:
            the exits seen now. One that ``gave_up`` stays down.
        """
        now_s = time.monotonic()
        exits = []
        for assignment, child in list(self._children.items()):
            if child.process.poll() is None or child.kill_at_s is not None:
                continue
            if child.failures.retry_at_s == 0.0:  # not seen before
                exits.append(self._note_exit(assignment, child, now_s))
            due = now_s >= child.failures.retry_at_s and not child.failures.gave_up
            if due and may_start(assignment):
                self._children[assignment] = self._spawn(
                    assignment, child.failures, child.launch
                )
                self._children[assignment].last_line = child.last_line
        return exits

    def kill(self, assignment: Assignment, pid: int, condition: Condition) -> bool:
        """Kill a process that does not work: it has failed, and is started again.

        With SIGKILL: one that is frozen or hangs heeds nothing else.

        Returns:
            whether it was there, and not asked to stop anyway.
        """
        child = self._children.get(assignment)
        if child is None or child.process.pid != pid or child.kill_at_s is not None:
            return False
        if child.process.poll() is not None:
            return False
        child.killed_as = condition
        child.process.kill()
        return True

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
        self._own_spawner.close()
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

    def _spawn(
        self,
        assignment: Assignment,
        failures: Failures,
        launch: Launch | None = None,
    ) -> _Child:
        arguments = [self._experiment, "--index", str(assignment.index)]
        if launch is not None:
            arguments += ["--spec-offset", str(launch.spec_offset)]
        log = self.log_path(assignment)
        process: Child
        try:
            log.parent.mkdir(parents=True, exist_ok=True)
            process = self._spawner.spawn(
                MODULES[assignment.role],
                arguments,
                self.environment() | {LOG_FILE: str(log)},
                log,
            )
        except OSError as exc:  # this role's failure, and nobody else's
            process = NotStarted(f"it cannot be started: {exc}")
        failures = Failures(failures.count, failures.total)
        return _Child(process, time.monotonic(), failures, launch)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a role process."""
        return role_environment(self._settings)

    def _note_exit(self, assignment: Assignment, child: _Child, now_s: float) -> Exit:
        child.failures = after_failure(
            child.failures,
            child.started_at_s,
            now_s,
            random.random(),
            self.max_failures,
        )
        path = self.log_path(assignment)
        child.last_line = _reason(child, path, now_s)
        return Exit(
            assignment,
            child.process.returncode or 0,
            child.failures.total,
            child.failures.gave_up,
            path,
            child.last_line,
            child.killed_as,
        )


def _reason(child: _Child, log: Path, now_s: float) -> str:
    if child.killed_as is not None:
        return child.killed_as.reason
    if isinstance(child.process, NotStarted):
        return child.process.reason
    return last_words(log, now_s - child.started_at_s)


def _state_of(child: _Child) -> str:
    if child.kill_at_s is not None:
        return "stopping"
    if child.process.poll() is None:
        return "running"
    return "failed" if child.failures.gave_up else "backing-off"
