"""Three Kafka nodes on one host: replication 3, and two must have a record."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaException

from infra.cluster import broker, process
from infra.cluster.jars import ensure_jars
from infra.cluster.local import LocalCluster
from infra.cluster.service import (
    LOOPBACK,
    Service,
    choose_port,
    is_listening,
    launch,
    wait_until,
)
from infra.kafka.clients import make_admin
from infra.settings import Settings

_START_S = 120.0
_STOP_S = 30.0


@dataclass
class Node:
    """One of them: broker and controller."""

    service: Service
    port: int
    controller_port: int
    pid: int | None = None


@dataclass
class ThreeBrokers:
    """Nodes 0, 1, 2; one of them may be away and everything goes on."""

    own: Settings
    zookeeper: str | None = None
    nodes: list[Node] = field(default_factory=list)
    cluster_id: str = field(default_factory=broker.new_cluster_id)

    @property
    def settings(self) -> Settings:
        """Where they answer."""
        hosts = ",".join(f"{LOOPBACK}:{node.port}" for node in self.nodes)
        return self.own.model_copy(
            update={"bootstrap_servers": hosts, "zookeeper": self.zookeeper}
        )

    def start(self) -> None:
        """Starts all, and waits until each partition has its three replicas."""
        self._class_path = ensure_jars(self.own.cache_dir, print)
        taken: list[int] = []
        for index in range(3):
            taken += [choose_port(taken)]
            taken += [choose_port(taken)]
            folder = self.own.data_dir / f"node-{index}"
            self.nodes.append(Node(broker.broker_service(folder), *taken[-2:]))
        for index, node in enumerate(self.nodes):
            broker.write_config(
                node.service, node.port, node.controller_port, self._overrides(index)
            )
            broker.format_storage(node.service, self._class_path, self.cluster_id)
        for index in range(3):
            self.launch(index)
        for index in range(3):
            self.wait_until_whole(index)

    def launch(self, index: int) -> None:
        """Starts a node that is down; returns at once."""
        node = self.nodes[index]
        node.pid = launch(node.service, self._class_path, _JVM_OPTIONS)

    def kill(self, index: int) -> None:
        """Ends a node with SIGKILL."""
        node = self.nodes[index]
        assert node.pid is not None
        process.kill(node.pid, node.service.tail)

    def stop(self, index: int) -> bool:
        """Ends a node with SIGTERM; returns whether that was enough."""
        node = self.nodes[index]
        return process.stop(node.pid, node.service.tail, _STOP_S)

    def wait_until_whole(self, index: int) -> None:
        """Waits until every replica of every partition is in sync.

        Args:
            index: which node is asked. One that was down has to be the one: for some
                seconds after a kill, the others do not know yet that anybody is gone.
        """
        node = self.nodes[index]
        assert node.pid is not None
        wait_until(node.service, node.pid, lambda: self._is_whole(node), _START_S)

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Returns the index of the node that leads a partition."""
        found = make_admin(self.settings).list_topics(topic, timeout=10.0)
        return int(found.topics[topic].partitions[partition].leader) - 1

    def close(self) -> None:
        """Kills all: nothing of them is looked at any more."""
        for node in self.nodes:
            if node.pid is not None and process.is_ours(node.pid, node.service.tail):
                os.kill(node.pid, signal.SIGCONT)
                process.kill(node.pid, node.service.tail)

    def _is_whole(self, node: Node) -> bool:
        if not is_listening(node.port):
            return False
        host = {"bootstrap_servers": f"{LOOPBACK}:{node.port}"}
        admin = make_admin(self.settings.model_copy(update=host))
        try:
            found = admin.list_topics(timeout=5.0)
        except KafkaException:
            return False
        partitions = [p for t in found.topics.values() for p in t.partitions.values()]
        return len(found.brokers) == 3 and all(len(p.isrs) == 3 for p in partitions)

    def _overrides(self, index: int) -> dict[str, str]:
        voters = (
            f"{position + 1}@{LOOPBACK}:{node.controller_port}"
            for position, node in enumerate(self.nodes)
        )
        return {
            "node.id": str(index + 1),
            "controller.quorum.voters": ",".join(voters),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            # A killed leader is replaced after this; where it was the controller, after
            # an election (2 s and a vote) and this. With 3 s, three JVMs that share two
            # busy cores had live nodes fenced.
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            # 30 s by default: for so long a slow follower holds acks=all up.
            "replica.lag.time.max.ms": "6000",
        }


_JVM_OPTIONS: Sequence[str] = (
    *(option for option in broker.JVM_OPTIONS if not option.startswith("-Xmx")),
    "-Xmx384m",
)


@contextmanager
def three_brokers(own: Settings) -> Iterator[ThreeBrokers]:
    """Three brokers, and a ZooKeeper, in a data directory of their own."""
    brokers = ThreeBrokers(own)
    try:
        brokers.start()
        with LocalCluster(brokers.settings) as keeper:
            brokers.zookeeper = keeper.start().zookeeper
            yield brokers
    finally:
        brokers.close()
