"""Ids of topics: all asked for at once, in time, and nobody waits for them."""

import threading
import time

import pytest

from infra.kafka.identity import TopicIdentity
from infra.monitoring import topic_ids
from infra.monitoring.topic_ids import EVERY_S, TopicIds

PATIENCE_S = 60.0


@pytest.fixture
def clock(monkeypatch):
    now = [1_000.0]
    monkeypatch.setattr(topic_ids.time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def asked(monkeypatch):
    """Each question; the answer is what the test has set, once it lets it come."""
    questions, answers, go = [], {}, threading.Semaphore(0)

    def read(admin, topics):
        questions.append(list(topics))
        assert go.acquire(timeout=PATIENCE_S)
        if "error" in answers:
            raise answers["error"]
        return {topic: answers.get(topic) for topic in topics}

    monkeypatch.setattr(topic_ids, "read_topic_identities", read)
    return questions, answers, go


def answer(ids, go):
    go.release()
    deadline_s = time.perf_counter() + PATIENCE_S
    while not ids._asked.done():
        time.sleep(0.001)
        assert time.perf_counter() < deadline_s
    return ids.poll([], False)


def test_all_are_asked_for_at_once_and_again_in_time(asked, clock):
    questions, answers, go = asked
    answers |= {"a": TopicIdentity("A", 1), "gone": None}
    ids = TopicIds(None)
    assert ids.poll([], True) == {} and not questions
    assert ids.poll(["a", "gone"], False) == {}
    assert ids.poll(["a"], True) == {}, "one question at a time"
    assert answer(ids, go) == {"a": "A"}
    clock[0] += EVERY_S - 0.1
    assert ids.poll(["a"], False) == {} and len(questions) == 1
    ids.poll(["a"], True)
    assert answer(ids, go) == {"a": "A"}, "sooner where one is not known"
    clock[0] += EVERY_S
    ids.poll(["a"], False)
    answer(ids, go)
    assert questions == [["a", "gone"], ["a"], ["a"]]


def test_no_answer_tells_nothing_and_it_is_asked_again(asked, clock):
    questions, answers, go = asked
    answers["error"] = TimeoutError()
    ids = TopicIds(None)
    ids.poll(["a"], True)
    assert answer(ids, go) == {}
    clock[0] += EVERY_S
    del answers["error"]
    answers["a"] = TopicIdentity("A", 1)
    ids.poll(["a"], True)
    assert answer(ids, go) == {"a": "A"}
    assert len(questions) == 2
