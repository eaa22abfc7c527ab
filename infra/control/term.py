"""One tick of a leader: what is wanted, where it runs from now on, who is told."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol

from infra.control.desired import PublishedExperiment, SpecFollower
from infra.control.election import Cluster, Leadership
from infra.control.leader_duties import Duties
from infra.control.placement import Demand, Free, Placement, RoleKey, place
from infra.control.plans import RoleAssignment
from infra.control.status_board import StatusBoard
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
    placed_of,
)
from infra.monitoring.follow import MetricsFollower

_log = logging.getLogger("rollstream.leader")


class Scaler(Protocol):
    """Decides how many processes there are, where that follows the load."""

    def observe(
        self, published: PublishedExperiment, follower: MetricsFollower
    ) -> None:
        """Take a sample; in the thread that follows the metrics."""

    def decide(
        self, published: PublishedExperiment, now: Counts, free: Mapping[str, Free]
    ) -> tuple[Counts, str] | None:
        """Return other counts and the reason; None: they stay. In the leader's.

        Args:
            published: the spec in force.
            now: how many there are.
            free: what each agent has left.
        """

    def no_room(self, published: PublishedExperiment, free: Mapping[str, Free]) -> bool:
        """Note that not all that was decided fits anywhere; return whether to say so.

        ``free`` is what is left now.
        """


@dataclass(frozen=True)
class Scaling:
    """A decision of the scaler."""

    published: PublishedExperiment
    before: Counts
    asked: Counts
    reason: str


@dataclass
class Wanted:
    """All that is to run.

    Attributes:
        roles: what each process is started with.
        demands: what it asks for.
        held: where it stays, whatever else; it is not known yet what to do with it.
        waits_for: why experiments are not placed yet, by name.
        scalings: what is to be another number of processes.
    """

    roles: dict[RoleKey, RoleAssignment] = field(default_factory=dict)
    demands: list[Demand] = field(default_factory=list)
    held: dict[RoleKey, str] = field(default_factory=dict)
    waits_for: dict[str, str] = field(default_factory=dict)
    scalings: list[Scaling] = field(default_factory=list)


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
        self._free: Mapping[str, Free] = {}
        # By name, the offset of a spec and why it cannot be planned.
        self._unplanned: dict[str, tuple[int, str]] = {}

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
        placement = _held(placement, wanted.held)
        self._free = placement.free
        plans = new_plans(
            self._leadership.epoch, cluster.agents, wanted.roles, placement.where
        )
        self._leadership.write(changes(cluster.plans, plans))
        placement = self._settle(wanted.scalings, placement)
        self._tell(cluster, current, wanted, placement)

    def _wanted(self, cluster: Cluster, current: Mapping[RoleKey, str]) -> Wanted:
        wanted = Wanted()
        planned: dict[str, list[RoleAssignment]] = {}
        for plan in cluster.plans.values():
            for role in plan.roles if plan else ():
                planned.setdefault(role.experiment, []).append(role)
        unplanned: dict[str, tuple[int, str]] = {}
        for name, published in self._specs.desired.in_force().items():
            if published.managed_by != "agents" or name in cluster.claims:
                continue
            mine = planned.get(name, [])
            try:
                self._want(wanted, published, mine, current)
            except Exception as exc:
                # Of one experiment: it stays as it is, and all others go on.
                unplanned[name] = (published.offset, repr(exc))
                if unplanned[name] != self._unplanned.get(name):
                    _log.exception("%s cannot be planned", name)
                wanted.waits_for[name] = f"it cannot be planned: {exc!r}"
                self._hold(wanted, mine, current)
                with suppress(Exception):  # which may be the one that it failed by
                    wanted.demands += _demands(published, mine)
        self._unplanned = unplanned
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
            wanted.demands += _demands(published, planned)
            return
        counts = counts_of(published, planned)
        scaling = self._scaling(published, counts)
        if scaling is not None:
            counts = scaling.asked
        roles = {key_of(role): role for role in assignments(published, counts)}
        demands = _demands(published, roles.values())
        # From here on nothing fails: it is wanted as a whole.
        wanted.roles |= roles
        wanted.demands += demands
        wanted.scalings += [scaling] if scaling is not None else []

    def _scaling(self, published: PublishedExperiment, now: Counts) -> Scaling | None:
        if self._scaler is None or published.experiment.spec.state != "running":
            return None
        decision = self._scaler.decide(published, now, self._free)
        return Scaling(published, now, *decision) if decision is not None else None

    def _hold(
        self,
        wanted: Wanted,
        planned: Iterable[RoleAssignment],
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

    def _settle(self, scalings: list[Scaling], placement: Placement) -> Placement:
        """Tell of what became of decisions; what has no room is not waited for."""
        pending = dict(placement.pending)
        for scaling in scalings:
            name = scaling.published.experiment.name
            got = placed_of(name, placement.where, scaling.before, scaling.asked)
            if got != scaling.before:
                self._duties.scaled(
                    scaling.published, scaling.before, got, scaling.reason
                )
            if got == scaling.asked or self._scaler is None:
                continue
            most = {"worker": got.workers, "processor": got.processors}
            too_many = [
                key
                for key in pending
                if key.experiment == name and key.index >= most.get(key.role, 1)
            ]
            reasons = [pending.pop(key) for key in too_many]
            says_so = self._scaler.no_room(scaling.published, placement.free)
            if says_so and got == scaling.before:
                why = f"{scaling.reason}, and {'; '.join(dict.fromkeys(reasons))}"
                self._duties.scaled(scaling.published, got, scaling.asked, why, False)
        return replace(placement, pending=pending)

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


def _demands(
    published: PublishedExperiment, roles: Iterable[RoleAssignment]
) -> list[Demand]:
    return [demand_of(role, published.experiment.spec) for role in roles]


def _held(placement: Placement, held: Mapping[RoleKey, str]) -> Placement:
    """Return a placement in which these are where they were."""
    where = {**placement.where, **held}
    pending = {k: why for k, why in placement.pending.items() if k not in held}
    stuck = {k: why for k, why in placement.stuck.items() if k not in held}
    return replace(placement, where=where, pending=pending, stuck=stuck)
