"""What Faust has no setting for: how it fetches, queues, and finds what to commit."""

from __future__ import annotations

from typing import Any

import faust
from faust.transport.drivers import aiokafka as driver
from faust.types import TP
from mode.utils.queues import ThrowableQueue

# An answer waits this long for a first record, and while it waits nothing else is asked
# of that broker: with Faust's 1500 ms, idle partitions hold busy ones up.
FETCH_MAX_WAIT_MS = 50
FETCH_MAX_BYTES = 32 << 20


class _ConsumerThread(driver.AIOKafkaConsumerThread):
    def _create_worker_consumer(self, transport: Any) -> Any:
        consumer = super()._create_worker_consumer(transport)
        # Records of aborted transactions are nobody's experience.
        consumer._isolation_level = "read_committed"
        consumer._fetch_max_wait_ms = FETCH_MAX_WAIT_MS
        consumer._fetch_max_bytes = FETCH_MAX_BYTES
        return consumer


class Consumer(driver.Consumer):
    """Faust's consumer, for acknowledgements that come in the order of offsets.

    Faust's own search for the offset to commit passes over a record that is not
    acknowledged (a single one; any number behind offset 0), and stops for ever at a
    hole right after offset 0. With acknowledgements in order there is nothing to
    search for.
    """

    def _new_consumer_thread(self) -> driver.AIOKafkaConsumerThread:
        return _ConsumerThread(self, loop=self.loop, beacon=self.beacon)

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


class App(faust.App):
    """A Faust app whose full queue holds up the fetcher, and nothing else.

    Faust takes a partition whose queue is nearly full out of the next fetch, which
    then waits a second for the idle ones: 37 records a second, where 300 are possible.
    """

    def FlowControlQueue(  # noqa: N802
        self, maxsize: int | None = None, *, clear_on_resume: bool = False
    ) -> ThrowableQueue[Any]:
        """Make a queue that never reports pressure; who puts waits when it is full."""
        queue = super().FlowControlQueue(maxsize, clear_on_resume=clear_on_resume)
        queue.pressure_high_ratio = 0.5  # of 2 x maxsize: never
        return queue
