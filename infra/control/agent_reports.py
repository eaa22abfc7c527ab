"""What an agent does and sees -> events, statuses, and whoever watches it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infra.control.exits import Exit
from infra.control.notices import Notices
from infra.control.plans import Plan
from infra.control.reconcile import Launch, View
from infra.control.scheduler import Assignment
from infra.monitoring.event_kinds import EventKind, Severity

Run = tuple[str, str]
"""An experiment's name and run id."""


@dataclass(frozen=True)
class Happening:
    """Something that the agent did or saw, for whoever shows it.

    Attributes:
        kind: started, restarted, stopping, stopped, failed or stuck.
        reason: why.
    """

    kind: str
    experiment: str
    run_id: str
    role: str
    index: int
    reason: str
    pid: int | None = None


class AgentReports:
    """Tells of role processes, by run and assignment."""

    def __init__(self, notices: Notices, show: Callable[[Happening], None]) -> None:
        self._notices = notices
        self._show = show

    def started(
        self,
        run: Run,
        assignment: Assignment,
        view: View,
        again: bool,
        plan: Plan | None,
    ) -> None:
        """Tell of a process that is new."""
        offset = view.launch.spec_offset if view.launch else -1
        epoch = f", plan of epoch {plan.epoch}" if plan else ""
        reason = f"spec at offset {offset}{epoch}"
        if view.last_line:
            reason = f"it had failed: {view.last_line}"
        kind: EventKind = "restarted" if again else "started"
        self._event(run, assignment, kind, reason, view.pid)

    def stopping(
        self,
        run: Run,
        assignment: Assignment,
        pid: int,
        launch: Launch | None,
        wanted: Mapping[Run, object],
    ) -> None:
        """Tell of a process that was asked to stop; ``launch``: what it is to be."""
        reason = "it is not in the plan any more"
        if launch is not None:
            reason = f"the spec at offset {launch.spec_offset} changes what it reads"
        elif any(other[0] == run[0] and other != run for other in wanted):
            reason = "another run takes its place"
        self._tell(run, assignment, "stopping", reason, pid)

    def stopped(self, run: Run, assignment: Assignment, reason: str) -> None:
        """Tell of one that has ended as it was asked."""
        self._event(run, assignment, "stopped", reason)
        self.status(run, assignment, "stopped", reason)

    def failed(self, run: Run, gone: Exit) -> None:
        """Tell of one that has ended by itself, or was killed as it did not work."""
        if gone.unstarted > 1 and not gone.gave_up:
            return  # tried again and again, and told of in its status
        is_stuck = gone.killed_as is not None and gone.killed_as.state == "stuck"
        kind: EventKind = "stuck" if is_stuck and not gone.gave_up else "failed"
        reason = gone.given_up_in_words if gone.gave_up else gone.in_words
        severity: Severity = "alert" if gone.gave_up else "warning"
        self._event(run, gone.assignment, kind, reason, None, severity)

    def status(
        self,
        run: Run,
        assignment: Assignment,
        state: str,
        reason: str,
        pid: int = -1,
        restarts: int = 0,
    ) -> None:
        """Publish the state of a process."""
        self._notices.status(
            *run,
            assignment.role,
            assignment.index,
            state,
            reason,
            pid=pid,
            restarts=restarts,
        )

    def _event(
        self,
        run: Run,
        assignment: Assignment,
        kind: EventKind,
        reason: str,
        pid: int | None = None,
        severity: Severity = "info",
    ) -> None:
        self._tell(run, assignment, kind, reason, pid)
        self._notices.event(
            *run, assignment.role, assignment.index, kind, reason, severity
        )

    def _tell(
        self,
        run: Run,
        assignment: Assignment,
        kind: str,
        reason: str,
        pid: int | None = None,
    ) -> None:
        self._show(
            Happening(kind, *run, assignment.role, assignment.index, reason, pid)
        )
