"""What is done to roles: killed, frozen, told to stop, ordered to die at a point."""

from __future__ import annotations

import contextlib
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

from infra.control.scheduler import Assignment
from tests.chaos.collecting import wait_until
from tests.chaos.evidence import Injected
from tests.chaos.supervision import HarmedSupervisor

_BETWEEN_LIVES_S = 120.0


class Harm:
    """Harms the roles under a supervisor, and notes when.

    Attributes:
        faults: what was done so far.
        random: for tests that choose by chance.
    """

    def __init__(
        self, supervisor: HarmedSupervisor, orders: Path, seed: int = 0
    ) -> None:
        self.supervisor = supervisor
        self.faults: list[Injected] = []
        self.random = random.Random(seed)
        self._orders = orders
        self._frozen: set[Assignment] = set()

    def kill(self, role: str, index: int = 0) -> int:
        """Kill with SIGKILL; the supervisor starts it again at once. Return the pid."""
        return self._harm("kill", role, index, signal.SIGKILL)

    def hold(self, role: str, index: int = 0) -> int:
        """Kill, and leave down until `start_again`."""
        self.supervisor.held.add(Assignment(role, index))
        return self._harm("hold", role, index, signal.SIGKILL)

    def start_again(self, role: str, index: int = 0) -> None:
        """Start a role that is held."""
        self.supervisor.start_again(Assignment(role, index))

    def freeze(self, role: str, index: int = 0) -> int:
        """Stop with SIGSTOP, as a debugger would."""
        self._frozen.add(Assignment(role, index))
        return self._harm("freeze", role, index, signal.SIGSTOP)

    def thaw(self, role: str, index: int = 0) -> None:
        """Let it go on with SIGCONT; no harm where it does not run any more."""
        self._frozen.discard(Assignment(role, index))
        with contextlib.suppress(KeyError):
            self.supervisor.signal(Assignment(role, index), signal.SIGCONT)

    def thaw_all(self) -> None:
        """Let everything go on that was frozen."""
        for assignment in list(self._frozen):
            self.thaw(assignment.role, assignment.index)

    def terminate(
        self, role: str, index: int = 0, number: signal.Signals = signal.SIGTERM
    ) -> int:
        """Ask to stop; it is started again when it has."""
        return self._harm(number.name, role, index, number)

    def order(self, role: str, index: int, point: str, what: str = "kill") -> None:
        """Let the learner die, or sleep for so many seconds, when it is at a point."""
        assert (role, index) == ("learner", 0), "only the learner has points"
        if what == "kill":
            self.supervisor.may_kill_itself.add(role)
        (self._orders / f"order-{point}").write_text(what)

    def injected(self, what: str, role: str, index: int = -1, pid: int = 0) -> None:
        """Note a fault, so that the time of recovery from it is measured."""
        self.faults.append(Injected(time.time(), what, role, index, pid))

    def _harm(self, what: str, role: str, index: int, number: signal.Signals) -> int:
        assignment = Assignment(role, index)
        self.wait_until(
            lambda: assignment in self.supervisor.pids(),
            _BETWEEN_LIVES_S,
            f"{assignment.key} runs",
        )
        pid = self.supervisor.signal(assignment, number)
        self.injected(what, role, index, pid)
        return pid

    def pids(self, role: str = "") -> dict[Assignment, int]:
        """Return the pids of what runs, of one role or all."""
        found = self.supervisor.pids()
        return {a: pid for a, pid in found.items() if role in ("", a.role)}

    def pid(self, role: str, index: int = 0) -> int:
        """Return a role's pid; raises KeyError when it does not run."""
        return self.supervisor.pids()[Assignment(role, index)]

    def log(self, role: str, index: int = 0) -> str:
        """Return what a role's processes have said."""
        path = self.supervisor.log_path(Assignment(role, index))
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_until(
        self, ready: Callable[[], object], timeout_s: float, what: str
    ) -> None:
        """Wait until a condition holds; an AssertionError says what did not come."""
        wait_until(ready, timeout_s, what, 0.1)

    def wait_for_end(self, pid: int, timeout_s: float = 60.0) -> None:
        """Wait until a process has ended and the supervisor has seen it."""
        self.wait_until(
            lambda: any(end.pid == pid for end in self.supervisor.ended),
            timeout_s,
            f"process {pid} ends",
        )
