"""What ConsumerPerformance prints -> bytes a second that were read; pure.

A row: time, consumer, MiB so far, MiB/s, records so far, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

_MIB = 2**20


def carried_bytes_per_s(
    outputs: Iterable[str], began_s: float, ended_s: float
) -> float:
    """Return what all consumers together read a second between two times.

    Args:
        outputs: of each, as printed so far: the last row may be torn.
        began_s: since the epoch.
        ended_s: since the epoch.
    """
    return sum(_rate(_rows(output), began_s, ended_s) for output in outputs)


def _rows(output: str) -> list[tuple[float, float]]:
    """Return (seconds since the epoch, bytes so far) of each whole row."""
    rows = []
    for line in output.splitlines(keepends=True):
        cells = [cell.strip() for cell in line.split(",")]
        # Anything else that is printed has fewer commas, or no time.
        if not line.endswith("\n") or len(cells) < 5:
            continue
        try:
            at_s = datetime.fromisoformat(cells[0]).timestamp()
            rows.append((at_s, float(cells[2]) * _MIB))
        except ValueError:
            continue
    return rows


def _rate(rows: list[tuple[float, float]], began_s: float, ended_s: float) -> float:
    within = [row for row in rows if began_s <= row[0] <= ended_s]
    if len(within) < 2 or within[-1][0] == within[0][0]:
        return 0.0
    return (within[-1][1] - within[0][1]) / (within[-1][0] - within[0][0])
