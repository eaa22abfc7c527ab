"""Whether the trajectories are still the log that is being read.

Faust resets a position that a new topic of the old name does not reach, and then hands
out offsets that look as if they had been handled before: without a look at the topic's
id, all of that is passed over, and nobody is told.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from confluent_kafka import KafkaException

from infra.control.role import RoleContext
from infra.kafka.clients import make_admin
from infra.kafka.identity import TopicIdentity, read_topic_identity
from infra.kafka.open_transactions import OpenTransactions, held_back
from infra.monitoring.reporter import Reporter
from schemas.errors import SchemaError
from schemas.topics import TRAJECTORIES
from stream_processors.exits import Exits

LOOK_S = 1.0
GONE_AFTER_S = 5.0
"""How long a topic may be unknown: a broker that has just started knows none yet."""


class AnotherLog(RuntimeError):
    """The topic was deleted, or made anew, while it was being read."""


def check_partition(number: int, partitions: int) -> None:
    """Raise SchemaError for a record that no worker of the experiment has written."""
    if number >= partitions:
        raise SchemaError(
            f"partition: expected one of the experiment's {partitions}, found {number}"
        )


class LogJudge:
    """Compares what a topic's name means with what it meant first; pure."""

    def __init__(self, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = self._told_partitions = partitions
        self._first: TopicIdentity | None = None
        self._gone_since: float | None = None

    def end(self, found: TopicIdentity | None, now: float) -> str:
        """Return why this is not the log that is being read; "" when it is.

        Args:
            found: the topic as it is; None: there is none.
            now: seconds of the monotonic clock.
        """
        if found is None:
            self._gone_since = now if self._gone_since is None else self._gone_since
            late = now - self._gone_since > GONE_AFTER_S
            return f"{self._topic}: the topic is gone" if late else ""
        self._gone_since = None
        self._first = self._first or found
        if found.topic_id == self._first.topic_id:
            return ""
        return (
            f"{self._topic}: expected the topic id {self._first.topic_id}, found "
            f"{found.topic_id}: the topic was made anew. It is read from its start "
            "next, but for what was committed meanwhile; the learner counts what is "
            "missing"
        )

    def added(self, found: TopicIdentity) -> str:
        """Return what to tell of partitions that are not the spec's; once each."""
        if found.partitions == self._told_partitions:
            return ""
        self._told_partitions = found.partitions
        return (
            f"{self._topic}: expected {self._partitions} partitions, found "
            f"{found.partitions}: no worker writes to others; what is found there "
            "becomes a dead letter, and the experiment cannot be launched again"
        )


class LogWatch(threading.Thread):
    """Asks for the topic's identity each second, from before it is read."""

    def __init__(self, context: RoleContext, exits: Exits, reporter: Reporter) -> None:
        super().__init__(name="log-watch", daemon=True)
        self._topic = context.topic(TRAJECTORIES)
        self._admin = make_admin(context.settings, f"{context.client_id}-log-watch")
        self._exits = exits
        self._reporter = reporter
        self._judge = LogJudge(self._topic, context.spec.topics.partitions)
        self._transactions = OpenTransactions(self._topic)

    def run(self) -> None:
        """Look, until the process ends; end it at once when this is another log.

        Not in order: an offset of the log before, committed now, would be taken for one
        of the new log's.
        """
        while True:
            try:
                # The broker may be away: that says nothing of the topic.
                with suppress(KafkaException, TimeoutError):
                    self._look()
            except Exception as exc:
                # Else nobody would notice that nobody looks any more.
                self._exits.crash(exc)
            time.sleep(LOOK_S)

    def _look(self) -> None:
        found = read_topic_identity(self._admin, self._topic)
        if reason := self._judge.end(found, time.monotonic()):
            self._exits.crash(AnotherLog(reason), kind="another-log")
        if found is None:
            return
        if news := self._judge.added(found):
            self._reporter.event("partitions-changed", "alert", news)
        waiting = held_back(self._admin, self._topic, range(found.partitions))
        for news in self._transactions.judge(waiting, time.monotonic()):
            self._reporter.event("open-transaction", "alert", news)
