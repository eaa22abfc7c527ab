"""Encoded records -> the log, with back-pressure, and failures that are not missed."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from infra.errors import DeliveryError

_POLL_S = 0.05

OnDelivery = Callable[[KafkaError | None, Message], None]


@dataclass(frozen=True)
class SenderCounts:
    """What happened to the records so far."""

    delivered: int
    failed: int
    in_flight: int
    in_flight_bytes: int


class Sender:
    """Sends records in order; waits when the queue is full.

    Once a record is refused for good, every later call raises that error: who goes
    on would leave a hole. A record that was too large is the exception that the
    caller may handle by `on_delivery`; it is raised all the same unless
    `tolerate_too_large`.
    """

    def __init__(
        self,
        producer: Producer,
        *,
        while_waiting: Callable[[], None] | None = None,
        tolerate_too_large: bool = False,
    ) -> None:
        self._producer = producer
        self._while_waiting = while_waiting
        self._tolerate_too_large = tolerate_too_large
        self._pid = os.getpid()
        self._failure: DeliveryError | None = None
        # Callbacks run in whichever thread polls.
        self._lock = threading.Lock()
        self._delivered = 0
        self._failed = 0
        self._in_flight = 0
        self._in_flight_bytes = 0

    @property
    def counts(self) -> SenderCounts:
        """How many records were delivered, and are under way."""
        with self._lock:
            return SenderCounts(
                self._delivered, self._failed, self._in_flight, self._in_flight_bytes
            )

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        """Queues a record; `value=None` is a tombstone.

        Blocks while the queue is full, which is how a slow or absent broker stops
        its producers.

        Raises:
            ValueError: The key is empty.
            DeliveryError: An earlier record was refused for good, or the process was
                forked since.
        """
        if not key:
            raise ValueError(
                f"topic {topic}: expected a key, found {key!r}; a record without one "
                "is refused by compacted topics and lands anywhere in others"
            )
        self._check()
        size = len(key) + len(value or b"")
        callback = self._make_callback(topic, size, on_delivery)
        while True:
            try:
                if partition is None:
                    self._producer.produce(topic, value, key, on_delivery=callback)
                else:
                    self._producer.produce(
                        topic, value, key, partition, on_delivery=callback
                    )
                break
            except BufferError:
                self._pause()
                self._check()
            except KafkaException as exc:
                self._refuse(topic, size, exc, on_delivery)
                return
        with self._lock:
            self._in_flight += 1
            self._in_flight_bytes += size
        # Serves the callbacks; without it the queue fills with reports.
        self._producer.poll(0)

    def try_send(self, topic: str, value: bytes, key: str) -> bool:
        """Queues a record that may get lost; never waits, and any thread may call.

        No callback of other records runs here, in whatever thread this is.

        Returns:
            whether it was queued: not while the queue is full, nor once a record was
            refused for good.
        """
        if self._failure is not None:
            return False
        try:
            self._producer.produce(topic, value, key)
        except (BufferError, KafkaException):
            return False
        return True

    def send_and_wait(
        self,
        topic: str,
        value: bytes | None,
        key: str | bytes,
        partition: int | None = None,
        timeout_s: float = 30.0,
        while_waiting: Callable[[], None] | None = None,
    ) -> int:
        """Sends one record and returns the offset it got.

        What `while_waiting`, called again and again, raises ends the wait.

        Raises:
            DeliveryError: It was refused, or is not acknowledged in time. It may
                still be delivered after a time-out.
        """
        results: list[tuple[KafkaError | None, Message]] = []
        self.send(
            topic, value, key, partition, lambda error, m: results.append((error, m))
        )
        deadline = time.monotonic() + timeout_s
        while not results:
            if time.monotonic() > deadline:
                raise DeliveryError(
                    f"topic {topic}: no acknowledgement within {timeout_s:g} s",
                    "check that the brokers answer",
                )
            self._check()
            self._pause()
            if while_waiting is not None:
                while_waiting()
        error, message = results[0]
        if error is not None:
            raise _delivery_error(topic, error)
        offset = message.offset()
        assert offset is not None
        return offset

    def flush(self, timeout_s: float) -> int:
        """Waits for what is under way; returns how many records are still not sent.

        Raises:
            DeliveryError: A record was refused for good.
        """
        self._check()
        left = self._producer.flush(timeout_s)
        self._check()
        return int(left)

    def abandon(self) -> int:
        """Drops what is queued, at the end of a process; returns how many records."""
        left = self.counts.in_flight
        self._producer.purge(in_queue=True, in_flight=True, blocking=True)
        self._producer.poll(0)
        return left

    def poll(self, timeout_s: float = 0.0) -> None:
        """Serves delivery reports while nothing is being sent.

        Raises:
            DeliveryError: A record was refused for good.
        """
        self._producer.poll(timeout_s)
        self._check()

    def _pause(self) -> None:
        self._producer.poll(_POLL_S)
        if self._while_waiting is not None:
            self._while_waiting()

    def _check(self) -> None:
        if os.getpid() != self._pid:
            raise DeliveryError(
                f"this producer was made in process {self._pid} and is used in "
                f"{os.getpid()}, after a fork: it would never send",
                "make the producer in the process that uses it",
            )
        if self._failure is not None:
            raise DeliveryError(
                self._failure.problem, self._failure.mend
            ) from self._failure

    def _make_callback(
        self, topic: str, size: int, on_delivery: OnDelivery | None
    ) -> OnDelivery:
        def record(error: KafkaError | None, message: Message) -> None:
            with self._lock:
                self._in_flight -= 1
                self._in_flight_bytes -= size
                if error is None:
                    self._delivered += 1
                else:
                    self._failed += 1
            if error is not None:
                self._remember(topic, error)
            if on_delivery is not None:
                on_delivery(error, message)

        return record

    def _remember(self, topic: str, error: KafkaError) -> None:
        tolerated = self._tolerate_too_large and is_too_large(error)
        if self._failure is None and not tolerated:
            self._failure = _delivery_error(topic, error)

    def _refuse(
        self,
        topic: str,
        size: int,
        exc: KafkaException,
        on_delivery: OnDelivery | None,
    ) -> None:
        """Handles what the client refuses before it is queued."""
        error: KafkaError = exc.args[0]
        with self._lock:
            self._failed += 1
        self._remember(topic, error)
        if self._failure is not None:
            raise _delivery_error(topic, error) from exc
        raise DeliveryTooLarge(topic, size) from exc


class DeliveryTooLarge(DeliveryError):
    """The record is larger than any client may send; nothing was queued."""

    def __init__(self, topic: str, size: int) -> None:
        super().__init__(
            f"topic {topic}: a record of {size} bytes is larger than the client allows",
            "cut it: fewer steps in an unroll, or fewer environments in a worker",
        )


def is_too_large(error: KafkaError) -> bool:
    """Says whether the record was refused for its size alone."""
    return error.code() in (
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.RECORD_LIST_TOO_LARGE,
    )


def _delivery_error(topic: str, error: KafkaError) -> DeliveryError:
    return DeliveryError(
        f"topic {topic}: a record was refused for good: {error.str()}",
        "see the reason; start the process again after it is mended",
    )
