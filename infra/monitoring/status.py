"""What is known of an experiment, from its topics alone: no process of it need live."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaException

from infra.clock import now_ms
from infra.control.experiments import PublishedExperiment, read_experiment
from infra.errors import TopicError
from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.dead_letters import read_letters
from infra.kafka.open_transactions import held_back
from infra.kafka.reading import (
    Message,
    committed_offsets,
    latest_by_key,
    partitions_of,
    read_to_end,
    watermarks,
)
from infra.monitoring.follow import READS, MetricsFollower, lag_of, total_lag
from infra.monitoring.progress import Progress
from infra.monitoring.summary import Summary, summarise
from infra.settings import Settings
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import Event, Member, RoleStatus
from schemas.topics import EVENTS, MEMBERS, STATUS, group_name, topic_name

Record = TypeVar("Record", Event, Member, RoleStatus)


@dataclass(frozen=True)
class PartitionStatus:
    """Where a group stands in a partition; None: nothing is known.

    Attributes:
        position: the next offset that it handles, by its newest metrics.
        committed: what it would read again from, by the broker.
        held: records handled and not acknowledged yet, by its newest metrics.
        end: of what readers are given.
        held_back: records beyond it, of transactions that are still open and behind
            those.
        lag: offsets from the position to the end; None also where the position is
            beyond it, in a topic that was made anew.
        committed_lag: offsets from the committed one to the end.
    """

    partition: int
    position: int | None
    committed: int | None
    held: int
    end: int
    lag: int | None
    committed_lag: int | None
    held_back: int = 0


@dataclass(frozen=True)
class GroupStatus:
    """A consumer group and its topic; ``problem`` says why nothing is known."""

    role: str
    group: str
    topic: str
    partitions: tuple[PartitionStatus, ...]
    problem: str = ""

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where that of one is not known."""
        return total_lag([partition.lag for partition in self.partitions])

    @property
    def committed_lag(self) -> int | None:
        """Likewise, of what is committed."""
        return total_lag([partition.committed_lag for partition in self.partitions])

    @property
    def held(self) -> int:
        """Records handled and not acknowledged yet."""
        return sum(partition.held for partition in self.partitions)


@dataclass(frozen=True)
class RoleView:
    """One process: its newest Member, RoleStatus and metrics; ages by broker's clock.

    Attributes:
        incarnation: the Member's offset.
        state: of its RoleStatus; "" when there is none.
        started_age_ms: since its Member.
        metrics_age_ms: since its newest metrics; None: there are none of this run.
    """

    role: str
    index: int
    incarnation: int | None
    host: str
    pid: int
    state: str
    reason: str
    started_age_ms: int | None
    metrics_age_ms: int | None


@dataclass(frozen=True)
class Alert:
    """An event of severity ``alert``."""

    kind: str
    role: str
    index: int
    reason: str
    age_ms: int


@dataclass(frozen=True)
class ExperimentStatus:
    """All of it.

    Attributes:
        wanted: the desired state.
        summary: the counts, as at the end of a run.
        roles: each process of this run, by name.
        groups: of processors and learner.
        alerts: of this run, newest first.
        letters: dead letters, those put back included.
        letters_put_back: how many of them were.
    """

    experiment: str
    run_id: str
    wanted: str
    summary: Summary
    roles: tuple[RoleView, ...]
    groups: tuple[GroupStatus, ...]
    alerts: tuple[Alert, ...]
    letters: int
    letters_put_back: int


def read_status(settings: Settings, name: str) -> ExperimentStatus:
    """Read what the topics say of an experiment's newest run.

    Raises:
        UnknownExperiment: there is none of that name.
        RollstreamError: it cannot be read.
    """
    published = read_experiment(settings, name)
    run_id, now = published.run_id, now_ms()
    with closing(MetricsFollower(settings, name, run_id)) as follower:
        follower.read_to_end()
    progress = follower.progress
    statuses = _statuses(settings, name, run_id)
    whole = statuses.get("experiment/0")
    letters = read_letters(settings, name)
    return ExperimentStatus(
        experiment=name,
        run_id=run_id,
        wanted=published.experiment.spec.state,
        summary=summarise(
            name,
            progress,
            None,
            state=whole.state if whole else "unknown",
            reason=whole.reason if whole else "nothing was published of its state",
            wall_s=0.0,
            env_steps_before=progress.env_steps,
        ),
        roles=_roles(settings, published, statuses, follower.heard_at_ms, now),
        groups=tuple(
            _group(settings, name, role, topic_name(topic, name), progress)
            for role, topic in READS.items()
        ),
        alerts=_alerts(settings, name, run_id, now),
        letters=len(letters),
        letters_put_back=sum(bool(letter.reinjected) for letter in letters),
    )


def _read(message: Message, kind: type[Record]) -> Record | None:
    try:
        return decode(message.value, kind)
    except SchemaError:
        return None  # a record of another version says nothing that we understand


def _statuses(settings: Settings, name: str, run_id: str) -> dict[str, RoleStatus]:
    """Return the newest statuses of a run, by ``role/index``."""
    found = {}
    for message in latest_by_key(settings, topic_name(STATUS)).values():
        status = _read(message, RoleStatus)
        if status and (status.experiment, status.run_id) == (name, run_id):
            found[f"{status.role}/{status.index}"] = status
    return found


def _roles(
    settings: Settings,
    published: PublishedExperiment,
    statuses: dict[str, RoleStatus],
    heard_at_ms: dict[tuple[str, int], int],
    now: int,
) -> tuple[RoleView, ...]:
    members: dict[str, tuple[Message, Member]] = {}
    topic = topic_name(MEMBERS, published.experiment.name)
    for message in latest_by_key(settings, topic).values():
        member = _read(message, Member)
        if member and member.run_id == published.run_id:
            members[f"{member.role}/{member.index}"] = message, member
    told = {f"{role}/{index}" for role, index in heard_at_ms}
    keys = sorted({*members, *told, *statuses} - {"experiment/0"})
    return tuple(
        _role(key, members.get(key), statuses.get(key), heard_at_ms, now)
        for key in keys
    )


def _role(
    key: str,
    registered: tuple[Message, Member] | None,
    status: RoleStatus | None,
    heard_at_ms: dict[tuple[str, int], int],
    now: int,
) -> RoleView:
    role, _, index = key.rpartition("/")
    heard = heard_at_ms.get((role, int(index)))
    message, member = registered or (None, None)
    known = member or status
    return RoleView(
        role=role,
        index=int(index),
        incarnation=message.offset if message else None,
        host=known.host if known else "",
        pid=known.pid if known else -1,
        state=status.state if status else "",
        reason=status.reason if status else "",
        started_age_ms=max(0, now - message.timestamp_ms) if message else None,
        metrics_age_ms=max(0, now - heard) if heard is not None else None,
    )


def _group(
    settings: Settings, name: str, role: str, topic: str, progress: Progress
) -> GroupStatus:
    group = group_name(name, role)
    positions = {each.partition: each for each in progress.positions(role)}
    consumer = make_consumer(
        settings, group=group, client_id=f"{name}-status", traffic=Traffic.CONTROL
    )
    with closing(consumer):
        try:
            numbers = partitions_of(consumer, topic, unknown_s=0.0)
            committed = committed_offsets(consumer, topic, numbers)
            ends = {n: watermarks(consumer, topic, n)[1] for n in numbers}
            waiting = held_back(make_admin(settings), topic, numbers)
        except TopicError as exc:
            return GroupStatus(role, group, topic, (), exc.problem)
        except KafkaException as exc:
            return GroupStatus(role, group, topic, (), exc.args[0].str())
        except TimeoutError:
            return GroupStatus(role, group, topic, (), "the brokers do not answer")
    found = []
    for number in numbers:
        place, offset, end = positions.get(number), committed[number], ends[number]
        found.append(
            PartitionStatus(
                partition=number,
                position=place.position if place else None,
                committed=offset if offset >= 0 else None,
                held=place.held if place else 0,
                end=end,
                lag=lag_of(place.position, end) if place else None,
                committed_lag=lag_of(max(offset, 0), end),
                held_back=waiting[number][1] - end if number in waiting else 0,
            )
        )
    return GroupStatus(role, group, topic, tuple(found))


def _alerts(settings: Settings, name: str, run_id: str, now: int) -> tuple[Alert, ...]:
    found = []
    for message in read_to_end(settings, topic_name(EVENTS, name)):
        event = _read(message, Event)
        if event and (event.severity, event.run_id) == ("alert", run_id):
            age_ms = max(0, now - message.timestamp_ms)
            found.append(
                Alert(event.kind, event.role, event.index, event.reason, age_ms)
            )
    return tuple(reversed(found))
