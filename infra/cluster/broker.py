"""One Apache Kafka node (KRaft: broker and controller) on loopback ports."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from confluent_kafka import KafkaException

from infra.cluster import process
from infra.cluster.service import (
    LOOPBACK,
    Service,
    explain,
    is_listening,
    java_environment,
    java_path,
    last_words,
    read_properties,
    write_properties,
)
from infra.errors import ClusterError
from infra.kafka.clients import make_admin
from infra.settings import Settings

JVM_OPTIONS = (
    "-Xmx512m",
    # Measured on 2 busy cores against the default compiler and collector: ready in
    # 3.6 s instead of 5.9, a third less CPU, and 180 MB/s instead of 128.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
)

_FORMAT_TIMEOUT_S = 120.0
_MIB = 2**20


def broker_service(data_dir: Path) -> Service:
    """Returns where the broker's files are."""
    return Service(
        name="kafka",
        main_class="kafka.Kafka",
        config_file=data_dir / "kafka" / "server.properties",
        log_file=data_dir / "logs" / "kafka.log",
    )


def log_dir(service: Service) -> Path:
    """Returns the folder of the topics' data."""
    return service.config_file.parent / "data"


def write_config(
    service: Service,
    port: int,
    controller_port: int,
    overrides: Mapping[str, str] | None = None,
) -> None:
    """Writes server.properties; `overrides` replace or add to our settings."""
    folder = log_dir(service)
    if "," in str(folder):
        raise ClusterError(
            f"the data directory {folder} has a comma in its path, which Kafka "
            "takes for a list",
            "set ROLLSTREAM_DATA_DIR to another directory",
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_properties(
        service.config_file,
        {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{LOOPBACK}:{controller_port}",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},"
            f"CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(folder),
            **_BEHAVIOUR,
            **(overrides or {}),
        },
    )


_BEHAVIOUR = {
    # Topics come from the map of topics only; a typing error must not make one.
    "auto.create.topics.enable": "false",
    # One node: the defaults of 3 could never be met.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # 50 each by default: half a second more for the first group and every restart.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    # A lone processor need not wait 3 s for others to join.
    "group.initial.rebalance.delay.ms": "0",
    # After kill -9 the controller waits this long before it lets the node back.
    "broker.session.timeout.ms": "2500",
    "broker.heartbeat.interval.ms": "500",
    # The largest topic allows 12 MiB; all our clients allow 16.
    "message.max.bytes": str(16 * _MIB),
    "replica.fetch.max.bytes": str(16 * _MIB),
    # A learner paused for weeks must find its place again.
    "offsets.retention.minutes": str(365 * 24 * 60),
    # At 46 MB/s the defaults (5 min, and 1 min to unlink) are 17 GB late.
    "log.retention.check.interval.ms": "10000",
    "log.segment.delete.delay.ms": "5000",
    # Of the heap; 128 MiB by default, for topics of millions of keys.
    "log.cleaner.dedupe.buffer.size": str(16 * _MIB),
    # A laptop's two to eight cores are shared with workers and learner.
    "num.network.threads": "2",
    "num.io.threads": "4",
}


def configured_ports(service: Service) -> tuple[int, int] | None:
    """Returns (port, controller port) from server.properties."""
    listeners = read_properties(service.config_file).get("listeners", "").split(",")
    ports = [text.rpartition(":")[2] for text in listeners]
    if len(ports) != 2 or not all(port.isdigit() for port in ports):
        return None
    return int(ports[0]), int(ports[1])


def stored_cluster_id(service: Service) -> str | None:
    """Returns the id of the cluster whose data is in the data directory."""
    return read_properties(log_dir(service) / "meta.properties").get("cluster.id")


def new_cluster_id() -> str:
    """Returns a random id in Kafka's own form."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Kafka's tools would take it for an option.
        if not text.startswith("-"):
            return text


def format_storage(service: Service, class_path: Sequence[Path], cluster: str) -> None:
    """Prepares an empty data directory with Kafka's own tool (about 1 s).

    Raises:
        ClusterError: It cannot, or takes too long; holds what it says last.
    """
    tool = replace(service, log_file=service.log_file.with_name("kafka-format.log"))
    tool.log_file.parent.mkdir(parents=True, exist_ok=True)
    tail = ("--config", str(service.config_file))
    code = process.run(
        [
            java_path(),
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-cp",
            ":".join(map(str, class_path)),
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            cluster,
            *tail,
        ],
        tail=tail,
        log_file=tool.log_file,
        environment=java_environment(),
        timeout_s=_FORMAT_TIMEOUT_S,
    )
    if code != 0:
        took = f", over {_FORMAT_TIMEOUT_S:g} s" if code is None else ""
        raise ClusterError(
            f"Kafka cannot format {log_dir(service)}{took}: {last_words(tool, 1)}",
            explain(tool),
        )


def answers(settings: Settings, port: int, cluster_id: str) -> bool:
    """Says whether the broker serves, and every partition has its leader."""
    # Asking a closed port through the client would cost its reconnection delays.
    if not is_listening(port):
        return False
    admin = make_admin(
        settings.model_copy(update={"bootstrap_servers": f"{LOOPBACK}:{port}"})
    )
    try:
        metadata = admin.list_topics(timeout=2.0)
    except KafkaException:
        return False
    if metadata.cluster_id != cluster_id:
        raise ClusterError(
            f"the Kafka on {LOOPBACK}:{port} is of cluster {metadata.cluster_id}, "
            f"expected {cluster_id}",
            "end that process, or set ROLLSTREAM_DATA_DIR to another directory",
        )
    partitions = (p for t in metadata.topics.values() for p in t.partitions.values())
    return bool(metadata.brokers) and all(p.leader >= 0 for p in partitions)
