"""Lag and metrics of experiments -> alerts in their events, at the webhook, in the log.

Of each experiment one process does this at a time: the leader of the agents, or the
`rollstream run` that has it. What is on is in the log before anybody is told, so that
whoever goes on from there tells nobody twice.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from infra.clock import now_ms
from infra.control.desired import PublishedExperiment
from infra.errors import KafkaUnavailable, RollstreamError, TopicError
from infra.monitoring.alert_events import AlertSender, read_alerts
from infra.monitoring.alert_facts import (
    Counter,
    KnownGroups,
    Names,
    Observed,
    by_role,
    groups_of,
)
from infra.monitoring.alert_rules import Look, standings
from infra.monitoring.alert_states import Alerts
from infra.monitoring.alert_watch import Watched
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import GroupLag, LagReport, Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag_history import EVERY_S, history_values
from infra.settings import Settings

LOOK_S = 0.5

# What was known when a pass began is too old then.
_PASS_S = 2.0
_RETRY_S = 3.0
# Of what is over, and has no events: it was stopped before it ever ran.
_RETRY_ENDED_S = 60.0
_MONITOR_ENDS_S = 0.5
_log = logging.getLogger("rollstream.alerts")


@dataclass
class _Case:
    """One run of an experiment."""

    run_id: str
    alerts: Alerts
    nonfinite: Counter = field(default_factory=Counter)
    history_s: float = -math.inf


class Alerting:
    """Watches over the experiments whose metrics it is shown."""

    def __init__(
        self,
        settings: Settings,
        *,
        epoch: int = 0,
        may_act: Callable[[], bool] = lambda: True,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: where the brokers are, and the webhook.
            epoch: of the leader; 0 for whoever runs an experiment alone.
            may_act: whether nobody else can be doing the same by now.
        """
        self._settings = settings
        self._may_act = may_act
        self._sender = AlertSender(settings, epoch)
        self._watched = Watched()
        self._groups = Names()
        self._monitor = LagMonitor(
            settings,
            wanted=self._groups,
            standings=self._standings,
            rows_per_record=self._rows_per_record,
        )
        self._known = KnownGroups(self._seen_at_s)
        self._cases: dict[str, _Case] = {}
        self._tried_s: dict[str, float] = {}
        self._retry_at_s: dict[str, float] = {}
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._ended.set()

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower
    ) -> None:
        """See what the metrics say; in the thread that follows them."""
        self._watched.observe(published, follower, time.monotonic())

    def over(self, published: PublishedExperiment, reason: str) -> None:
        """Let nothing more be told of an experiment until there is a newer spec.

        What is on goes off, for that reason; also what somebody else has told of, who
        watched over it before.
        """
        self._watched.over(published, reason, time.monotonic())

    def keep(self, names: Collection[str]) -> None:
        """Watch over these and no others; what is on there stays, for somebody else.

        Of what is over that is told all the same.
        """
        self._watched.keep(names)

    def forget(self, name: str) -> None:
        """Watch no more over an experiment that was deleted, and tell nothing of it."""
        self._watched.forget(name)

    def close(self) -> None:
        """End ``run``."""
        self._closed.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until ``run`` has told of what is over, and ended."""
        self._ended.wait(timeout_s)

    def run(self) -> None:
        """Watch until closed."""
        self._ended.clear()
        self._monitor.start()
        try:
            while not self._closed.wait(LOOK_S):
                self._pass(self.report)
            self._end()
        finally:
            self._sender.close()
            self._ended.set()
            # Its look ends by itself, also with brokers that are away.
            self._monitor.close(_MONITOR_ENDS_S)

    @property
    def report(self) -> LagReport:
        """How the groups of all that is watched do."""
        return self._monitor.report

    def _standings(self) -> dict[Place, Standing]:
        found: dict[Place, Standing] = {}
        for each in self._watched.all():
            found.update(each.standings)
        return found

    def _rows_per_record(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in self._watched.all():
            found.update(each.rows_per_record)
        return found

    def _seen_at_s(self, place: Place) -> float | None:
        window = self._monitor.window(place)
        newest = window.newest if window is not None else None
        return newest.at_s if newest is not None else None

    def _pass(self, report: LagReport) -> None:
        now_s = time.monotonic()
        watched = self._watched.all()
        groups = self._known.of(report, now_s, time.time())
        names = {each.published.experiment.name for each in watched}
        self._groups.now = frozenset(
            group
            for each in watched
            if self._watched.why_over(each.published) is None
            for group in groups_of(each.published)
        )
        self._cases = {k: v for k, v in self._cases.items() if k in names}
        self._tried_s = {k: v for k, v in self._tried_s.items() if k in names}
        self._retry_at_s = {k: v for k, v in self._retry_at_s.items() if k in names}
        self._see_to_all(watched, groups, now_s)

    def _see_to_all(
        self, watched: list[Observed], groups: Mapping[str, GroupLag], now_s: float
    ) -> None:
        for facts in self._in_turn(watched, now_s):
            # Who is left out for want of time is among the first of the next pass.
            if not self._may_act() or time.monotonic() - now_s > _PASS_S:
                return
            try:
                self._try(facts, groups, now_s)
            except KafkaUnavailable:
                return  # nor do they answer for any other

    def _in_turn(self, watched: list[Observed], now_s: float) -> Iterator[Observed]:
        """Go through those that are due: first what runs, longest untried first."""

        def turn(facts: Observed) -> tuple[bool, float]:
            tried_s = self._tried_s.get(facts.published.experiment.name, -math.inf)
            return self._watched.why_over(facts.published) is not None, tried_s

        for facts in sorted(watched, key=turn):
            name = facts.published.experiment.name
            if now_s >= self._retry_at_s.get(name, 0.0):
                yield facts

    def _try(
        self, facts: Observed, groups: Mapping[str, GroupLag], now_s: float
    ) -> None:
        name, retry_s = facts.published.experiment.name, _RETRY_S
        self._tried_s[name] = time.monotonic()
        try:
            self._see_to(name, facts, groups, now_s)
            retry_s = 0.0
        except RollstreamError as exc:
            # The brokers are away; or its topic is gone, and all others go on.
            _log.info("alerts of %s have to wait: %s", name, exc.problem)
            if isinstance(exc, TopicError) and self._watched.why_over(facts.published):
                retry_s = _RETRY_ENDED_S
            if isinstance(exc, KafkaUnavailable):
                raise
        except Exception:
            _log.exception("alerts of %s", name)
        finally:
            self._retry_at_s[name] = time.monotonic() + retry_s

    def _end(self) -> None:
        """Tell of what is over, now or never, and of nothing else any more."""
        self._retry_at_s.clear()
        over = [
            each
            for each in self._watched.all()
            if self._watched.why_over(each.published)
        ]
        self._see_to_all(over, {}, time.monotonic())

    def _see_to(
        self,
        name: str,
        facts: Observed,
        groups: Mapping[str, GroupLag],
        now_s: float,
    ) -> None:
        published, case = facts.published, self._case(facts.published)
        why_over = self._watched.why_over(published)
        if why_over is not None:
            edges = case.alerts.end(why_over)
        else:
            mine = by_role(name, groups)
            if self._may_act():
                self._publish_history(published, case, mine, now_s)
            found = standings(_look(facts, case, mine, now_s))
            edges = case.alerts.step(found, now_s)
        for edge in edges:
            # Each may take seconds, and somebody else may lead by then.
            if not self._may_act():
                return
            case.alerts.told(edge, self._sender.tell(published, edge))
        if why_over is not None:
            self._watched.told(facts)

    def _case(self, published: PublishedExperiment) -> _Case:
        name, run_id = published.experiment.name, published.run_id
        case = self._cases.get(name)
        if case is None or case.run_id != run_id:
            on = read_alerts(self._settings, name, run_id, now_ms())
            case = self._cases[name] = _Case(run_id, Alerts(on))
            if any(alert.key.name == "nonfinite-loss" for alert in on):
                # When the last one was is not known: until now, at the latest.
                case.nonfinite.grew_s = time.monotonic()
        return case

    def _publish_history(
        self,
        published: PublishedExperiment,
        case: _Case,
        groups: Mapping[str, GroupLag],
        now_s: float,
    ) -> None:
        values = history_values(groups)
        if values and now_s - case.history_s >= EVERY_S:
            case.history_s = now_s
            self._sender.publish(published, values)


def _look(
    facts: Observed, case: _Case, groups: Mapping[str, GroupLag], now_s: float
) -> Look:
    learner = facts.learner
    case.nonfinite.see(learner.get("nonfinite_losses"), now_s)
    return Look(
        facts.published.experiment.spec,
        groups,
        learner,
        nonfinite_age_s=now_s - case.nonfinite.grew_s,
    )
