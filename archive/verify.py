"""An archive's files against its manifest: every hash, every row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from archive.archive_source import ArchiveSource
from archive.errors import ArchiveDamaged
from archive.folder import left_over
from archive.manifest import Part
from archive.part_files import open_checked
from archive.parts import STEPS, UNROLLS


@dataclass
class Verified:
    """What was found.

    Attributes:
        problems: what is missing or damaged; empty: all is as it was written.
        left_over: files of parts that were never finished: the next run removes them.
    """

    folder: str
    identity: str
    parts: int = 0
    records: int = 0
    rows: int = 0
    env_steps: int = 0
    bytes: int = 0
    gap_records: int = 0
    problems: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)


def verify(folder: Path, on_part: Callable[[int, int], None]) -> Verified:
    """Check all files of an archive; ``on_part(done, of)`` is called after each part.

    Raises:
        ArchiveError: it is none, or its manifest cannot be read.
    """
    source = ArchiveSource(folder)
    found = Verified(str(folder), source.info.identity)
    parts = source.manifest.parts
    for number, part in enumerate(parts, 1):
        found.parts += 1
        found.records += part.records
        found.rows += part.rows
        found.env_steps += part.valid_rows
        found.bytes += part.bytes
        found.problems += _problems(folder, part)
        on_part(number, len(parts))
    found.gap_records = sum(g.next_offset - g.first_offset for g in source.gaps())
    found.left_over = left_over(folder, source.manifest)
    return found


def _problems(folder: Path, part: Part) -> list[str]:
    found = []
    for place, mark, count in (
        (STEPS, part.steps, part.rows),
        (UNROLLS, part.unrolls, part.records),
    ):
        if mark is None:
            continue
        try:
            with open_checked(folder, place, part.name, mark) as file:
                rows = pq.ParquetFile(file).metadata.num_rows
        except ArchiveDamaged as exc:
            found.append(str(exc))
        except (pa.ArrowException, OSError) as exc:
            found.append(f"{folder / place / part.name}: cannot be read: {exc}")
        else:
            if rows != count:
                path = folder / place / part.name
                found.append(f"{path}: expected {count} rows, found {rows}")
    return found
