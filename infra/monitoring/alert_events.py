"""Alerts -> the experiment's events, its metrics, the log and the webhook."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

from infra.clock import now_ms
from infra.control.desired import PublishedExperiment, one_line
from infra.errors import DeliveryError, RollstreamError, TopicError
from infra.kafka.clients import Traffic, make_admin, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.identity import find_topic
from infra.monitoring.alert_states import Alert, Edge, alerts_of
from infra.monitoring.alerts_on import AlertsOn
from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.event_log import EventLog
from infra.monitoring.experiment_events import log_event, make_event
from infra.monitoring.lag_history import ROLE
from infra.monitoring.webhook import Payload, Webhook
from infra.settings import Settings
from schemas.codec import encode
from schemas.records import MetricsPoint
from schemas.topics import EVENTS, METRICS, topic_name

# What is not in the log by then is told of again, of that time.
_TAKEN_WITHIN_MS = 5_000
_LAST_POST_S = 2.0
_log = logging.getLogger("rollstream.alerts")


def read_alerts(
    settings: Settings, experiment: str, run_id: str, now: int
) -> list[Alert]:
    """Return the alerts of a run that are on by its events.

    Raises:
        TopicError: the experiment has no such topic; said at once, for whoever reads
            those of many has no time to wait for one that was never made.
        RollstreamError: they cannot be read.
    """
    _check_that_they_exist(settings, topic_name(EVENTS, experiment))
    fold = AlertsOn(run_id)
    for logged in EventLog(settings, experiment).read():
        fold.add(logged.event, logged.at_ms)
    return alerts_of(fold.on(now / 1000), now)


def _check_that_they_exist(settings: Settings, topic: str) -> None:
    if find_topic(make_admin(settings, "alerts"), topic) is None:
        raise TopicError(f"there is no topic {topic}")


class AlertSender:
    """Tells of alerts, first in the log: what is there was told."""

    def __init__(self, settings: Settings, epoch: int) -> None:
        """Connect to nothing yet; ``epoch``: of the leader, or 0."""
        self._settings = settings
        self._epoch = epoch
        self._sender: Sender | None = None
        url = settings.alert_webhook
        self._webhook = Webhook(url) if url else None
        self._lacks_webhook: set[str] = set()

    def tell(self, published: PublishedExperiment, edge: Edge) -> int:
        """Tell that an alert goes on or off; return when.

        Numbered as it is done:
            1. The event is in the log, or nothing else is done.
            2. Then it is logged here, and posted to the webhook, if the spec says so.

        Raises:
            DeliveryError: the brokers have not taken it.
        """
        name, role = published.experiment.name, edge.key.role
        kind: EventKind = "alert-on" if edge.is_on else "alert-off"
        severity: Severity = "alert" if edge.is_on else "info"
        text = one_line(edge.text)
        event = make_event(name, published.run_id, role, 0, kind, severity, text)
        # 1.
        self._deliver(topic_name(EVENTS, name), encode(event), f"{role}/0")
        # 2.
        log_event(f"{name} {role} {kind}", severity, text)
        if published.experiment.spec.alerts.webhook:
            self._post(name, payload(published, edge, event.produced_at_ms))
        return event.produced_at_ms

    def publish(self, published: PublishedExperiment, values: dict[str, float]) -> None:
        """Publish figures of the experiment as metrics; they may get lost."""
        name = published.experiment.name
        point = MetricsPoint(
            experiment=name,
            run_id=published.run_id,
            role=ROLE,
            index=0,
            incarnation=self._epoch,
            produced_at_ms=now_ms(),
            values=values,
        )
        topic, sender = topic_name(METRICS, name), self._connected()
        try:
            is_queued = sender.try_send(topic, encode(point), f"{ROLE}/0")
            # Serves the reports: unserved ones fill the queue, and nothing more is
            # taken from then on.
            sender.poll()
        except DeliveryError:
            is_queued = False
        if not is_queued:
            self._let_go()

    def close(self) -> None:
        """Leave the brokers; what waits for the webhook is tried once more."""
        self._let_go()
        if self._webhook is not None:
            self._webhook.close(_LAST_POST_S)

    def _deliver(self, topic: str, value: bytes, key: str) -> None:
        try:
            timeout_s = 2 * _TAKEN_WITHIN_MS / 1000
            self._connected().send_and_wait(topic, value, key, timeout_s=timeout_s)
        except RollstreamError:
            self._let_go()
            raise

    def _let_go(self) -> None:
        """Leave a sender that would refuse everything from now on.

        What it still has must not be delivered later: it is tried again by another.
        """
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.abandon()

    def _connected(self) -> Sender:
        if self._sender is None:
            producer = make_producer(
                self._settings,
                client_id="alerts",
                traffic=Traffic.CONTROL,
                overrides={"message.timeout.ms": _TAKEN_WITHIN_MS},
            )
            self._sender = Sender(producer)
        return self._sender

    def _post(self, name: str, found: Payload) -> None:
        if self._webhook is not None:
            self._webhook.post(found)
        elif name not in self._lacks_webhook:
            self._lacks_webhook.add(name)
            _log.warning(
                "%s: spec.alerts.webhook: expected ROLLSTREAM_ALERT_WEBHOOK on this "
                "machine, found none: alerts are not posted",
                name,
            )


def payload(published: PublishedExperiment, edge: Edge, at_ms: int) -> Payload:
    """Return what is posted of an alert; ``text`` is what chat services show."""
    name, state = published.experiment.name, "on" if edge.is_on else "off"
    reason = one_line(edge.reason)
    since_ms = at_ms if edge.since_ms is None else edge.since_ms
    return {
        "text": f"rollstream {name}: {edge.key.role}: {edge.key.name} is {state}: "
        + reason,
        "experiment": name,
        "run_id": published.run_id,
        "alert": edge.key.name,
        "state": state,
        "role": edge.key.role,
        "reason": reason,
        "since": _time(since_ms),
        "at": _time(at_ms),
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
