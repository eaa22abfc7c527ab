"""Sends of this process -> whoever wants to know what became of them."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaError, Message

from infra.kafka.delivery import OnDelivery, Sender


def report_sends(
    is_wanted: Callable[[str, str | bytes], bool],
    make_report: Callable[[bytes], OnDelivery],
) -> None:
    """Report the delivery of every record of whose topic and key this is wanted.

    ``make_report`` is given the record's value before it is sent.
    """
    send = Sender.send

    def reported(
        self: Sender,
        topic: str,
        value: bytes | None,
        key: str | bytes,
        partition: int | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> None:
        if value is not None and is_wanted(topic, key):
            on_delivery = _both(make_report(value), on_delivery)
        send(self, topic, value, key, partition, on_delivery)

    Sender.send = reported  # type: ignore[method-assign]


def _both(first: OnDelivery, second: OnDelivery | None) -> OnDelivery:
    def report(error: KafkaError | None, message: Message) -> None:
        first(error, message)
        if second is not None:
            second(error, message)

    return report
