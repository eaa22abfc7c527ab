"""What Faust has no setting for: how it fetches, queues, and finds what to commit."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import faust
from aiokafka.errors import CorruptRecordException
from aiokafka.structs import TopicPartition
from faust.app.base import BootStrategy
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode import Service
from mode.utils.futures import maybe_async
from mode.utils.queues import ThrowableQueue

# An answer waits this long for a first record, and while it waits nothing else is asked
# of that broker: with Faust's 1500 ms, idle partitions hold busy ones up.
FETCH_MAX_WAIT_MS = 50
FETCH_MAX_BYTES = 32 << 20
_UNPLACED_S = 0.02


class _ConsumerInLoop(driver.AIOKafkaConsumerThread):
    """Faust's consumer, in the event loop of the app and not in a thread of its own.

    A thread more would hand the interpreter's lock to and fro with the loop some 60
    times a record, and gain nothing: what takes time runs outside of the loop anyway.
    """

    wait_for_shutdown = False  # nobody but ourselves to wait for

    def __init__(self, consumer: Consumer, **options: Any) -> None:
        super().__init__(consumer, thread_loop=consumer.loop, **options)

    async def start(self) -> None:
        await self._default_start()

    async def stop(self) -> None:
        await Service.stop(self)

    async def on_stop(self) -> None:
        if self._consumer is not None:
            await self._consumer.stop()

    async def _stop_children(self) -> None:
        await self._default_stop_children()

    async def _stop_futures(self) -> None:
        await self._default_stop_futures()

    async def _stop_exit_stacks(self) -> None:
        await self._default_stop_exit_stacks()

    async def call_thread(
        self, fun: Callable[..., Awaitable[Any]], *args: Any, **kwargs: Any
    ) -> Any:
        return await maybe_async(fun(*args, **kwargs))

    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Records of aborted transactions are nobody's experience.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        consumer._fetch_max_bytes = FETCH_MAX_BYTES
        return consumer

    async def seek_to_committed(self) -> Any:
        """Go back also where nothing is committed yet.

        Faust throws away what it fetched while a rebalance is under way, and seeks
        back; aiokafka leaves a partition without a committed offset where it was.
        """
        return await self.call_thread(self._seek_back)

    async def _seek_back(self) -> Any:
        consumer = self._ensure_consumer()
        found = await consumer.seek_to_committed()
        fresh = {tp for tp, offset in found.items() if not offset}
        if fresh := fresh & consumer.assignment():
            await consumer.seek_to_beginning(*fresh)
        return found

    async def _fetch_records(
        self,
        consumer: Any,
        active_partitions: set[TP],
        timeout: float | None = None,
        max_records: int | None = None,
    ) -> Any:
        """Read on without the partitions in which a record is damaged."""
        app: Any = self.consumer.app
        readable = active_partitions - app.damaged.keys()
        if not readable:
            await asyncio.sleep(timeout or 0.0)
            return {}
        assignment = _assignment(consumer)
        before = _positions(assignment, readable)
        try:
            if None not in before.values():
                return await super()._fetch_records(
                    consumer, readable, timeout, max_records
                )
            # Not waiting there, so that nothing is drained from a place not known here.
            found = await super()._fetch_records(consumer, readable, 0, max_records)
            if not found:
                await asyncio.sleep(_UNPLACED_S)
            return found
        except CorruptRecordException as exc:
            if assignment is not _assignment(consumer):
                return {}  # rebalanced meanwhile: all of it is read anew
            damaged = {tp for tp in before if str(TopicPartition(*tp)) in str(exc)}
            if not damaged:
                raise
            # What the call had drained of the others is lost with the exception.
            for tp, position in _positions(assignment, readable - damaged).items():
                if before[tp] not in (None, position):
                    consumer.seek(tp, before[tp])
            for tp in damaged:
                app.set_aside(tp, before[tp])
            return {}


def _assignment(consumer: Any) -> Any:
    subscription = consumer._subscription.subscription
    return subscription.assignment if subscription else None


def _positions(assignment: Any, partitions: set[TP]) -> dict[TP, int | None]:
    """Return where reading goes on; None where that is being asked for."""
    return {
        tp: assignment.state_value(tp)._position
        for tp in partitions
        if assignment and tp in assignment.tps
    }


class Consumer(driver.Consumer):
    """Faust's consumer, for acknowledgements that come in the order of offsets.

    Faust's own search for the offset to commit passes over a record that is not
    acknowledged (a single one; any number behind offset 0), and stops for ever at a
    hole right after offset 0. With acknowledgements in order there is nothing to
    search for.
    """

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _ConsumerInLoop(self, loop=self.loop, beacon=self.beacon)

    def _new_offset(self, tp: TP) -> int | None:
        acked = self._acked[tp]
        if not acked:
            return None
        offset = int(acked[-1]) + 1
        acked.clear()
        self._acked_index[tp].clear()
        return offset

    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        """Nothing: holes in the log are passed by the next acknowledgement."""


class Transport(driver.Transport):
    """Faust's transport over aiokafka, with our consumer."""

    Consumer = Consumer


class _OnlyConsumer(BootStrategy):
    # Batches are sent by `deliveries`.
    enable_kafka_producer = False


class App(faust.App):
    """A Faust app whose full queue holds up the fetcher, and nothing else.

    Faust takes a partition whose queue is nearly full out of the next fetch, which
    then waits a second for the idle ones: 37 records a second, where 300 are possible.

    Attributes:
        damaged: partitions that are not read on, because a record of theirs is not what
            was written; with the offset at or behind which that one is.
        on_damaged: is told of each, in the consumer's thread.
    """

    BootStrategy = _OnlyConsumer

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.damaged: dict[TP, int] = {}
        self.on_damaged: Callable[[TP, int], None] | None = None

    def set_aside(self, tp: TP, offset: int) -> None:
        """Read a partition no further, until it is assigned anew."""
        self.damaged[tp] = offset
        if self.on_damaged is not None:
            self.on_damaged(tp, offset)

    def FlowControlQueue(  # noqa: N802
        self, maxsize: int | None = None, *, clear_on_resume: bool = False
    ) -> ThrowableQueue[Any]:
        """Make a queue that never reports pressure; who puts waits when it is full."""
        queue = super().FlowControlQueue(maxsize, clear_on_resume=clear_on_resume)
        queue.pressure_high_ratio = 0.5  # of 2 x maxsize: never
        return queue
