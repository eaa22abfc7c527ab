"""A record of the metrics topic -> a row of figures for curves; pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from infra.kafka.reading import Message
from infra.monitoring.lag_history import LAG_RECORDS, LAG_S, ROLE, value_name
from infra.monitoring.metric_records import (
    RETURN_LIMIT,
    mean_of,
    metric_or_none,
    returns_of,
)
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint

TRACKS: dict[str, tuple[str, ...]] = {
    "learner": ("env_steps", "updates", "loss", "policy_lag_versions", "data_age_s"),
    "monitor": (
        "lag_trajectories", "lag_replay", "lag_s_trajectories", "lag_s_replay",
    ),
    "episodes": ("episodes", "return_sum"),
    "evaluations": ("eval_return",),
}  # fmt: skip
"""What is kept of a run: each a table of a time and these columns; NaN: not said."""

# The values of a role's metrics that make its columns.
_LEARNER = (
    "env_steps", "updates", "loss", "policy_lag_versions_mean", "data_age_s_p50",
)  # fmt: skip
_MONITOR = tuple(
    value_name(figure, role)
    for figure in (LAG_RECORDS, LAG_S)
    for role in ("processor", "learner")
)
_FIGURES = {"learner/0": ("learner", _LEARNER), f"{ROLE}/0": ("monitor", _MONITOR)}


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a track; ``values`` begin with the time, in seconds."""

    run_id: str
    track: str
    values: tuple[float, ...]


def row_of(message: Message) -> Row | None:
    """Return what a record adds to the curves; None: nothing.

    Times are the broker's: it appends in their order, whatever the hosts' clocks say.
    """
    at_s = message.timestamp_ms / 1000
    if message.key in _FIGURES:
        return _figures(message, at_s)
    if message.key.startswith("worker/"):
        return _episodes(message, at_s)
    if message.key.startswith("evaluator/"):
        return _evaluation(message, at_s)
    return None


def _figures(message: Message, at_s: float) -> Row | None:
    point = metric_or_none(message.value, MetricsPoint)
    if point is None or not point.values:
        return None
    track, names = _FIGURES[message.key]
    values = (_finite(point.values.get(name, math.nan)) for name in names)
    return Row(point.run_id, track, (at_s, *values))


def _episodes(message: Message, at_s: float) -> Row | None:
    found = metric_or_none(message.value, EpisodesFinished)
    if found is None:
        return None
    returns = [each for each in returns_of(found).tolist() if _is_return(each)]
    total = sum(returns)
    if not returns or not _is_return(total):
        return None
    return Row(found.run_id, "episodes", (at_s, float(len(returns)), total))


def _evaluation(message: Message, at_s: float) -> Row | None:
    found = metric_or_none(message.value, Evaluation)
    if found is None:
        return None
    mean = mean_of(returns_of(found))
    shown = mean if _is_return(mean) else math.nan
    return Row(found.run_id, "evaluations", (at_s, shown))


def _is_return(value: float) -> bool:
    return abs(value) <= RETURN_LIMIT  # what is no number is not


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.nan
