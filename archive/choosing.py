"""A source and a selection -> the records that are sent, in the order of time."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from archive.blank import blanked, masked
from archive.finished_episodes import FinishedEpisodes, Stream
from archive.recorded import Recorded, Source
from archive.selection import Selection
from infra.errors import RollstreamError
from schemas.errors import SchemaError
from schemas.records import SourceRef, StreamEnd, Unroll

Ends = Mapping[int, int]
Tell = Callable[[str, int, int], None]
"""What is being done, how many offsets are done, and of how many."""

_log = logging.getLogger("rollstream.archive")


class NothingChosen(RollstreamError):
    """The source has nothing of what is wanted."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is to be done about a record of the source.

    Attributes:
        address: where it was.
        record: what is sent in its place; None: nothing.
        env_steps: rows of it that are wanted.
        blank_steps: rows of it that are sent without what is in them.
    """

    address: SourceRef
    record: Unroll | StreamEnd | None
    env_steps: int = 0
    blank_steps: int = 0


@dataclass
class Plan:
    """What is wanted of a source, as far as a single record does not tell.

    Attributes:
        selection: what is wanted.
        ends: by partition: what lies behind is another day's.
        episodes: which are wanted; None: all.
        last: of each stream, the last sequence with a row that is wanted; None: all.
    """

    selection: Selection
    ends: Ends
    episodes: FinishedEpisodes | None = None
    last: dict[Stream, int] | None = None
    _last_of_worker: dict[str, int] = field(default_factory=dict)

    def choose(self, recorded: Recorded) -> Chosen:
        """Return what is to be done about a record.

        In a stream of which something is wanted, what is not wanted is sent blank, up
        to the last that is, which ends it; other streams are left out. So is what
        cannot be opened: of that processors would make a dead letter.
        """
        try:
            return self._choose(recorded)
        except SchemaError as exc:
            _log.warning("%s is passed over: %s", recorded.address, exc)
            return Chosen(recorded.address, None)

    def _choose(self, recorded: Recorded) -> Chosen:
        address, record = recorded.address, recorded.record
        if isinstance(record, StreamEnd):
            return Chosen(address, record if self._has_ended(record) else None)
        if self.last is None:
            return Chosen(address, record, int(record.valid.array().sum()))
        last = self.last.get((record.worker, record.incarnation), -1)
        if record.sequence > last:
            return Chosen(address, None)
        if record.sequence == last:
            # Nothing follows: processors would hold it, and its whole partition.
            record = replace(record, end_of_stream=True)
        chosen = self.selection.choose(address, record, self.episodes)
        num_chosen = int(chosen.sum())
        if not num_chosen:
            return Chosen(address, blanked(record), 0, chosen.size)
        if num_chosen == int(record.valid.array().sum()):
            return Chosen(address, record, num_chosen)
        return Chosen(address, masked(record, chosen), num_chosen)

    def note(self, recorded: Recorded) -> None:
        """Take in a record while it is found out what is wanted."""
        with suppress(SchemaError):  # told where it would be sent
            self._note(recorded)

    def _note(self, recorded: Recorded) -> None:
        record = recorded.record
        if isinstance(record, StreamEnd) or self.last is None:
            return
        if self.selection.choose(recorded.address, record, self.episodes).any():
            stream = record.worker, record.incarnation
            self.last[stream] = max(record.sequence, self.last.get(stream, -1))
            first = self._last_of_worker.get(record.worker, record.incarnation)
            self._last_of_worker[record.worker] = min(first, record.incarnation)

    def _has_ended(self, record: StreamEnd) -> bool:
        """Whether it ends a stream of which something is wanted."""
        if self.last is None:
            return True
        first = self._last_of_worker.get(record.worker)
        return first is not None and first <= record.incarnation


def make_plan(
    source: Source, selection: Selection, ends: Ends, tell: Tell = lambda *_: None
) -> Plan:
    """Find out what is wanted; reads the source once, or twice to find episodes.

    Raises:
        NothingChosen: nothing is.
    """
    ends = {partition: selection.end(end) for partition, end in ends.items()}
    plan = Plan(selection, ends)
    if selection.is_all:
        if next(iter(_all(source, ends)), None) is None:
            raise _nothing(source, selection)
        return plan
    if selection.episodes:
        plan.episodes = FinishedEpisodes(selection.episodes)
        for recorded in _told(
            _all(source, ends), source, ends, "finding episodes", tell
        ):
            if selection.has_worker(recorded.record.worker):
                with suppress(SchemaError):  # its episodes are not whole
                    plan.episodes.add(recorded.record)
    plan.last = {}
    what = "finding what is wanted"
    for recorded in _told(_all(source, ends), source, ends, what, tell):
        plan.note(recorded)
    if not plan.last:
        raise _nothing(source, selection)
    return plan


def in_order(
    source: Source, positions: Mapping[int, int], ends: Ends
) -> Iterator[Recorded]:
    """Yield records from ``positions`` to ``ends``, by the time of their last row.

    Those of one partition stay in their order.
    """
    firsts = {partition: first for partition, (first, _) in source.bounds().items()}
    readers = [
        source.read(partition, positions.get(partition, firsts.get(partition, 0)), end)
        for partition, end in sorted(ends.items())
        if positions.get(partition, firsts.get(partition, 0)) < end
    ]
    yield from heapq.merge(*readers, key=lambda each: each.record.produced_at_ms)


def _all(source: Source, ends: Ends) -> Iterator[Recorded]:
    """Yield records by partition."""
    for partition, (first, _) in sorted(source.bounds().items()):
        if first < ends.get(partition, 0):
            yield from source.read(partition, first, ends[partition])


def _told(
    records: Iterator[Recorded], source: Source, ends: Ends, what: str, tell: Tell
) -> Iterable[Recorded]:
    """Pass records on, and tell how far they are."""
    sizes = {
        partition: max(0, ends.get(partition, 0) - first)
        for partition, (first, _) in source.bounds().items()
    }
    total, before, partition, first = sum(sizes.values()), 0, -1, 0
    for each in records:
        address = each.address
        if address.partition != partition:
            before += sizes.get(partition, 0)
            partition, first = address.partition, address.offset
        tell(what, min(total, before + address.offset - first + 1), total)
        yield each
    tell(what, total, total)


def _nothing(source: Source, selection: Selection) -> NothingChosen:
    wanted = "" if selection.is_all else f" of {selection.to_json()}"
    return NothingChosen(
        f"nothing chosen: {source.info.identity} has no row{wanted}",
        "`rollstream peek` and the archive's columns show what there is",
    )
