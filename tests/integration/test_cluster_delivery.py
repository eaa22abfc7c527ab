import multiprocessing
import threading
import time

import pytest
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from infra.control.role import StopRequest, ToldToStop
from infra.errors import DeliveryError, OffsetError, TopicError
from infra.kafka.clients import (
    Traffic,
    make_admin,
    make_consumer,
    make_producer,
    producer_config,
)
from infra.kafka.delivery import DeliveryTooLarge, Sender
from infra.kafka.reading import (
    beginning_offsets,
    end_offsets,
    latest_by_key,
    offset_at_time,
    read_to_end,
)
from schemas.topics import TRAJECTORIES, topic_config

pytestmark = pytest.mark.kafka


@pytest.fixture
def sender(settings):
    return Sender(make_producer(settings, client_id="test", traffic=Traffic.CONTROL))


@pytest.fixture
def consumer(settings):
    consumer = make_consumer(settings, group=None, client_id="test")
    yield consumer
    consumer.close()


def test_full_queue_makes_the_sender_wait_and_loses_nothing(settings, topic):
    producer = make_producer(
        settings,
        client_id="test",
        overrides={"queue.buffering.max.messages": 1000},
    )
    waits = []
    sender = Sender(producer, while_waiting=lambda: waits.append(1))
    for number in range(100_000):
        sender.send(topic, b"%d" % number, "key")
        assert sender.counts.in_flight <= 1001
    assert sender.flush(120.0) == 0
    assert waits
    assert sender.counts.delivered == 100_000
    values = [int(message.value) for message in read_to_end(settings, topic)]
    assert values == list(range(100_000))


@pytest.mark.parametrize("key", ["", b"", None])
def test_empty_key_is_refused_at_once(sender, key):
    with pytest.raises(ValueError, match="topic some-topic: expected a key"):
        sender.send("some-topic", b"value", key)
    counts = sender.counts
    assert (counts.in_flight, counts.failed) == (0, 0), "the client was not asked"


def test_send_and_wait_returns_the_offset(sender, topic):
    assert [sender.send_and_wait(topic, b"v", "k") for _ in range(3)] == [0, 1, 2]
    assert sender.counts.in_flight == 0
    assert sender.counts.in_flight_bytes == 0


def test_record_above_the_topics_limit_is_refused_for_good(sender, make_topic):
    topic = make_topic(max_message_bytes="1000")
    sender.send(topic, bytes(5000), "k")
    with pytest.raises(DeliveryError, match=f"topic {topic}: a record was refused"):
        sender.flush(60.0)
    with pytest.raises(DeliveryError, match="refused for good"):
        sender.send(topic, b"small", "k")


def test_too_large_record_may_be_tolerated(settings, make_topic):
    topic = make_topic(max_message_bytes="1000")
    producer = make_producer(settings, client_id="test")
    sender, errors = Sender(producer, tolerate_too_large=True), []
    sender.send(topic, bytes(5000), "k", on_delivery=lambda e, _: errors.append(e))
    with pytest.raises(DeliveryTooLarge, match="cut it"):
        sender.send(topic, bytes(17 * 2**20), "k")
    assert sender.flush(60.0) == 0
    assert len(errors) == 1
    assert sender.send_and_wait(topic, b"small", "k") == 0
    assert sender.counts.failed == 2


def test_unknown_topic_is_an_error_once_it_cannot_be_a_new_one(settings):
    config = producer_config(settings, "test")
    assert config["topic.metadata.propagation.max.ms"] == 10_000
    soon = {"topic.metadata.propagation.max.ms": 500}
    sender = Sender(make_producer(settings, client_id="test", overrides=soon))
    sender.send("rollstream.no-such-topic", b"v", "k")
    with pytest.raises(DeliveryError, match="no-such-topic"):
        sender.flush(60.0)


def test_told_to_stop_ends_the_wait_for_an_absent_broker(settings):
    nowhere = settings.at("127.0.0.1:1", "127.0.0.1:1")
    producer = make_producer(
        nowhere, client_id="test", overrides={"queue.buffering.max.messages": 2}
    )
    stop = StopRequest()
    sender = Sender(producer, while_waiting=stop.check)
    threading.Timer(0.5, stop.set, ["enough"]).start()
    with pytest.raises(ToldToStop, match="enough"):
        for _ in range(3):
            sender.send("rollstream.some-topic", b"v", "k")
    assert sender.abandon() == 2


def test_told_to_stop_nobody_waits_for_an_acknowledgement(settings):
    nowhere = settings.at("127.0.0.1:1", "127.0.0.1:1")
    sender = Sender(make_producer(nowhere, client_id="test"))
    stop = StopRequest()
    threading.Timer(0.5, stop.set, ["enough"]).start()
    # Else it is a DeliveryError, once the time is over.
    with pytest.raises(ToldToStop, match="enough"):
        sender.send_and_wait("t", b"v", "k", timeout_s=60, while_waiting=stop.check)


def _use_after_fork(sender, connection):
    try:
        sender.send("some-topic", b"v", "k")
    except DeliveryError as exc:
        connection.send(str(exc))


def test_use_after_fork_is_an_error_that_names_it(sender):
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=_use_after_fork, args=(sender, theirs))
    child.start()
    try:
        assert ours.poll(60.0)
        assert "after a fork" in ours.recv()
    finally:
        child.kill()
        child.join()


COMPACTED = {
    "cleanup_policy": "compact",
    "segment_ms": "100",
    "min_cleanable_dirty_ratio": "0.01",
    "max_compaction_lag_ms": "200",
}


@pytest.fixture
def prompt_cleaner(settings):
    """The broker looks for what can be compacted all the time, not each 15 s."""

    def change(value, operation):
        entry = ConfigEntry(
            "log.cleaner.backoff.ms", value, incremental_operation=operation
        )
        broker = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin = make_admin(settings)  # kept until the answer is here
        admin.incremental_alter_configs([broker])[broker].result(60)

    change("100", AlterConfigOpType.SET)
    yield
    change(None, AlterConfigOpType.DELETE)


def test_reading_a_compacted_topic_ends_although_offsets_are_missing(
    settings, sender, make_topic, prompt_cleaner
):
    topic = make_topic(**COMPACTED)
    for round_number in range(20):
        for key in ("a", "b"):
            sender.send_and_wait(topic, b"%d" % round_number, key)
    sender.send_and_wait(topic, None, "a")
    sender.send_and_wait(topic, b"again", "c")
    deadline = time.monotonic() + 120.0
    while len(messages := list(read_to_end(settings, topic))) > 35:
        assert time.monotonic() < deadline, "the cleaner never ran"
        # Only a new record closes the segment that the cleaner may then read.
        sender.send_and_wait(topic, b"again", "c")
        time.sleep(0.2)
    offsets = [message.offset for message in messages]
    assert offsets == sorted(offsets)
    latest = latest_by_key(settings, topic)
    assert {key: message.value for key, message in latest.items()} == {
        "b": b"19",
        "c": b"again",
    }


def test_reading_an_empty_topic_ends(settings, topic):
    assert list(read_to_end(settings, topic)) == []


def test_reading_starts_where_told(settings, sender, topic):
    for number in range(5):
        sender.send_and_wait(topic, b"%d" % number, "k")
    values = [message.value for message in read_to_end(settings, topic, start=3)]
    assert values == [b"3", b"4"]
    assert list(read_to_end(settings, topic, start=5)) == []
    with pytest.raises(OffsetError, match="offset 6 is not in the log.*0 to 5"):
        list(read_to_end(settings, topic, start=6))


def test_reading_passes_over_aborted_transactions(settings, topic):
    producer = make_producer(
        settings, client_id="test", overrides={"transactional.id": topic}
    )
    producer.init_transactions(60)
    for number, finish in enumerate([True, False, True, False]):
        producer.begin_transaction()
        producer.produce(topic, b"%d" % number, "k")
        assert producer.flush(60) == 0
        if finish:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    values = [message.value for message in read_to_end(settings, topic)]
    assert values == [b"0", b"2"]


def test_reading_an_unknown_topic_is_an_error(settings):
    with pytest.raises(TopicError, match="no-such-topic"):
        list(read_to_end(settings, "rollstream.no-such-topic"))


def test_offsets_of_every_partition(consumer, sender, make_topic):
    topic = make_topic(2)
    sender.send_and_wait(topic, b"v", "k", partition=1)
    assert beginning_offsets(consumer, topic) == {0: 0, 1: 0}
    assert end_offsets(consumer, topic) == {0: 0, 1: 1}


def test_offset_at_time_finds_the_first_younger_record(
    settings, consumer, sender, make_topic
):
    topic = make_topic(message_timestamp_type="LogAppendTime")
    sender.send_and_wait(topic, b"old", "k")
    time.sleep(0.05)
    sender.send_and_wait(topic, b"new", "k")
    old, new = read_to_end(settings, topic)
    assert old.timestamp_ms < new.timestamp_ms
    assert offset_at_time(consumer, topic, old.timestamp_ms + 1) == {0: 1}
    assert offset_at_time(consumer, topic, new.timestamp_ms + 1) == {0: 2}


@pytest.mark.parametrize("days", [-365, 365])
def test_the_time_of_a_record_is_the_brokers_whatever_its_writer_says(
    settings, make_topic, days
):
    """With a writer's own time, retention would delete it at once, or never."""
    settings_of_topic = topic_config(TRAJECTORIES)
    topic = make_topic(**{k.replace(".", "_"): v for k, v in settings_of_topic.items()})
    producer = make_producer(settings, client_id="test")
    now_ms = time.time_ns() // 1_000_000
    producer.produce(topic, b"v", b"k", timestamp=now_ms + days * 24 * 3_600_000)
    assert producer.flush(60.0) == 0
    (message,) = read_to_end(settings, topic)
    assert abs(message.timestamp_ms - now_ms) < 60_000


def test_unknown_topic_has_no_offsets(consumer):
    with pytest.raises(TopicError, match="no-such-topic"):
        end_offsets(consumer, "rollstream.no-such-topic")
