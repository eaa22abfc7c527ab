"""Counters of a real broker: what a log holds, and what travels to it and back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import confluent_kafka

from infra.cluster.broker import broker_service, log_dir
from infra.cluster.local import cluster_dir
from infra.kafka.clients import make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.settings import Settings
from tests.counters.expectations import Counters
from tests.counters.hot_paths import records
from tests.counters.measured import TINY, USUAL

GROUP = "log, four numbers"
_LARGE_RECORDS, _SMALL_RECORDS = 16, 64
_KEY = "w0"
_TELL_MS = 20
_PATIENCE_S = 120.0


class Told:
    """What a client says of its traffic: totals since it was made."""

    def __init__(self) -> None:
        self._newest: dict[str, Any] = {}
        self.times = 0

    @property
    def overrides(self) -> Mapping[str, Any]:
        """Settings of a client that is to tell."""
        return {"statistics.interval.ms": _TELL_MS, "stats_cb": self._take}

    def _take(self, text: str) -> None:
        self._newest = json.loads(text)
        self.times += 1

    def wait(self, poll: Callable[[float], object]) -> None:
        """Poll until it has told twice more: the second time of all until now."""
        enough, deadline_s = self.times + 2, time.monotonic() + _PATIENCE_S
        while self.times < enough:
            poll(0.01)
            assert time.monotonic() < deadline_s, "the client tells nothing"

    def total(self, name: str) -> int:
        """Return a total over all brokers."""
        return sum(int(each[name]) for each in self._newest["brokers"].values())

    def requests(self, kind: str) -> int:
        """Return how many requests of a kind were sent."""
        brokers = self._newest["brokers"].values()
        return sum(int(each["req"].get(kind, 0)) for each in brokers)


def measure(settings: Settings, make_topic: Callable[[], str]) -> Counters:
    """Write unrolls to topics of one partition, and read them again."""
    large, small = make_topic(), make_topic()
    unrolls = records(USUAL, _LARGE_RECORDS)
    steps, small_steps = _LARGE_RECORDS * USUAL.rows, _SMALL_RECORDS * TINY.rows
    sent = send(settings, large, unrolls)
    received = receive(settings, large, _LARGE_RECORDS)
    burst = send(settings, small, records(TINY, _SMALL_RECORDS), in_a_burst=True)
    return {
        "256 x 32: log bytes per step": round(log_bytes(settings, large) / steps, 3),
        "256 x 32: sent bytes per step": round(sent.total("txbytes") / steps, 3),
        "256 x 32: produce requests per record": sent.requests("Produce")
        / _LARGE_RECORDS,
        "256 x 32: received bytes per step": round(
            received.total("rxbytes") / steps, 3
        ),
        "16 x 8: sent bytes per step": round(burst.total("txbytes") / small_steps, 3),
    }


def send(
    settings: Settings,
    topic: str,
    values: Sequence[bytes],
    *,
    in_a_burst: bool = False,
) -> Told:
    """Send records as a worker does; each when the one before is there, or at once."""
    told = Told()
    producer = make_producer(settings, client_id="counted", overrides=told.overrides)
    sender = Sender(producer)
    for value in values:
        if in_a_burst:
            sender.send(topic, value, _KEY, 0)
        else:
            sender.send_and_wait(topic, value, _KEY, 0)
    assert sender.flush(_PATIENCE_S) == 0
    told.wait(sender.poll)
    return told


def receive(settings: Settings, topic: str, expected: int) -> Told:
    """Read so many records as a learner does."""
    told = Told()
    made = make_consumer(
        settings, group=None, client_id="counted", overrides=told.overrides
    )
    with closing(made) as consumer:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        deadline_s = time.monotonic() + _PATIENCE_S
        while expected:
            message = consumer.poll(0.1)
            expected -= message is not None and message.error() is None
            assert time.monotonic() < deadline_s, f"{expected} records have not come"
        told.wait(consumer.poll)
    return told


def log_bytes(settings: Settings, topic: str) -> int:
    """Return what a topic of one partition takes on the broker's disk."""
    folder = log_dir(broker_service(cluster_dir(settings))) / f"{topic}-0"
    return sum(path.stat().st_size for path in folder.glob("*.log"))
