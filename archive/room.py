"""How much may be sent before it would be deleted unread."""

from __future__ import annotations

from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException

from infra.errors import KafkaUnavailable, TopicError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import committed_offsets, partitions_of, watermarks
from infra.kafka.topic_admin import describe_topics
from infra.settings import Settings
from schemas.topics import REPLAY, TRAJECTORIES, Topic, group_name, topic_name

BATCH_ROW_BYTES = 16
"""What a batch of transitions has more than its unroll, for each row."""

_READERS = {"processor": TRAJECTORIES, "learner": REPLAY}
_IN_WORDS = {"processor": "processors", "learner": "learner"}


@dataclass
class Sizes:
    """How large records are, on average, and what rows make of them."""

    records: int = 0
    bytes: int = 0
    rows: int = 0

    def add(self, size: int, rows: int) -> None:
        """Take note of a record."""
        self.records += 1
        self.bytes += size
        self.rows += rows

    def of(self, role: str) -> float:
        """Return the mean size of what a role reads."""
        size = self.bytes + (self.rows * BATCH_ROW_BYTES if role == "learner" else 0)
        return size / max(self.records, 1)


class Room:
    """Keeps what is unread below half of what a partition of each topic holds."""

    def __init__(self, settings: Settings, experiment: str) -> None:
        """Ask the broker what the topics hold.

        Raises:
            KafkaUnavailable: they cannot be described now.
        """
        self._experiment = experiment
        try:
            self._limits = _limits(settings, experiment)
        except (TopicError, KeyError) as exc:  # it passes, or the next question tells
            raise KafkaUnavailable(
                f"what the topics of {experiment} hold cannot be had: {exc}",
                "check that the brokers answer",
            ) from exc
        self._consumers = {
            role: make_consumer(
                settings,
                group=group_name(experiment, role),
                client_id=f"{experiment}-room",
                traffic=Traffic.CONTROL,
            )
            for role in _READERS
        }
        self._sizes = Sizes()
        # Sent since it was last asked what is unread, in bytes, by partition.
        self._since: dict[int, float] = {}
        self._unread: dict[str, dict[int, int]] = {role: {} for role in _READERS}

    def close(self) -> None:
        """Leave the broker."""
        for consumer in self._consumers.values():
            consumer.close()

    def full(self, partition: int, size: int, rows: int, num_open: int) -> str:
        """Return whose readers have to be waited for; "": there is room.

        What was sent since ``look`` counts as unread.

        Args:
            partition: where the next record goes.
            size: of it, in bytes.
            rows: that it has.
            num_open: streams that are open: readers may hold back a record of each.
        """
        for role, limit in self._limits.items():
            if limit is None:
                continue
            unread = self._unread[role].get(partition, 0)
            if role == "learner":  # will be there, once processors have read it
                unread += self._unread["processor"].get(partition, 0)
            if unread <= 2 * num_open + 2 and not self._since.get(partition):
                continue
            more = size + (rows * BATCH_ROW_BYTES if role == "learner" else 0)
            mean = self._sizes.of(role) if self._sizes.records else more
            if unread * mean + self._since.get(partition, 0.0) + more > limit:
                return f"the {_IN_WORDS[role]} of {self._experiment}"
        return ""

    def sent(self, partition: int, size: int, rows: int) -> None:
        """Take note of a record that was sent."""
        self._sizes.add(size, rows)
        more = size + rows * BATCH_ROW_BYTES
        self._since[partition] = self._since.get(partition, 0.0) + more

    def look(self) -> None:
        """Ask the broker what is unread now; what was sent is committed before.

        Raises:
            KafkaUnavailable: it does not answer.
        """
        try:
            self._unread = {
                role: _unread(self._consumers[role], topic, self._experiment)
                for role, topic in _READERS.items()
            }
        except KafkaException as exc:
            raise KafkaUnavailable(
                f"what {self._experiment} has not read cannot be had: {exc}",
                "check that the brokers answer",
            ) from exc
        self._since = {}


def _unread(consumer: Consumer, topic: Topic, experiment: str) -> dict[int, int]:
    name = topic_name(topic, experiment)
    partitions = partitions_of(consumer, name)
    # Committed first: read second, the end cannot be behind it.
    committed = committed_offsets(consumer, name, partitions)
    found = {}
    for partition, offset in committed.items():
        first, end = watermarks(consumer, name, partition)
        found[partition] = end - max(offset, first)
    return found


def _limits(settings: Settings, experiment: str) -> dict[str, int | None]:
    names = {role: topic_name(topic, experiment) for role, topic in _READERS.items()}
    found = {
        each.name: each for each in describe_topics(settings, list(names.values()))
    }
    limits: dict[str, int | None] = {}
    for role, name in names.items():
        held = int(found[name].config.get("retention.bytes", -1))
        limits[role] = None if held < 0 else held // 2
    return limits
