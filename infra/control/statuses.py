"""The topic of statuses: what an experiment is doing, and how it ended."""

from __future__ import annotations

import os
import platform

from confluent_kafka import TopicPartition

from infra.clock import now_ms
from infra.control.experiments import PublishedExperiment
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.delivery import Sender
from infra.kafka.reading import Message, read_to_end, to_message, watermarks
from infra.monitoring.summary import Summary
from infra.settings import Settings
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.records import RoleStatus
from schemas.topics import STATUS, topic_name

_BATCH = 500


def publish_status(
    sender: Sender,
    published: PublishedExperiment,
    state: str,
    reason: str,
    summary: Summary | None = None,
    *,
    timeout_s: float = 30.0,
) -> None:
    """Publish the state of a whole experiment, durably; raises DeliveryError."""
    status = RoleStatus(
        experiment=published.experiment.name,
        run_id=published.run_id,
        role="experiment",
        index=0,
        state=state,
        host=platform.node(),
        pid=os.getpid(),
        restarts=0,
        reason=reason,
        updated_at_ms=now_ms(),
        summary=summary.to_json() if summary else None,
    )
    key = f"{status.experiment}/{status.role}/{status.index}"
    sender.send_and_wait(topic_name(STATUS), encode(status), key, timeout_s=timeout_s)


def read_summary(settings: Settings, experiment: str, run_id: str) -> Summary | None:
    """Return the summary of a run that is finished; None when it is not."""
    status = read_states(settings, experiment).get(experiment)
    if status is None or status.run_id != run_id or status.state != "finished":
        return None
    return summary_of(status)


def summary_of(status: RoleStatus) -> Summary | None:
    """Return the summary in a status; None where there is none that we can read."""
    if not status.summary:
        return None
    try:
        return Summary.from_json(status.summary)
    except ValueError:
        return None


def wall_of(status: RoleStatus | None) -> float:
    """Return for how many seconds a run had gone on by its newest status."""
    summary = summary_of(status) if status else None
    wall_s = summary.wall_s if summary else 0.0
    return wall_s if 0 <= wall_s < 1e12 else 0.0


def read_states(settings: Settings, only: str | None = None) -> dict[str, RoleStatus]:
    """Return the newest status of each whole experiment, or of ``only`` that one."""
    newest: dict[str, Message] = {}
    end = f"{only or ''}/experiment/0"
    for message in read_to_end(settings, topic_name(STATUS)):
        if message.key == end or (only is None and message.key.endswith(end)):
            newest[message.key] = message
    found = {}
    for key, message in newest.items():
        status = None if message.tombstone else _state(key, message)
        if status is not None:
            found[status.experiment] = status
    return found


def _state(key: str, message: Message) -> RoleStatus | None:
    try:
        status = decode(message.value, RoleStatus)
    except SchemaError:
        return None  # a record of another version says nothing that we understand
    return status if key == f"{status.experiment}/experiment/0" else None


class StateFollower:
    """Follows the status of one whole experiment.

    Attributes:
        newest: its newest status that can be read; None: there is none.
    """

    def __init__(self, settings: Settings, experiment: str) -> None:
        self._key = f"{experiment}/experiment/0"
        self._consumer = make_consumer(
            settings,
            group=None,
            client_id=f"{experiment}-state",
            traffic=Traffic.CONTROL,
        )
        topic = topic_name(STATUS)
        # First the end, then all before it: what comes between is seen twice.
        _, end = watermarks(self._consumer, topic, 0)
        self.newest = read_states(settings, experiment).get(experiment)
        self._consumer.assign([TopicPartition(topic, 0, end)])

    def poll(self, timeout_s: float = 0.0) -> None:
        """Take in what has come."""
        for raw in self._consumer.consume(_BATCH, timeout_s):
            if raw.error() is None and raw.key() == self._key.encode():
                self._take(to_message(raw))

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()

    def _take(self, message: Message) -> None:
        self.newest = None if message.tombstone else _state(self._key, message)
