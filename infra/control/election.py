"""One leader of many agents, and the fence that keeps a former one from writing.

The fence is the version of one znode, the epoch: who is elected raises it, and every
write of a leader is a transaction that fails unless the epoch is still its own.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.recipe.election import Election

from infra.control.coordination import MARGIN_S, MAX_RECONNECT_S, Coordination
from infra.control.plans import (
    AgentFacts,
    BadNode,
    Plan,
    chunks,
    parse_agent,
    parse_plan,
)
from infra.control.znodes import (
    AGENTS,
    ASSIGNMENTS,
    EPOCH,
    LEADER,
    ROLES,
    RUNS,
    answer,
    facts_of,
    there,
)

_PAUSE_S = 0.2
_log = logging.getLogger("rollstream.leader")


class Fenced(Exception):
    """Another leader has been elected since: nothing was written."""


@dataclass(frozen=True)
class Cluster:
    """What ZooKeeper says at a moment.

    Attributes:
        agents: those that live and describe themselves properly.
        plans: by agent, gone ones included; None: what is there is not a plan.
        claims: experiments that a foreground run holds.
    """

    agents: Mapping[str, AgentFacts]
    plans: Mapping[str, Plan | None]
    claims: frozenset[str]


class Leadership:
    """A term of office: reads what there is, writes plans while it lasts.

    Attributes:
        epoch: of this term; later ones are greater.
        began_at_s: monotonic time of the election.
    """

    def __init__(self, coordination: Coordination, epoch: int) -> None:
        self.epoch = epoch
        self.began_at_s = time.monotonic()
        self._coordination = coordination
        self._client = coordination.client
        self._sessions_lost = coordination.sessions_lost
        self._sure_until_s = 0.0
        self._bad: set[str] = set()

    @property
    def is_over(self) -> bool:
        """Whether the session of the election has ended, and all with it."""
        return self._coordination.sessions_lost != self._sessions_lost

    @property
    def is_sure(self) -> bool:
        """Whether nobody else can have been elected yet, whatever happened to us.

        Who was frozen is not sure: to be asked before each act that no transaction
        fences.
        """
        return not self.is_over and time.monotonic() < self._sure_until_s

    def confirm(self) -> None:
        """Ask ZooKeeper whether the term lasts; makes ``is_sure`` true for a while.

        Raises:
            Fenced: it does not.
            KazooException: it does not answer.
        """
        asked_at_s = time.monotonic()
        found = answer(self._client.exists_async(EPOCH))
        if self.is_over or found is None or found.version != self.epoch:
            raise Fenced(f"epoch {self.epoch} is over")
        self._sure_until_s = asked_at_s + self._coordination.session_s - MARGIN_S

    @property
    def may_be_reconnecting(self) -> bool:
        """Whether agents that seem gone may be on their way back.

        We were ourselves disconnected lately, and they as well, if ZooKeeper was away.
        """
        at_s = self._coordination.connected_at_s
        grace_s = self._coordination.session_s + 2
        return at_s is None or time.monotonic() - at_s < grace_s

    def read(self) -> Cluster:
        """Return what is there now; raises KazooException."""
        agents: dict[str, AgentFacts] = {}
        plans: dict[str, Plan | None] = {}
        for name, value in self._values(AGENTS).items():
            known = facts_of(value)
            if "pid" in known and "capacity" not in known:
                continue  # a foreground run's: it takes on nothing
            try:
                agents[name] = parse_agent(value)
            except BadNode as exc:
                self._warn_once(f"{AGENTS}/{name}", exc)
        for name, value in self._values(ASSIGNMENTS).items():
            try:
                plans[name] = parse_plan(value)
            except BadNode as exc:
                plans[name] = None
                self._warn_once(f"{ASSIGNMENTS}/{name}", exc)
        return Cluster(agents, plans, frozenset(self._children(RUNS)))

    def live_roles(self, experiment: str) -> int:
        """Return how many role processes are registered; raises KazooException."""
        return len(self._children(f"{ROLES}/{experiment}"))

    def write(self, plans: Mapping[str, Plan | None]) -> None:
        """Write plans, remove those that are None; all of a transaction or nothing.

        Raises:
            Fenced: another leader has been elected since.
            KazooException: it is not known what was written.
        """
        values = {k: plan.to_json() if plan else None for k, plan in plans.items()}
        there = self._children(ASSIGNMENTS)
        for group in chunks(values):
            transaction = self._client.transaction()
            transaction.check(EPOCH, self.epoch)
            for name, value in group.items():
                path = f"{ASSIGNMENTS}/{name}"
                if value is None:
                    if name in there:
                        transaction.delete(path)
                elif name in there:
                    transaction.set_data(path, value)
                else:
                    transaction.create(path, value)
            results = answer(transaction.commit_async())
            if isinstance(results[0], BadVersionError | NoNodeError):
                raise Fenced(f"epoch {self.epoch} is over")
            _raise_first(results)

    def _children(self, path: str) -> set[str]:
        asked = self._client.get_children_async(path)
        return set(there(lambda: answer(asked), []))

    def _values(self, path: str) -> dict[str, bytes]:
        asked = {
            name: self._client.get_async(f"{path}/{name}")
            for name in sorted(self._children(path))
        }
        found = {}
        for name, result in asked.items():
            try:
                found[name], _ = answer(result)
            except NoNodeError:  # gone in this moment
                continue
        return found

    def _warn_once(self, path: str, exc: Exception) -> None:
        if path not in self._bad:
            self._bad.add(path)
            _log.warning("%s is passed over: %s", path, exc)


class Candidate:
    """Stands for election again and again, until it is closed."""

    def __init__(
        self, coordination: Coordination, lead: Callable[[Leadership], None]
    ) -> None:
        """Only prepare.

        Args:
            coordination: the session in which it is elected.
            lead: does the leader's work; to return when the term is over, or when
                it is to be given up.
        """
        self._coordination = coordination
        self._lead = lead
        self._closed = threading.Event()
        self._election: Election | None = None

    def run(self) -> None:
        """Stand and lead, until ``close``; raises what ``lead`` raises."""
        client = self._coordination.client
        while not self._closed.wait(_PAUSE_S):
            if not client.connected:
                continue
            try:
                self._ensure_paths()
                self._sweep()
                self._stand()
            except KazooException as exc:
                _log.info("the election is tried again: %r", exc)

    def close(self) -> None:
        """Stand no more; a term under way has to be ended by who leads."""
        self._closed.set()
        if self._election is not None:
            self._election.cancel()

    def _stand(self) -> None:
        # One for each try: kazoo's remembers what a session that ended has acquired.
        election = Election(self._coordination.client, LEADER, self._coordination.name)
        election.lock._retry.max_delay = MAX_RECONNECT_S
        self._election = election
        if not self._closed.is_set():
            election.run(self._begin, election)

    def _begin(self, election: Election) -> None:
        lost = self._coordination.sessions_lost
        while not self._closed.is_set() and self._coordination.sessions_lost == lost:
            try:
                epoch = self._raise_epoch(f"{LEADER}/{election.lock.node}")
            except NoNodeError:
                return  # the session in which we were elected is over
            except KazooException as exc:
                _log.info("the epoch is raised again: %r", exc)
                self._closed.wait(_PAUSE_S)
                continue
            self._lead(Leadership(self._coordination, epoch))
            return

    def _raise_epoch(self, ballot: str) -> int:
        """Return the epoch that begins, if we still are the one elected."""
        transaction = self._coordination.client.transaction()
        transaction.check(ballot, 0)
        transaction.set_data(EPOCH, self._coordination.name.encode())
        results = answer(transaction.commit_async())
        _raise_first(results)
        return int(results[1].version)

    def _ensure_paths(self) -> None:
        client = self._coordination.client
        for path in (LEADER, EPOCH, ASSIGNMENTS, AGENTS, RUNS):
            if answer(client.exists_async(path)) is None:
                try:
                    answer(client.create_async(path, makepath=True))
                except NodeExistsError:
                    continue

    def _sweep(self) -> None:
        """Remove ballots that a failed try of this session left in our own way."""
        client = self._coordination.client
        session, _ = client.client_id or (None, b"")
        for name in answer(client.get_children_async(LEADER)):
            found = answer(client.exists_async(f"{LEADER}/{name}"))
            if found is not None and found.ephemeralOwner == session:
                try:
                    answer(client.delete_async(f"{LEADER}/{name}"))
                except NoNodeError:
                    continue


def _raise_first(results: list[Any]) -> None:
    """Raise what made a transaction fail: the others only say that it did."""
    failed = [each for each in results if isinstance(each, Exception)]
    for each in failed:
        if not isinstance(each, RolledBackError | RuntimeInconsistency):
            raise each
    if failed:
        raise failed[0]
