"""Role processes as children: started, watched, restarted, stopped in order."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from infra.control.children import Child, NotStarted
from infra.control.exits import Exit as Exit
from infra.control.exits import RoleFailed as RoleFailed
from infra.control.exits import cause_of, failures_after
from infra.control.health import Condition
from infra.control.reconcile import (
    Changes,
    Known,
    Launch,
    MayStart,
    View,
    next_steps,
)
from infra.control.restarts import MAX_FAILURES, Failures
from infra.control.role_environment import role_environment
from infra.control.scheduler import FORKED, MODULES, Assignment
from infra.control.spawning import ForkServerSpawner, Spawner
from infra.control.stopping import STOP_DEADLINE_S, stop_in_order
from infra.logs import LOG_FILE
from infra.settings import Settings


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

    @property
    def is_pending(self) -> bool:
        """Whether it waits for what it is forked from, and nobody stops it."""
        process = self.process
        not_yet = process.pid <= 0 and process.returncode is None
        return not_yet and self.kill_at_s is None


class Supervisor:
    """Keeps the role processes of one experiment running.

    Attributes:
        max_failures: a process that failed so often in a row is started no more.
        keeps_trying: what cannot be started at all is tried for ever: somebody else
            sees to it.
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
        self.keeps_trying = False

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
                child.failures.unstarted if child.process.pid <= 0 else 0,
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
            if child.is_pending and not may_start(assignment):
                self._put_off(child, now_s)
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
            # One that is not forked yet has none, and -1 would be everybody.
            if child.process.poll() is None and child.process.pid > 0
        }

    def log_path(self, assignment: Assignment) -> Path:
        """Return where a process writes what it has to say."""
        return self._log_dir / f"{assignment.role}-{assignment.index}.log"

    def stop(self, timeout_s: float = STOP_DEADLINE_S) -> dict[Assignment, int]:
        """Stop role by role in STOP_ORDER: SIGTERM, and SIGKILL at its deadline.

        Returns:
            the exit code of each; negative: the signal that ended it.
        """
        codes = stop_in_order(
            {assignment: child.process for assignment, child in self._children.items()},
            timeout_s,
        )
        self._children.clear()
        self._own_spawner.close()
        return codes

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
            # Here: what is forked could tell nobody that there is no place to tell.
            log.open("ab").close()
            process = self._spawner.spawn(
                MODULES[assignment.role],
                arguments,
                self.environment() | {LOG_FILE: str(log)},
                log,
            )
        except OSError as exc:  # this role's failure, and nobody else's
            process = NotStarted(f"it cannot be started: {exc}")
        failures = replace(failures, retry_at_s=0.0, gave_up=False)
        return _Child(process, time.monotonic(), failures, launch)

    def environment(self) -> dict[str, str]:
        """Return the environment variables of a role process."""
        return role_environment(self._settings)

    def _note_exit(self, assignment: Assignment, child: _Child, now_s: float) -> Exit:
        killed_as = child.killed_as
        is_stuck = killed_as is not None and killed_as.state == "stuck"
        child.failures = failures_after(
            child.process,
            child.failures,
            # It lived long, and did nothing in that time that would speak for it.
            now_s if is_stuck else child.started_at_s,
            now_s,
            self.max_failures,
            self.keeps_trying,
        )
        path = self.log_path(assignment)
        lived_s = now_s - child.started_at_s
        child.last_line = cause_of(child.process, child.killed_as, path, lived_s)
        return Exit(
            assignment,
            child.process.returncode or 0,
            child.failures.total,
            child.failures.gave_up,
            path,
            child.last_line,
            child.killed_as,
            child.failures.unstarted,
        )

    def _put_off(self, child: _Child, now_s: float) -> None:
        """Let no process come of a start that began when it was allowed."""
        child.process.kill()
        child.process = NotStarted("it may not be started now")
        child.failures = replace(child.failures, retry_at_s=now_s)


def _state_of(child: _Child) -> str:
    if child.kill_at_s is not None:
        return "stopping"
    if child.process.poll() is None:
        # Who has no pid yet waits for what it is forked from.
        return "running" if child.process.pid > 0 else "starting"
    return "failed" if child.failures.gave_up else "backing-off"
