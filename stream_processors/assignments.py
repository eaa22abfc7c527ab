"""What Faust tells of rebalances and commits -> the processor."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from faust.sensors.monitor import Monitor, TPOffsetMapping
from faust.types import TP, AppT, ConsumerT

from infra.control.role import RoleContext
from schemas.topics import TRAJECTORIES
from stream_processors.agents import Processor
from stream_processors.exits import Exits
from stream_processors.generation import Generation
from stream_processors.health import LogRange
from stream_processors.log_ranges import read_ranges
from stream_processors.transport import App


class Assignments:
    """Follows rebalances: no state survives one, and no expired record is passed over.

    Faust jumps to the log's start when the committed offset is no longer there, and
    says nothing: so the two are compared before anything is read.
    """

    def __init__(
        self, context: RoleContext, processor: Processor, exits: Exits
    ) -> None:
        self._context = context
        self._processor = processor
        self._exits = exits
        self._source = context.topic(TRAJECTORIES)

    def attach(self, app: App) -> None:
        """Listen to the app's rebalances."""
        self._damaged = app.damaged
        revoked: Any = self._on_revoked
        assigned: Any = self._on_assigned
        app.on_partitions_revoked.connect(revoked)
        app.on_partitions_assigned.connect(assigned)

    async def _on_revoked(self, app: AppT, revoked: set[TP], **_: Any) -> None:
        self._processor.drop_state()

    async def _on_assigned(self, app: AppT, assigned: set[TP], **_: Any) -> None:
        # Faust resumes reading without waiting for this: forget at once, look after.
        generation = self._processor.drop_state()
        self._damaged.clear()
        partitions = [tp.partition for tp in assigned if tp.topic == self._source]
        self._looking = asyncio.create_task(self._look(generation, partitions))

    async def _look(self, generation: Generation, partitions: list[int]) -> None:
        try:
            ranges = await asyncio.to_thread(
                read_ranges,
                self._context.settings,
                self._context.group(),
                self._source,
                partitions,
            )
            for each in ranges:
                self._judge(each)
        except Exception as exc:
            self._exits.crash(exc)
        generation.begin(self._source, ranges)

    def _judge(self, found: LogRange) -> None:
        if found.is_another_log:
            self._exits.fail(
                "another-log",
                f"{self._source}[{found.partition}]: committed is {found.committed}, "
                f"the log ends at {found.end}: the topic was made anew. Delete the "
                f"group {self._context.group()} to read it from the start",
            )
        elif found.expired:
            self._processor.report_expired(found.partition, found.expired)


class Commits(Monitor):
    """Faust's sensor for what it commits, and for how long that takes."""

    def __init__(self, processor: Processor) -> None:
        super().__init__()
        self._processor = processor
        self.committing_since: float | None = None

    def on_commit_initiated(self, consumer: ConsumerT) -> Any:
        """Remember when."""
        self.committing_since = time.monotonic()
        return super().on_commit_initiated(consumer)

    def on_commit_completed(self, consumer: ConsumerT, state: Any) -> None:
        """Forget when."""
        self.committing_since = None
        super().on_commit_completed(consumer, state)

    def on_tp_commit(self, tp_offsets: TPOffsetMapping) -> None:
        """Pass on what is committed."""
        super().on_tp_commit(tp_offsets)
        self._processor.note_committed(
            {tp.partition: offset for tp, offset in tp_offsets.items()}
        )
