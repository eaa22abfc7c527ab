"""Bytes of a metrics topic -> a record that can be reckoned with; pure.

Anybody may write there. Whoever reads a figure of it reads it through here: what passes
has returns that open, and counts that are numbers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from infra.monitoring.value_kinds import COUNTS
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint

MAX_VALUES = 256
"""Of one record; one with more says nothing that we publish."""

MAX_NAME = 128
"""Characters of a value's name; those that have a worker's or an experiment's name in
them have up to 80."""

COUNT_LIMIT = 2.0**63
"""No count is as large: sums of those that are smaller are finite."""

RETURN_LIMIT = 1e15
"""No return is as large in any environment; sums of those that are smaller are exact
enough."""

_KINDS: tuple[type, ...] = (MetricsPoint, EpisodesFinished, Evaluation)
_REAL = "biuf"


def read_metric(value: bytes, *kinds: type) -> Any:
    """Return a record of some kinds; of all that metrics have when none is named.

    Counts that are no numbers are left out of it, and values with endless names.

    Raises:
        SchemaError: it is none, or cannot be reckoned with.
    """
    record: Any = decode(value, *(kinds or _KINDS))
    if isinstance(record, MetricsPoint):
        return _countable(record)
    returns_of(record)
    return record


def metric_or_none(value: bytes, *kinds: type) -> Any:
    """Return the same, or None where that would raise."""
    try:
        return read_metric(value, *kinds)
    except SchemaError:
        return None


def returns_of(record: EpisodesFinished | Evaluation) -> npt.NDArray[np.float64]:
    """Return a record's returns, one at least.

    Raises:
        SchemaError: there are none, or they cannot be opened.
    """
    found = record.returns.array()
    if found.ndim != 1 or not found.size or found.dtype.kind not in _REAL:
        raise SchemaError(
            f"returns: expected a list of real numbers, found {record.returns!r}"
        )
    return found.astype(np.float64)


def mean_of(returns: Any) -> float:
    """Return the mean of what anybody may have written, without a word.

    That of numbers without bounds may be none; a warning would be told to whoever only
    looks.
    """
    with np.errstate(all="ignore"):
        return float(np.mean(returns))


def _countable(point: MetricsPoint) -> MetricsPoint:
    if len(point.values) > MAX_VALUES:
        raise SchemaError(
            f"values: expected at most {MAX_VALUES}, found {len(point.values)}"
        )
    counts = COUNTS.get(point.role, frozenset())
    none = {
        name
        for name, value in point.values.items()
        # Also what is no number: it is not between any.
        if len(name) > MAX_NAME
        or (not -COUNT_LIMIT < value < COUNT_LIMIT and name in counts)
    }
    if not none:
        return point
    kept = {name: value for name, value in point.values.items() if name not in none}
    return replace(point, values=kept)
