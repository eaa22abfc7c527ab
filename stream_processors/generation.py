"""The state of one assignment of partitions; thrown away whole at the next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

from faust.types import EventT

from schemas.records import Position
from stream_processors.acks import Window
from stream_processors.health import LogRange
from stream_processors.tails import ReturnOptions, TailCounts, Tails


@dataclass(slots=True)
class Partition:
    """One partition of the trajectories.

    Attributes:
        number: its number.
        tails: what is not emitted yet.
        window: what is not acknowledged yet.
        next_offset: of the next record; None until something is known.
        committed: as far as Faust told; -1: nothing.
    """

    topic: str
    number: int
    tails: Tails
    window: Window[EventT[bytes]] = field(default_factory=Window)
    next_offset: int | None = None
    committed: int = -1

    def position(self) -> Position:
        """Return where it stands."""
        return Position(
            self.topic,
            self.number,
            max(0, self.committed) if self.next_offset is None else self.next_offset,
            self.committed,
            len(self.window),
        )


class Generation:
    """What is known since the last rebalance.

    Both of Kafka's assignors at hand revoke everything at each rebalance, and all is
    read again from the committed offsets: nothing may survive.
    """

    def __init__(self, options: ReturnOptions, counts: TailCounts) -> None:
        self._options = options
        self._counts = counts
        self.partitions: dict[int, Partition] = {}
        # A worker's send under way: the next one waits, so that no batch of a worker
        # can overtake one that failed.
        self.lanes: dict[str, asyncio.Task[None]] = {}
        # Set when it is known where the partitions begin; nothing is handled before.
        self.ready = asyncio.Event()
        self.dead = False

    def begin(self, topic: str, ranges: Iterable[LogRange]) -> None:
        """Let the partitions begin where the log and the group say."""
        for each in ranges:
            partition = self.partition(topic, each.partition)
            partition.committed = each.committed
            # Also where nothing is committed yet: whatever comes first must be this.
            partition.next_offset = max(each.committed, each.start)
        self.ready.set()

    def end(self) -> None:
        """Let nothing come of it any more; who waits for it goes on."""
        self.dead = True
        self.ready.set()

    def partition(self, topic: str, number: int) -> Partition:
        """Return a partition's state, new when it is not known."""
        if number not in self.partitions:
            tails = Tails(topic, number, self._options, self._counts)
            self.partitions[number] = Partition(topic, number, tails)
        return self.partitions[number]

    def positions(self) -> tuple[Position, ...]:
        """Return where each partition stands, by their numbers."""
        found = sorted(self.partitions.items())
        return tuple(each.position() for _, each in found)
