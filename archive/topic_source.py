"""The trajectories of an experiment's run in force, as a past that can be read."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from archive.recorded import Gap, Recorded, SourceInfo
from infra.control.desired import PublishedExperiment
from infra.control.experiments import read_experiment
from infra.errors import KafkaUnavailable, OffsetError, TopicError
from infra.kafka.clients import make_admin, make_consumer
from infra.kafka.foreign_schemas import decode_foreign
from infra.kafka.identity import read_topic_identity
from infra.kafka.reading import (
    OUT_OF_RANGE,
    latest_by_key,
    partitions_of,
    patiently,
    raw_until,
    watermarks,
)
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.records import EnvDescription, Member, SourceRef, StreamEnd, Unroll
from schemas.registry import Registry
from schemas.topics import MEMBERS, TRAJECTORIES, topic_name, worker_partition

_TIMEOUT_S = 30.0
# One reader for each partition: less than a consumer that has its queue to itself.
_QUEUE_KBYTES = 8_192
_log = logging.getLogger("rollstream.archive")


class TopicSource:
    """Reads the topic of trajectories; see `archive.recorded.Source`.

    The run is the one that was in force when it was opened.
    """

    def __init__(self, settings: Settings, experiment: str) -> None:
        """Open it.

        Raises:
            UnknownExperiment: there is no such experiment.
            TopicError: it has no topic of trajectories.
            KafkaUnavailable: the brokers do not answer.
        """
        published = read_experiment(settings, experiment)
        self._settings = settings
        self._registry = Registry()
        self._admin = make_admin(settings, f"{experiment}-source")
        topic = topic_name(TRAJECTORIES, experiment)
        self._members = _read_members(settings, published)
        self._info = SourceInfo(
            experiment=published.experiment,
            run_id=published.run_id,
            topic=topic,
            topic_id=self._topic_id(topic),
            env=_env(self._members),
        )
        # `bounds` may be asked from another thread than `close`.
        self._lock = threading.Lock()
        self._consumer = self._make_consumer("bounds")
        self._partitions = partitions_of(self._consumer, topic)
        self._told: set[tuple[int, int]] = set()

    @property
    def info(self) -> SourceInfo:
        """Whose it is."""
        return self._info

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Return (first offset, next offset) of what there is now, by partition.

        Records of transactions that are still open are not there yet.

        Raises:
            TopicError: the topic was deleted, and perhaps made anew.
            KafkaUnavailable: the brokers do not answer.
        """
        info = self._info
        found = self._topic_id(info.topic)
        if found != info.topic_id:
            raise TopicError(
                f"topic {info.topic}: expected the id {info.topic_id}, found {found}: "
                "it was deleted and made anew",
                "begin again: this is another past",
            )
        with self._lock:
            return {
                partition: watermarks(self._consumer, info.topic, partition)
                for partition in self._partitions
            }

    def gaps(self) -> list[Gap]:
        """Return what of the run has expired: offsets before the log's start.

        A log that begins with a record of this run has lost what was before it; of one
        that begins with another run's nothing is missing.
        """
        found = []
        for partition, (first, end) in self.bounds().items():
            if first > 0 and self._has_expired(partition, first, end):
                found.append(Gap(partition, 0, first))
        return found

    def _has_expired(self, partition: int, first: int, end: int) -> bool:
        with closing(self._decoded(partition, first, end)) as records:
            earliest = next(records, None)
        if earliest is not None:
            return earliest.record.run_id == self._info.run_id
        # All is gone; whose it was, only who wrote there can tell.
        partitions = len(self._partitions)
        return any(
            member.role == "worker"
            and worker_partition(member.index, partitions) == partition
            for member in self._members
        )

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        """Yield the run's records with first <= offset < end, in order.

        Any number of partitions can be read at once, each in one thread at a time.

        Raises:
            OffsetError: ``first`` is not, or no longer, in the log.
            TopicError: the partition cannot be read: says where.
            UnknownSchemaId: a record is of a newer rollstream.
            KafkaUnavailable: nothing comes for 30 s.
        """
        for each in self._decoded(partition, first, end):
            if each.record.run_id == self._info.run_id:
                yield each

    def close(self) -> None:
        """Let go of it."""
        with self._lock:
            self._consumer.close()

    def _decoded(self, partition: int, first: int, end: int) -> Generator[Recorded]:
        """Yield what can be decoded, of whatever run."""
        topic = self._info.topic
        with closing(self._make_consumer(f"{partition}")) as consumer:
            begin, now_end = watermarks(consumer, topic, partition)
            if first >= min(end, now_end):
                return
            if first < begin:
                raise _expired(topic, partition, first, begin)
            consumer.assign([TopicPartition(topic, partition, first)])
            messages = raw_until(
                consumer,
                topic,
                partition,
                first,
                min(end, now_end),
                _TIMEOUT_S,
                # Records are large, and many partitions may be read at once.
                at_once=1,
                error_of=_unreadable,
            )
            for message in messages:
                address = SourceRef(topic, partition, int(message.offset() or 0))
                record = self._decode(address, message.value())
                if record is not None:
                    yield Recorded(address, int(message.timestamp()[1]), record)

    def _decode(
        self, address: SourceRef, value: str | bytes | None
    ) -> Unroll | StreamEnd | None:
        data = value if isinstance(value, bytes) else b""
        try:
            record: Unroll | StreamEnd = decode_foreign(
                self._settings, self._registry, data, Unroll, StreamEnd
            )
        except UnknownSchemaId:
            raise  # not the record's fault: whoever knows its schema can read it
        except SchemaError as exc:
            place = address.partition, address.offset
            if place not in self._told:
                self._told.add(place)
                _log.warning("%s is passed over: %s", address, exc)
            return None
        return record

    def _make_consumer(self, what: str) -> Consumer:
        return make_consumer(
            self._settings,
            group=None,
            client_id=f"{self._info.experiment.name}-source-{what}",
            overrides={
                "enable.partition.eof": True,
                "queued.max.messages.kbytes": _QUEUE_KBYTES,
            },
        )

    def _topic_id(self, topic: str) -> str:
        def ask(left_s: float) -> str:
            found = read_topic_identity(self._admin, topic, left_s)
            if found is None:  # a broker that has just come back knows none
                raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
            return found.topic_id

        try:
            return patiently(ask, _TIMEOUT_S)
        except (KafkaException, TimeoutError) as exc:
            error = exc.args[0] if isinstance(exc, KafkaException) else None
            if error and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise TopicError(
                    f"topic {topic}: expected the trajectories of an experiment, "
                    "found no such topic",
                    "launch the experiment first, or name the folder of an archive",
                ) from exc
            raise KafkaUnavailable(
                f"topic {topic} cannot be identified: {exc}",
                "check that the brokers answer",
            ) from exc


def _read_members(settings: Settings, published: PublishedExperiment) -> list[Member]:
    """Return the run's members, as far as they are not deleted."""
    topic = topic_name(MEMBERS, published.experiment.name)
    found = []
    for message in latest_by_key(settings, topic).values():
        member = decode_or_none(message.value, Member)
        if member is not None and member.run_id == published.run_id:
            found.append(member)
    return found


def _env(members: list[Member]) -> EnvDescription | None:
    """Return what workers found; where there were none, what was replayed."""
    found = [each for each in members if each.env is not None]
    found.sort(key=lambda each: (each.role != "worker", each.index))
    return found[0].env if found else None


def _unreadable(topic: str, partition: int, error: KafkaError) -> TopicError:
    if error.code() in OUT_OF_RANGE:
        return OffsetError(
            f"{topic}[{partition}]: what was to be read has expired meanwhile: "
            f"{error.str()}",
            "read it from an archive, if there is one",
        )
    return TopicError(
        f"{topic}[{partition}] cannot be read: {error.str()}",
        "check the brokers' disks and logs; an archive may still have it",
    )


def _expired(topic: str, partition: int, first: int, begin: int) -> OffsetError:
    return OffsetError(
        f"{topic}[{partition}]: expected offset {first} to be in the log, found that "
        f"it begins at {begin}: the rest has expired",
        f"read from offset {begin} on, or from an archive",
    )
