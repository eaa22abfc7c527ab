"""Asking the brokers where logs begin and end, and to let them begin later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import Any, NamedTuple

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec


class Question(NamedTuple):
    """Which offset of a log is asked for, and of what its readers see."""

    spec: OffsetSpec
    level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED


# Its two methods are the only untyped ones of the client.
_UNTYPED: Any = OffsetSpec
BEGIN = Question(_UNTYPED.earliest())
END = Question(_UNTYPED.latest())
STABLE_END = Question(_UNTYPED.latest(), IsolationLevel.READ_COMMITTED)

Place = tuple[str, int]
Answers = dict[Place, Future[Any]]


def ask_offsets(
    admin: AdminClient,
    places: Iterable[Place],
    timeout_s: float,
    *questions: Question,
    look_s: float | None = None,
) -> tuple[Answers, ...]:
    """Ask each question of all partitions; results have an ``offset``.

    Waits up to ``look_s`` (``timeout_s``) until it is known who leads them; who cannot
    be asked has failed by then.
    """
    places = list(places)
    failed = _leaderless(admin, places, timeout_s if look_s is None else look_s)
    led = [place for place in places if place not in failed]
    return tuple(failed | _ask(admin, led, timeout_s, each) for each in questions)


def _ask(
    admin: AdminClient, places: list[Place], timeout_s: float, question: Question
) -> Answers:
    if not places:
        return {}
    answers = admin.list_offsets(
        {TopicPartition(*place): question.spec for place in places},
        isolation_level=question.level,
        request_timeout=timeout_s,
    )
    return {(each.topic, each.partition): to for each, to in answers.items()}


def delete_before(
    admin: AdminClient, offsets: Mapping[Place, int], timeout_s: float
) -> Answers:
    """Let logs begin at offsets; results have the ``low_watermark`` that came of it."""
    found = _leaderless(admin, list(offsets), timeout_s)
    asked = [
        TopicPartition(*place, offset)
        for place, offset in offsets.items()
        if place not in found
    ]
    if asked:
        answers = admin.delete_records(asked, request_timeout=timeout_s)
        found |= {(each.topic, each.partition): to for each, to in answers.items()}
    return found


def _leaderless(admin: AdminClient, places: list[Place], timeout_s: float) -> Answers:
    """Learn who leads partitions; return, as failed, those that nobody leads.

    librdkafka 2.16 dies of asking about others: it begins to look for leaders in the
    thread that calls, and its own thread ends the look, and frees it, when metadata
    come in that moment (rd_kafka_topic_partition_list_query_leaders_async).
    """
    if not places:
        return {}
    try:
        topics = admin.list_topics(timeout=timeout_s).topics
    except KafkaException as exc:
        return {place: _failed(exc) for place in places}
    found = {}
    for topic, partition in places:
        there = topics[topic].partitions if topic in topics else {}
        if partition not in there:
            code = KafkaError.UNKNOWN_TOPIC_OR_PART
        elif there[partition].leader < 0:
            code = KafkaError.LEADER_NOT_AVAILABLE
        else:
            continue
        found[topic, partition] = _failed(KafkaException(KafkaError(code)))
    return found


def _failed(exc: KafkaException) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(exc)
    return future
