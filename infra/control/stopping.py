"""Role processes that all have to end: asked role by role, killed at a deadline."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Mapping

from infra.control.children import Child
from infra.control.scheduler import STOP_ORDER, Assignment

STOP_DEADLINE_S = 6.0
# Of that, what the learner is left with for its last checkpoint.
LEARNER_STOP_S = 4.0
_POLL_S = 0.02


def stop_in_order(
    processes: Mapping[Assignment, Child], timeout_s: float = STOP_DEADLINE_S
) -> dict[Assignment, int]:
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
        _stop(_of(role, processes), time.monotonic() + max(share_s, 0.1))
    _stop(_of("learner", processes), end_s)
    return {assignment: process.wait() for assignment, process in processes.items()}


def _of(role: str, processes: Mapping[Assignment, Child]) -> list[Child]:
    return [each for assignment, each in processes.items() if assignment.role == role]


def _stop(processes: Iterable[Child], deadline_s: float) -> None:
    running = [each for each in processes if each.poll() is None]
    for process in running:
        process.send_signal(signal.SIGTERM)
    while any(process.poll() is None for process in running):
        if time.monotonic() > deadline_s:
            for process in running:
                process.kill()
            return
        time.sleep(_POLL_S)
