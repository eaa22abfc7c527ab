"""How a role process ended that nobody had asked to."""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from infra.control.children import Child, why_not_started
from infra.control.health import Condition
from infra.control.restarts import (
    Failures,
    after_failure,
    after_no_start,
    after_refusal,
)
from infra.control.role import EXIT_REFUSED
from infra.control.scheduler import Assignment
from infra.errors import RollstreamError
from infra.log_files import last_words


class RoleFailed(RollstreamError):
    """A role process failed again and again."""


@dataclass(frozen=True)
class Exit:
    """A role process that ended without being asked to.

    Attributes:
        last_line: why, in its own words or in ours.
        killed_as: what was found of it, and why it was killed; None: it was not.
        unstarted: how often in a row there was no process at all.
    """

    assignment: Assignment
    code: int
    restarts: int
    gave_up: bool
    log: Path
    last_line: str
    killed_as: Condition | None = None
    unstarted: int = 0

    @property
    def in_words(self) -> str:
        """What happened, in one line."""
        if self.killed_as is not None:
            return f"killed: {self.last_line}"
        if self.unstarted:
            return self.last_line
        return f"ended with code {self.code}: {self.last_line} (see {self.log})"

    @property
    def given_up_in_words(self) -> str:
        """Likewise, of one that is not started again."""
        if self.code == EXIT_REFUSED:
            return f"given up, for another start cannot mend it: {self.in_words}"
        return f"given up after {self.restarts} failures: {self.in_words}"


def cause_of(
    process: Child, killed_as: Condition | None, log: Path, lived_s: float
) -> str:
    """Return why a process ended, as far as anybody has said."""
    if killed_as is not None:
        return killed_as.reason
    return why_not_started(process) or last_words(log, lived_s)


def failures_after(
    process: Child,
    before: Failures,
    started_at_s: float,
    now_s: float,
    max_failures: int,
    keeps_trying: bool,
) -> Failures:
    """Return how often it has failed by now, and when it may be started again.

    Args:
        process: that has ended.
        before: its failures up to then.
        started_at_s: when it was started.
        now_s: monotonic seconds.
        max_failures: so many in a row, and it is given up.
        keeps_trying: never, though, for want of a process.
    """
    jitter = random.random()
    if why_not_started(process):
        most = None if keeps_trying else max_failures
        return after_no_start(before, now_s, jitter, most)
    if process.returncode == EXIT_REFUSED:
        return after_refusal(before)
    return after_failure(before, started_at_s, now_s, jitter, max_failures)
