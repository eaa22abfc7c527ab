"""A topic, somebody who reads it, and what independent clients say of both."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from infra.cluster.jars import ensure_jars
from infra.cluster.service import java_environment, java_path
from infra.kafka.clients import consumer_config, make_consumer, make_producer
from infra.monitoring.lag.model import GroupLag, LagReport, PartitionLag
from infra.monitoring.lag.monitor import LagMonitor
from infra.settings import Settings

PATIENCE_S = 60.0


def wait_until(ready: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := ready()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return found


def next_report(monitor: LagMonitor) -> LagReport:
    """One whose look has begun after now."""
    now_s = time.time()
    report = monitor.report
    while report.at_s - report.took_s < now_s:
        before = report
        report = monitor.wait_for_newer(report.at_s, PATIENCE_S)
        assert report.at_s > before.at_s, f"no look: {report.problem}"
    return report


@dataclass(frozen=True)
class Truth:
    """What another client says of a partition."""

    committed: int
    begin: int
    end: int


class Reader:
    """A group of somebody else: no role of ours."""

    def __init__(self, settings: Settings, group: str, topic: str, **config: Any):
        self.group, self.topic = group, topic
        self._settings = settings
        self._config = config
        self._asks = make_consumer(settings, group=group, client_id="truth")
        self.producer = make_producer(settings, client_id="writer")
        self._members: list[Consumer] = []

    def write(self, records: int, partition: int = 0) -> None:
        for number in range(records):
            self.producer.produce(self.topic, b"v" * 50, str(number), partition)
        assert self.producer.flush(PATIENCE_S) == 0

    def commit(self, offset: int, partition: int = 0) -> None:
        where = TopicPartition(self.topic, partition, offset)
        self._asks.commit(offsets=[where], asynchronous=False)

    def truth(self, partition: int = 0) -> Truth:
        where = TopicPartition(self.topic, partition)
        (found,) = self._asks.committed([where], timeout=PATIENCE_S)
        begin, end = self._asks.get_watermark_offsets(where, timeout=PATIENCE_S)
        return Truth(found.offset, begin, end)

    def join(self) -> Consumer:
        """A member more."""
        config = consumer_config(
            self._settings, f"member-{len(self._members)}", self.group
        )
        config |= {"auto.offset.reset": "earliest", **self._config}
        # What is None is left to the client, or the broker.
        member = Consumer({k: v for k, v in config.items() if v is not None})
        self._members.append(member)
        member.subscribe([self.topic])
        return member

    def leave(self, member: Consumer) -> None:
        self._members.remove(member)
        member.close()

    def pump(self, *members: Consumer, commit: bool = True) -> int:
        """Let members read what is there, and commit it; return how much it was."""
        count = 0
        for member in members or self._members:
            found = [m for m in member.consume(100, 0.05) if not m.error()]
            count += len(found)
            if found and commit:
                newest = {m.partition(): m.offset() + 1 for m in found}
                member.commit(
                    offsets=[
                        TopicPartition(self.topic, p, at) for p, at in newest.items()
                    ],
                    asynchronous=True,
                )
        return count

    def close(self) -> None:
        for each in [*self._members, self._asks]:
            each.close()


def of_group(report: LagReport, group: str) -> GroupLag:
    found = report.group(group)
    assert found is not None, f"{group} is not in the report: {report.problem}"
    return found


def of_partition(report: LagReport, reader: Reader, partition: int = 0) -> PartitionLag:
    (found,) = (
        each
        for each in of_group(report, reader.group).partitions
        if (each.place.topic, each.place.partition) == (reader.topic, partition)
    )
    return found


def kafka_tool(settings: Settings, tool: str, *arguments: str) -> str:
    """Run one of Kafka's own command-line tools."""
    jars = ensure_jars(settings.cache_dir, lambda _: None)
    command = [
        java_path(), "-Xmx128m", "-XX:TieredStopAtLevel=1",
        "-cp", ":".join(map(str, jars)), tool,
        "--bootstrap-server", str(settings.bootstrap_servers), *arguments,
    ]  # fmt: skip
    return subprocess.run(
        command, env=java_environment(), capture_output=True, text=True, timeout=120
    ).stdout


def described_by_kafka(settings: Settings, group: str) -> dict[tuple[str, int], Any]:
    """What `kafka-consumer-groups --describe` prints, by topic and partition."""
    out = kafka_tool(
        settings,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        *("--describe", "--group", group),
    )
    lines = [line.split() for line in out.splitlines() if line.strip()]
    header = next(line for line in lines if "LAG" in line)
    rows = [
        dict(zip(header, line, strict=False)) for line in lines if group in line[:1]
    ]
    return {(row["TOPIC"], int(row["PARTITION"])): row for row in rows}
