"""Many topics at once: their newest records, those that come, and topics that go."""

import secrets
import time
from contextlib import closing

import pytest

from infra.kafka.clients import make_admin, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.offsets import delete_before
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.monitoring.newest_records import NewestRecords

pytestmark = pytest.mark.kafka
PATIENCE_S = 60.0


@pytest.fixture
def records(settings):
    with closing(NewestRecords(settings, "test")) as found:
        yield found


@pytest.fixture
def send(settings):
    sender = Sender(make_producer(settings, client_id="test"))

    def all_of(topic, *values):
        for value in values:
            sender.send_and_wait(topic, value, "key")

    return all_of


def read(records, count):
    """Wait for so many records, and see that there are no more."""
    found, deadline_s = [], time.monotonic() + PATIENCE_S
    while len(found) < count or not records.is_caught_up:
        found += [(m.topic, m.value) for m in records.poll(0.1)]
        assert time.monotonic() < deadline_s, found
    found += [(m.topic, m.value) for m in records.poll(0.3)]
    return found


def test_the_newest_of_each_and_then_what_comes(records, send, make_topic):
    one, two = make_topic(), make_topic()
    send(one, *(b"%d" % n for n in range(9)))
    records.follow({one: 2, two: 5})
    assert read(records, 2) == [(one, b"7"), (one, b"8")]
    send(two, b"a")
    send(one, b"9")
    assert sorted(read(records, 2)) == sorted([(one, b"9"), (two, b"a")])
    records.follow({two: 5})
    send(one, b"unheard")
    send(two, b"b")
    assert read(records, 1) == [(two, b"b")]
    records.again(two, 1)
    assert read(records, 1) == [(two, b"b")]


def test_a_topic_that_is_not_there_yet_holds_up_nobody(
    records, send, settings, make_topic
):
    there, late = make_topic(), f"rollstream.test-{secrets.token_hex(6)}"
    send(there, b"a")
    records.follow({late: 5, there: 5})
    assert read(records, 1) == [(there, b"a")]
    ensure_topics(settings, [TopicConfig(late, 1)])
    send(late, b"b")
    assert read(records, 1) == [(late, b"b")]
    delete_topics(settings, [late])


def test_one_that_is_made_anew_is_read_again(records, send, settings, make_topic):
    topic = make_topic()
    send(topic, *(b"%d" % n for n in range(5)))
    records.follow({topic: 5})
    assert len(read(records, 5)) == 5
    delete_topics(settings, [topic])
    ensure_topics(settings, [TopicConfig(topic, 1)])
    send(topic, b"new")
    assert read(records, 1) == [(topic, b"new")]


def test_one_that_is_made_anew_is_read_again_however_long_it_is(
    records, send, settings, make_topic
):
    topic, other = make_topic(), make_topic()
    send(topic, *(b"%d" % n for n in range(3)))
    send(other, b"of another")
    records.follow({topic: 9, other: 9})
    assert len(read(records, 4)) == 4
    assert records.begun_anew() == set()
    deadline_s = time.monotonic() + PATIENCE_S
    while not records._places[topic].topic_id:
        assert records.poll(0.1) == []
        assert time.monotonic() < deadline_s
    delete_topics(settings, [topic])
    ensure_topics(settings, [TopicConfig(topic, 1)])
    new = [b"new %d" % n for n in range(6)]
    send(topic, *new)
    anew, found = set(), []
    deadline_s = time.monotonic() + PATIENCE_S
    while not anew or len(found) < len(new):
        messages = records.poll(0.1)
        if begun := records.begun_anew():
            anew, found = begun, []
        found += [(m.topic, m.value) for m in messages]
        assert time.monotonic() < deadline_s, found
    assert anew == {topic}
    assert found == [(topic, value) for value in new]
    assert time.time() - records.answered_s < PATIENCE_S


def test_records_that_expire_first_are_passed_over(records, send, settings, make_topic):
    topic = make_topic()
    send(topic, *(b"%d" % n for n in range(5)))
    records.follow({topic: 5})
    admin = make_admin(settings)
    delete_before(admin, {(topic, 0): 4}, PATIENCE_S)[topic, 0].result(PATIENCE_S)
    assert read(records, 1)[-1] == (topic, b"4")
    send(topic, b"5")
    assert read(records, 1) == [(topic, b"5")]
