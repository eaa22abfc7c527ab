"""Where to read the log, judged from offsets alone: never a silent jump.

Pure: who asks the broker is ``feed``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from infra.errors import RollstreamError

OnExpired = Literal["earliest", "fail"]

ANOTHER_LOG = (
    "start a new run with --fresh; another experiment's log can be taken out of "
    "learner.sources instead"
)
"""What mends a LogMismatch."""


class LogMismatch(RollstreamError):
    """The log is not the one that the offsets were taken from."""


class RecordsExpired(RollstreamError):
    """The log has deleted records that were not read yet."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a partition is read from.

    Attributes:
        position: the next offset to read.
        expired: records before it that were deleted unread.
        was_cut: the log's own beginning was gone when the run first read it.
    """

    position: int
    expired: int = 0
    was_cut: bool = False


def resume_at(
    partition: int, position: int, log_start: int, log_end: int, on_expired: OnExpired
) -> Start:
    """Return where a partition goes on that was read up to ``position`` before.

    Raises:
        LogMismatch: the position is beyond the log's end.
        RecordsExpired: records were deleted unread, and the spec says to fail.
    """
    if position > log_end:
        raise LogMismatch(
            f"partition {partition}: expected a log that reaches offset {position}, "
            f"found its end at {log_end}: it was deleted, or restored from a backup",
            ANOTHER_LOG,
        )
    if position >= log_start:
        return Start(position)
    expired = log_start - position
    if on_expired == "fail":
        raise RecordsExpired(
            f"partition {partition}: {expired} records from offset {position} were "
            f"deleted before they were read; the log starts at {log_start}",
            "raise topics.diskBudget, or set learner.onExpired to earliest",
        )
    return Start(log_start, expired)


def begin_at(read_from: int, born_at: int, log_start: int) -> Start:
    """Return where a run begins in a partition that it has not read before.

    Args:
        read_from: an offset that is certainly not after the run's first record.
        born_at: the first offset appended since the run began.
        log_start: the log's first offset.
    """
    # When the beginning of the log is gone, the beginning of a stream may be as well.
    was_cut = log_start > 0 and born_at <= log_start
    return Start(max(read_from, log_start), was_cut=was_cut)


def check_identity(
    name: str, expected: Mapping[str, str], found: Mapping[str, str]
) -> None:
    """Raise LogMismatch unless cluster and topic are those of the checkpoint."""
    for what, value in expected.items():
        if found[what] != value:
            raise LogMismatch(
                f"{name}: expected the {what.replace('_', ' ')} {value}, found "
                f"{found[what]}: the offsets of the checkpoint mean nothing there",
                f"point to the cluster of this run, or {ANOTHER_LOG}",
            )
