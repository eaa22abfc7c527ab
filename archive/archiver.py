"""Trajectories -> an archive: ``python -m archive.archiver EXPERIMENT``."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import NoReturn

from confluent_kafka import KafkaException, TopicPartition

from archive.archiving import Archiving, Listener
from archive.following import follow
from archive.parts import use_one_thread
from archive.topic_source import TopicSource
from infra.control.members import register
from infra.control.role import EXIT_OK, RoleContext, StopRequest, role_main
from infra.kafka.clients import Traffic, make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.heartbeat import Heartbeat
from infra.monitoring.reporter import Reporter
from schemas.records import Position
from schemas.topics import TRAJECTORIES

_log = logging.getLogger("rollstream.archive")
_REPORT_S = 1.0
_FLUSH_S = 2.0
LAST_S = 4.0
"""What is still to be archived when it is told to stop may take so long."""


class Archiver:
    """Archives the trajectories of a run, and says how far it is."""

    def __init__(self, context: RoleContext, stop: StopRequest) -> None:
        self._context = context
        self._stop = stop
        self._stopped_at_s: float | None = None
        self._sender = Sender(
            make_producer(
                context.settings, client_id=context.client_id, traffic=Traffic.CONTROL
            )
        )
        # Of a group, and yet of none: it only ever commits.
        self._offsets = make_consumer(
            context.settings,
            group=context.group(),
            client_id=context.client_id,
            traffic=Traffic.CONTROL,
        )
        self._topic = context.topic(TRAJECTORIES)
        self._heartbeat = Heartbeat()
        self._reported_at_s = 0.0

    def run(self) -> int:
        """Work until told to stop; return the exit code."""
        context = self._context
        incarnation = register(self._sender, context, self._stop)
        self._reporter = Reporter(self._sender, context, incarnation)
        self._heartbeat.begin(self._reporter)
        path = context.settings.archives / context.experiment.name / context.run_id
        self._archiving = Archiving(
            lambda: TopicSource(context.settings, context.experiment.name),
            path,
            Listener(self._must_stop, self._on_part, self._on_gap, self._on_record),
        )
        try:
            follow(self._archiving, self._stop.wait, self._report)
            # What came before the workers were told: nobody would archive it.
            self._archiving.run()
            self._report(self._archiving.behind())
        finally:
            self._heartbeat.end()
            self._archiving.close()
            self._offsets.close()
            self._sender.flush(_FLUSH_S)
        return EXIT_OK

    def _must_stop(self) -> bool:
        """Whether to stop now: asked to, it goes on for a while, to come to the end."""
        if not self._stop.is_set():
            return False
        if self._stopped_at_s is None:
            self._stopped_at_s = time.monotonic()
        return time.monotonic() - self._stopped_at_s >= LAST_S

    def _on_part(self, partition: int, next_: int) -> None:
        # For who watches lag: where we go on is in the manifest.
        try:
            where = TopicPartition(self._topic, partition, next_)
            self._offsets.commit(offsets=[where], asynchronous=True)
        except KafkaException as exc:
            _log.info("offsets of %s are not committed: %s", self._topic, exc)

    def _on_gap(self, reason: str) -> None:
        self._reporter.event("archive-gap", "alert", reason)

    def _on_record(self) -> None:
        if time.monotonic() - self._reported_at_s >= _REPORT_S:
            self._report(None)

    def _report(self, behind: Mapping[int, int] | None) -> None:
        self._reported_at_s = time.monotonic()
        counts = self._archiving.counts
        values: dict[str, float] = {
            "records": counts.records + counts.reading,
            "env_steps": counts.env_steps,
            "bytes": counts.bytes,
            "repeats": counts.repeats,
            "gap_records": counts.gap_records,
        }
        if behind is not None:
            values["behind_records"] = sum(behind.values())
        self._reporter.metrics(values, self._positions(behind or {}))

    def _positions(self, behind: Mapping[int, int]) -> tuple[Position, ...]:
        """Say that what waits to become a part of some size is held on purpose."""
        return tuple(
            Position(
                topic=self._topic,
                partition=partition,
                position=next_ + behind.get(partition, 0),
                committed=next_,
                held=behind.get(partition, 0),
            )
            for partition, next_ in self._archiving.positions().items()
        )


def run(context: RoleContext, stop: StopRequest) -> int:
    """Run an archiver until told to stop; return its exit code."""
    use_one_thread()
    return Archiver(context, stop).run()


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the process; ``argv``: its arguments, those of the command line when None."""
    role_main("archiver", run, argv)


if __name__ == "__main__":
    main()
