from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException

from infra.kafka.reading import patiently


class Broker:
    """Answers with errors first."""

    def __init__(self, *codes):
        self.codes = list(codes)
        self.asked = 0

    def __call__(self, left_s):
        self.asked += 1
        if self.codes:
            raise KafkaException(KafkaError(self.codes.pop(0)))
        return "answer"


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """The time, which only sleeping takes."""
    now_s = [1_000.0]

    def sleep(seconds):
        now_s[0] += seconds

    clock = SimpleNamespace(monotonic=lambda: now_s[0], sleep=sleep)
    monkeypatch.setattr("infra.kafka.reading.time", clock)
    return now_s


def test_an_error_that_passes_is_waited_out():
    broker = Broker(KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.NOT_COORDINATOR)
    assert patiently(broker, 5.0) == "answer"
    assert broker.asked == 3


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.UNKNOWN_LEADER_EPOCH,
    ],
)
def test_a_new_leader_is_waited_for(code):
    assert patiently(Broker(code), 5.0) == "answer"


def test_an_error_that_stays_is_raised_at_once():
    broker = Broker(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException):
        patiently(broker, 5.0)
    assert broker.asked == 1


def test_patience_ends(clock):
    broker = Broker(*[KafkaError.NOT_COORDINATOR] * 100)
    began_s = clock[0]
    with pytest.raises(KafkaException):
        patiently(broker, 0.35)
    assert broker.asked > 1 and clock[0] - began_s <= 0.35


def test_a_topic_that_stays_unknown_is_not_waited_for_as_long(clock):
    broker = Broker(*[KafkaError.UNKNOWN_TOPIC_OR_PART] * 1000)
    began_s = clock[0]
    with pytest.raises(KafkaException):
        patiently(broker, 30.0, unknown_s=0.35)
    assert broker.asked > 1 and clock[0] - began_s <= 0.35

    broker = Broker(KafkaError._UNKNOWN_PARTITION)
    assert patiently(broker, 30.0) == "answer"


def test_a_client_that_repeats_what_it_remembers_is_made_to_ask_anew():
    broker = Broker(*[KafkaError._UNKNOWN_PARTITION] * 1000)
    refreshed = []

    def refresh(left_s):
        refreshed.append(left_s)
        broker.codes.clear()

    assert patiently(broker, 5.0, refresh=refresh) == "answer"
    assert broker.asked == 2 and len(refreshed) == 1


def test_a_refresh_that_fails_is_not_the_end():
    broker = Broker(*[KafkaError._UNKNOWN_PARTITION] * 2)

    def refresh(left_s):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    assert patiently(broker, 5.0, refresh=refresh) == "answer"


def test_a_client_that_was_not_answered_for_long_does_not_know(clock):
    """The brokers or the machine stood still; "unknown" is all that it can say."""
    broker = Broker(KafkaError._UNKNOWN_PARTITION)

    def ask(left_s):
        if broker.codes:
            clock[0] += 12.0
        return broker(left_s)

    assert patiently(ask, 30.0) == "answer"
    assert broker.asked == 2
