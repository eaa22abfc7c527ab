"""Nothing is read although there is something to read: known of clients, and silent.

After an outage, the leader of a group may have handed out the partitions while the
broker did not know the topic yet: every member then holds none, and waits for ever.
"""

from __future__ import annotations

from confluent_kafka import ConsumerGroupState, KafkaException

from infra.errors import RollstreamError
from infra.kafka.clients import make_admin
from infra.settings import Settings
from schemas.records import Position
from stream_processors.health import STILL_S, UNOWNED_S, Stillness
from stream_processors.log_ranges import first_offset, read_ranges

_ASK_EACH_S = 10.0
_ANSWER_S = 5.0


class Standstill:
    """Asks the broker, now and then, once no position has changed for long."""

    def __init__(self, settings: Settings, group: str, topic: str) -> None:
        self._settings = settings
        self._group = group
        self._topic = topic
        self._stillness = Stillness()
        self._asked = 0.0

    def reset(self) -> None:
        """Start to count anew: the whole process was frozen."""
        self._stillness = Stillness()

    def reason(self, positions: tuple[Position, ...], now: float) -> str:
        """Return what stands still, or "" when nothing does; may block for seconds.

        Args:
            positions: of the partitions that this process holds, in order.
            now: seconds of the monotonic clock.
        """
        still_s = self._stillness.note(positions, now)
        if still_s < (STILL_S if positions else UNOWNED_S):
            return ""
        if now - self._asked < _ASK_EACH_S:
            return ""
        self._asked = now
        try:
            found = self._unread(positions) if positions else self._unowned()
        except (KafkaException, RollstreamError, TimeoutError):
            self.reset()  # the broker is to blame, for the time until now as well
            return ""
        return f"{found} for {still_s:.0f} s" if found else ""

    def _unowned(self) -> str:
        admin = make_admin(self._settings)
        # First: librdkafka aborts the process (its #4605) where the coordinator's
        # broker goes away in the midst of the second question.
        topic = admin.list_topics(self._topic, timeout=_ANSWER_S).topics[self._topic]
        asked = admin.describe_consumer_groups([self._group], request_timeout=_ANSWER_S)
        group = asked[self._group].result(2 * _ANSWER_S)
        if group.state != ConsumerGroupState.STABLE:
            return ""
        owned = {
            where.partition
            for member in group.members
            for where in member.assignment.topic_partitions
            if where.topic == self._topic
        }
        unowned = sorted(set(topic.partitions) - owned)
        return f"nobody in the group holds {self._topic}{unowned}" if unowned else ""

    def _unread(self, positions: tuple[Position, ...]) -> str:
        ends = read_ranges(
            self._settings, self._group, self._topic, [p.partition for p in positions]
        )
        for each, end in zip(positions, (found.end for found in ends), strict=True):
            if each.position >= end:
                continue
            # Offsets that hold no record, marks of transactions, are never read.
            first, is_there = first_offset(
                self._settings, self._topic, each.partition, each.position, end
            )
            if is_there:
                return f"{self._topic}[{each.partition}]: {first} is not read"
        return ""
