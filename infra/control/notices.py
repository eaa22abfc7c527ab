"""What agents and their leader have to say -> statuses and events.

Nobody waits for these: with the brokers away, work goes on, and what is too old by
then is dropped.
"""

from __future__ import annotations

import logging
import time

from confluent_kafka import KafkaError, KafkaException, Message

from infra.control.desired import one_line
from infra.control.statuses import make_status, status_key
from infra.kafka.clients import Traffic, make_producer
from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.experiment_events import make_event
from infra.settings import Settings
from schemas.codec import encode
from schemas.topics import EVENTS, STATUS, topic_name

# A status or event of before yesterday's outage helps nobody.
_TOO_OLD_MS = 120_000
# Statuses are sent every two seconds.
_LATELY_S = 4.0
_log = logging.getLogger("rollstream.agent")


class Notices:
    """Publishes without waiting; what cannot be delivered is logged."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        self._producer = make_producer(
            settings,
            client_id=client_id,
            traffic=Traffic.CONTROL,
            overrides={"message.timeout.ms": _TOO_OLD_MS},
        )
        self._taken_at_s = -_LATELY_S

    def status(
        self,
        experiment: str,
        run_id: str,
        role: str,
        index: int,
        state: str,
        reason: str = "",
        *,
        pid: int | None = None,
        restarts: int = 0,
        summary: str | None = None,
    ) -> None:
        """Publish the state of a role, or of the experiment as a whole."""
        status = make_status(
            experiment,
            run_id,
            role,
            index,
            state,
            one_line(reason),
            pid=pid,
            restarts=restarts,
            summary=summary,
        )
        self._send(topic_name(STATUS), encode(status), status_key(status))

    def event(
        self,
        experiment: str,
        run_id: str,
        role: str,
        index: int,
        kind: EventKind,
        reason: str,
        severity: Severity = "info",
    ) -> None:
        """Publish something that a person should know of an experiment."""
        why = one_line(reason)
        event = make_event(experiment, run_id, role, index, kind, severity, why)
        self._send(topic_name(EVENTS, experiment), encode(event), f"{role}/{index}")

    def are_taken(self) -> bool:
        """Whether the brokers have taken any lately; any thread may ask."""
        return time.monotonic() - self._taken_at_s < _LATELY_S

    def flush(self, timeout_s: float) -> None:
        """Wait for what is under way, at most ``timeout_s``."""
        self._producer.flush(timeout_s)

    def _send(self, topic: str, value: bytes, key: str) -> None:
        try:
            self._producer.produce(topic, value, key, on_delivery=self._note)
        except BufferError:
            _log.info("%s: too much waits for the brokers; this is dropped", topic)
        except KafkaException as exc:
            _log.warning("%s: %s", topic, exc.args[0].str())
        self._producer.poll(0)

    def _note(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._taken_at_s = time.monotonic()
        else:
            _log.info("%s: not delivered: %s", message.topic(), error.str())
