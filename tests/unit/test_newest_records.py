"""Which topics are read again, and what is told of that; no broker is asked."""

from concurrent.futures import Future
from contextlib import closing
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError

from infra.kafka.offsets import END
from infra.monitoring import newest_records
from infra.monitoring.newest_records import NewestRecords


class Raw:
    """What a consumer returns: a record, or an error."""

    def __init__(self, topic, offset=None, error=None):
        self.topic, self.offset = (lambda: topic), (lambda: offset)
        self.error = lambda: None if error is None else KafkaError(error)
        self.partition = lambda: 0
        self.timestamp = lambda: (1, 1_000)
        self.key = lambda: b"k"
        self.value = lambda: b"%d" % (offset or 0)


class Brokers:
    """Consumer and administrator in one: logs are from 0 to an end."""

    def __init__(self):
        self.ends, self.ids, self.come, self.assigned = {}, {}, [], {}

    def assign(self, places):
        self.assigned = {place.topic: place.offset for place in places}

    def consume(self, most, timeout_s):
        come, self.come = self.come, []
        return come

    def list_offsets(self, asked, isolation_level, request_timeout):
        found = {}
        for place, spec in asked.items():
            found[place] = Future()
            is_end = spec is END.spec
            offset = self.ends[place.topic] if is_end else 0
            found[place].set_result(SimpleNamespace(offset=offset))
        return found

    def list_topics(self, timeout):
        led = SimpleNamespace(partitions={0: SimpleNamespace(leader=0)})
        return SimpleNamespace(topics=dict.fromkeys(self.ends, led))

    def poll(self, topics, is_urgent):
        return {topic: self.ids[topic] for topic in topics if topic in self.ids}

    def close(self):
        pass


@pytest.fixture
def brokers(monkeypatch):
    of = Brokers()
    monkeypatch.setattr(newest_records, "make_consumer", lambda *_, **__: of)
    monkeypatch.setattr(newest_records, "make_admin", lambda *_: of)
    monkeypatch.setattr(newest_records, "TopicIds", lambda admin: of)
    return of


@pytest.fixture
def records(brokers):
    with closing(NewestRecords(None, "test")) as found:
        brokers.ends |= {"a": 100, "b": 7}
        brokers.ids |= {"a": "A", "b": "B"}
        found.follow({"a": 10, "b": 10})
        found.poll(0.0)
        assert brokers.assigned == {"a": 90, "b": 0}
        brokers.come = [Raw("a", 99), Raw("b", 6)]
        assert [each.topic for each in found.poll(0.0)] == ["a", "b"]
        assert found.begun_anew() == set()
        yield found


@pytest.mark.parametrize(
    "error",
    [
        KafkaError._AUTO_OFFSET_RESET,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
    ],
)
def test_what_is_not_there_any_more_is_read_again(records, brokers, monkeypatch, error):
    monkeypatch.setattr(newest_records, "_AGAIN_S", 0.0)
    brokers.come = [Raw("a", error=error)]
    brokers.ends["a"] = 3
    assert records.poll(0.0) == []
    assert brokers.assigned == {"b": 7}
    assert records.begun_anew() == set(), "not before its beginning is known"
    brokers.come = [Raw("a", 0)]
    for _ in range(2):
        records.poll(0.0)
    assert brokers.assigned["a"] == 0
    assert records.begun_anew() == {"a"}
    assert records.begun_anew() == set(), "once"


def test_one_with_another_id_is_read_again_however_long_it_is(records, brokers):
    brokers.ids["a"], brokers.ends["a"] = "A2", 500
    records.poll(0.0)
    assert brokers.assigned == {"b": 7}, "nothing is taken for its continuation"
    brokers.come = [Raw("a", 490)]
    assert [each.offset for each in records.poll(0.0)] == [490]
    assert (brokers.assigned, records.begun_anew()) == ({"a": 490, "b": 7}, {"a"})
    for _ in range(3):
        records.poll(0.0)
    assert records.begun_anew() == set()


def test_an_error_that_passes_changes_nothing(records, brokers):
    brokers.come = [Raw("a", error=KafkaError._TRANSPORT), Raw("b", 7)]
    assert [each.offset for each in records.poll(0.0)] == [7]
    records.poll(0.0)
    assert records.begun_anew() == set()


def test_what_was_asked_for_again_or_given_up_is_not_told_of(records, brokers):
    brokers.ids |= {"a": "A2", "b": "B2"}
    for _ in range(2):
        records.poll(0.0)
    records.again("a", 10)
    records.follow({"a": 10})
    assert records.begun_anew() == set()
