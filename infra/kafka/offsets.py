"""Asking the brokers where logs begin and end, many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

# Its two methods are the only untyped ones of the client.
_UNTYPED: Any = OffsetSpec
EARLIEST: OffsetSpec = _UNTYPED.earliest()
LATEST: OffsetSpec = _UNTYPED.latest()


def ask_ends(
    admin: AdminClient,
    places: Iterable[tuple[str, int]],
    level: IsolationLevel,
    timeout_s: float,
    spec: OffsetSpec = LATEST,
) -> dict[tuple[str, int], Future[Any]]:
    """Ask where partitions end for readers of a level; results have an ``offset``.

    With ``EARLIEST``, where they begin.
    """
    asked = {TopicPartition(*place): spec for place in places}
    found = admin.list_offsets(asked, isolation_level=level, request_timeout=timeout_s)
    return {(place.topic, place.partition): each for place, each in found.items()}
