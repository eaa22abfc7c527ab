"""Records that no reader is given because somebody's transaction is still open."""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka.admin import AdminClient

from infra.kafka.offsets import END, STABLE_END, Question, ask_offsets

WAIT_S = 25.0
"""One of ours is over sooner, also where its process was killed: the broker aborts it
after 10 s, for which it looks each 10 s."""

_TIMEOUT_S = 5.0


def held_back(
    admin: AdminClient, topic: str, partitions: Collection[int]
) -> dict[int, tuple[int, int]]:
    """Return (first offset not given out, end of the log) where these differ.

    Raises:
        KafkaException: the brokers do not answer.
        TimeoutError: likewise.
    """
    ends = _ends(admin, topic, partitions, END)
    # Asked second, it is not behind what was the end before.
    stable = _ends(admin, topic, partitions, STABLE_END)
    return {p: (stable[p], ends[p]) for p in partitions if stable[p] < ends[p]}


def _ends(
    admin: AdminClient, topic: str, partitions: Collection[int], question: Question
) -> dict[int, int]:
    places = [(topic, partition) for partition in partitions]
    (asked,) = ask_offsets(admin, places, _TIMEOUT_S, question)
    return {
        partition: int(future.result(2 * _TIMEOUT_S).offset)
        for (_, partition), future in asked.items()
    }


class OpenTransactions:
    """Tells, once, of each partition whose readers have waited for long."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._since: dict[int, tuple[int, float]] = {}
        self._told: set[int] = set()

    def judge(self, found: dict[int, tuple[int, int]], now: float) -> list[str]:
        """Return what to tell of now.

        Args:
            found: of ``held_back``.
            now: seconds of the monotonic clock.
        """
        for partition in self._since.keys() - found.keys():
            del self._since[partition]
            self._told.discard(partition)
        news = []
        for partition, (stable, end) in found.items():
            at, since = self._since.get(partition, (stable, now))
            if at != stable:  # that one is over, and another is open
                since = now
                self._told.discard(partition)
            self._since[partition] = stable, since
            if now - since >= WAIT_S and partition not in self._told:
                self._told.add(partition)
                news.append(
                    f"{self._topic}[{partition}]: nothing from offset {stable} on is "
                    f"read, up to {end}, until a transaction that somebody has left "
                    "open is committed or aborted (run a replay or import that was "
                    "killed again; else kafka-transactions.sh find-hanging, abort)"
                )
        return news
