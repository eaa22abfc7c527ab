"""What a worker process has under way to the log, and what of it never arrives."""

from __future__ import annotations

import time
from collections.abc import Callable

from infra.control.role import RoleContext, StopRequest
from infra.errors import DeliveryError
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from producers.worker_stream import WorkerCounts, WorkerStream

FLUSH_S = 8.0


class Deliveries:
    """The sender of a worker, and the counts of its incarnations.

    Attributes:
        sender: of all incarnations.
        counts: of the one that there is.
    """

    def __init__(self, context: RoleContext, stop: StopRequest) -> None:
        self._stop = stop
        self._stopping_since_s: float | None = None
        self._owing: list[WorkerCounts] = []  # earlier incarnations' with steps open
        producer = make_producer(
            context.settings,
            client_id=context.client_id,
            # With more, what fails for want of replicas while later ones are under way
            # makes the client begin a new epoch, and write some of them again.
            overrides={"max.in.flight": 1},
        )
        self.sender = Sender(
            producer, while_waiting=self._while_waiting, tolerate_too_large=True
        )
        self.counts = WorkerCounts()
        self._stream: WorkerStream | None = None

    @property
    def undelivered_steps(self) -> int:
        """Valid rows of all incarnations that the log does not have."""
        return sum(c.undelivered_steps for c in (*self._owing, self.counts))

    def begin(self, stream: WorkerStream) -> None:
        """Count for a new incarnation from now on."""
        self._owing = [c for c in (*self._owing, self.counts) if c.undelivered_steps]
        self._stream, self.counts = stream, stream.counts

    def settle(self, timeout_s: float) -> None:
        """Wait for what is under way; what was refused for its size is kept."""
        self.sender.flush(timeout_s)
        if self._stream is not None:
            self._stream.bury()

    def finish(self, publish_counts: Callable[[], None]) -> str:
        """Deliver what is under way; return what could not be, in words.

        Steps: 1. flush the trajectories; 2. publish the last counters; 3. flush those.
        """
        deadline_s = time.monotonic() + FLUSH_S
        self.settle(FLUSH_S)  # step 1
        publish_counts()  # step 2
        left = self.sender.flush(max(deadline_s - time.monotonic(), 0.1))  # step 3
        lost = self.undelivered_steps
        if not left and not lost:
            return ""
        return f"stopped with {lost} steps and {left} records not delivered"

    def _while_waiting(self) -> None:
        """Give up, some time after we were told to stop, while the queue is full."""
        if not self._stop.is_set():
            return
        self._stopping_since_s = self._stopping_since_s or time.monotonic()
        if time.monotonic() - self._stopping_since_s > FLUSH_S:
            raise DeliveryError("told to stop while the brokers take nothing")
