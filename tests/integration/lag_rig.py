"""A topic, somebody who reads it, and what independent clients say of both."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from infra.cluster.jars import ensure_jars
from infra.cluster.service import java_environment, java_path
from infra.kafka.clients import consumer_config, make_consumer, make_producer
from infra.monitoring.lag.model import GroupLag, LagReport, PartitionLag
from infra.monitoring.lag.monitor import LagMonitor
from infra.settings import Settings
from tests.integration.foreign_groups import commit_with

PATIENCE_S = 60.0


def wait_until(ready: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := ready()):
        assert time.monotonic() < deadline, f"not within {PATIENCE_S:g} s: {what}"
        time.sleep(0.02)
    return found


def next_report(monitor: LagMonitor) -> LagReport:
    """One whose look has begun after now, and reached all that there is.

    Of what is not reached in time a report repeats what was seen before.
    """
    now_s, deadline_s = time.time(), time.monotonic() + PATIENCE_S
    report = monitor.report
    while report.at_s - report.took_s < now_s or _is_old(report):
        assert time.monotonic() < deadline_s, f"no look: {report}"
        report = monitor.wait_for_newer(report.at_s, 1.0)
    return report


def _is_old(report: LagReport) -> bool:
    problems = filter(None, (report.problem, *(g.problem for g in report.groups)))
    return any("there is no such topic" not in each for each in problems)


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
        commit_with(self._asks, [where])

    def wait_for_end(self, end: int, partition: int = 0) -> None:
        """A transaction's mark comes a moment after the news that it will."""
        wait_until(lambda: self.truth(partition).end == end, f"the log ends at {end}")

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
        # Who is not heard for as long as a busy machine may stand still is no less a
        # member.
        config |= {"session.timeout.ms": 60_000, "auto.offset.reset": "earliest"}
        config |= self._config
        # What is None is left to the client, or the broker.
        member = Consumer({k: v for k, v in config.items() if v is not None})
        self._members.append(member)
        member.subscribe([self.topic])
        return member

    def join_alone(self) -> Consumer:
        """The first member, once it has partitions; it has read nothing of them yet."""
        member = self.join()
        wait_until(lambda: self._is_in(member), "a member")
        return member

    def _is_in(self, member: Consumer) -> bool:
        if member.assignment():
            return True
        found = member.poll(0.1)
        if found is not None and not found.error():
            # It came with the partition: it is read again.
            where = TopicPartition(self.topic, found.partition(), found.offset())
            member.seek(where)
        return False

    def leave(self, member: Consumer) -> None:
        self._members.remove(member)
        member.close()

    def commits(self, offset: int, partition: int = 0) -> bool:
        """Whether an offset can be committed, and was; of a topic that is just made."""
        try:
            self.commit(offset, partition)
            return self.truth(partition).committed == offset
        except KafkaException:
            return False

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


def tool_command(settings: Settings, tool: str, *arguments: str) -> list[str]:
    """How one of Kafka's own command-line tools is run."""
    jars = ensure_jars(settings.cache_dir, lambda _: None)
    return [
        java_path(), "-Xmx128m", "-XX:TieredStopAtLevel=1",
        "-cp", ":".join(map(str, jars)), tool,
        "--bootstrap-server", str(settings.bootstrap_servers), *arguments,
    ]  # fmt: skip


def kafka_tool(settings: Settings, tool: str, *arguments: str) -> str:
    """Run one of them; return what it printed."""
    return subprocess.run(
        tool_command(settings, tool, *arguments),
        env=java_environment(), capture_output=True, text=True, timeout=120,
    ).stdout  # fmt: skip


@contextmanager
def running_tool(settings: Settings, tool: str, *arguments: str) -> Iterator[None]:
    """Let one run that does not end by itself."""
    process = subprocess.Popen(
        tool_command(settings, tool, *arguments),
        env=java_environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        yield
    finally:
        process.kill()
        process.wait()


def described_by_kafka(settings: Settings, group: str) -> dict[tuple[str, int], Any]:
    """What `kafka-consumer-groups --describe` prints, by topic and partition."""
    out = kafka_tool(
        settings,
        "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
        # By default it waits for 5 s.
        *("--describe", "--group", group, "--timeout", "60000"),
    )
    lines = [line.split() for line in out.splitlines() if line.strip()]
    header = next(line for line in lines if "LAG" in line)
    rows = [
        dict(zip(header, line, strict=False)) for line in lines if group in line[:1]
    ]
    return {(row["TOPIC"], int(row["PARTITION"])): row for row in rows}
