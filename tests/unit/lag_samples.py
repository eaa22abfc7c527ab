"""Groups as the judge leaves them, made up by tests."""

from __future__ import annotations

from typing import Any

from infra.monitoring.lag.model import (
    GroupLag,
    PartitionLag,
    Place,
    State,
    Verdict,
)

PARTITION = PartitionLag(
    place=Place("rollstream.e.processor", "rollstream.e.trajectories", 0),
    current=10,
    committed=10,
    begin=0,
    end=10,
    open_records=0,
    held=0,
    unsaved=0,
    lag=0,
    raw_lag=0,
    lag_env_steps=0,
    lag_s=None,
    lag_s_method="",
    produced_per_s=0.0,
    consumed_per_s=0.0,
    catch_up_s=0.0,
    retention_used=0.0,
    owner="p@h",
    verdict=Verdict("OK", 9, "nothing waits"),
)


def partition(number: int, state: State = "OK", **figures: Any) -> PartitionLag:
    values = {name: getattr(PARTITION, name) for name in PARTITION.__slots__}
    place = Place(PARTITION.place.group, PARTITION.place.topic, number)
    verdict = Verdict(state, 1, f"because {number}")
    return PartitionLag(**{**values, "place": place, "verdict": verdict, **figures})


def group(
    *partitions: PartitionLag, name: str = "rollstream.e.processor", problem: str = ""
) -> GroupLag:
    return GroupLag(name, "Stable", 1, partitions, problem)
