"""What roles publish of where they stand -> standings by partition of a group."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from confluent_kafka import KafkaException

from infra.kafka.reading import Message
from infra.monitoring.lag.groups import no_answer
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.lag.own_groups import READS
from infra.monitoring.metric_tails import read_tails
from infra.monitoring.newest_records import NewestRecords
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import MetricsPoint
from schemas.topics import METRICS, group_name, topic_name

RECORDS = 512
"""Of each experiment, the newest: a report a second of dozens of processes."""

_UNITS = ("batches", "records")
"""What a role counts of what it has read: batches, or records as they are."""


class Standings:
    """The newest standings of an experiment's newest run; pure."""

    def __init__(self, experiment: str) -> None:
        """Begin with nothing heard."""
        self._experiment = experiment
        self._run_id = ""
        self._standings: dict[Place, Standing] = {}
        self._points: dict[tuple[str, int], MetricsPoint] = {}

    def hear(self, message: Message) -> None:
        """Take in a record of its metrics; what is none is passed over."""
        point = decode_or_none(message.value, MetricsPoint)
        if point is not None:
            self.add(point, message.timestamp_ms / 1000)

    def add(self, point: MetricsPoint, at_s: float) -> None:
        """Take in a record that was appended at a time, by the broker's clock."""
        if point.experiment != self._experiment:
            return
        if point.role not in READS or not (point.values or point.positions):
            return  # it lives, and what it said before holds
        if point.run_id < self._run_id:
            return  # ids sort by time
        if point.run_id > self._run_id:
            self._run_id = point.run_id
            self._standings, self._points = {}, {}
        self._points[point.role, point.index] = point
        topic = topic_name(READS[point.role], self._experiment)
        group = group_name(self._experiment, point.role)
        waits = point.role == "learner" and bool(point.values.get("can_learn"))
        for each in point.positions:
            # A learner also tells of topics of other experiments, which it reads
            # without a group.
            if each.topic == topic:
                # After a rebalance two processes may tell of it: the last one has it.
                self._standings[Place(group, topic, each.partition)] = Standing(
                    each.position, each.held, at_s, waits
                )

    @property
    def by_place(self) -> Mapping[Place, Standing]:
        """Where its roles stand."""
        return self._standings

    @property
    def rows_per_record(self) -> dict[str, float]:
        """Steps of environments in a record, by the group that reads it."""
        found = {}
        for role in READS:
            points = [p for (of, _), p in self._points.items() if of == role]
            steps = sum(p.values.get("env_steps", 0.0) for p in points)
            records = sum(_records(p) for p in points)
            if steps > 0 and records > 0:
                found[group_name(self._experiment, role)] = steps / records
        return found


def _records(point: MetricsPoint) -> float:
    return next((point.values[u] for u in _UNITS if u in point.values), 0.0)


def read_standings(
    settings: Settings, experiments: Collection[str]
) -> dict[Place, Standing]:
    """Return what the newest metrics of experiments say; one look.

    Raises:
        RollstreamError: the brokers do not answer.
    """
    return read_told(settings, experiments)[0]


def read_told(
    settings: Settings, experiments: Collection[str]
) -> tuple[dict[Place, Standing], dict[str, float]]:
    """Return the standings, and ``rows_per_record`` of all groups; one look.

    Raises:
        RollstreamError: the brokers do not answer.
    """
    topics = {topic_name(METRICS, name): name for name in experiments}
    try:
        tails = read_tails(settings, dict.fromkeys(topics, RECORDS))
    except (KafkaException, TimeoutError) as exc:
        raise no_answer(exc) from exc
    standings: dict[Place, Standing] = {}
    rows: dict[str, float] = {}
    for topic, messages in tails.items():
        told = Standings(topics[topic])
        for message in messages:
            told.hear(message)
        standings |= told.by_place
        rows |= told.rows_per_record
    return standings, rows


class StandingsFollower:
    """Hears where the roles of many experiments stand.

    Not safe for threads: one thread calls follow, hear and close.
    """

    def __init__(self, settings: Settings) -> None:
        """Follow nothing yet."""
        self._records = NewestRecords(settings, "standings")
        self._of: dict[str, Standings] = {}

    def follow(self, experiments: Collection[str]) -> None:
        """Hear of these from now on, beginning with what they told last."""
        topics = {topic_name(METRICS, name): name for name in experiments}
        self._of = {
            topic: self._of.get(topic) or Standings(name)
            for topic, name in topics.items()
        }
        self._records.follow(dict.fromkeys(topics, RECORDS))

    def hear(self, timeout_s: float = 0.0) -> Mapping[Place, Standing]:
        """Return where all stand, as far as they have told."""
        for message in self._records.poll(timeout_s):
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
