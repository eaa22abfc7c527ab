"""An experiment's metrics -> what its alerts are judged by; pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from infra.control.desired import PublishedExperiment
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import Place, Standing


@dataclass(frozen=True, slots=True)
class Observed:
    """What the metrics of an experiment said last.

    Attributes:
        published: the spec in force.
        standings: where its roles said that they stand.
        rows_per_record: steps of environments in a record, by the group that reads it.
        learner: what its learner told; {}: nothing.
        at_s: when that was looked at, by a clock that never goes back.
    """

    published: PublishedExperiment
    standings: Mapping[Place, Standing]
    rows_per_record: Mapping[str, float]
    learner: Mapping[str, float]
    at_s: float


def observed(
    published: PublishedExperiment, follower: MetricsFollower, now_s: float
) -> Observed:
    """Return what the metrics say now."""
    learner = follower.progress.points.get(("learner", 0))
    return Observed(
        published,
        dict(follower.standings),
        follower.rows_per_record,
        learner.values if learner else {},
        now_s,
    )


@dataclass
class Counter:
    """When a counter was last seen to grow."""

    value: float | None = None
    grew_s: float = -math.inf

    def see(self, value: float | None, now_s: float) -> None:
        """Take in its value; what it was before the first is not known."""
        if value is None:
            return
        if self.value is not None and value > self.value:
            self.grew_s = now_s
        self.value = value


class Names(Collection[str]):
    """Names that may change while another thread goes through them."""

    def __init__(self) -> None:
        self.now: frozenset[str] = frozenset()

    def __contains__(self, name: object) -> bool:
        """Whether it is one of them now."""
        return name in self.now

    def __iter__(self) -> Iterator[str]:
        """Go through those that there are now."""
        return iter(self.now)

    def __len__(self) -> int:
        """How many there are now."""
        return len(self.now)
