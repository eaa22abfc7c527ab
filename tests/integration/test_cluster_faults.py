"""What clients see when the broker is killed, frozen or stopped under them."""

import os
import signal
import threading
import time
from contextlib import closing, contextmanager

import pytest
from confluent_kafka import TopicPartition

from infra.kafka.clients import Traffic, make_consumer, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import OUT_OF_RANGE, read_to_end

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


class Feed:
    """Sends numbered records of 10 kB, about 1,000 per second, until told to stop."""

    def __init__(self, settings, topic):
        producer = make_producer(settings, client_id="test")
        self.sender = Sender(producer)
        self.error = None
        self.sent = 0
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while not self._stop.is_set():
                value = b"%010d" % self.sent + bytes(10_000)
                self.sender.send(self._topic, value, "k", 0)
                self.sent += 1
                time.sleep(0.001)
        except Exception as exc:
            self.error = exc

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def wait_delivered(self, more, timeout_s=120.0):
        goal = self.sender.counts.delivered + more
        self._wait(lambda: self.sender.counts.delivered >= goal, timeout_s)

    def wait_held_back(self, records, timeout_s=120.0):
        """Wait until so many records are under way: the broker takes none."""
        self._wait(lambda: self.sender.counts.in_flight >= records, timeout_s)

    def _wait(self, condition, timeout_s):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert self.error is None
            assert time.monotonic() < deadline, self.sender.counts
            time.sleep(0.01)


@contextmanager
def gone(cluster):
    """The broker is killed; at the end of the block it is there again."""
    cluster.kill_broker()
    try:
        yield
    finally:
        cluster.restart_broker()


def _numbers(settings, topic):
    return [int(message.value[:10]) for message in read_to_end(settings, topic)]


def test_records_of_a_running_producer_survive_kill_9_of_the_broker(
    settings, local_cluster, topic
):
    with Feed(settings, topic) as feed:
        feed.wait_delivered(200)
        with gone(local_cluster):
            feed.wait_held_back(500)
        feed.wait_delivered(200)
    assert feed.error is None
    assert feed.sender.flush(120.0) == 0
    assert _numbers(settings, topic) == list(range(feed.sent))


def test_consumer_goes_on_where_it_was_after_kill_9_of_the_broker(
    settings, local_cluster, topic
):
    consumer = make_consumer(
        settings, group=None, client_id="test", traffic=Traffic.BULK
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    numbers = []

    def consume_until(goal):
        deadline = time.monotonic() + 120.0
        while len(numbers) < goal:
            assert time.monotonic() < deadline
            for message in consumer.consume(100, 0.1):
                if (error := message.error()) is None:
                    numbers.append(int(message.value()[:10]))
                else:  # a broker that has just come back may not know the topic yet
                    assert error.code() not in OUT_OF_RANGE

    with closing(consumer), Feed(settings, topic) as feed:
        consume_until(200)
        with gone(local_cluster):
            pass
        consume_until(len(numbers) + 500)
    assert feed.error is None
    assert numbers == list(range(len(numbers)))


def test_frozen_broker_delays_but_loses_nothing(settings, local_cluster, topic):
    with Feed(settings, topic) as feed:
        feed.wait_delivered(200)
        pid = local_cluster.pids()["kafka"]
        os.kill(pid, signal.SIGSTOP)
        try:
            feed.wait_held_back(1_500)
        finally:
            os.kill(pid, signal.SIGCONT)
        feed.wait_delivered(200)
    assert feed.error is None
    assert feed.sender.flush(120.0) == 0
    assert _numbers(settings, topic) == list(range(feed.sent))


def test_broker_that_is_stopped_under_load_loses_nothing(
    settings, local_cluster, topic
):
    with Feed(settings, topic) as feed:
        feed.wait_delivered(200)
        try:
            local_cluster.stop()
        finally:
            local_cluster.start()
        feed.wait_delivered(200)
    assert feed.error is None
    assert feed.sender.flush(120.0) == 0
    assert _numbers(settings, topic) == list(range(feed.sent))
