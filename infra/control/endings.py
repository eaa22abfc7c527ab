"""What the metrics say of runs -> which are over; told when their roles have ended."""

from __future__ import annotations

import time
from collections.abc import Collection

from infra.control.chores import Chores
from infra.control.desired import PublishedExperiment
from infra.control.durable_acts import DurableActs
from infra.control.judging import Case, Judge, Verdict
from infra.control.notices import Notices
from infra.control.status_board import StatusBoard
from infra.control.statuses import WHOLE, WHOLE_ROLE, publish_status, wall_of
from infra.errors import RollstreamError
from schemas.records import RoleStatus

# An agent that is frozen must not keep a finished experiment from being finished.
_ENDING_S = 60.0


class Endings:
    """A term's; all that is remembered here can be lost with the term."""

    def __init__(
        self,
        acts: DurableActs,
        notices: Notices,
        board: StatusBoard,
        judge: Judge,
        chores: Chores,
    ) -> None:
        self._acts = acts
        self._notices = notices
        self._board = board
        self._judge = judge
        self._chores = chores
        self._cases: dict[str, Case] = {}
        self._finished_at_s: dict[tuple[str, str], float] = {}
        self._ended: dict[str, int] = {}  # offsets of specs that stopped all

    def is_over(self, published: PublishedExperiment) -> bool:
        """Whether the run is finished, or is known to be about to."""
        return self._is_told(published) or self.finishing(published) is not None

    def finishing(self, published: PublishedExperiment) -> str | None:
        """Return why a run is over by its metrics; None: it is not."""
        verdict = self._judge.verdict(published)
        finish = verdict.finish if verdict else None
        return finish.reason if finish else None

    def is_read(self, published: PublishedExperiment) -> bool:
        """Whether a run's metrics are read; from now on they will be."""
        if self._judge.verdict(published) is not None:
            return True
        name = published.experiment.name
        case = self._cases.get(name)
        if case is None or case.published.run_id != published.run_id:
            self._cases[name] = Case(published, wall_of(self.told(published)))
            self._judge.take(self._cases)
        return False

    def live(self, published: PublishedExperiment) -> int:
        """Return how many roles of what is to end still live; raises KazooException."""
        name = published.experiment.name
        is_stopped = published.experiment.spec.state == "stopped"
        # Stopped ones become many, and of theirs none comes back.
        has_ended = self._ended.get(name) == published.offset
        is_finishing = self.finishing(published) is not None
        if has_ended or not (is_finishing or is_stopped):
            return 0
        live = self._acts.leadership.live_roles(name)
        if is_stopped and not live:
            self._ended[name] = published.offset
        return live

    def judges(self, published: PublishedExperiment, live: int) -> bool:
        """Keep a run's case up to date; return whether it has one.

        Args:
            published: the spec in force.
            live: how many of its roles live, if it is to end.
        """
        name, run_id = published.experiment.name, published.run_id
        if self._is_told(published):
            self._finished_at_s.pop((name, run_id), None)
            return False
        if published.experiment.spec.state == "stopped":
            return False
        case = self._cases.get(name)
        if case is None or case.published.run_id != run_id:
            return False
        verdict = self._judge.verdict(published)
        if verdict is None or verdict.finish is None:
            self._finished_at_s.pop((name, run_id), None)
            self._cases[name] = Case(published, case.wall_before_s)
            return True
        since_s = self._finished_at_s.setdefault((name, run_id), time.monotonic())
        all_ended = live == 0 or time.monotonic() - since_s > _ENDING_S
        self._cases[name] = Case(published, case.wall_before_s, all_ended)
        if verdict.is_final:
            self._finish(published)
        return True

    def keep(self, judged: Collection[str]) -> None:
        """Judge these from now on, and no others."""
        self._cases = {k: v for k, v in self._cases.items() if k in judged}
        self._finished_at_s = {
            run: at_s for run, at_s in self._finished_at_s.items() if run[0] in judged
        }
        self._judge.take(self._cases)

    def forget(self, name: str) -> None:
        """Forget an experiment that was deleted."""
        self._ended.pop(name, None)

    def told(self, published: PublishedExperiment) -> RoleStatus | None:
        """Return what was told of a run last."""
        name, run_id = published.experiment.name, published.run_id
        return self._board.of(name, run_id).get(WHOLE)

    def figures(self, published: PublishedExperiment) -> Verdict | None:
        """Return the newest figures of a run; None: none are followed."""
        return self._judge.verdict(published)

    def _is_told(self, published: PublishedExperiment) -> bool:
        told = self.told(published)
        return told is not None and told.state == "finished"

    def _finish(self, published: PublishedExperiment) -> None:
        def finish() -> None:
            verdict = self._judge.verdict(published)
            if verdict is None or verdict.finish is None:
                raise RollstreamError("its metrics are being read again")
            reason = verdict.finish.reason
            publish_status(
                self._acts.sender, published, "finished", reason, verdict.summary
            )
            name, run_id = published.experiment.name, published.run_id
            self._notices.event(name, run_id, WHOLE_ROLE, 0, "finished", reason)

        # Launched again with another goal, the same run finishes again.
        key = ("finish", published.experiment.name, published.offset)
        self._chores.see_to(key, self._acts.while_leading(finish))
