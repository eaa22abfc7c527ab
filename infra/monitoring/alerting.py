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
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from infra.clock import now_ms
from infra.control.desired import PublishedExperiment
from infra.errors import RollstreamError
from infra.monitoring.alert_events import AlertSender, read_alerts
from infra.monitoring.alert_facts import Counter, Names, Observed, observed
from infra.monitoring.alert_rules import GROUP_ROLES, Look, standings
from infra.monitoring.alert_states import Alerts
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import GroupLag, LagReport, Place, Standing
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag_history import EVERY_S, history_values
from infra.settings import Settings
from schemas.topics import group_name

LOOK_S = 0.5
RECOVERY_S = 10.0
"""For how long lag says nothing after the brokers were away: all have to reconnect."""

_STALE_S = 5.0
_RETRY_S = 3.0
_OBSERVE_S = 0.4
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
        self._observed: dict[str, Observed] = {}
        # The offset of the spec that says so, or under which it ended; and why.
        self._over: dict[str, tuple[int, str]] = {}
        self._groups = Names()
        self._monitor = LagMonitor(
            settings,
            wanted=self._groups,
            standings=self._standings,
            rows_per_record=self._rows_per_record,
        )
        self._cases: dict[str, _Case] = {}
        self._doubted_s = -math.inf
        self._retry_at_s: dict[str, float] = {}
        # Metrics are followed in one thread, the spec in another.
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._ended = threading.Event()
        self._ended.set()

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower
    ) -> None:
        """See what the metrics say; in the thread that follows them."""
        name, now_s = published.experiment.name, time.monotonic()
        with self._lock:
            over, before = self._over.get(name), self._observed.get(name)
            if over is not None and published.offset <= over[0]:
                return
            self._over.pop(name, None)
            is_known = before is not None and before.published == published
            if before is None or not is_known or now_s - before.at_s >= _OBSERVE_S:
                self._observed[name] = observed(published, follower, now_s)

    def over(self, published: PublishedExperiment, reason: str) -> None:
        """Let nothing more be told of an experiment until there is a newer spec.

        What is on goes off, for that reason.
        """
        name = published.experiment.name
        with self._lock:
            if name in self._observed or name in self._over:
                self._over[name] = published.offset, reason

    def keep(self, names: Collection[str]) -> None:
        """Watch over these and no others; what is on there stays, for somebody else."""
        with self._lock:
            for name in self._observed.keys() - set(names) - self._over.keys():
                del self._observed[name]
            for name in self._over.keys() - set(names) - self._observed.keys():
                del self._over[name]

    def forget(self, name: str) -> None:
        """Watch no more over an experiment that was deleted, and tell nothing of it."""
        with self._lock:
            self._observed.pop(name, None)
            self._over.pop(name, None)

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
            self._monitor.close()

    @property
    def report(self) -> LagReport:
        """How the groups of all that is watched do."""
        return self._monitor.report

    def _all(self) -> list[Observed]:
        with self._lock:
            return list(self._observed.values())

    def _standings(self) -> dict[Place, Standing]:
        found: dict[Place, Standing] = {}
        for each in self._all():
            found.update(each.standings)
        return found

    def _rows_per_record(self) -> dict[str, float]:
        found: dict[str, float] = {}
        for each in self._all():
            found.update(each.rows_per_record)
        return found

    def _pass(self, report: LagReport) -> None:
        now_s = time.monotonic()
        watched, groups = self._all(), self._known(report, now_s)
        names = {each.published.experiment.name for each in watched}
        self._groups.now = frozenset(
            group for each in watched for group in _groups_of(each.published)
        )
        self._cases = {k: v for k, v in self._cases.items() if k in names}
        self._retry_at_s = {k: v for k, v in self._retry_at_s.items() if k in names}
        self._see_to_all(watched, groups, now_s)

    def _see_to_all(
        self, watched: list[Observed], groups: Mapping[str, GroupLag], now_s: float
    ) -> None:
        for facts in watched:
            name = facts.published.experiment.name
            if now_s < self._retry_at_s.get(name, 0.0):
                continue
            if not self._may_act():
                return
            try:
                self._see_to(name, facts, groups, now_s)
            except RollstreamError as exc:
                # The brokers are away, or a topic of this one is gone.
                _log.info("alerts of %s have to wait: %s", name, exc.problem)
                self._retry_at_s[name] = time.monotonic() + _RETRY_S
                return
            except Exception:
                # Of one experiment: all others are watched over.
                _log.exception("alerts of %s", name)
                self._retry_at_s[name] = time.monotonic() + _RETRY_S

    def _end(self) -> None:
        """Tell of what is over, and of nothing else any more."""
        with self._lock:
            over = [v for k, v in self._observed.items() if k in self._over]
        self._see_to_all(over, {}, time.monotonic())

    def _known(self, report: LagReport, now_s: float) -> dict[str, GroupLag]:
        """Return what is known of groups now, by id; nothing that may be old."""
        if not report.at_s and not report.problem:
            return {}  # nothing was looked at yet
        if report.problem or time.time() - report.at_s > _STALE_S:
            self._doubted_s = now_s
        if now_s - self._doubted_s < RECOVERY_S:
            return {}
        return {each.group: each for each in report.groups if not each.problem}

    def _see_to(
        self,
        name: str,
        facts: Observed,
        groups: Mapping[str, GroupLag],
        now_s: float,
    ) -> None:
        published, case = facts.published, self._case(facts.published)
        with self._lock:
            offset, why = self._over.get(name, (-1, ""))
        is_over = published.offset <= offset
        if is_over:
            edges = case.alerts.end(why)
        else:
            mine = _by_role(name, groups)
            self._publish_history(published, case, mine, now_s)
            found = standings(_look(facts, case, mine, now_s))
            edges = case.alerts.step(found, now_s)
        for edge in edges:
            case.alerts.told(edge, self._sender.tell(published, edge))
        with self._lock:
            if is_over and self._observed.get(name) is facts:
                del self._observed[name]

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


def _groups_of(published: PublishedExperiment) -> list[str]:
    name, archives = published.experiment.name, published.experiment.spec.archive
    roles = [role for role in GROUP_ROLES if role != "archiver" or archives]
    return [group_name(name, role) for role in roles]


def _by_role(name: str, groups: Mapping[str, GroupLag]) -> dict[str, GroupLag]:
    mine = {role: groups.get(group_name(name, role)) for role in GROUP_ROLES}
    return {role: group for role, group in mine.items() if group is not None}
