"""The ends of many metrics topics -> the newest figures of each experiment.

What `rollstream ps` shows: one consumer for all, and a few records of each topic.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.offsets import BEGIN, END, ask_offsets
from infra.kafka.reading import Message, to_message
from infra.monitoring.metric_records import mean_of, metric_or_none, returns_of
from infra.monitoring.summary import Summary
from infra.settings import Settings
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint
from schemas.topics import METRICS, topic_name

_TIMEOUT_S = 20.0
_BATCH = 2_000
_EPISODES = 100

TOPIC_BYTES = 32 * 2**20
"""What is kept of one topic at most, whatever its records hold."""

Record = TypeVar("Record", MetricsPoint, Evaluation, EpisodesFinished)


@dataclass(frozen=True)
class Figures:
    """What the newest metrics of a run say; None: nothing.

    Attributes:
        mean_return: of the newest evaluation, or else of the newest episodes.
        is_greedy: it is of an evaluation.
    """

    env_steps: int | None = None
    updates: int | None = None
    mean_return: float | None = None
    is_greedy: bool = False

    @classmethod
    def of(cls, summary: Summary | None) -> Figures:
        """Return what was published of a run, some seconds ago or long ago."""
        if summary is None:
            return cls()
        mean = summary.eval_return_mean
        return cls(summary.env_steps, summary.updates, mean, mean is not None)

    def after(self, told: Figures) -> Figures:
        """Return these, where nothing is told already that says more.

        Counters do not go back: of the two that are known the larger counts.
        """
        from_told = told.is_greedy and not self.is_greedy
        return Figures(
            _larger(self.env_steps, told.env_steps),
            _larger(self.updates, told.updates),
            told.mean_return if from_told else self.mean_return,
            self.is_greedy or told.is_greedy,
        )


def _larger(one: int | None, other: int | None) -> int | None:
    return max((each for each in (one, other) if each is not None), default=None)


def read_figures(
    settings: Settings, run_ids: Mapping[str, str], records: Mapping[str, int]
) -> dict[str, Figures]:
    """Return the newest figures of many experiments.

    Args:
        settings: where the cluster is.
        run_ids: of each experiment.
        records: how many of its newest metrics are looked at.
    """
    tails = read_tails(
        settings, {topic_name(METRICS, name): records[name] for name in run_ids}
    )
    return {
        name: figures_of(tails.get(topic_name(METRICS, name), []), run_id)
        for name, run_id in run_ids.items()
    }


def figures_of(tail: list[Message], run_id: str) -> Figures:
    """Return what a run's newest metrics say; oldest first. Few are decoded."""
    learner = _newest(tail, "learner/0", MetricsPoint, run_id)
    values = learner.values if learner else {}
    mean, is_greedy = _mean_return(tail, run_id)
    return Figures(
        env_steps=int(values["env_steps"]) if "env_steps" in values else None,
        updates=int(values["updates"]) if "updates" in values else None,
        mean_return=mean,
        is_greedy=is_greedy,
    )


def read_tails(
    settings: Settings, records: Mapping[str, int]
) -> dict[str, list[Message]]:
    """Return the newest records of topics of one partition, at most so many of each.

    Topics that do not exist are absent; so is what does not come within seconds, and
    what is older than the newest TOPIC_BYTES.
    """
    starts = _starts(settings, records)
    if not starts:
        return {}
    found = {topic: Newest() for topic in starts}
    consumer = make_consumer(
        settings,
        group=None,
        client_id="tails",
        traffic=Traffic.CONTROL,
        overrides={"enable.partition.eof": True},
    )
    with closing(consumer):
        consumer.assign(
            [TopicPartition(topic, 0, start) for topic, start in starts.items()]
        )
        _read(consumer, found)
    return {topic: list(newest.messages) for topic, newest in found.items()}


@dataclass
class Newest:
    """The newest records of a topic, and no more bytes of them than TOPIC_BYTES."""

    messages: deque[Message] = field(default_factory=deque)
    bytes_kept: int = 0

    def add(self, message: Message) -> None:
        """Keep it; let go of the oldest that are too much then."""
        self.messages.append(message)
        self.bytes_kept += _size(message)
        while self.bytes_kept > TOPIC_BYTES:
            self.bytes_kept -= _size(self.messages.popleft())


def _size(message: Message) -> int:
    return len(message.value) + len(message.key)


def _read(consumer: Consumer, found: dict[str, Newest]) -> None:
    open_topics, deadline_s = set(found), time.monotonic() + _TIMEOUT_S
    while open_topics and time.monotonic() < deadline_s:
        # The client waits for as many as are asked for, unless the time is up.
        for raw in consumer.consume(_BATCH, 0.05):
            error = raw.error()
            if error is None:
                found[str(raw.topic())].add(to_message(raw))
            elif error.code() == KafkaError._PARTITION_EOF:
                open_topics.discard(str(raw.topic()))


def _starts(settings: Settings, records: Mapping[str, int]) -> dict[str, int]:
    admin = make_admin(settings)
    places = [(topic, 0) for topic in records]
    first, end = (
        {topic: _offset(future) for (topic, _), future in each.items()}
        for each in ask_offsets(admin, places, _TIMEOUT_S, BEGIN, END)
    )
    starts = {}
    for topic, count in records.items():
        begin, last = first[topic], end[topic]
        if begin is not None and last is not None and last > begin:
            starts[topic] = max(begin, last - count)
    return starts


def _offset(future: Future[Any]) -> int | None:
    try:
        return int(future.result(_TIMEOUT_S).offset)
    except KafkaException:
        return None  # no such topic any more


def _mean_return(tail: list[Message], run_id: str) -> tuple[float | None, bool]:
    evaluation = _newest(tail, "evaluator/0", Evaluation, run_id)
    if evaluation is not None:
        return mean_of(returns_of(evaluation)), True
    returns: list[float] = []
    for message in reversed(tail):
        if len(returns) >= _EPISODES:
            break
        if message.key.startswith("worker/"):
            episodes = _decoded(message, EpisodesFinished, run_id)
            returns += returns_of(episodes).tolist() if episodes else []
    return (mean_of(returns), False) if returns else (None, False)


def _newest(
    tail: list[Message], key: str, kind: type[Record], run_id: str
) -> Record | None:
    for message in reversed(tail):
        if message.key == key:
            found = _decoded(message, kind, run_id)
            is_beat = isinstance(found, MetricsPoint) and not found.values
            if found is not None and not is_beat:
                return found
    return None


def _decoded(message: Message, kind: type[Record], run_id: str) -> Record | None:
    record: Record | None = metric_or_none(message.value, kind)
    return record if record and record.run_id == run_id else None
