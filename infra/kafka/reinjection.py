"""A dead letter -> its source topic again, once."""

from __future__ import annotations

import os
import platform

from confluent_kafka import KafkaError, KafkaException, Message

from infra.clock import now_ms
from infra.errors import RollstreamError
from infra.kafka.dead_letters import REINJECTED, Letter
from infra.kafka.transactions import (
    FENCED,
    TIMEOUT_S,
    commit,
    make_transactional,
)
from infra.settings import Settings
from schemas.codec import encode
from schemas.records import DeadLetter, SourceRef
from schemas.topics import DEAD_LETTERS, PREFIX, topic_name


class NotReinjected(RollstreamError):
    """A letter could not be put back; if in doubt, the marks in the log say so."""


class Superseded(RollstreamError):
    """Another process has begun to put letters of this experiment back."""


class Reinjector:
    """Puts records back, one process at a time for an experiment.

    The record and the mark that it was put back are one transaction: a process that is
    killed midway leaves neither. Who begins ends the transactions of all who began
    before, so the marks that are read after that are all there will be.
    """

    def __init__(self, settings: Settings, experiment: str, partitions: int) -> None:
        self._experiment = experiment
        self._partitions = partitions
        self._marks = topic_name(DEAD_LETTERS, experiment)
        self._producer = make_transactional(
            settings, f"{PREFIX}{experiment}.reinject", f"{experiment}-reinject"
        )

    def begin(self) -> None:
        """Become the only one; nothing is open between two letters.

        Raises:
            NotReinjected: the brokers do not answer.
        """
        try:
            self._producer.init_transactions(TIMEOUT_S)
        except KafkaException as exc:
            raise self._problem("no transaction can be had", exc) from exc

    def put_back(self, letter: Letter, value: bytes) -> SourceRef:
        """Write a letter's record to where it came from; return its new address.

        1. Begin a transaction.
        2. Write the record to its topic and partition, with its key. (From a partition
           that was added in spite of the spec, to the one its worker writes to.)
        3. Write the mark to the topic of dead letters.
        4. Commit both.

        Raises:
            Superseded: another process has begun since; nothing was written.
            NotReinjected: the topic refuses it.
        """
        source = letter.record.source
        what = f"dead letter {letter.number} cannot be put back to {source.topic}"
        try:
            self._producer.begin_transaction()  # Step 1.
            offset = self._write(  # Step 2.
                source.topic,
                value,
                letter.record.key or None,
                source.partition % self._partitions,
                {REINJECTED: str(letter.number)},
            )
            to = SourceRef(source.topic, source.partition % self._partitions, offset)
            mark = self._mark(letter, to)
            self._write(self._marks, encode(mark), self._marks.encode(), 0, {})  # 3.
            commit(self._producer)  # Step 4.
        except KafkaException as exc:
            problem = self._problem(what, exc)
            if not isinstance(problem, Superseded):
                self._abort()
            raise problem from exc
        return to

    def _write(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        partition: int,
        headers: dict[str, str | bytes | None],
    ) -> int:
        reports: list[tuple[KafkaError | None, Message]] = []
        self._producer.produce(
            topic,
            value,
            key,
            partition,
            headers=headers,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
        self._producer.flush(TIMEOUT_S)
        if not reports:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        error, message = reports[0]
        if error is not None:
            raise KafkaException(error)
        return int(message.offset() or 0)

    def _mark(self, letter: Letter, to: SourceRef) -> DeadLetter:
        return DeadLetter(
            experiment=self._experiment,
            source=SourceRef(self._marks, 0, letter.number),
            reader=f"cli/{platform.node()}-{os.getpid()}",
            error=str(to),
            key=b"",
            value=b"",
            value_bytes=0,
            produced_at_ms=now_ms(),
        )

    def _abort(self) -> None:
        try:
            self._producer.abort_transaction(TIMEOUT_S)
        except KafkaException:
            return  # the broker does it after OPEN_MS; the next to begin, at once

    def _problem(self, what: str, exc: KafkaException) -> RollstreamError:
        error: KafkaError = exc.args[0]
        if error.code() in FENCED:
            return Superseded(
                f"another process has begun to put back the dead letters of "
                f"{self._experiment}, and ended this one",
                "let it finish; what it left can be put back then",
            )
        return NotReinjected(f"{what}: {error.str()}")
