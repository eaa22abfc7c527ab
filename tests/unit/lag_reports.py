"""Lag reports that a test makes up."""

from __future__ import annotations

from infra.monitoring.lag.model import (
    GroupLag,
    LagReport,
    PartitionLag,
    Place,
    Verdict,
)

AT_S = 1_800_000_000.25


def partition(number=0, state="OK", *, group="g", topic="t", **more):
    """One of 10 records that is at its end."""
    known = {
        "current": 10, "committed": 10, "begin": 0, "end": 10, "open_records": 0,
        "held": 0, "unsaved": 0, "lag": 0, "raw_lag": 0, "lag_env_steps": None,
        "lag_s": 0.0, "lag_s_method": "record", "produced_per_s": None,
        "consumed_per_s": None, "catch_up_s": None, "retention_used": None,
        "owner": "", "verdict": Verdict(state, 1, f"it is {state}"),
    }  # fmt: skip
    return PartitionLag(Place(group, topic, number), **{**known, **more})


def group(name="g", *partitions, problem="", members=1):
    """A group that is stable."""
    return GroupLag(name, "Stable", members, partitions, problem)


def report(*groups, problem=""):
    """What was seen of groups."""
    return LagReport(AT_S, groups, 0.125, problem)
