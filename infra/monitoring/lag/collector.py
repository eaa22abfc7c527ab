"""Consumer groups and logs -> the lag of each partition that a group reads.

Committed offsets are read first and the logs' ends second, so that no lag is negative.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import closing

from confluent_kafka import KafkaException

from infra.kafka.clients import make_admin
from infra.kafka.coordinators import Coordinators
from infra.kafka.group_protocol import Partition
from infra.kafka.identity import TopicIdentity, read_topic_identities
from infra.monitoring.lag.groups import Group, Groups, Wanted, no_answer
from infra.monitoring.lag.logs import Log, read_logs
from infra.monitoring.lag.model import LagReport, Place, Sample, Standing
from infra.monitoring.lag.own_groups import topic_of
from infra.monitoring.lag.reports import Look, report_of
from infra.monitoring.lag.unread import ONE_LOOK, Unread
from infra.monitoring.lag.window import Window
from infra.settings import Settings

__all__ = ["Collector", "Look", "Wanted", "read_lag", "report_of"]

ANSWER_S = 3.0
"""How long each of the few questions of a look may take, where others follow."""

PATIENCE_S = 20.0
"""Likewise where there is one look: brokers that are busy answer late."""


class Collector:
    """Looks at groups and logs, again and again. Not safe for threads."""

    def __init__(
        self,
        settings: Settings,
        groups: Groups,
        client_id: str,
        answer_s: float = ANSWER_S,
    ) -> None:
        """Connect.

        Args:
            settings: where the cluster is.
            groups: which are looked at; what it remembers outlives the connection.
            client_id: names us in the broker's logs.
            answer_s: how long each question may take.
        """
        self._answer_s = answer_s
        self._admin = make_admin(settings, client_id)
        self._coordinators = Coordinators(settings, client_id)
        self._groups = groups
        self._ends: dict[Partition, tuple[str, int]] = {}

    def look(self, standings: Callable[[], Mapping[Place, Standing]]) -> Look:
        """Look once, in an order in which no lag can be negative.

        1. What is committed, and who is in the groups.
        2. Where roles say that they stand.
        3. Which topics the names mean.
        4. Where the logs begin and end.

        Raises:
            KafkaUnavailable: the brokers do not answer.
        """
        began_s = time.monotonic()
        groups = self._groups.read(self._admin, self._coordinators, self._answer_s)
        told = standings()
        ahead_s = _ahead_s(told)
        try:
            topics, absent = self._topics(groups)
            places, unread = _places(groups, topics, absent)
            partitions = {(place.topic, place.partition) for place in places}
            logs, silent = read_logs(self._admin, topics, partitions, self._answer_s)
            stale = self._stale(logs)
        except (KafkaException, TimeoutError) as exc:
            raise no_answer(exc) from exc
        samples = {}
        for place in places:
            where = place.topic, place.partition
            if where in logs and place.topic not in stale:
                group = groups[place.group]
                standing = told.get(place)
                samples[place] = _sample(group, where, logs[where], standing, ahead_s)
            else:
                unread[place] = silent.get(where, "it was made anew just now")
        took_s = time.monotonic() - began_s
        return Look(time.time(), took_s, groups, samples, unread)

    def close(self) -> None:
        """Leave the brokers."""
        self._coordinators.close()

    def _topics(
        self, groups: Mapping[str, Group]
    ) -> tuple[dict[str, TopicIdentity], dict[str, str]]:
        """Return the topics that groups read; and of the others what is with them."""
        names: set[str] = set()
        for name, group in groups.items():
            names |= {topic for topic, _ in group.committed or ()}
            names |= {topic for topic, _ in group.owners}
            if (ours := topic_of(name)) is not None:
                names.add(ours)
        topics, absent = {}, {}
        identities = read_topic_identities(self._admin, names, self._answer_s)
        for name, found in identities.items():
            if isinstance(found, TopicIdentity):
                topics[name] = found
            elif found is None:
                absent[name] = "there is no such topic"
            else:
                absent[name] = found.args[0].str()
        return topics, absent

    def _stale(self, logs: Mapping[Partition, Log]) -> set[str]:
        """Return topics that were made anew after their ids were asked for.

        An end that goes back says so, or that a broker has lost records: then the id
        is still the same.
        """
        shrunken = set()
        for (topic, number), log in logs.items():
            topic_id, end = self._ends.get((topic, number), ("", 0))
            if topic_id == log.topic_id and log.end < end:
                shrunken.add(topic)
        now = read_topic_identities(self._admin, shrunken, self._answer_s)
        stale = set()
        for (topic, _), log in logs.items():
            found = now.get(topic)
            if topic in now and getattr(found, "topic_id", None) != log.topic_id:
                stale.add(topic)
        self._ends = {
            where: (log.topic_id, log.end)
            for where, log in logs.items()
            if where[0] not in stale
        }
        return stale


def read_lag(
    settings: Settings,
    *,
    wanted: Wanted,
    standings: Mapping[Place, Standing] | None = None,
    rows_per_record: Mapping[str, float] | None = None,
) -> LagReport:
    """Look once.

    Args:
        settings: where the cluster is.
        wanted: which groups; by a condition, or by id.
        standings: where roles of ours say that they stand; None: not looked up, and
            what is committed counts.
        rows_per_record: steps of environments in a record that a group reads, by group.

    Raises:
        RollstreamError: the brokers do not answer.
    """
    with (
        closing(Collector(settings, Groups(wanted), "lag", PATIENCE_S)) as collector,
        closing(Unread(settings, "lag-unread", ONE_LOOK)) as unread,
    ):
        look = collector.look(lambda: standings or {})
        samples = unread.complete(look.samples, None)
    windows = {place: Window(sample) for place, sample in samples.items()}
    return report_of(look, windows, rows_per_record or {})


def _places(
    groups: Mapping[str, Group],
    topics: Mapping[str, TopicIdentity],
    absent: Mapping[str, str],
) -> tuple[list[Place], dict[Place, str]]:
    """Return what groups read; and what of it cannot be looked at, and why."""
    places, unread = [], {}
    for name, group in groups.items():
        if group.committed is None:
            continue
        where = group.committed.keys() | group.owners.keys()
        if (ours := topic_of(name)) is not None:
            # One stands for all of a topic that is gone.
            count = topics[ours].partitions if ours in topics else 1
            where = where | {(ours, number) for number in range(count)}
        for topic, number in where:
            place = Place(name, topic, number)
            if topic not in topics:
                unread[place] = absent.get(topic, "")
            elif not 0 <= number < topics[topic].partitions:
                unread[place] = "there is no such partition any more"
            elif number in topics[topic].leaderless:
                unread[place] = "no broker leads it"
            else:
                places.append(place)
    return places, unread


def _sample(
    group: Group,
    where: Partition,
    log: Log,
    standing: Standing | None,
    ahead_s: float,
) -> Sample:
    return Sample(
        at_s=log.at_s,
        committed=(group.committed or {}).get(where),
        begin=log.begin,
        end=log.end,
        stable_end=log.stable_end,
        topic_id=log.topic_id,
        members=group.members,
        owner=group.owners.get(where, ""),
        standing=standing,
        ahead_s=ahead_s,
    )


def _ahead_s(told: Mapping[Place, Standing]) -> float:
    """Return by how much our clock is ahead, as who told something last has shown."""
    known = [(s.at_s, s.ahead_s) for s in told.values() if s.ahead_s is not None]
    return max(known, default=(0.0, 0.0))[1]
