"""What the topic wants, what ZooKeeper says is there -> plans for agents.

The leader remembers nothing that it could not read again: who follows it goes on from
the same topics and znodes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Protocol

from kazoo.exceptions import KazooException

from infra.control.chores import Chores
from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.election import Cluster, Fenced, Leadership
from infra.control.judging import Judge
from infra.control.leader_duties import Duties
from infra.control.notices import Notices
from infra.control.placement import Demand, Placement, RoleKey, place
from infra.control.plans import RoleAssignment
from infra.control.status_board import StatusBoard
from infra.control.threads import Threads
from infra.control.wants import (
    Counts,
    assignments,
    changes,
    counts_of,
    current_places,
    demand_of,
    hosts_of,
    key_of,
    new_plans,
)
from infra.errors import RollstreamError
from infra.monitoring.follow import MetricsFollower
from infra.settings import Settings

TICK_S = 0.5
_RETRY_S = 2.0
_log = logging.getLogger("rollstream.leader")


class Scaler(Protocol):
    """Decides how many processes there are, where that follows the load."""

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower
    ) -> None:
        """Take a sample; in the thread that follows the metrics."""

    def decide(
        self, published: PublishedExperiment, now: Counts
    ) -> tuple[Counts, str] | None:
        """Return other counts and the reason; None: they stay. In the leader's."""


@dataclass
class Wanted:
    """All that is to run.

    Attributes:
        roles: what each process is started with.
        demands: what it asks for.
        held: where it stays, whatever else; it is not known yet what to do with it.
        waits_for: why experiments are not placed yet, by name.
    """

    roles: dict[RoleKey, RoleAssignment] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    held: dict[RoleKey, str] = field(default_factory=dict)
    waits_for: dict[str, str] = field(default_factory=dict)


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
        observe = self._scaler.observe if self._scaler else None
        judge, chores = Judge(self._settings, observe), Chores()
        with (
            closing(SpecFollower(self._settings)) as specs,
            closing(StatusBoard(self._settings)) as board,
            closing(judge),
            closing(chores),
        ):
            specs.read_to_end()
            board.read_to_end()
            self._threads.start("judge", judge.run)
            self._threads.start("chores", chores.run)
            duties = Duties(
                self._settings, leadership, self._notices, board, judge, chores
            )
            term = Term(leadership, specs, board, duties, self._scaler)
            while not self._closed.wait(TICK_S) and not leadership.is_over:
                try:
                    term.tick()
                except KazooException as exc:
                    _log.info("ZooKeeper is away: %r", exc)


class Term:
    """One leader's view; ``tick`` brings the plans up to date."""

    def __init__(
        self,
        leadership: Leadership,
        specs: SpecFollower,
        board: StatusBoard,
        duties: Duties,
        scaler: Scaler | None,
    ) -> None:
        self._leadership = leadership
        self._specs = specs
        self._board = board
        self._duties = duties
        self._scaler = scaler

    def tick(self) -> None:
        """Read, place, write, tell.

        Raises:
            Fenced: another leader has been elected since.
            KazooException: ZooKeeper does not answer; nothing is known of it.
        """
        self._leadership.confirm()
        cluster = self._leadership.read()
        self._specs.poll(0.0)
        self._board.poll()
        current = current_places(cluster.plans)
        wanted = self._wanted(cluster, current)
        self._hold_those_on_their_way(wanted, cluster, current)
        placement = place(wanted.demands, hosts_of(cluster.agents), current)
        where = {**placement.where, **wanted.held}
        pending = {k: v for k, v in placement.pending.items() if k not in where}
        plans = new_plans(self._leadership.epoch, cluster.agents, wanted.roles, where)
        self._leadership.write(changes(cluster.plans, plans))
        self._tell(cluster, current, wanted, Placement(where, pending))

    def _wanted(self, cluster: Cluster, current: Mapping[RoleKey, str]) -> Wanted:
        wanted = Wanted()
        planned: dict[str, list[RoleAssignment]] = {}
        for plan in cluster.plans.values():
            for role in plan.roles if plan else ():
                planned.setdefault(role.experiment, []).append(role)
        desired = self._specs.desired
        for name, published in desired.in_force().items():
            if published.managed_by != "agents" or name in cluster.claims:
                continue
            mine = planned.get(name, [])
            try:
                self._want(wanted, published, mine, current)
            except Exception as exc:
                # Of one experiment: it stays as it is, and all others go on.
                _log.exception("%s cannot be planned", name)
                wanted.waits_for[name] = f"it cannot be planned: {exc!r}"
                self._hold(wanted, mine, current)
        return wanted

    def _want(
        self,
        wanted: Wanted,
        published: PublishedExperiment,
        planned: list[RoleAssignment],
        current: Mapping[RoleKey, str],
    ) -> None:
        name = published.experiment.name
        if self._duties.is_over(published):
            return
        reason = self._duties.not_ready(published)
        if reason:
            wanted.waits_for[name] = reason
            self._hold(wanted, planned, current)
            # They take their room all the same.
            spec = published.experiment.spec
            wanted.demands += [demand_of(role, spec) for role in planned]
            return
        counts = counts_of(published, planned)
        if self._scaler is not None and published.experiment.spec.state == "running":
            decision = self._scaler.decide(published, counts)
            if decision is not None:
                self._duties.scaled(published, counts, *decision)
                counts = decision[0]
        for role in assignments(published, counts):
            wanted.roles[key_of(role)] = role
            wanted.demands.append(demand_of(role, published.experiment.spec))

    def _hold(
        self,
        wanted: Wanted,
        planned: list[RoleAssignment],
        current: Mapping[RoleKey, str],
    ) -> None:
        for role in planned:
            key = key_of(role)
            wanted.roles[key] = role
            wanted.held[key] = current[key]

    def _hold_those_on_their_way(
        self, wanted: Wanted, cluster: Cluster, current: Mapping[RoleKey, str]
    ) -> None:
        """Let the roles of absent agents wait, if those may be reconnecting."""
        if not self._leadership.may_be_reconnecting:
            return
        for demand in wanted.demands:
            agent = current.get(demand.key)
            if agent is not None and agent not in cluster.agents:
                wanted.held[demand.key] = agent

    def _tell(
        self,
        cluster: Cluster,
        current: Mapping[RoleKey, str],
        wanted: Wanted,
        placement: Placement,
    ) -> None:
        for key, agent in sorted(placement.where.items()):
            before = current.get(key)
            if before not in (None, agent):
                role = wanted.roles[key]
                self._duties.moved(role, str(before), agent, cluster)
        self._duties.attend(self._specs.desired, cluster, wanted.waits_for, placement)
