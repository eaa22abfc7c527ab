"""A checkpoint, or none -> where each partition of the replay topic is read from."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import AdminClient

from infra.control.role import RoleContext
from infra.errors import KafkaUnavailable
from infra.kafka.clients import make_consumer
from infra.kafka.reading import offset_at_time, partitions_of, watermarks
from learner.log_start import Start, begin_at, check_identity, resume_at
from learner.saver import read_identity
from learner.snapshot import LogIdentity, SourceSnapshot
from schemas.topics import REPLAY

BIRTH_MARGIN_MS = 60_000
"""Brokers' clocks differ; what is read too early is of another run, and is dropped."""

_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Opening:
    """The log as it was found.

    Attributes:
        log: its identity.
        starts: by partition.
    """

    log: LogIdentity
    starts: Mapping[int, Start]


def open_log(
    context: RoleContext,
    admin: AdminClient,
    before: SourceSnapshot | None,
    born_at_ms: int | None,
    topic: str | None = None,
) -> Opening:
    """Find where to read from.

    A checkpoint's own offsets win over what is committed. Without one, a run begins at
    the first record that can be its own: older ones are of other runs.

    Args:
        context: the experiment.
        admin: a client.
        before: what the newest checkpoint has of it.
        born_at_ms: the broker's time of the run's first Member; None: not known, so
            that all of the log is read.
        topic: another experiment's replay topic; None: this one's.

    Raises:
        LogMismatch: the checkpoint was made with another log.
        RecordsExpired: as ``log_start.resume_at``.
    """
    topic = topic or context.topic(REPLAY)
    log = _identity(admin, topic)
    if before is not None:
        check_identity(topic, vars(before.log), vars(log))
    consumer = make_consumer(
        context.settings, group=None, client_id=f"{context.client_id}-opening"
    )
    try:
        if before is None:
            return Opening(log, _begin(consumer, topic, born_at_ms))
        on_expired = context.spec.learner.on_expired
        starts = {}
        for partition, position in before.positions.items():
            first, end = watermarks(consumer, topic, partition)
            starts[partition] = resume_at(partition, position, first, end, on_expired)
        return Opening(log, starts)
    finally:
        consumer.close()


def _begin(consumer: Consumer, topic: str, born_at_ms: int | None) -> dict[int, Start]:
    partitions = partitions_of(consumer, topic)
    born = offset_at_time(consumer, topic, born_at_ms or 0, partitions)
    early_ms = max(0, (born_at_ms or 0) - BIRTH_MARGIN_MS)
    early = offset_at_time(consumer, topic, early_ms, partitions)
    starts = {}
    for partition in partitions:
        first, _ = watermarks(consumer, topic, partition)
        starts[partition] = begin_at(early[partition], born[partition], first)
    return starts


def _identity(admin: AdminClient, topic: str) -> LogIdentity:
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        try:
            return read_identity(admin, topic)[0]
        except KafkaException as exc:
            if time.monotonic() > deadline:
                raise KafkaUnavailable(
                    f"{topic}: neither cluster nor topic can be identified within "
                    f"{_TIMEOUT_S:g} s: {exc.args[0].str()}",
                    "check that the brokers answer and the topic exists",
                ) from exc
            time.sleep(0.2)
