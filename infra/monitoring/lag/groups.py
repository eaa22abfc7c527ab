"""The brokers' groups -> those that are watched: their offsets and members."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupType,
    KafkaException,
)
from confluent_kafka.admin import AdminClient

from infra.errors import KafkaUnavailable
from infra.kafka.coordinators import SILENT, Coordinators, GroupAnswer
from infra.kafka.group_protocol import GroupDescription, Partition, Protocol

Wanted = Callable[[str], bool] | Collection[str]
"""Which groups: by a condition on the id, or by their ids.

A group that is named is in the report also where the brokers know nothing of it. What
is wanted may change from one look to the next.
"""

DESCRIBE_EACH_S = 3.0
"""So old may be what is told of members while the group's state stays the same."""

_MEND = "check KAFKA_BOOTSTRAP_SERVERS, and that the brokers are well"
_NAMES: Mapping[Any, str] = {
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.EMPTY: "Empty",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
}


@dataclass(frozen=True, slots=True)
class Listed:
    """A group as the brokers list it.

    Attributes:
        state: "" where this client does not know it, as those of the new protocol.
        protocol: of its members.
        is_simple: who reads for it chooses partitions itself, and is no member.
        is_missing: it was listed before, and is not now.
    """

    state: str = ""
    protocol: Protocol = "classic"
    is_simple: bool = True
    is_missing: bool = False


@dataclass(frozen=True, slots=True)
class Group:
    """A group at one moment.

    Attributes:
        state: as the broker names it; "" not known.
        members: None: not known; nor of a group whose readers need not be members.
        owners: ``client@host`` of the member that holds each partition.
        committed: None: not known, and ``problem`` says why.
        problem: why something is not known; "" when all is.
    """

    state: str
    members: int | None
    owners: Mapping[Partition, str] = field(default_factory=dict)
    committed: Mapping[Partition, int] | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Described:
    description: GroupDescription
    listed: Listed
    at_s: float


class Groups:
    """Asks for all groups that are wanted; remembers who is in them for seconds."""

    def __init__(self, wanted: Wanted) -> None:
        """Make one that watches the groups that are ``wanted``."""
        self._wanted = wanted
        self._named: frozenset[str] = frozenset()
        self._listed: dict[str, Listed] = {}
        self._described: dict[str, _Described] = {}

    def read(
        self, admin: AdminClient, coordinators: Coordinators, timeout_s: float
    ) -> dict[str, Group]:
        """Return the groups by id.

        Raises:
            KafkaUnavailable: no broker answers.
        """
        if not callable(self._wanted):
            self._named = frozenset(self._wanted)
        self._listed = self._list(admin, timeout_s)
        now_s = time.monotonic()
        describe: dict[str, Protocol] = {
            group: listed.protocol
            for group, listed in self._listed.items()
            if self._is_due(group, listed, now_s)
        }
        answers = coordinators.ask(self._listed, describe, timeout_s)
        if answers and all(a.problem.startswith(SILENT) for a in answers.values()):
            raise KafkaUnavailable(
                f"the coordinators of all {len(answers)} groups do not answer", _MEND
            )
        self._forget_deleted(answers)
        for group, answer in answers.items():
            if answer.description is not None:
                self._described[group] = _Described(
                    answer.description, self._listed[group], now_s
                )
        for group in self._described.keys() - self._listed.keys():
            del self._described[group]
        return {
            group: self._group(listed, self._described.get(group), answers[group])
            for group, listed in self._listed.items()
        }

    def _list(self, admin: AdminClient, timeout_s: float) -> dict[str, Listed]:
        listed = list_groups(admin, timeout_s)
        chosen = {group: listed[group] for group in listed if self._is_wanted(group)}
        # A broker that has just come back lists none of its groups for a moment, and
        # one that is away never: whether they are gone, their coordinators know.
        for group, before in self._listed.items():
            if self._is_wanted(group):
                chosen.setdefault(group, replace(before, is_missing=True))
        for group in self._named:
            chosen.setdefault(group, Listed(is_missing=True))
        return chosen

    def _forget_deleted(self, answers: dict[str, GroupAnswer]) -> None:
        for group, answer in list(answers.items()):
            if self._listed[group].is_missing and answer.committed == {}:
                if group in self._named:
                    self._listed[group] = Listed(is_missing=True)
                else:
                    del self._listed[group], answers[group]

    def _is_wanted(self, group: str) -> bool:
        wanted = self._wanted
        return wanted(group) if callable(wanted) else group in self._named

    def _is_due(self, group: str, listed: Listed, now_s: float) -> bool:
        if listed.is_missing:
            return False
        if listed.is_simple or listed.state in ("Empty", "Dead"):
            self._described.pop(group, None)
            return False
        known = self._described.get(group)
        return (
            known is None
            or known.listed != listed
            or now_s - known.at_s >= DESCRIBE_EACH_S
        )

    def _group(
        self, listed: Listed, known: _Described | None, answer: GroupAnswer
    ) -> Group:
        state, members, owners, problem = listed.state, None, {}, answer.problem
        if known is not None:
            state = known.description.state or state
            members, owners = known.description.members, dict(known.description.owners)
            problem = "; ".join(filter(None, (problem, known.description.problem)))
        elif listed.state in ("Empty", "Dead") and not listed.is_simple:
            members = 0
        return Group(state, members, owners, answer.committed, problem)


def list_groups(admin: AdminClient, timeout_s: float) -> dict[str, Listed]:
    """Return all groups of the brokers that answer, by id.

    Raises:
        KafkaUnavailable: no broker can list its groups.
    """
    try:
        asked = admin.list_consumer_groups(request_timeout=timeout_s)
        found = asked.result(2 * timeout_s)
    except (KafkaException, TimeoutError) as exc:
        raise no_answer(exc) from exc
    if found.errors and not found.valid:
        raise no_answer(KafkaException(found.errors[0]))
    return {each.group_id: _listed(each) for each in found.valid}


def _listed(each: Any) -> Listed:
    return Listed(
        state=_NAMES.get(each.state, ""),
        protocol="consumer" if each.type == ConsumerGroupType.CONSUMER else "classic",
        is_simple=bool(each.is_simple_consumer_group),
    )


def no_answer(exc: KafkaException | TimeoutError) -> KafkaUnavailable:
    """Return the error of brokers that do not answer."""
    why = f": {exc.args[0].str()}" if isinstance(exc, KafkaException) else ""
    return KafkaUnavailable(f"the brokers do not answer{why}", _MEND)
