"""The columns of a table of lag, and how each shows a row; pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollstream.ages import age
from rollstream.lag_rows import LagRow

_LEAST_REASON, _LEAST_NAME = 24, 16
# The ends of names differ more than their beginnings.
_NAME_CUT_AT = 0.35
_LEAST_PRECISE_S = 10.0


@dataclass(frozen=True, slots=True)
class Column:
    """One of the table.

    Attributes:
        show: its cell of a row.
        is_number: is written to the right.
        least_width: to which it may be cut; None: it is never cut.
        cut_at: after which share of what is shown.
        is_extra: may be left out where there is little room.
    """

    title: str
    show: Callable[[LagRow], str]
    is_number: bool = True
    least_width: int | None = None
    cut_at: float = 1.0
    is_extra: bool = False


def columns_of(*, wide: bool, by_partition: bool) -> list[Column]:
    """Return the columns of a format, from left to right."""
    where = _PARTITION if by_partition else _PARTITIONS
    columns = [*_NAMES, where, *_OFFSETS, *_LAG, _STATE]
    return columns + _MORE if wide else columns


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _seconds(row: LagRow) -> str:
    if row.lag_s is None:
        return "-"
    precise = row.lag_s < _LEAST_PRECISE_S
    mark = "~" if row.lag_s_method == "interpolated" else ""
    return f"{mark}{row.lag_s:,.1f}" if precise else f"{mark}{row.lag_s:,.0f}"


def _catch_up(row: LagRow) -> str:
    return "-" if row.catch_up_s is None else age(round(row.catch_up_s * 1000))


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


_NAMES = [
    Column("GROUP", lambda row: row.group, False, _LEAST_NAME, _NAME_CUT_AT),
    Column("TOPIC", lambda row: row.topic or "-", False, _LEAST_NAME, _NAME_CUT_AT),
]
_PARTITION = Column("PARTITION", lambda row: _count(row.partition))
_PARTITIONS = Column("PARTITIONS", lambda row: _count(row.partitions))
_OFFSETS = [
    Column("CURRENT-OFFSET", lambda row: _count(row.current), is_extra=True),
    Column("LOG-END-OFFSET", lambda row: _count(row.end), is_extra=True),
]
_LAG = [Column("LAG", lambda row: _count(row.lag)), Column("LAG-S", _seconds)]
_STATE = Column("STATE", lambda row: row.state or "-", False)
_UNSAVED = [
    Column("HELD", lambda row: _count(row.held)),
    Column("UNSAVED", lambda row: _count(row.unsaved)),
]
_MORE = [
    Column("CONSUMER", lambda row: row.owner or "-", False),
    Column("ENV-STEPS", lambda row: _count(row.lag_env_steps)),
    Column("COMMITTED", lambda row: _count(row.committed)),
    *_UNSAVED,
    Column("OPEN", lambda row: _count(row.open_records)),
    Column("PRODUCED/S", lambda row: _rate(row.produced_per_s)),
    Column("CONSUMED/S", lambda row: _rate(row.consumed_per_s)),
    Column("CATCH-UP", _catch_up),
    Column("RETENTION", lambda row: _share(row.retention_used)),
    Column("REASON", lambda row: row.words, False, _LEAST_REASON),
]
GROUP_COLUMNS = [*_NAMES, _PARTITIONS, *_LAG, *_UNSAVED, _STATE]
"""Of an experiment's status."""
