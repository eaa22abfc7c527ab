"""Many topics of one partition -> their newest records, and then those that come.

One consumer for all of them. Nothing here waits for a broker, apart from the time that
a poll is given: who follows a hundred experiments has others to serve.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.offsets import BEGIN, END, ask_offsets
from infra.kafka.reading import OUT_OF_RANGE, UNKNOWN, Message, to_message
from infra.monitoring.topic_ids import TopicIds
from infra.settings import Settings

_BATCH = 1_000
_ANSWER_S = 5.0
_AGAIN_S = 1.0
_LOOK_S = 2.0
_GONE = (*UNKNOWN, KafkaError.UNKNOWN_TOPIC_ID)
_log = logging.getLogger("rollstream.watch")


@dataclass
class _Place:
    """Where one topic is read.

    Attributes:
        count: how many of its newest records are wanted.
        next: the offset that is read next; None: where it begins is not known yet.
        end: of the log when that was asked for.
        asked: for its beginning and its end.
        ask_at_s: not before, monotonic.
        is_anew: it was read before, and what was made of that is to be forgotten.
        topic_id: of the topic that is read; "": it is not known yet.
    """

    count: int
    next: int | None = None
    end: int = 0
    asked: tuple[Future[Any], Future[Any]] | None = None
    ask_at_s: float = 0.0
    is_anew: bool = False
    topic_id: str = ""

    @property
    def is_caught_up(self) -> bool:
        return self.next is not None and self.next >= self.end


class NewestRecords:
    """Follows topics that come and go; one that is made anew is read again."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        """Open it; connects when there is something to follow."""
        self._consumer = make_consumer(
            settings,
            group=None,
            client_id=client_id,
            traffic=Traffic.CONTROL,
            # Else a topic whose last record was aborted would never be caught up with.
            overrides={"enable.partition.eof": True},
        )
        self._admin = make_admin(settings, client_id)
        self._ids = TopicIds(self._admin)
        self._places: dict[str, _Place] = {}
        self._begun_anew: set[str] = set()
        self._answered_s = 0.0

    def follow(self, wanted: Mapping[str, int]) -> None:
        """Read these from now on, and no others; at first so many records of each."""
        gone = self._places.keys() - wanted.keys()
        for topic in gone:
            del self._places[topic]
            self._begun_anew.discard(topic)
        for topic in wanted.keys() - self._places.keys():
            self._places[topic] = _Place(wanted[topic])
        if gone:
            self._assign()

    def again(self, topic: str, count: int) -> None:
        """Read a topic's newest records once more: what was made of them is gone."""
        if topic in self._places:
            self._places[topic] = _Place(count)
            self._begun_anew.discard(topic)
            self._assign()

    def begun_anew(self) -> set[str]:
        """Return the topics that are read again from now on, each once.

        Such a one was deleted and made anew, or has lost what would have come next.
        What was made of its records is to be forgotten before those are taken in that
        ``poll`` returned last.
        """
        begun, self._begun_anew = self._begun_anew, set()
        return begun

    @property
    def answered_s(self) -> float:
        """When a broker has answered last, seconds since the epoch; 0: never.

        Where nothing comes this tells topics that are quiet from brokers that are away.
        """
        return self._answered_s

    @property
    def is_caught_up(self) -> bool:
        """Whether all was read that there was when each topic was first looked at.

        A topic that does not exist has nothing to read.
        """
        return all(
            each.is_caught_up or (each.next is None and each.ask_at_s > 0)
            for each in self._places.values()
        )

    def poll(self, timeout_s: float) -> list[Message]:
        """Return what has come, oldest first of each; waits at most ``timeout_s``."""
        self._find_places()
        self._look_at_ids()
        if not any(each.next is not None for each in self._places.values()):
            time.sleep(timeout_s)
            return []
        found = []
        for raw in self._consumer.consume(_BATCH, timeout_s):
            topic, error = str(raw.topic()), raw.error()
            place = self._places.get(topic)
            if place is None or place.next is None:
                continue  # fetched before it was given up
            if error is None:
                place.next = (raw.offset() or 0) + 1
                found.append(to_message(raw))
            elif error.code() == KafkaError._PARTITION_EOF:
                place.next = max(place.next, raw.offset() or 0)
            elif error.code() in (*OUT_OF_RANGE, *_GONE):
                self._reset(topic, is_absent=error.code() in _GONE)
                break
            else:
                _log.debug("%s: %s", topic, error.str())
        return found

    def close(self) -> None:
        """Leave the brokers."""
        self._consumer.close()

    def _look_at_ids(self) -> None:
        """Read those again that were made anew.

        The log tells of that only where it is shorter now than what was read.
        """
        topics = [
            topic for topic, each in self._places.items() if each.next is not None
        ]
        is_urgent = any(not self._places[topic].topic_id for topic in topics)
        for topic, topic_id in self._ids.poll(topics, is_urgent).items():
            self._answered_s = time.time()
            place = self._places.get(topic)
            if place is None or place.next is None:
                continue  # given up, or about to be read again
            if place.topic_id and place.topic_id != topic_id:
                self._reset(topic)
            else:
                place.topic_id = topic_id

    def _reset(self, topic: str, is_absent: bool = False) -> None:
        """Read a topic's newest once more, as soon as its beginning is known."""
        self._places[topic] = _Place(
            self._places[topic].count,
            # Not at once: who knows no topic may say so again and again.
            ask_at_s=time.monotonic() + _AGAIN_S if is_absent else 0.0,
            is_anew=True,
        )
        self._assign()

    def _find_places(self) -> None:
        """Ask where new topics begin and end, and begin with those that answer."""
        now_s = time.monotonic()
        ask = [
            topic
            for topic, place in self._places.items()
            if place.next is None and place.asked is None and now_s >= place.ask_at_s
        ]
        if ask:
            self._ask(ask)
        answered = False
        for topic, place in self._places.items():
            if place.asked is not None and all(each.done() for each in place.asked):
                self._take_answer(place, now_s)
                if place.next is not None:
                    answered = True
                    if place.is_anew:
                        self._begun_anew.add(topic)
        if answered:
            self._assign()

    def _ask(self, topics: list[str]) -> None:
        places = [(topic, 0) for topic in topics]
        first, end = ask_offsets(
            self._admin, places, _ANSWER_S, BEGIN, END, look_s=_LOOK_S
        )
        for place in places:
            self._places[place[0]].asked = first[place], end[place]

    def _take_answer(self, place: _Place, now_s: float) -> None:
        assert place.asked is not None
        try:
            begin, end = (int(each.result(0).offset) for each in place.asked)
        except KafkaException as exc:
            _log.debug("where a topic ends: %s", exc)
            place.asked, place.ask_at_s = None, now_s + _AGAIN_S
            return
        self._answered_s = time.time()
        place.asked, place.end = None, end
        place.next = max(begin, end - place.count)

    def _assign(self) -> None:
        self._consumer.assign(
            [
                TopicPartition(topic, 0, place.next)
                for topic, place in self._places.items()
                if place.next is not None
            ]
        )
