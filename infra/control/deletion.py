"""An experiment -> nothing: roles, groups, topics, statuses, and last its spec.

Each step may be repeated: what was killed in the middle is simply begun again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from infra.control.coordination import Coordination
from infra.control.desired import Entry
from infra.control.edits import in_state
from infra.control.experiments import forget_experiment, in_force
from infra.control.launching import SpecWriter, Wanted, refuse_claimed
from infra.control.znodes import role_key
from infra.errors import RollstreamError, TopicError
from infra.kafka.asking import answer, ask
from infra.kafka.clients import Traffic, make_admin, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import read_to_end
from infra.kafka.topic_admin import delete_topics
from infra.kafka.topic_description import ADMIN_TIMEOUT_S, cluster_metadata
from infra.settings import Settings
from schemas.topics import EXPERIMENT_NAME, PREFIX, STATUS, check_name, topic_name

ROLES_TIMEOUT_S = 60.0
# A member that was killed is in its group until its session ends.
_GROUP_TIMEOUT_S = 60.0
_POLL_S = 0.2

Report = Callable[[str], None]


class StillRunning(RollstreamError):
    """Roles of the experiment have not ended in time."""


@dataclass(frozen=True)
class Belongings:
    """What the brokers hold of an experiment, its spec aside."""

    topics: tuple[str, ...]
    groups: tuple[str, ...]
    statuses: tuple[str, ...]
    """Keys in the topic of statuses."""

    def __bool__(self) -> bool:
        return bool(self.topics or self.groups or self.statuses)


def find_belongings(settings: Settings, name: str) -> Belongings:
    """Return what there is of an experiment; of no other whose name begins alike.

    Raises:
        KafkaUnavailable: the brokers do not answer.
    """
    # A name holds no dot and no slash: nothing else begins with these.
    topics_begin, status_begins = f"{PREFIX}{check_name(name)}.", f"{name}/"
    admin = make_admin(settings)
    names = cluster_metadata(admin).topics
    statuses: set[str] = set()
    if topic_name(STATUS) in names:
        for message in read_to_end(settings, topic_name(STATUS)):
            if message.key.startswith(status_begins):
                keep = statuses.discard if message.tombstone else statuses.add
                keep(message.key)
    return Belongings(
        tuple(sorted(each for each in names if each.startswith(topics_begin))),
        tuple(sorted(g for g in _groups(settings) if g.startswith(topics_begin))),
        tuple(sorted(statuses)),
    )


def delete_experiment(
    settings: Settings,
    coordination: Coordination,
    name: str,
    *,
    report: Report = lambda line: None,
    timeout_s: float = ROLES_TIMEOUT_S,
) -> Belongings:
    """Stop an experiment and remove all that the brokers hold of it.

    1. Publish that it is to be stopped.
    2. Wait until none of its roles lives.
    3. Delete its consumer groups, topics and statuses.
    4. Publish the tombstone of its spec; from then on there is no such experiment.

    Repeated after it was killed in the middle, it goes on. Files of its runs stay on
    their hosts.

    Returns:
        what was deleted.

    Raises:
        UnknownExperiment: there is nothing of that name.
        AlreadyRuns: a foreground run has claimed it.
        StillRunning: its roles do not end within ``timeout_s``.
        RollstreamError: it was launched again meanwhile.
    """
    if not EXPERIMENT_NAME.fullmatch(name):
        in_force(name, Entry())  # raises
    refuse_claimed(coordination, name)
    with closing(SpecWriter(settings, name)) as writer:
        before = _stop(writer, name)
        belongings = find_belongings(settings, name)
        if before.accepted is None and before.refused is None and not belongings:
            in_force(name, Entry())  # raises: there is no such experiment
        wait_until_gone(coordination, name, report=report, timeout_s=timeout_s)
        _remove(settings, belongings, report)
        refuse_claimed(coordination, name)
        _check_unchanged(name, before, writer.read())
        if not before.deleted or before.refused is not None:
            _forget(settings, name)
            report(f"deleted the spec of {name}")
        coordination.forget_experiment(name)
    # Who ended last may have said so after we looked.
    clean_up(settings, name)
    return belongings


def clean_up(settings: Settings, name: str, report: Report = lambda line: None) -> None:
    """Delete the groups, topics and statuses of an experiment that has no roles."""
    _remove(settings, find_belongings(settings, name), report)


def wait_until_gone(
    coordination: Coordination,
    name: str,
    *,
    report: Report = lambda line: None,
    timeout_s: float = ROLES_TIMEOUT_S,
) -> None:
    """Wait until no role of an experiment lives; tell who is waited for.

    Raises:
        StillRunning: some live after ``timeout_s``.
    """
    deadline_s, told = time.monotonic() + timeout_s, ""
    while roles := coordination.live_roles(name):
        waiting = ", ".join(sorted(map(role_key, roles)))
        if waiting != told:
            report(f"waiting for {waiting}")
            told = waiting
        if time.monotonic() > deadline_s:
            hosts = sorted({str(facts.get("agent")) for facts in roles.values()})
            raise StillRunning(
                f"experiment {name}: expected its roles to end within {timeout_s:g} s, "
                f"found {waiting} on {', '.join(hosts)}",
                "look at the agent there (`rollstream logs`), and repeat the command",
            )
        time.sleep(_POLL_S)


def _stop(writer: SpecWriter, name: str) -> Entry:
    """Publish that an experiment is to be stopped; return what is in force then."""
    if writer.read().accepted is not None:

        def stopped(entry: Entry) -> Wanted:
            known = in_force(name, entry)
            return Wanted(
                in_state(known.experiment, "stopped"),
                known.run_id,
                known.managed_by,
            )

        writer.write(stopped)
    return writer.read()


def _check_unchanged(name: str, before: Entry, now: Entry) -> None:
    if before.accepted != now.accepted:
        raise RollstreamError(
            f"experiment {name}: expected it to stay stopped while it is deleted, "
            "found that its spec was changed; its data may be gone",
            "delete it again, or `rollstream launch FILE --fresh`",
        )


def _forget(settings: Settings, name: str) -> None:
    forget_experiment(_sender(settings, name), name)


def _remove(settings: Settings, belongings: Belongings, report: Report) -> None:
    if belongings.groups:
        ask(settings, lambda admin: _delete_groups(admin, belongings.groups))
        report(f"deleted {len(belongings.groups)} consumer groups")
    if belongings.topics:
        delete_topics(settings, belongings.topics)
        report(f"deleted {len(belongings.topics)} topics")
    if belongings.statuses:
        sender = _sender(settings, belongings.statuses[0].partition("/")[0])
        for key in belongings.statuses:
            sender.send_and_wait(topic_name(STATUS), None, key)
        report(f"deleted {len(belongings.statuses)} statuses")


def _sender(settings: Settings, name: str) -> Sender:
    client_id = f"{name}-deletion"
    return Sender(make_producer(settings, client_id=client_id, traffic=Traffic.CONTROL))


def _groups(settings: Settings) -> list[str]:
    try:
        found = ask(settings, lambda admin: answer(admin.list_consumer_groups()))
    except KafkaException as exc:
        raise _group_error("cannot be listed", exc) from exc
    return [str(group.group_id) for group in found.valid]


def _delete_groups(admin: AdminClient, names: tuple[str, ...]) -> None:
    deadline_s = time.monotonic() + _GROUP_TIMEOUT_S
    left = list(names)
    while left:
        # librdkafka aborts the process (its #4605) where a coordinator's broker goes
        # away in the midst of such a request: asked first, one that answers.
        try:
            admin.list_topics(timeout=ADMIN_TIMEOUT_S)
        except KafkaException as exc:
            raise _group_error("cannot be deleted", exc) from exc
        left = [
            name
            for name, future in admin.delete_consumer_groups(left).items()
            if not _is_deleted(name, future, time.monotonic() > deadline_s)
        ]
        if left:
            time.sleep(_POLL_S)


def _is_deleted(name: str, future: Future[None], is_late: bool) -> bool:
    try:
        answer(future)
    except KafkaException as exc:
        code = exc.args[0].code()
        if code == KafkaError.GROUP_ID_NOT_FOUND:
            return True
        if code in _PASSING and not is_late:
            return False
        raise _group_error(f"{name} cannot be deleted", exc) from exc
    return True


_PASSING = (
    KafkaError.NON_EMPTY_GROUP,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


def _group_error(what: str, exc: KafkaException) -> TopicError:
    return TopicError(
        f"consumer groups: {what}: {exc.args[0].str()}",
        "check that the brokers answer, and the permissions of the Kafka user "
        "(Describe and Delete on groups)",
    )
