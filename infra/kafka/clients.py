"""Settings -> Kafka clients. The only place where they are made.

Every setting that is not the client's default has its reason beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient

from infra.errors import SettingsError
from infra.settings import Settings

MAX_MESSAGE_BYTES = 16 * 2**20
"""What every client allows; topics allow less (`max.message.bytes`)."""

_logger = logging.getLogger("rollstream.kafka")


class Traffic(Enum):
    """What a client carries, which decides its buffers."""

    BULK = "bulk"
    """Trajectories and replay: records of megabytes, throughput first."""

    CONTROL = "control"
    """Credits, specs, status, policies: small and rare, latency first."""


def _require_brokers(settings: Settings) -> str:
    if settings.bootstrap_servers is None:
        raise SettingsError(
            "KAFKA_BOOTSTRAP_SERVERS: expected host:port of the brokers, found nothing",
            "`rollstream up` starts a local cluster and prints it",
        )
    return settings.bootstrap_servers


_SERIOUS = (
    KafkaError._AUTHENTICATION,
    KafkaError._SSL,
    KafkaError._RESOLVE,
    KafkaError.SASL_AUTHENTICATION_FAILED,
)


def _log_error(error: KafkaError) -> None:
    # A lost connection is tried again for ever; a wrong password as well, but that
    # never helps, and nothing else would tell.
    serious = error.fatal() or error.code() in _SERIOUS
    _logger.log(logging.ERROR if serious else logging.INFO, "%s", error.str())


def common_config(settings: Settings, client_id: str) -> dict[str, Any]:
    """Returns what all clients share: brokers, security, reconnection."""
    config: dict[str, Any] = {
        "bootstrap.servers": _require_brokers(settings),
        # Names the client in the broker's logs and quotas.
        "client.id": client_id,
        # 100 ms doubling to 10 s by default: a broker that is back after 5 s would
        # be found only after 12.
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1000,
        # A new topic or leader is seen soon; the default is 5 minutes.
        "topic.metadata.refresh.interval.ms": 30_000,
        # How long a missing topic may be a new one. (Default 30 s.)
        "topic.metadata.propagation.max.ms": 10_000,
        # Topics come from the map of topics only.
        "allow.auto.create.topics": False,
        "error_cb": _log_error,
        "logger": _logger,
        # Else a line per second and client while a broker is away; what matters
        # comes through error_cb.
        "log_level": 2,
    }
    config.update(_security_config(settings))
    return config


def _security_config(settings: Settings) -> dict[str, Any]:
    config: dict[str, Any] = {"security.protocol": settings.security_protocol}
    if settings.sasl_mechanism is not None:
        config["sasl.mechanisms"] = settings.sasl_mechanism
        config["sasl.username"] = settings.sasl_username
        config["sasl.password"] = _password(settings)
    if settings.ca_file is not None:
        config["ssl.ca.location"] = str(settings.ca_file)
    return config


def _password(settings: Settings) -> str:
    return settings.sasl_password.get_secret_value() if settings.sasl_password else ""


def producer_config(
    settings: Settings, client_id: str, traffic: Traffic = Traffic.BULK
) -> dict[str, Any]:
    """Returns the configuration of a producer."""
    bulk = traffic is Traffic.BULK
    return {
        **common_config(settings, client_id),
        # Experience acknowledged by one replica only can be lost with it.
        "acks": "all",
        # Retries neither double nor reorder. Only with one request under way is that
        # so beyond an outage of a partition's replicas: see the worker.
        "enable.idempotence": True,
        # Never give a record up: with the default of 5 minutes a frozen broker made
        # the client drop records and deliver later ones.
        "message.timeout.ms": 0,
        # The same partition for a key as Java's clients choose.
        "partitioner": "murmur2_random",
        # Bulk records fill a batch alone; a small one must not wait for company.
        "linger.ms": 5 if bulk else 0,
        "batch.size": 1_000_000,
        "message.max.bytes": MAX_MESSAGE_BYTES,
        # Bounded: when the broker is away, who sends has to wait. (Default 1 GB.)
        "queue.buffering.max.kbytes": 65_536 if bulk else 32_768,
    }


def consumer_config(
    settings: Settings,
    client_id: str,
    group: str | None,
    traffic: Traffic = Traffic.BULK,
) -> dict[str, Any]:
    """Returns the configuration of a consumer."""
    bulk = traffic is Traffic.BULK
    return {
        **common_config(settings, client_id),
        # The client insists on a name even where no offset is ever committed.
        "group.id": group or f"rollstream.none.{client_id}",
        # Offsets are committed by who knows what is durable.
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "isolation.level": "read_committed",
        # A byte that rotted on the broker's disk is an error, never a value.
        "check.crcs": True,
        # An expired offset is an event to report, never a silent jump.
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": MAX_MESSAGE_BYTES,
        "fetch.max.bytes": 2 * MAX_MESSAGE_BYTES,
        "receive.message.max.bytes": 3 * MAX_MESSAGE_BYTES,
        # Prefetched per consumer; the default is 64 MB and counts before unpacking.
        "queued.max.messages.kbytes": 32_768 if bulk else 16_384,
        # With the small queue above, the default of 1 s is a pause after each fill.
        "fetch.queue.backoff.ms": 10,
        # How long the broker holds an empty fetch; records are sent at once anyway,
        # but a seek or a new partition waits for it. (Default 500.)
        "fetch.wait.max.ms": 20 if bulk else 100,
        # A killed member blocks its partitions this long.
        "session.timeout.ms": 6_000,
        "heartbeat.interval.ms": 1_000,
    }


def make_producer(
    settings: Settings,
    *,
    client_id: str,
    traffic: Traffic = Traffic.BULK,
    overrides: Mapping[str, Any] | None = None,
) -> Producer:
    """Makes an idempotent producer that never gives a record up."""
    config = producer_config(settings, client_id, traffic)
    return Producer({**config, **(overrides or {})})


def make_consumer(
    settings: Settings,
    *,
    group: str | None,
    client_id: str,
    traffic: Traffic = Traffic.BULK,
    overrides: Mapping[str, Any] | None = None,
) -> Consumer:
    """Makes a consumer; with `group=None` it only ever assigns, and never commits."""
    config = consumer_config(settings, client_id, group, traffic)
    return Consumer({**config, **(overrides or {})})


def make_admin(settings: Settings, client_id: str = "rollstream-admin") -> AdminClient:
    """Makes a client for topics, groups and offsets."""
    config = common_config(settings, client_id)
    # To all brokers at once, each with its back-off. By default it connects when a
    # request asks for a broker; one that waits for a killed broker then asks again at
    # each failure, with no back-off at all: a core for each client, while the others
    # are electing.
    config["enable.sparse.connections"] = False
    return AdminClient(config)


def faust_broker_settings(
    settings: Settings, make_ssl_context: Callable[..., Any] | None = None
) -> dict[str, Any]:
    """Returns brokers and security as aiokafka, which Faust uses, names them."""
    import ssl

    result: dict[str, Any] = {
        "bootstrap_servers": _require_brokers(settings).split(","),
        "security_protocol": settings.security_protocol,
    }
    if settings.security_protocol.endswith("SSL"):
        make = make_ssl_context or ssl.create_default_context
        cafile = str(settings.ca_file) if settings.ca_file else None
        result["ssl_context"] = make(cafile=cafile)
    if settings.sasl_mechanism is not None:
        result["sasl_mechanism"] = settings.sasl_mechanism
        result["sasl_plain_username"] = settings.sasl_username
        result["sasl_plain_password"] = _password(settings)
    return result
