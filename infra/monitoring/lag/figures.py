"""The last samples of a partition that a group reads -> its figures; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

from infra.monitoring.lag.age import lag_age
from infra.monitoring.lag.judge import Rules, judge
from infra.monitoring.lag.measures import lag_of, retention_used
from infra.monitoring.lag.model import PartitionLag, Place, Sample
from infra.monitoring.lag.window import Window

_DEFAULT = Rules()
# What a role does now, where it tells each second.
_RATES_S = 30.0


def assess(
    place: Place,
    window: Window,
    *,
    rows_per_record: float | None,
    rules: Rules = _DEFAULT,
) -> PartitionLag:
    """Return what is known of a partition.

    Args:
        place: which.
        window: of its samples.
        rows_per_record: steps of environments in a record; None: not known.
        rules: from when on it does badly.

    Raises:
        ValueError: the window has no sample.
    """
    newest = window.newest
    if newest is None:
        raise ValueError(f"no sample of {place}: there is nothing to be assessed")
    lag, told = lag_of(newest), newest.standing
    lag_s, method = lag_age(window)
    lately = _lately(window)
    produced = rate([(each.at_s, each.end) for each in lately])
    consumed = rate([(each.at_s, each.next) for each in lately])
    return PartitionLag(
        place=place,
        current=newest.next,
        committed=newest.committed,
        begin=newest.begin,
        end=newest.stable_end,
        open_records=max(0, newest.end - newest.stable_end),
        held=told.held if told else 0,
        unsaved=_unsaved(newest),
        lag=lag,
        raw_lag=_raw_lag(newest),
        lag_env_steps=_env_steps(lag, rows_per_record),
        lag_s=lag_s,
        lag_s_method=method,
        produced_per_s=produced,
        consumed_per_s=consumed,
        catch_up_s=_catch_up_s(lag, produced, consumed),
        retention_used=retention_used(newest),
        owner=newest.owner,
        verdict=judge(window, rules),
    )


def rate(offsets: Iterable[tuple[float, int | None]]) -> float | None:
    """Return how many offsets a second were passed; None without two to compare.

    Marks of transactions are offsets too, for who writes as for who reads. Going back
    is no work, and does not count.

    Args:
        offsets: at which time, oldest first.
    """
    known = [(at_s, offset) for at_s, offset in offsets if offset is not None]
    took_s = known[-1][0] - known[0][0] if known else 0.0
    if took_s <= 0:
        return None
    passed = sum(max(0, now - before) for (_, before), (_, now) in pairwise(known))
    return passed / took_s


def _lately(window: Window) -> Sequence[Sample]:
    """What is only known by commits is known seldom: that takes the whole window."""
    oldest, newest = window.oldest, window.newest
    if window.has_told:
        from_s = newest.at_s - _RATES_S if newest else 0.0
        return [each for each in window.samples if each.at_s >= from_s]
    # Of thousands of places each second: the ends of a window show the same as all of
    # it where nothing went back.
    if oldest and newest and oldest.next is not None and window.went_back_s is None:
        return oldest, newest
    return window.samples


def _unsaved(sample: Sample) -> int | None:
    """Without a commit all that was read would be read again."""
    if sample.standing is None:
        return None
    saved = sample.begin if sample.committed is None else sample.committed
    return max(0, sample.standing.position - saved)


def _raw_lag(sample: Sample) -> int | None:
    if sample.committed is None:
        return None
    return sample.stable_end - sample.committed


def _env_steps(lag: int | None, rows_per_record: float | None) -> int | None:
    if lag is None or rows_per_record is None:
        return None
    steps = lag * rows_per_record
    return round(steps) if math.isfinite(steps) else None


def _catch_up_s(
    lag: int | None, produced: float | None, consumed: float | None
) -> float | None:
    if lag == 0:
        return 0.0
    if lag is None or produced is None or consumed is None or consumed <= produced:
        return None
    return lag / (consumed - produced)
