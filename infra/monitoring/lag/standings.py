"""What roles publish of where they stand -> standings by partition of a group."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

from confluent_kafka import KafkaException

from infra.kafka.reading import Message
from infra.monitoring.lag.clock_gap import ClockGap
from infra.monitoring.lag.groups import no_answer
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.lag.own_groups import READS
from infra.monitoring.metric_tails import read_tails
from infra.monitoring.newest_records import NewestRecords
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import MetricsPoint, Position
from schemas.topics import METRICS, group_name, topic_name

RECORDS = 512
"""Of each experiment, the newest: a report a second of dozens of processes."""

MOST_PLACES = 8_192
MOST_PROCESSES = 32_768
"""Of an experiment: more than its spec can ask for."""

MOST_ROWS = 1e9
"""Steps of environments in a record, at the most that is believed."""

# Each role tells more often than the first; what is silent for longer than the second
# is gone, by any clock.
_TOLD_EACH_S = 3.0
_DOUBTED_S = 120.0
_LISTEN_S = 2.5

Key = TypeVar("Key")
Value = TypeVar("Value")

_UNITS = ("batches", "records")
"""What a role counts of what it has read: batches, or records as they are."""


class Standings:
    """The newest standings of an experiment's newest run.

    Bounded, whatever the records say: of places and of processes those that were told
    of last are kept, and numbers that make no sense are passed over.
    """

    def __init__(self, experiment: str, clock: ClockGap | None = None) -> None:
        """Begin with nothing heard.

        Args:
            experiment: whose.
            clock: of the brokers; shared by who hears of many experiments.
        """
        self._experiment = experiment
        self._clock = clock or ClockGap()
        self._run_id = ""
        self._standings: dict[Place, Standing] = {}
        self._points: dict[tuple[str, int], MetricsPoint] = {}

    def hear(self, message: Message) -> None:
        """Take in a record of its metrics; what is none is passed over."""
        point = decode_or_none(message.value, MetricsPoint)
        if point is not None:
            self.add(point, message.timestamp_ms / 1000)

    def add(
        self, point: MetricsPoint, at_s: float, heard_s: float | None = None
    ) -> None:
        """Take in a record.

        Args:
            point: the record.
            at_s: when it was appended, by the broker's clock.
            heard_s: when it was heard of, by this host's; None: now.
        """
        if point.experiment != self._experiment:
            return
        self._clock.hear(at_s, time.time() if heard_s is None else heard_s)
        if point.role not in READS or not (point.values or point.positions):
            return  # it lives, and what it said before holds
        if point.run_id < self._run_id:
            return  # ids sort by time
        if point.run_id > self._run_id:
            self._run_id = point.run_id
            self._standings, self._points = {}, {}
        _put(self._points, (point.role, point.index), point, MOST_PROCESSES)
        topic = topic_name(READS[point.role], self._experiment)
        group = group_name(self._experiment, point.role)
        waits = point.role == "learner" and bool(point.values.get("can_learn"))
        for each in point.positions:
            # A learner also tells of topics of other experiments, which it reads
            # without a group.
            if each.topic == topic and _is_possible(each):
                # After a rebalance two processes may tell of it: the last one has it.
                place = Place(group, topic, each.partition)
                standing = Standing(each.position, each.held, at_s, waits)
                _put(self._standings, place, standing, MOST_PLACES)

    @property
    def by_place(self) -> Mapping[Place, Standing]:
        """Where its roles stand, the times by this host's clock."""
        # Copied first: another thread may ask.
        told, ahead_s = dict(self._standings), self._clock.ahead_s
        if ahead_s is None:
            return told
        return {
            place: replace(each, at_s=each.at_s + ahead_s, ahead_s=ahead_s)
            for place, each in told.items()
        }

    @property
    def rows_per_record(self) -> dict[str, float]:
        """Steps of environments in a record, by the group that reads it."""
        found, told = {}, list(self._points.items())
        for role in READS:
            points = [p for (of, _), p in told if of == role]
            steps = sum(p.values.get("env_steps", 0.0) for p in points)
            records = sum(_records(p) for p in points)
            rows = steps / records if steps > 0 and records > 0 else 0.0
            # Not so of what is no number: such a one would reach all who ask for lag.
            if 0 < rows <= MOST_ROWS:
                found[group_name(self._experiment, role)] = rows
        return found


def _records(point: MetricsPoint) -> float:
    return next((point.values[u] for u in _UNITS if u in point.values), 0.0)


def _is_possible(each: Position) -> bool:
    return each.partition >= 0 and each.position >= 0 and each.held >= 0


def _put(of: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Set it; the one that was set longest ago goes where there are too many."""
    of.pop(key, None)
    of[key] = value
    if len(of) > most:
        del of[next(iter(of))]


def read_told(
    settings: Settings, experiments: Collection[str]
) -> tuple[dict[Place, Standing], dict[str, float]]:
    """Return the standings, and ``rows_per_record`` of all groups; one look.

    Where all that was told is some seconds old, either nobody tells anything or this
    host's clock is ahead: then it listens for a few seconds more, which shows it.

    Raises:
        RollstreamError: the brokers do not answer.
    """
    clock = ClockGap()
    told = {topic_name(METRICS, name): Standings(name, clock) for name in experiments}
    try:
        tails = read_tails(settings, dict.fromkeys(told, RECORDS))
        for topic, messages in tails.items():
            for message in messages:
                told[topic].hear(message)
        standing = [topic for topic in told if told[topic].by_place]
        if standing and _is_in_doubt(time.time() - clock.newest_s):
            _listen(settings, {topic: told[topic] for topic in standing}, clock)
    except (KafkaException, TimeoutError) as exc:
        raise no_answer(exc) from exc
    standings: dict[Place, Standing] = {}
    rows: dict[str, float] = {}
    for each in told.values():
        standings |= each.by_place
        rows |= each.rows_per_record
    return standings, rows


def _is_in_doubt(age_s: float) -> bool:
    return _TOLD_EACH_S < age_s < _DOUBTED_S or age_s < -_TOLD_EACH_S


def _listen(settings: Settings, told: Mapping[str, Standings], clock: ClockGap) -> None:
    """Hear what comes, until that has shown how far apart the clocks are."""
    until_s = time.monotonic() + _LISTEN_S
    with closing(NewestRecords(settings, "standings")) as records:
        records.follow(dict.fromkeys(told, 1))
        while clock.ahead_s is None and time.monotonic() < until_s:
            for message in records.poll(0.05):
                told[message.topic].hear(message)


class StandingsFollower:
    """Hears where the roles of many experiments stand.

    Not safe for threads: one thread calls follow, hear and close.
    """

    def __init__(self, settings: Settings) -> None:
        """Follow nothing yet."""
        self._records = NewestRecords(settings, "standings")
        self._clock = ClockGap()
        self._names: dict[str, str] = {}
        self._of: dict[str, Standings] = {}

    def follow(self, experiments: Collection[str]) -> None:
        """Hear of these from now on, beginning with what they told last."""
        self._names = {topic_name(METRICS, name): name for name in experiments}
        self._of = {
            topic: self._of.get(topic) or Standings(name, self._clock)
            for topic, name in self._names.items()
        }
        self._records.follow(dict.fromkeys(self._names, RECORDS))

    def hear(self, timeout_s: float = 0.0) -> Mapping[Place, Standing]:
        """Return where all stand, as far as they have told."""
        messages = self._records.poll(timeout_s)
        for topic in self._records.begun_anew() & self._of.keys():
            # Offsets of a topic that is gone would be compared with those of another.
            self._of[topic] = Standings(self._names[topic], self._clock)
        for message in messages:
            if message.topic in self._of:
                self._of[message.topic].hear(message)
        return {
            place: standing
            for told in self._of.values()
            for place, standing in told.by_place.items()
        }

    @property
    def is_caught_up(self) -> bool:
        """Whether all was heard that there was when each was first followed."""
        return self._records.is_caught_up

    @property
    def rows_per_record(self) -> dict[str, float]:
        """Steps of environments in a record, by the group that reads it."""
        return {
            group: rows
            for told in self._of.values()
            for group, rows in told.rows_per_record.items()
        }

    def close(self) -> None:
        """Leave the brokers."""
        self._records.close()
