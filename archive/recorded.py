"""What a past is, wherever it is kept: records of one run, by partition and offset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.experiment import Experiment
from schemas.records import EnvDescription, SourceRef, StreamEnd, Unroll


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record as it was in the topic of trajectories.

    Attributes:
        address: where it was; also of one that is read from an archive.
        appended_at_ms: when the broker appended it.
        record: it.
    """

    address: SourceRef
    appended_at_ms: int
    record: Unroll | StreamEnd


@dataclass(frozen=True)
class SourceInfo:
    """Whose experience it is.

    Attributes:
        experiment: the spec of the run.
        run_id: the run; records of others are passed over.
        topic: of its trajectories.
        topic_id: which of all the topics that had this name.
        env: what its workers found; None: no worker ever said.
    """

    experiment: Experiment
    run_id: str
    topic: str
    topic_id: str
    env: EnvDescription | None

    @property
    def identity(self) -> str:
        """``<experiment>/<run_id>@<topic id>``: of the topic and of its archive."""
        return f"{self.experiment.name}/{self.run_id}@{self.topic_id}"


@dataclass(frozen=True, slots=True)
class Gap:
    """Offsets [first, next) that were deleted before anybody read them."""

    partition: int
    first_offset: int
    next_offset: int


class Source(Protocol):
    """A past that can be read, from any offset on, again and again."""

    @property
    def info(self) -> SourceInfo:
        """Whose it is."""

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Return (first offset, next offset) of what there is now, by partition."""

    def gaps(self) -> list[Gap]:
        """Return what is missing: before the first offset, and between."""

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        """Yield the run's records with first <= offset < end, in order.

        Records of other runs are passed over; one that cannot be read is told in the
        log, once, and passed over too.

        Raises:
            RollstreamError: the past cannot be read, or is damaged: says where.
        """

    def close(self) -> None:
        """Let go of it."""
