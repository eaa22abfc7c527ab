"""Events of the trajectories -> batches sent, dead letters, acknowledgements."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any

import faust
from faust.streams import Stream
from faust.types import EventT

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.bad_records import BadRecords
from infra.kafka.dead_letters import REINJECTED, dead_letter
from infra.kafka.delivery import Sender
from infra.kafka.foreign_schemas import learn_schema
from schemas.codec import decode, encode
from schemas.errors import SchemaError, UnknownSchemaId
from schemas.records import Position, SourceRef, StreamEnd, Unroll
from schemas.registry import Registry
from schemas.topics import REPLAY, TRAJECTORIES
from stream_processors.deliveries import Deliveries
from stream_processors.exits import Exits, Leaving
from stream_processors.generation import Generation, Partition
from stream_processors.log_ranges import first_offset
from stream_processors.log_watch import check_partition
from stream_processors.tails import Done, Emit, ReturnOptions
from stream_processors.telemetry import Telemetry

SCHEMA_WAIT_S = 60.0
_SCHEMA_POLL_S = 2.0
_log = logging.getLogger("rollstream.processor")


class Processor:
    """Handles the events of the trajectories one by one.

    Delivery, at least once:

    1. A record is entered into its partition's window, before anything else.
    2. It is decoded and fed to the partition's tails, which say what to send.
    3. Each batch is sent to the partition that its unroll came from; a worker's next
       batch is sent only after that. What is refused for its size, or cannot be
       decoded, becomes a dead letter.
    4. When that is delivered, the record is done.
    5. Records are acknowledged to Faust, which commits them, in the order of offsets.

    At a rebalance all of this is dropped, and read again from the committed offsets.
    """

    def __init__(
        self,
        context: RoleContext,
        sender: Sender,
        deliveries: Deliveries,
        telemetry: Telemetry,
        exits: Exits,
        *,
        schema_wait_s: float = SCHEMA_WAIT_S,
    ) -> None:
        spec = context.spec.processor
        self._context = context
        self._sender = sender
        self._deliveries = deliveries
        self._telemetry = telemetry
        self._exits = exits
        self._schema_wait_s = schema_wait_s
        self._options = ReturnOptions(
            spec.n_step, spec.gamma, spec.reward_scale, spec.priority_epsilon
        )
        self._partitions = context.spec.topics.partitions
        self._source = context.topic(TRAJECTORIES)
        self._replay = context.topic(REPLAY)
        self._registry = Registry()
        self._bad = BadRecords()
        self._generation = self._new_generation()
        self._sends: dict[asyncio.Task[None], float] = {}

    def attach(self, app: faust.App) -> None:
        """Subscribe to the trajectories."""
        raw: dict[str, Any] = {"key_type": bytes, "value_type": bytes}
        raw |= {"key_serializer": "raw", "value_serializer": "raw"}
        topic = app.topic(self._source, internal=False, **raw)
        consume: Any = self.consume
        app.agent(topic, name="processor", concurrency=1)(consume)

    def drop_state(self) -> Generation:
        """Forget everything; return the new, empty state."""
        self._generation.end()
        self._generation = self._new_generation()
        return self._generation

    def note_committed(self, offsets: Mapping[int, int]) -> None:
        """Remember what Faust committed, by partition."""
        for number, offset in offsets.items():
            if number in self._generation.partitions:
                self._generation.partitions[number].committed = offset

    def sending_since(self) -> float | None:
        """Return since when the oldest send is under way, by the monotonic clock."""
        return min(list(self._sends.values()), default=None)

    def num_sending(self) -> int:
        """Return how many batches are under way."""
        return len(self._sends)

    def positions(self) -> tuple[Position, ...]:
        """Return where each partition stands."""
        return self._generation.positions()

    async def drain(self, timeout_s: float) -> None:
        """Wait for the batches under way."""
        if self._sends:
            await asyncio.wait(list(self._sends), timeout=timeout_s)

    def _new_generation(self) -> Generation:
        return Generation(self._options, self._telemetry.counts.tails)

    async def consume(self, stream: Stream[bytes]) -> None:
        """Handle events; an unexpected exception ends the process.

        Faust would start the agent again, go on, and silently never commit beyond the
        record that was at hand.
        """
        async for event in stream.noack().events():
            if self._exits.leaving:
                continue
            try:
                await self._handle(self._generation, event)
            except Leaving:
                continue
            except Exception as exc:
                self._exits.crash(exc)

    async def _handle(self, generation: Generation, event: EventT[bytes]) -> None:
        await generation.ready.wait()
        if generation.dead or self._exits.leaving:
            raise Leaving
        message = event.message
        partition = generation.partition(message.topic, message.partition)
        expected, offset = partition.next_offset, message.offset
        if expected is not None and offset < expected:
            return  # handed out twice; the first one's acknowledgement stands for both
        if expected is not None and offset > expected:
            await self._explain_hole(partition.number, expected, offset)
        partition.window.add(offset, event)
        partition.next_offset = offset + 1
        try:
            check_partition(partition.number, self._partitions)
            record = await self._decode(message.value)
            alone = REINJECTED in dict(message.headers or ())
            actions = partition.tails.feed(offset, record, alone=alone)
        except SchemaError as exc:
            await self._bury(partition, offset, exc)
            self._done(generation, partition, offset)
            if self._bad.bad():
                self._too_many_bad()
            return
        self._bad.good()
        for action in actions:
            if isinstance(action, Done):
                self._done(generation, partition, action.offset)
            else:
                await self._send(generation, partition, action)

    async def _explain_hole(self, partition: int, expected: int, offset: int) -> None:
        """Tell records that expired, or were never committed, from skipped ones."""
        first, skipped = await asyncio.to_thread(
            first_offset,
            self._context.settings,
            self._source,
            partition,
            expected,
            offset,
        )
        if first > expected:
            self.report_expired(partition, first - expected)
            if self._exits.leaving:
                raise Leaving
        if skipped:
            raise RuntimeError(
                f"{self._source}[{partition}]: expected the record at {first}, was "
                f"handed {offset}"
            )

    def report_expired(self, partition: int, count: int) -> None:
        """Tell of records that were deleted unread; leave when the spec says so."""
        self._telemetry.counts.expired_records += count
        self._exits.expired(
            f"{self._source}[{partition}]: {count} records were deleted before they "
            "were processed",
            fail=self._context.spec.learner.on_expired == "fail",
        )

    async def _decode(self, value: bytes | None) -> Unroll | StreamEnd:
        deadline = time.monotonic() + self._schema_wait_s
        while True:
            try:
                return decode(  # type: ignore[return-value]
                    value or b"", Unroll, StreamEnd, registry=self._registry
                )
            except UnknownSchemaId as exc:
                # Good experience, from a newer writer: never a dead letter.
                _log.warning("waiting for a schema: %s", exc)
                await self._wait_for_schema(exc, deadline)

    async def _wait_for_schema(self, exc: UnknownSchemaId, deadline: float) -> None:
        settings = self._context.settings
        while not await asyncio.to_thread(
            learn_schema, settings, self._registry, exc.schema_id
        ):
            if time.monotonic() > deadline:
                self._exits.fail("unknown-schema", str(exc))
            if self._exits.leaving:
                raise Leaving from exc
            await asyncio.sleep(_SCHEMA_POLL_S)

    async def _send(
        self, generation: Generation, partition: Partition, action: Emit
    ) -> None:
        worker, value = action.batch.worker, encode(action.batch)
        if worker in generation.lanes:
            await asyncio.wait([generation.lanes[worker]])
        if generation.dead:
            return
        sent = self._deliver(generation, partition, action, value)
        task = generation.lanes[worker] = asyncio.create_task(sent)
        self._sends[task] = time.monotonic()
        task.add_done_callback(self._sends.pop)

    async def _deliver(
        self,
        generation: Generation,
        partition: Partition,
        action: Emit,
        value: bytes,
    ) -> None:
        batch = action.batch
        try:
            refused = await self._deliveries.send(
                self._replay, batch.worker, value, partition.number
            )
            if refused:
                reason = (
                    f"{self._replay}: a batch of {len(value)} bytes is refused for its "
                    "size; cut the unrolls (workers.unrollLength, envsPerWorker)"
                )
                await self._bury(partition, action.offset, ValueError(reason))
            else:
                self._telemetry.counts.batches += 1
                self._telemetry.counts.env_steps += action.num_valid
                latency_ms = max(0, now_ms() - batch.produced_at_ms)
                self._telemetry.latency.observe(latency_ms / 1e3)
            self._done(generation, partition, action.offset)
        except Leaving:
            return
        except Exception as exc:
            self._exits.crash(exc)

    def _done(self, generation: Generation, partition: Partition, offset: int) -> None:
        if generation.dead:
            return
        event = partition.window.get(offset)
        # Behind a slow stream, thousands of done records wait to be acknowledged.
        event.message.value = event.value = None
        for ready in partition.window.done(offset):
            ready.ack()

    async def _bury(self, partition: Partition, offset: int, error: Exception) -> None:
        """Deliver a dead letter."""
        message = partition.window.get(offset).message
        source = SourceRef(partition.topic, partition.number, offset)
        _log.warning("dead letter: %s: %s", source, error)
        dead_letter(
            self._sender, self._context, source, message.key, message.value, error
        )
        while await asyncio.to_thread(self._sender.flush, 1.0):
            if self._exits.leaving:
                raise Leaving
        self._telemetry.counts.dead_letters += 1

    def _too_many_bad(self) -> None:
        reason = f"{self._source}: {self._bad} cannot be used"
        self._exits.fail("too-many-bad-records", f"{reason}; see the dead letters")
