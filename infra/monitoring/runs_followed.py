"""Brokers -> how every run of an experiment is, followed together."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from infra.control.desired import PublishedExperiment
from infra.monitoring.control_topics import ControlTopics
from infra.monitoring.lag.clock_gap import ClockGap
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.newest_records import NewestRecords
from infra.monitoring.run_fold import ENDED, RunFold
from infra.monitoring.snapshot import ExperimentView
from infra.settings import Settings
from schemas.topics import EVENTS, METRICS, Topic, topic_name

MAX_RUNS = 500
"""More than so many are not followed: those that go on are, and then the newest."""

# How much of the past is heard at first, shared out within bounds: a record takes
# a tenth of a millisecond. A dozen runs say as much in minutes.
_METRICS, _METRICS_OF_ONE = 40_000, (100, 10_000)
# Alerts that are on may have come long ago.
_EVENTS, _EVENTS_OF_ONE = 40_000, (500, 5_000)


class RunsFollowed:
    """Follows the newest run of each experiment; those that are deleted are gone."""

    def __init__(self, settings: Settings) -> None:
        """Begin with what there is; nobody waits yet."""
        self._control = ControlTopics(settings)
        self._records = NewestRecords(settings, "watch")
        self._runs: dict[str, RunFold] = {}
        self._clock = ClockGap()
        self._hear = {METRICS.suffix: RunFold.hear, EVENTS.suffix: RunFold.tell}

    def look(self) -> None:
        """See which experiments there are now.

        Raises:
            RollstreamError: the brokers do not answer.
            KafkaException: likewise.
            TimeoutError: likewise.
        """
        self._control.poll()
        chosen = self._chosen()
        for name in self._runs.keys() - chosen.keys():
            del self._runs[name]
        begun = [
            name
            for name, published in chosen.items()
            if name not in self._runs or self._runs[name].run_id != published.run_id
        ]
        again = [name for name in begun if name in self._runs]
        for name in begun:
            self._runs[name] = RunFold(name, chosen[name].run_id, self._clock)
        counts = self._counts()
        self._records.follow(
            {
                topic_name(topic, name): count
                for name in self._runs
                for topic, count in counts
            }
        )
        for name in again:
            for topic, count in counts:
                self._records.again(topic_name(topic, name), count)

    @property
    def answered_s(self) -> float:
        """When a broker has answered last, seconds since the epoch.

        Where there are no experiments, none is asked: that is so now.
        """
        return self._records.answered_s if self._runs else time.time()

    def hear(self, timeout_s: float) -> None:
        """Take in what has come; wait at most ``timeout_s`` for more."""
        messages = self._records.poll(timeout_s)
        later = self._forget(self._records.begun_anew())
        for message in messages:
            _, name, suffix = message.topic.split(".", 2)
            run = self._runs.get(name)
            if run is not None and message.topic not in later:
                self._hear[suffix](run, message)

    @property
    def is_caught_up(self) -> bool:
        """Whether all was heard that there was when we came."""
        return self._records.is_caught_up

    def standings(self) -> dict[Place, Standing]:
        """Return where the roles of runs that go on say that they stand."""
        return {
            place: standing
            for name, run in self._runs.items()
            if not self._is_over(name, run.run_id)
            for place, standing in run.standings.items()
        }

    def rows_per_record(self) -> dict[str, float]:
        """Return how many steps a record has, by the group that reads it."""
        return {
            group: rows
            for run in self._runs.values()
            for group, rows in run.rows_per_record.items()
        }

    def over_groups(self) -> frozenset[str]:
        """Return the groups of runs that are over: that they stand still is no news."""
        return frozenset().union(
            *(
                run.groups
                for name, run in self._runs.items()
                if self._is_over(name, run.run_id)
            )
        )

    def views(self, now_s: float) -> tuple[ExperimentView, ...]:
        """Return how each is, by name."""
        experiments = self._control.experiments
        return tuple(
            run.view(experiments[name], self._control.status(name), now_s)
            for name, run in sorted(self._runs.items())
            if name in experiments
        )

    def close(self) -> None:
        """Leave the brokers."""
        self._records.close()
        self._control.close()

    def _forget(self, anew: Collection[str]) -> set[str]:
        """Begin those afresh of which a topic was made anew.

        Returns:
            their other topics, which are to be read again as well.
        """
        again = set()
        for name in {topic.split(".", 2)[1] for topic in anew} & self._runs.keys():
            run_id = self._runs[name].run_id
            self._runs[name] = RunFold(name, run_id, self._clock)
            for kind, count in self._counts():
                topic = topic_name(kind, name)
                if topic not in anew:
                    self._records.again(topic, count)
                    again.add(topic)
        return again

    def _chosen(self) -> Mapping[str, PublishedExperiment]:
        experiments = self._control.experiments
        if len(experiments) <= MAX_RUNS:
            return experiments

        def rank(item: tuple[str, PublishedExperiment]) -> tuple[bool, str]:
            name, published = item
            return not self._is_over(name, published.run_id), published.run_id

        return dict(sorted(experiments.items(), key=rank)[-MAX_RUNS:])

    def _counts(self) -> tuple[tuple[Topic, int], ...]:
        return (
            (METRICS, self._share(_METRICS, *_METRICS_OF_ONE)),
            (EVENTS, self._share(_EVENTS, *_EVENTS_OF_ONE)),
        )

    def _share(self, of: int, least: int, most: int) -> int:
        return max(least, min(most, of // max(1, len(self._runs))))

    def _is_over(self, name: str, run_id: str) -> bool:
        status = self._control.status(name)
        return status is not None and status.run_id == run_id and status.state in ENDED
