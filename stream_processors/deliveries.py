"""Batches from the event loop -> the log, each awaited until it is delivered."""

from __future__ import annotations

import asyncio
import logging
import threading

from confluent_kafka import KafkaError, Message

from infra.control.role import RoleContext
from infra.errors import RollstreamError
from infra.kafka.clients import make_producer
from infra.kafka.delivery import DeliveryTooLarge, Sender, is_too_large

_POLL_S = 0.1
_log = logging.getLogger("rollstream.processor")


class Deliveries(threading.Thread):
    """Sends from the event loop; the thread serves the reports of delivery.

    Faust's own producer takes four times the CPU for a record of this size, and its
    retries may repeat what was written.
    """

    def __init__(self, sender: Sender) -> None:
        super().__init__(name="deliveries", daemon=True)
        self._sender = sender

    @classmethod
    def open(cls, context: RoleContext) -> Deliveries:
        """Connect to the brokers."""
        overrides = {
            # A record waits for no company, and what is refused for its size takes no
            # other record with it.
            "linger.ms": 0,
            "batch.num.messages": 1,
            # A full queue would block the event loop. What is under way is bounded
            # already: one batch a worker.
            "queue.buffering.max.kbytes": 2**21 - 1,
        }
        producer = make_producer(
            context.settings, client_id=context.client_id, overrides=overrides
        )
        return cls(Sender(producer, tolerate_too_large=True))

    def run(self) -> None:
        """Serve reports, until the process ends or a record is refused for good."""
        while True:
            try:
                self._sender.poll(_POLL_S)
            except RollstreamError as exc:
                _log.error("nothing more is sent: %s", exc)
                return

    async def send(self, topic: str, key: str, value: bytes, partition: int) -> str:
        """Deliver a record; return why it is refused for its size, "" if it is not.

        Raises:
            DeliveryError: this record, or an earlier one, was refused for good.
        """
        loop = asyncio.get_running_loop()
        reported: asyncio.Future[KafkaError | None] = loop.create_future()

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(_settle, reported, error)

        try:
            self._sender.send(topic, value, key, partition, on_delivery)
        except DeliveryTooLarge as exc:
            return str(exc)
        error = await reported
        if error is None:
            return ""
        if not is_too_large(error):
            self._sender.poll()  # raises what it was refused for
        return error.str()


def _settle(
    reported: asyncio.Future[KafkaError | None], error: KafkaError | None
) -> None:
    if not reported.done():
        reported.set_result(error)
