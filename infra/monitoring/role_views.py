"""Each process of a run, as topics and ZooKeeper know it; none of them need live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.control.experiments import PublishedExperiment
from infra.control.statuses import WHOLE
from infra.control.wants import least_roles
from infra.kafka.reading import Message, latest_by_key
from infra.monitoring.live import Live
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.experiment import Spec
from schemas.records import Event, Member, RoleStatus
from schemas.topics import MEMBERS, STATUS, topic_name

_OVER = ("finished", "stopped")


@dataclass(frozen=True)
class Told:
    """An event of severity ``warning`` or ``alert``."""

    kind: str
    role: str
    index: int
    reason: str
    age_ms: int
    severity: str

    @classmethod
    def of(cls, event: Event, at_ms: int, now: int) -> Told:
        """Return an event that was appended at a time, as it is told of now."""
        age_ms = max(0, now - at_ms)
        who = event.role, event.index
        return cls(event.kind, *who, event.reason, age_ms, event.severity)


@dataclass(frozen=True)
class RoleView:
    """One process: its newest Member, RoleStatus and metrics; ages by broker's clock.

    Attributes:
        incarnation: the Member's offset.
        state: of its RoleStatus; "" when there is none.
        reason: likewise; why it failed last.
        restarts: how often it failed, since its agent began with it.
        agent: that runs it; "": it does not run, or ZooKeeper does not answer.
        started_age_ms: since its Member.
        metrics_age_ms: since its newest metrics; None: there are none of this run.
        status_age_ms: since its newest RoleStatus, of which one comes in 2 s.
        told: the newest warning or alert about it.
    """

    role: str
    index: int
    incarnation: int | None
    host: str
    pid: int
    state: str
    reason: str
    restarts: int
    agent: str
    started_age_ms: int | None
    metrics_age_ms: int | None
    status_age_ms: int | None
    told: Told | None


@dataclass(frozen=True)
class Stated:
    """A RoleStatus, and when the broker appended it."""

    status: RoleStatus
    at_ms: int


def read_statuses(settings: Settings, name: str, run_id: str) -> dict[str, Stated]:
    """Return the newest statuses of a run, by ``role/index``."""
    found = {}
    for message in latest_by_key(settings, topic_name(STATUS)).values():
        status = decode_or_none(message.value, RoleStatus)
        if status and (status.experiment, status.run_id) == (name, run_id):
            key = f"{status.role}/{status.index}"
            found[key] = Stated(status, message.timestamp_ms)
    return found


def pending_of(spec: Spec, state: str, live: Live | None) -> tuple[str, ...] | None:
    """Return the processes that are wanted and do not live, by ``role/index``."""
    if live is None:
        return None
    if state in _OVER:
        return ()
    wanted = least_roles(spec)
    return tuple(each.key for each in wanted if each.key not in live)


def read_roles(
    settings: Settings,
    published: PublishedExperiment,
    statuses: Mapping[str, Stated],
    heard_at_ms: Mapping[tuple[str, int], int],
    told: tuple[Told, ...],
    live: Live | None,
    now: int,
) -> tuple[RoleView, ...]:
    """Return each process that anything is known of, by name."""
    members: dict[str, tuple[Message, Member]] = {}
    topic = topic_name(MEMBERS, published.experiment.name)
    for message in latest_by_key(settings, topic).values():
        member = decode_or_none(message.value, Member)
        if member and member.run_id == published.run_id:
            members[f"{member.role}/{member.index}"] = message, member
    heard = {f"{role}/{index}": at_ms for (role, index), at_ms in heard_at_ms.items()}
    keys = sorted({*members, *heard, *statuses} - {WHOLE}, key=_by_number)
    return tuple(
        _role(
            key,
            members.get(key),
            statuses.get(key),
            heard.get(key),
            next((t for t in told if f"{t.role}/{t.index}" == key), None),
            str((live or {}).get(key, {}).get("agent", "")),
            now,
        )
        for key in keys
    )


def _by_number(key: str) -> tuple[str, int]:
    role, _, index = key.rpartition("/")
    return role, int(index)


def _role(
    key: str,
    registered: tuple[Message, Member] | None,
    stated: Stated | None,
    heard_ms: int | None,
    told: Told | None,
    agent: str,
    now: int,
) -> RoleView:
    role, index = _by_number(key)
    message, member = registered or (None, None)
    status = stated.status if stated else None
    known = member or status
    # What the agent says of it is newer than what it said at its start.
    if stated and message and stated.at_ms > message.timestamp_ms:
        known = stated.status
    return RoleView(
        role=role,
        index=index,
        incarnation=message.offset if message else None,
        host=known.host if known else "",
        pid=known.pid if known else -1,
        state=status.state if status else "",
        reason=status.reason if status else "",
        restarts=status.restarts if status else 0,
        agent=agent,
        started_age_ms=max(0, now - message.timestamp_ms) if message else None,
        metrics_age_ms=max(0, now - heard_ms) if heard_ms is not None else None,
        status_age_ms=max(0, now - stated.at_ms) if stated else None,
        told=told,
    )
