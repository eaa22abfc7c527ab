"""Tables of figures over time -> series that a page can draw; pure.

All series share one axis of time. It is cut into buckets of one length with two points
in each; a series has the least and the greatest of its values there, in the order in
which they came. So a spike stays one, however much is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.monitoring.metric_records import RETURN_LIMIT

Floats = npt.NDArray[np.float64]
Curve = tuple[Floats, Floats]
"""Times in seconds, which do not go back, and finite values."""

# A rate is that of so many seconds: one of two reports is mostly noise.
RATE_S = 10.0
# Between reports that are further apart than that, nothing is known of a rate.
RATE_GAP_S = 60.0
EPISODES = 100
MIN_BUCKET_S = 1.0

# For so long a series keeps its last value while nothing is said; what is beyond is a
# gap. Reports come each second or each five, and may be late.
HOLD_S = 15.0
_HOLDS_S = {"return": 120.0, "eval_return": 0.0}

SERIES = (
    "return", "eval_return", "env_steps", "env_steps_per_s", "updates_per_s", "loss",
    "policy_lag_versions", "data_age_s", "lag_trajectories", "lag_replay",
    "lag_s_trajectories", "lag_s_replay",
)  # fmt: skip


def curves_of(tables: Mapping[str, Mapping[str, Floats]]) -> dict[str, Curve]:
    """Return the series of a run, each with all of its points.

    Args:
        tables: of each track of ``rows.TRACKS``: its columns, and ``t``.
    """
    learner, episodes = tables["learner"], tables["episodes"]
    found = {
        "return": mean_returns(
            episodes["t"], episodes["episodes"], episodes["return_sum"]
        ),
        "env_steps_per_s": rate(*known(learner["t"], learner["env_steps"])),
        "updates_per_s": rate(*known(learner["t"], learner["updates"])),
    }
    for table in tables.values():
        for name in SERIES:
            if name in table:
                found[name] = known(table["t"], table[name])
    return {name: found[name] for name in SERIES}


def known(times: Floats, values: Floats) -> Curve:
    """Leave out what is not known."""
    is_known = np.isfinite(values)
    return times[is_known], values[is_known]


def rate(times: Floats, counter: Floats) -> Curve:
    """Return how fast a counter grew, over the last RATE_S up to each of its points.

    Nothing is said across a pause, or where it went back: a learner that resumed.
    """
    if len(times) < 2:
        return times[:0], times[:0]
    here = np.arange(1, len(times))
    since = np.minimum(np.searchsorted(times, times[1:] - RATE_S), here - 1)
    # Not across a break: from the first point behind it on.
    breaks = (np.diff(counter) < 0) | (np.diff(times) > RATE_GAP_S)
    after = np.maximum.accumulate(np.where(breaks, here, 0))
    since = np.maximum(since, after)
    seconds = times[1:] - times[since]
    with np.errstate(all="ignore"):
        rates = (counter[1:] - counter[since]) / seconds
    is_known = seconds > 0
    return times[1:][is_known], rates[is_known]


def mean_returns(times: Floats, episodes: Floats, sums: Floats) -> Curve:
    """Return at each record the mean over it and those before, EPISODES at least.

    Records that cannot be are left out: without an episode, or with a sum that is no
    number or beyond RETURN_LIMIT.
    """
    fits = (episodes >= 1) & (episodes <= RETURN_LIMIT) & (abs(sums) <= RETURN_LIMIT)
    times, episodes, sums = times[fits], episodes[fits], sums[fits]
    count = np.concatenate(([0.0], np.cumsum(episodes)))
    first = np.searchsorted(count, count[1:] - EPISODES, side="right") - 1
    records = np.arange(1, len(times) + 1) - np.maximum(first, 0)
    return times, _sums_back(sums, records) / _sums_back(episodes, records)


def _sums_back(values: Floats, lengths: Any) -> Floats:
    """Return of each value its sum with those before it, ``lengths`` of them in all.

    Nothing but those goes into a sum. The difference of two running totals would bear
    the rounding of all that came before, for ever: after a 1e15 its digits are gone.
    """
    found = np.zeros(len(values))
    at, step, blocks = np.arange(len(values)), 1, values
    while step <= lengths.max(initial=0):
        # Blocks of 1, 2, 4, ... values that end at each place: a length is some of
        # them, as its binary digits say.
        has = (lengths & step) > 0
        found[has] += blocks[at[has]]
        at[has] -= step
        blocks = np.concatenate((blocks[:step], blocks[step:] + blocks[:-step]))
        step *= 2
    return found


def thin(
    curves: Mapping[str, Curve],
    points: int,
    last_s: float | None = None,
    pause_s: float = 0.0,
) -> tuple[list[float], dict[str, list[float | None]]]:
    """Return a shared axis of at most ``points`` times, and each series along it.

    Args:
        curves: by name.
        points: how many, at most; at least 2.
        last_s: leave out what is older than that, seen from the newest point.
        pause_s: a pause as long as that is no gap: there is more that was not read.
    """
    curves = {name: known(*curve) for name, curve in curves.items()}
    ends = [(t[0], t[-1]) for t, _ in curves.values() if len(t)]
    if not ends:
        return [], {name: [] for name in curves}
    first, last = min(t for t, _ in ends), max(t for _, t in ends)
    if last_s is not None:
        first = max(first, last - last_s)
    span_s = last - first
    buckets = max(1, min(points // 2, int(np.ceil(span_s / MIN_BUCKET_S))))
    width_s = max(span_s / buckets, MIN_BUCKET_S / 2)
    axis = first + (np.arange(2 * buckets) + 0.5) * width_s / 2
    return np.round(axis, 3).tolist(), {
        name: _with_gaps(
            _thinned(curve, first, width_s, buckets, hold_s(name, pause_s))
        )
        for name, curve in curves.items()
    }


def hold_s(name: str, pause_s: float = 0.0) -> float:
    """Return for how long a series keeps its last value; 0: not at all."""
    found = _HOLDS_S.get(name, HOLD_S)
    return found and max(found, pause_s)


def _thinned(
    curve: Curve, first_s: float, width_s: float, buckets: int, hold_s: float
) -> Floats:
    times, values = curve
    found = np.full(2 * buckets, np.nan)
    shown = np.searchsorted(times, first_s)
    times, values = times[shown:], values[shown:]
    if not len(times):
        return found
    bucket = np.minimum(((times - first_s) / width_s).astype(np.int64), buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    least, greatest = (
        _first_that_is(extreme.reduceat(values, starts), values, starts)
        for extreme in (np.minimum, np.maximum)
    )
    at = 2 * bucket[starts]
    found[at] = values[np.minimum(least, greatest)]
    found[at + 1] = values[np.maximum(least, greatest)]
    if hold_s:
        _hold(found, at, bucket[starts], times, starts, hold_s, values)
    return found


def _first_that_is(extremes: Floats, values: Floats, starts: Any) -> Any:
    """Return where each run of values, from a start on, has its extreme first."""
    lengths = np.diff(starts, append=len(values))
    is_it = np.flatnonzero(values == np.repeat(extremes, lengths))
    return is_it[np.searchsorted(is_it, starts)]


def _hold(
    found: Floats,
    at: Any,
    bucket: Any,
    times: Floats,
    starts: Any,
    hold_s: float,
    values: Floats,
) -> None:
    """Fill empty buckets between points that are not far from each other."""
    pauses_s = times[starts[1:]] - times[starts[1:] - 1]
    for k in np.flatnonzero((np.diff(bucket) > 1) & (pauses_s <= hold_s)):
        found[at[k] + 2 : at[k + 1]] = values[starts[k + 1] - 1]


def _with_gaps(values: Floats) -> list[float | None]:
    return [None if each != each else each for each in values.tolist()]
