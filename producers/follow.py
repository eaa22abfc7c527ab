"""Policies, credits, members and the experiment itself -> what a producer must know.

One consumer that assigns, never subscribes, and is never waited for: between unrolls
it is asked for what has come.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, TopicPartition

from infra.control.desired import Desired, Entry, PublishedExperiment
from infra.control.role import RoleContext
from infra.errors import TopicError
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import Message, to_message
from infra.monitoring.event_kinds import EventKind
from producers.policy_feed import BEST_KEY, PolicyFeed
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import (
    Credit,
    Member,
    PolicyChunk,
    PolicyGraph,
    PolicyVersion,
)
from schemas.topics import CREDITS, EXPERIMENTS, MEMBERS, POLICIES, topic_name

_MAX_RECORDS = 500
_FETCHING_S = 0.005
_log = logging.getLogger("rollstream")


class Followed:
    """What the topics said last.

    Attributes:
        state: of the experiment: ``running``, ``paused``, ``stopped`` or ``deleted``.
        newest_member: the offset of the newest Member under our key.
    """

    def __init__(
        self,
        context: RoleContext,
        policies: PolicyFeed,
        on_credit: Callable[[Credit], None],
        report: Callable[[EventKind, str], None],
    ) -> None:
        self.state: str = context.spec.state
        self.newest_member = -1
        self._desired = _as_started(context)
        self._context = context
        self._policies = policies
        self._on_credit = on_credit
        self._report = report
        self._handlers = {
            context.topic(POLICIES): self._take_policy,
            context.topic(CREDITS): self._take_credit,
            context.topic(MEMBERS): self._take_member,
            topic_name(EXPERIMENTS): self._take_experiment,
        }
        self._consumer = make_consumer(
            context.settings,
            group=None,
            client_id=context.client_id + "-follow",
            traffic=Traffic.CONTROL,
        )

    def start(self, incarnation: int) -> None:
        """Begin to follow: policies from their beginning, credits from the end."""
        context = self._context
        starts = {
            context.topic(POLICIES): OFFSET_BEGINNING,
            context.topic(CREDITS): OFFSET_END,
            context.topic(MEMBERS): incarnation + 1,
            topic_name(EXPERIMENTS): context.spec_offset + 1,
        }
        self._consumer.assign(
            [TopicPartition(topic, 0, offset) for topic, offset in starts.items()]
        )

    def poll(self, timeout_s: float = 0.0) -> bool:
        """Take in what has come; wait at most ``timeout_s`` for the first.

        Returns:
            whether that was much, and more may be there already.

        Raises:
            Superseded: a credit for a newer incarnation of this worker.
            TopicError: a topic cannot be read any more.
        """
        if self._policies.is_fetching:  # what comes of it is no record here
            timeout_s = min(timeout_s, _FETCHING_S)
        is_more = False
        for taken in range(1, _MAX_RECORDS + 1):
            raw = self._consumer.poll(timeout_s)
            if raw is None:
                break
            timeout_s, is_more = 0.0, taken == _MAX_RECORDS
            error = raw.error()
            if error is not None:
                self._check(error)
                continue
            self._take(to_message(raw))
        self._note(self._policies.load())
        return is_more

    def close(self) -> None:
        """Leave the topics."""
        self._consumer.close()

    def _check(self, error: KafkaError) -> None:
        # Brokers that are away come back; the client tries again by itself.
        if not (error.retriable() or error.code() in _PASSING):
            raise TopicError(f"a topic cannot be read: {error.str()}")

    def _take(self, message: Message) -> None:
        try:
            self._handlers[message.topic](message)
        except SchemaError as exc:
            # One bad control record must not stop the environments.
            self._refuse(message, str(exc))

    def _refuse(self, message: Message, reason: str) -> None:
        where = f"{message.topic}[0] offset {message.offset}"
        self._report("control-record-refused", f"{where}: {reason}")

    def _take_policy(self, message: Message) -> None:
        # The best is an older version, kept for people.
        if message.tombstone or message.key == BEST_KEY:
            return
        record: Any = decode(message.value, PolicyVersion, PolicyGraph, PolicyChunk)
        if isinstance(record, PolicyGraph):
            self._note(self._policies.take_graph(record))
        elif isinstance(record, PolicyChunk):
            self._policies.take_chunk(record)
        else:
            self._policies.take_version(record)

    def _note(self, refusal: object) -> None:
        if refusal is not None:
            self._report("policy-refused", str(refusal))

    def _take_credit(self, message: Message) -> None:
        self._on_credit(decode(message.value, Credit))

    def _take_member(self, message: Message) -> None:
        if message.key == self._context.member_key and not message.tombstone:
            decode(message.value, Member)
            self.newest_member = max(self.newest_member, message.offset)

    def _take_experiment(self, message: Message) -> None:
        if message.key != self._context.experiment.name:
            return
        self._desired.apply(message)
        entry = self._desired.of(message.key)
        if entry.refused is not None:
            self._refuse(message, entry.refused.reason)
        elif entry.accepted is None:
            self.state = "deleted"
        elif entry.accepted.run_id == self._context.run_id:
            self.state = entry.accepted.experiment.spec.state


def _as_started(context: RoleContext) -> Desired:
    """Return what is in force when a process starts: the spec that it was given."""
    if context.spec_offset < 0:
        return Desired()
    offset = context.spec_offset
    given = PublishedExperiment(context.experiment, context.run_id, offset)
    return Desired({context.experiment.name: Entry(given, offset)})


_PASSING = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT,
    KafkaError._PARTITION_EOF,
}
