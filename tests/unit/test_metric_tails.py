"""Tails of topics: however large the records are, little is kept."""

from __future__ import annotations

from infra.kafka.reading import Message
from infra.monitoring import metric_tails
from infra.monitoring.dashboard.as_json import MAX_TEXT
from infra.monitoring.dashboard.as_json import encode as to_json
from infra.monitoring.dashboard.past import TopicPast
from infra.monitoring.metric_tails import TOPIC_BYTES, Newest, _read
from schemas.codec import encode
from schemas.records import Event


class Raw:
    """What the client returns of a record, or of the end of a partition."""

    def __init__(self, topic: str, offset: int, value: bytes | None) -> None:
        self._topic, self._offset, self._value = topic, offset, value

    def topic(self):
        return self._topic

    def partition(self):
        return 0

    def offset(self):
        return self._offset

    def timestamp(self):
        return 1, 1_000

    def key(self):
        return b"k"

    def value(self):
        return self._value

    def error(self):
        return None if self._value is not None else self

    def code(self):
        return metric_tails.KafkaError._PARTITION_EOF


class FakeConsumer:
    """A topic of large records and one of small ones, a few at a time."""

    def __init__(self, large: int) -> None:
        self._left = [
            *(Raw("large", n, bytes(2**20)) for n in range(large)),
            *(Raw("small", n, b"v") for n in range(3)),
            Raw("large", large, None),
            Raw("small", 3, None),
        ]

    def consume(self, most: int, wait_s: float):
        found, self._left = self._left[:20], self._left[20:]
        return found


def test_of_large_records_the_newest_are_kept():
    found = {"large": Newest(), "small": Newest()}
    _read(FakeConsumer(large=100), found)
    kept = found["large"].messages
    assert sum(len(each.value) for each in kept) <= TOPIC_BYTES
    # One less than would fit without their keys.
    assert [each.offset for each in kept] == list(range(69, 100))
    assert [each.offset for each in found["small"].messages] == [0, 1, 2]


def test_one_that_is_too_large_alone_is_not_kept():
    newest = Newest()
    for offset, size in enumerate((5, TOPIC_BYTES, 7)):
        newest.add(Message("t", 0, offset, 0, "key", bytes(size)))
    assert [each.offset for each in newest.messages] == [2]
    assert newest.bytes_kept == 10


def test_long_texts_of_events_are_cut_in_what_is_answered(monkeypatch):
    long = "x" * 2**20
    message = Message(
        "t", 0, 0, 0, "", encode(Event("e", *[long] * 2, 0, *[long] * 3, 0))
    )
    monkeypatch.setattr(TopicPast, "_tail", lambda *_: [message] * 3)
    shown = TopicPast.events(object.__new__(TopicPast), "e", 3)
    assert len(shown["events"]) == 3
    assert len(to_json(shown)) < 3 * 6 * MAX_TEXT
