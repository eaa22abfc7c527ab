"""The configured brokers and ZooKeeper: do they answer?"""

from __future__ import annotations

import socket

from confluent_kafka import KafkaException

from infra.errors import ClusterError, KafkaUnavailable
from infra.kafka.clients import make_admin
from infra.settings import Settings

# Brokers that have other work for all their cores are silent for many seconds.
_TIMEOUT_S = 30.0
_CONNECT_TIMEOUT_S = 3.0


def check_brokers(settings: Settings) -> str | None:
    """Returns the cluster id of the configured brokers; None if none are.

    Raises:
        KafkaUnavailable: They do not answer.
    """
    if settings.bootstrap_servers is None:
        return None
    try:
        metadata = make_admin(settings).list_topics(timeout=_TIMEOUT_S)
    except KafkaException as exc:
        raise KafkaUnavailable(
            f"KAFKA_BOOTSTRAP_SERVERS: no broker answers at "
            f"{settings.bootstrap_servers} within {_TIMEOUT_S:g} s: "
            f"{exc.args[0].str()}",
            "check the address and the security variables, or unset it: a local "
            "broker is started then",
        ) from exc
    return str(metadata.cluster_id)


def check_zookeeper(settings: Settings) -> None:
    """Tries to connect to the configured ZooKeeper.

    Raises:
        ClusterError: None of its servers accepts a connection.
    """
    if settings.zookeeper is None:
        return
    hosts = settings.zookeeper.partition("/")[0].split(",")
    if not any(map(_accepts, hosts)):
        raise ClusterError(
            f"ROLLSTREAM_ZOOKEEPER: nothing listens at {settings.zookeeper}",
            "check the address, or unset it: a local one is started then",
        )


def _accepts(host_port: str) -> bool:
    host, _, port = host_port.rpartition(":")
    address = (host.strip("[]"), int(port))
    try:
        socket.create_connection(address, _CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
