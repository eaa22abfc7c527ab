"""The product's supervisor, and the difference between a fault and a failure.

What the harness kills did not fail: it is started again at once, as production does
with the first failure in a minute, however often. All other exits count as there.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from pathlib import Path

from infra.control.restarts import Failures
from infra.control.scheduler import Assignment
from infra.control.supervisor import Exit, Supervisor, _Child
from infra.settings import Settings
from tests.chaos.evidence import Ended


class HarmedSupervisor(Supervisor):
    """Keeps roles running, but for those that are held; remembers every end.

    Attributes:
        ended: every process that ended, in order.
        held: roles that are not started again.
        may_kill_itself: roles that a test lets kill themselves.
    """

    def __init__(
        self,
        settings: Settings,
        experiment: str,
        log_dir: Path,
        variables: dict[str, str],
    ) -> None:
        super().__init__(settings, experiment, log_dir)
        self.ended: list[Ended] = []
        self.held: set[Assignment] = set()
        self.may_kill_itself: set[str] = set()
        self._variables = variables
        self._harmed: set[int] = set()
        self._asked_at_s: dict[int, float] = {}
        self._lock = threading.RLock()

    def environment(self) -> dict[str, str]:
        return super().environment() | self._variables

    def poll(self) -> list[Exit]:
        with self._lock:
            return super().poll()

    def pids(self) -> dict[Assignment, int]:
        with self._lock:
            return super().pids()

    def signal(self, assignment: Assignment, number: int) -> int:
        """Send a signal to a role; return its pid.

        Raises:
            KeyError: it does not run.
        """
        with self._lock:
            pid = self.pids()[assignment]
            if number == signal.SIGKILL:
                self._harmed.add(pid)
            elif number in (signal.SIGTERM, signal.SIGINT):
                self._asked_at_s.setdefault(pid, time.monotonic())
            os.kill(pid, number)
        return pid

    def start_again(self, assignment: Assignment) -> None:
        """Let a held role run again."""
        with self._lock:
            self.held.discard(assignment)
            child = self._children.get(assignment)
            if child is None or child.process.poll() is not None:
                self._children.pop(assignment, None)
                self.start([assignment])

    def end_all(self, role: str, timeout_s: float) -> None:
        """Ask all processes of a role to stop, and wait; they stay down."""
        with self._lock:
            mine = [a for a in self._children if a.role == role]
            self.held.update(mine)
            running = [a for a in mine if a in self.pids()]
            for assignment in running:
                self.signal(assignment, signal.SIGTERM)
        deadline_s = time.monotonic() + timeout_s
        while any(a in self.pids() for a in running):
            assert time.monotonic() < deadline_s, f"{role} does not stop"
            time.sleep(0.02)
        self.poll()

    def kill_all(self) -> None:
        """End whatever is there, frozen or not, and what is not started yet."""
        with self._lock:
            self.held.update(self._children)
            for child in self._children.values():
                child.process.kill()
            for child in self._children.values():
                child.process.wait()
            self._own_spawner.close()

    def _note_exit(self, assignment: Assignment, child: _Child, now_s: float) -> Exit:
        seen = super()._note_exit(assignment, child, now_s)
        pid = child.process.pid
        itself = (
            seen.code == -signal.SIGKILL and assignment.role in self.may_kill_itself
        )
        harmed = pid in self._harmed or itself
        asked_at_s = self._asked_at_s.get(pid)
        self.ended.append(
            Ended(
                assignment.role,
                assignment.index,
                pid,
                seen.code,
                time.time(),
                asked=asked_at_s is not None,
                harmed=harmed,
                took_s=now_s - asked_at_s if asked_at_s is not None else 0.0,
                words=seen.last_line,
            )
        )
        if assignment in self.held:
            child.failures = Failures(0, seen.restarts, math.inf)
        elif harmed or asked_at_s is not None:
            child.failures = Failures(0, seen.restarts, now_s)
        return seen
