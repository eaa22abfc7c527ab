"""What the topic wants, what ZooKeeper says is there -> plans for agents.

The leader remembers nothing that it could not read again: who follows it goes on from
the same topics and znodes.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing

from kazoo.exceptions import KazooException

from infra.control.chores import Chores
from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.election import Fenced, Leadership
from infra.control.judging import Judge, Observe
from infra.control.leader_duties import Duties
from infra.control.notices import Notices
from infra.control.status_board import StatusBoard
from infra.control.term import Scaler, Term
from infra.control.threads import Threads
from infra.errors import RollstreamError
from infra.monitoring.alerting import Alerting
from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings

TICK_S = 0.5
_RETRY_S = 2.0
_log = logging.getLogger("rollstream.leader")


class Leader:
    """Leads for a term of office, and for the next."""

    def __init__(
        self,
        settings: Settings,
        notices: Notices,
        threads: Threads,
        scaler: Scaler | None = None,
    ) -> None:
        self._settings = settings
        self._notices = notices
        self._threads = threads
        self._scaler = scaler
        self._closed = threading.Event()

    def close(self) -> None:
        """End the term."""
        self._closed.set()

    def lead(self, leadership: Leadership) -> None:
        """Do a leader's work until the term is over or given up."""
        _log.info("this agent leads, epoch %d", leadership.epoch)
        while not self._closed.is_set() and not leadership.is_over:
            try:
                self._lead(leadership)
            except Fenced as exc:
                _log.info("this agent leads no more: %s", exc)
                return
            except RollstreamError as exc:  # the brokers are away
                _log.warning("the leader waits: %s", exc.problem)
                self._closed.wait(_RETRY_S)
        _log.info(
            "this agent's term as the leader, epoch %d, is over", leadership.epoch
        )

    def _lead(self, leadership: Leadership) -> None:
        alerting = Alerting(
            self._settings,
            epoch=leadership.epoch,
            may_act=lambda: leadership.is_sure,
        )
        judge = Judge(
            self._settings, self._observers(alerting), lambda: alerting.report
        )
        chores = Chores()
        with (
            closing(SpecFollower(self._settings)) as specs,
            closing(StatusBoard(self._settings)) as board,
            closing(judge),
            closing(chores),
            closing(alerting),
        ):
            specs.read_to_end()
            board.read_to_end()
            self._threads.start("judge", judge.run)
            self._threads.start("chores", chores.run)
            self._threads.start("alerts", alerting.run)
            duties = Duties(
                self._settings,
                leadership,
                self._notices,
                board,
                judge,
                chores,
                alerting,
            )
            term = Term(leadership, specs, board, duties, self._scaler)
            while not self._closed.wait(TICK_S) and not leadership.is_over:
                try:
                    term.tick()
                except KazooException as exc:
                    _log.info("ZooKeeper is away: %r", exc)

    def _observers(self, alerting: Alerting) -> Observe:
        """Return what sees the metrics of each experiment that is judged."""

        def observe(published: PublishedExperiment, follower: MetricsFollower) -> None:
            if self._scaler is not None:
                self._scaler.observe(published, follower)
            alerting.observe(published, follower)

        return observe
