"""How far a past was replayed <-> the topic of lineage."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from infra.clock import now_ms
from infra.errors import RollstreamError
from infra.kafka.reading import latest_by_key
from infra.settings import Settings
from schemas.codec import decode_or_none
from schemas.records import NO_POLICY, DataRange, ReplayProgress, SourceRef, Unroll
from schemas.topics import LINEAGE, topic_name

_ENDS = "ends"


class OtherReplay(RollstreamError):
    """The target holds another past, or another selection of this one."""


@dataclass(frozen=True)
class Past:
    """What is replayed.

    Attributes:
        source: which past; the same for a topic and for its archive.
        experiment: whose it is.
        run_id: of which run.
        topic: where the records are, or were.
        selection: what is wanted of it, as canonical JSON.
        bounds: by partition (first offset, next offset). Of a replay that goes on, the
            ends are what they were when it began.
    """

    source: str
    experiment: str
    run_id: str
    topic: str
    selection: str
    bounds: Mapping[int, tuple[int, int]]

    @property
    def key(self) -> str:
        """The key of its progress."""
        return f"replay/{self.source}"


@dataclass
class Standing:
    """How far a replay is: what its newest progress record says, or will say.

    Attributes:
        positions: by partition of the source, the next offset to deal with.
        env_steps: rows that were wanted.
        blank_steps: rows that were sent without what is in them.
        done: the end is reached.
    """

    past: Past
    ranges: dict[int, DataRange] = field(default_factory=dict)
    blank_steps: int = 0
    done: bool = False

    @classmethod
    def new(cls, past: Past) -> Standing:
        """Return where a replay begins."""
        ranges = {
            partition: DataRange(past.topic, partition, first, first, 0, *_NOBODY)
            for partition, (first, _) in sorted(past.bounds.items())
        }
        return cls(past, ranges)

    @property
    def positions(self) -> dict[int, int]:
        """By partition of the source, the next offset to deal with."""
        return {number: each.next_offset for number, each in self.ranges.items()}

    @property
    def ends(self) -> dict[int, int]:
        """By partition of the source, where the replay ends."""
        return {partition: end for partition, (_, end) in self.past.bounds.items()}

    @property
    def env_steps(self) -> int:
        """Rows that were wanted."""
        return sum(each.env_steps for each in self.ranges.values())

    @property
    def num_done(self) -> int:
        """How many offsets are dealt with."""
        return sum(e.next_offset - e.first_offset for e in self.ranges.values())

    @property
    def total(self) -> int:
        """How many offsets there are to deal with."""
        return sum(
            max(0, self.past.bounds[number][1] - each.first_offset)
            for number, each in self.ranges.items()
        )

    def copy(self) -> Standing:
        """Return one that goes its own way."""
        return replace(self, ranges=dict(self.ranges))

    def passed(self, address: SourceRef) -> bool:
        """Whether a record is dealt with already."""
        found = self.ranges.get(address.partition)
        return found is not None and address.offset < found.next_offset

    def add(
        self, address: SourceRef, unroll: Unroll | None, env_steps: int, blank: int
    ) -> None:
        """Take note of a record that is dealt with.

        Args:
            address: in the source.
            unroll: what it is, where rows of it are wanted.
            env_steps: how many.
            blank: rows that are sent without what is in them.
        """
        partition, offset = address.partition, address.offset
        found = self.ranges.get(partition)
        if found is None:
            found = DataRange(address.topic, partition, offset, offset, 0, *_NOBODY)
        first, last = found.first_policy, found.last_policy
        if unroll is not None and env_steps:
            is_first = found.env_steps == 0
            first = unroll.policy if is_first else min(first, unroll.policy)
            last = unroll.policy if is_first else max(last, unroll.policy)
        self.ranges[partition] = replace(
            found,
            next_offset=max(found.next_offset, offset + 1),
            env_steps=found.env_steps + env_steps,
            first_policy=first,
            last_policy=last,
        )
        self.blank_steps += blank

    def finish(self) -> None:
        """Take note that the end is reached."""
        ends = self.ends
        for partition, each in self.ranges.items():
            end = max(each.next_offset, ends.get(partition, 0))
            self.ranges[partition] = replace(each, next_offset=end)
        self.done = True

    def to_record(self, experiment: str, run_id: str) -> ReplayProgress:
        """Return what is written, in the transaction of the records it tells of."""
        past = self.past
        selection = json.loads(past.selection)
        selection[_ENDS] = {str(p): end for p, end in sorted(self.ends.items())}
        return ReplayProgress(
            experiment=experiment,
            run_id=run_id,
            source=past.source,
            source_experiment=past.experiment,
            source_run_id=past.run_id,
            selection=json.dumps(selection, sort_keys=True, separators=(",", ":")),
            data=tuple(each for _, each in sorted(self.ranges.items())),
            blank_steps=self.blank_steps,
            done=self.done,
            updated_at_ms=now_ms(),
        )


_NOBODY = (NO_POLICY, NO_POLICY)


def read_standing(
    settings: Settings, experiment: str, run_id: str, past: Past
) -> Standing | None:
    """Return how far a past is replayed into a run; None: not at all.

    Raises:
        OtherReplay: another past is, or another selection of this one.
        KafkaUnavailable: the brokers do not answer.
        TopicError: there is no topic of lineage.
    """
    found = None
    for record in read_progress(settings, experiment, run_id):
        _check_same(record, past)
        found = record
    return None if found is None else _standing(found, past)


def read_progress(
    settings: Settings, experiment: str, run_id: str
) -> list[ReplayProgress]:
    """Return the newest progress of each past that is in a run; raises as above."""
    found = []
    topic = topic_name(LINEAGE, experiment)
    for key, message in latest_by_key(settings, topic).items():
        if key.startswith("replay/"):
            record = decode_or_none(message.value, ReplayProgress)
            if record is not None and record.run_id == run_id:
                found.append(record)
    return found


def selection_of(record: ReplayProgress) -> tuple[str, dict[int, int]]:
    """Return the selection in a record, and where the past ended when it began."""
    values = json.loads(record.selection)
    ends = values.pop(_ENDS, {})
    selection = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return selection, {int(partition): int(end) for partition, end in ends.items()}


def _check_same(record: ReplayProgress, past: Past) -> None:
    where = f"experiment {record.experiment}"
    if record.source != past.source:
        raise OtherReplay(
            f"{where}: expected nothing in it but {past.source}, found "
            f"{record.source}: their streams would be taken for one another",
            "replay into an experiment of another name; a learner can learn from both "
            "with learner.sources",
        )
    selection, _ = selection_of(record)
    if selection != past.selection:
        raise OtherReplay(
            f"{where}: expected the selection that it was begun with, {selection}, "
            f"found {past.selection}",
            "replay as before, or into an experiment of another name",
        )


def _standing(record: ReplayProgress, past: Past) -> Standing:
    _, ends = selection_of(record)
    ranges = {each.partition: each for each in record.data}
    firsts = {number: each.first_offset for number, each in ranges.items()}
    bounds = {number: (firsts.get(number, 0), end) for number, end in ends.items()}
    return Standing(
        replace(past, bounds=bounds), ranges, record.blank_steps, record.done
    )
