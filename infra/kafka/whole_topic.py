"""A small topic of one partition, whole: all that there is, and then what comes."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition

from infra.errors import KafkaUnavailable
from infra.kafka.clients import Traffic, make_consumer
from infra.kafka.reading import OUT_OF_RANGE, Message, to_message, watermarks
from infra.settings import Settings

_BATCH = 1_000
_TIMEOUT_S = 30.0
_log = logging.getLogger("rollstream")


class WholeTopic:
    """Follows a topic, also when it is deleted and made anew."""

    def __init__(
        self, settings: Settings, topic: str, client_id: str, forget: Callable[[], None]
    ) -> None:
        """Open it.

        Args:
            settings: where the brokers are.
            topic: its full name.
            client_id: names the client in the broker's logs.
            forget: called when the topic was made anew: what was read of it holds no
                more, and all of it is read again.
        """
        self._topic = topic
        self._forget = forget
        self._consumer = make_consumer(
            settings,
            group=None,
            client_id=client_id,
            traffic=Traffic.CONTROL,
            overrides={"enable.partition.eof": True},
        )
        self._next_offset = 0
        self._begin()

    def poll(self, timeout_s: float) -> Iterator[Message]:
        """Yield what has come; wait at most ``timeout_s`` for the first."""
        for raw in self._consumer.consume(_BATCH, timeout_s):
            error = raw.error()
            if error is None:
                self._next_offset = (raw.offset() or 0) + 1
                yield to_message(raw)
            elif error.code() == KafkaError._PARTITION_EOF:
                self._next_offset = max(self._next_offset, raw.offset() or 0)
            elif error.code() in OUT_OF_RANGE:
                _log.warning("%s was made anew: it is read again", self._topic)
                self._forget()
                self._begin()
                return
            else:
                _log.warning("%s: %s", self._topic, error.str())

    def to_end(self) -> Iterator[Message]:
        """Yield each record up to the topic's present end.

        Raises:
            KafkaUnavailable: the brokers do not answer.
            TopicError: there is no such topic.
        """
        _, end = watermarks(self._consumer, self._topic, 0)
        progress_s = time.monotonic()
        while self._next_offset < end:
            before = self._next_offset
            yield from self.poll(0.1)
            if self._next_offset != before:
                progress_s = time.monotonic()
            elif time.monotonic() - progress_s > _TIMEOUT_S:
                raise KafkaUnavailable(
                    f"{self._topic}: nothing was read for {_TIMEOUT_S:g} s at offset "
                    f"{before} of {end}",
                    "check that the brokers answer",
                )

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()

    def _begin(self) -> None:
        self._next_offset = 0
        self._consumer.assign([TopicPartition(self._topic, 0, OFFSET_BEGINNING)])
