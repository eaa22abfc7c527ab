"""Records and how far they are, in one transaction: both are there, or neither."""

from __future__ import annotations

import time
from collections.abc import Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from infra.errors import RollstreamError
from infra.kafka.transactions import (
    FENCED,
    OPEN_MS,
    TIMEOUT_S,
    commit,
    make_transactional,
)
from infra.settings import Settings

_POLL_S = 0.05
_REFUSED = (
    KafkaError.MSG_SIZE_TOO_LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)


class Superseded(RollstreamError):
    """Another process has begun to do the same, and ended this one."""


class Refused(RollstreamError):
    """The brokers will never take a record."""


class Unsure(RollstreamError):
    """It is not known whether a transaction came about: what is in the log says so."""


class Transactions:
    """One after the other, of one process at a time.

    Attributes:
        ends: by (topic, partition), the offset behind the last record that is
            committed.
    """

    def __init__(self, settings: Settings, transactional_id: str) -> None:
        """Become the only one; transactions of those before are over then.

        Raises:
            Unsure: the brokers do not answer.
            Refused: they let nobody.
        """
        self.ends: dict[tuple[str, int], int] = {}
        self._name = transactional_id
        self._is_open = False
        self._opened_s = 0.0
        self._reports: list[Message] = []
        self._failure: KafkaError | None = None
        self._producer: Producer = make_transactional(
            settings, transactional_id, transactional_id
        )
        try:
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as exc:
            raise self._problem(exc.args[0]) from exc

    @property
    def is_open(self) -> bool:
        """Whether something was sent that is not committed."""
        return self._is_open

    def send(
        self,
        topic: str,
        value: bytes,
        key: str,
        partition: int,
        headers: Mapping[str, str | bytes | None] | None = None,
    ) -> None:
        """Send a record, in the transaction that is open, or a new one.

        Raises:
            Superseded, Refused, Unsure: the transaction will not come about.
        """
        try:
            if not self._is_open:
                self._producer.begin_transaction()
                self._is_open, self._opened_s = True, time.monotonic()
            self._produce(topic, value, key, partition, dict(headers or {}))
        except KafkaException as exc:
            raise self._problem(exc.args[0]) from exc
        if self._failure is not None:
            raise self._problem(self._failure)

    def commit(self) -> None:
        """Commit what was sent; raises as ``send`` does."""
        if not self._is_open:
            return
        try:
            commit(self._producer)
        except KafkaException as exc:
            raise self._problem(self._failure or exc.args[0]) from exc
        self._is_open = False
        for message in self._reports:
            place = str(message.topic()), int(message.partition() or 0)
            self.ends[place] = int(message.offset() or 0) + 1
        self._reports.clear()

    def abandon(self, timeout_s: float = 5.0) -> None:
        """Let nothing come of what is not committed, if that can be had."""
        if not self._is_open:
            return
        self._is_open = False
        self._reports.clear()
        try:
            self._producer.abort_transaction(timeout_s)
        except KafkaException:
            # The broker does it after OPEN_MS; the next to begin, at once.
            self._producer.purge()

    def _produce(
        self,
        topic: str,
        value: bytes,
        key: str,
        partition: int,
        headers: dict[str, str | bytes | None],
    ) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    headers=headers,
                    on_delivery=self._on_delivery,
                )
                break
            except BufferError:
                self._producer.poll(_POLL_S)
        self._producer.poll(0)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._reports.append(message)
        elif self._failure is None:
            self._failure = error

    def _cause(self, error: KafkaError) -> KafkaError:
        """Return why the client goes on no more, where it only says that."""
        if error.code() != KafkaError._FATAL:
            return error
        try:
            self._producer.abort_transaction(_POLL_S)
        except KafkaException as exc:
            cause: KafkaError = exc.args[0]
            return cause
        return error

    def _problem(self, error: KafkaError) -> RollstreamError:
        error = self._cause(error)
        # Open for too long, as of a process that was frozen, the broker ends it in the
        # same way: nobody else need have begun.
        is_old = self._is_open and time.monotonic() - self._opened_s >= OPEN_MS / 1000
        if error.code() in FENCED and not is_old:
            return Superseded(
                f"{self._name}: another process has begun to do the same, and ended "
                "this one",
                "let it finish",
            )
        if error.code() in _REFUSED:
            return Refused(
                f"{self._name}: the brokers refuse a record: {error.str()}",
                "see max.message.bytes of the topics, and the permissions of the user",
            )
        return Unsure(
            f"{self._name}: a transaction did not come about: {error.str()}",
            "check that the brokers answer; it goes on where it was",
        )
