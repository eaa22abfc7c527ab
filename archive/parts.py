"""Records of one partition -> a pair of Parquet files, by groups of rows.

Files appear under their names when they are whole and on the disk; see `archive.folder`
for what makes them part of an archive.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from archive.columns import Columns
from archive.manifest import FileMark, Part, part_name
from archive.placement import slots_of
from archive.recorded import Recorded
from archive.sequences import Sequences, stream_name
from archive.step_table import PlacedUnroll, step_schema, step_table
from archive.unroll_table import SCHEMA as UNROLL_SCHEMA
from archive.unroll_table import unroll_table
from infra.clock import now_ms
from infra.durable import sync_directory
from schemas.records import PolicyRef, Unroll

STEPS, UNROLLS = "steps", "unrolls"

MAX_ROWS = 1 << 20
MAX_BYTES = 128 << 20
MAX_RECORDS = 1 << 18
"""Where a part is cut; of opened arrays."""

GROUP_ROWS = 1 << 16
GROUP_BYTES = 16 << 20
_GROUP_RECORDS = 4_096
_LEVEL = 1
# What is the same for many rows; numbers of a float are not.
_DICTIONARY = [
    "experiment", "run_id", "worker", "incarnation", "sequence", "step", "env",
    "episode", "policy_epoch", "policy_version", "produced_at", "topic", "partition",
    "offset", "action", "kind",
]  # fmt: skip
_STATISTICS = ["offset", "step", "policy_version", "produced_at", "worker"]


def use_one_thread() -> None:
    """Keep Arrow's pools of threads small: a role has one core, not all of them."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


@dataclass
class Tally:
    """What has gone into a part so far."""

    records: int = 0
    stream_ends: int = 0
    rows: int = 0
    valid_rows: int = 0
    repeats: int = 0
    raw_bytes: int = 0
    produced_at_ms: tuple[int, int] | None = None
    policies: tuple[PolicyRef, PolicyRef] | None = None
    sequences: Sequences = field(default_factory=Sequences)

    def note(self, each: PlacedUnroll | Recorded) -> None:
        """Count a record."""
        record = each.unroll if isinstance(each, PlacedUnroll) else each.record
        self.records += 1
        low, high = self.produced_at_ms or (record.produced_at_ms,) * 2
        self.produced_at_ms = (
            min(low, record.produced_at_ms),
            max(high, record.produced_at_ms),
        )
        if not isinstance(each, PlacedUnroll):
            self.stream_ends += 1
            return
        unroll = each.unroll
        self.rows += each.num_rows
        self.valid_rows += each.valid_rows
        self.raw_bytes += each.raw_bytes
        lowest, highest = self.policies or (unroll.policy, unroll.policy)
        self.policies = min(lowest, unroll.policy), max(highest, unroll.policy)
        stream = stream_name(unroll.worker, unroll.incarnation)
        self.sequences.add(stream, unroll.sequence, unroll.sequence + 1)


class PartWriter:
    """Writes the records of a partition from an offset on; memory is a group's."""

    def __init__(
        self, folder: Path, columns: Columns, partition: int, first: int
    ) -> None:
        self._folder = folder
        self._columns = columns
        self._slots = slots_of(columns)
        self._partition = partition
        self._first = first
        self.tally = Tally()
        self._group: list[PlacedUnroll | Recorded] = []
        self._group_rows = self._group_bytes = 0
        self._files: dict[str, _File] = {}

    @property
    def is_full(self) -> bool:
        """Whether it is large enough."""
        tally = self.tally
        return (
            tally.rows >= MAX_ROWS
            or tally.raw_bytes >= MAX_BYTES
            or tally.records >= MAX_RECORDS
        )

    def add(self, recorded: Recorded) -> None:
        """Take in a record, in the order of offsets."""
        record = recorded.record
        each: PlacedUnroll | Recorded = recorded
        if isinstance(record, Unroll):
            each = PlacedUnroll.of(
                recorded.address, recorded.appended_at_ms, record, self._slots
            )
            self._group_rows += each.num_rows
            self._group_bytes += each.raw_bytes
        self.tally.note(each)
        self._group.append(each)
        if (
            self._group_rows >= GROUP_ROWS
            or self._group_bytes >= GROUP_BYTES
            or len(self._group) >= _GROUP_RECORDS
        ):
            self._write_group()

    def finish(self, next_: int) -> Part:
        """Put the files in place; return the line that makes them a part.

        Args:
            next_: the offset behind the last one that was looked at.
        """
        self._write_group()
        marks = {STEPS: None, UNROLLS: None} | {
            place: file.finish(part_name(self._partition, self._first, next_))
            for place, file in self._files.items()
        }
        self._files = {}
        tally, policies = self.tally, self.tally.policies
        return Part(
            partition=self._partition,
            first=self._first,
            next=next_,
            records=tally.records,
            stream_ends=tally.stream_ends,
            rows=tally.rows,
            valid_rows=tally.valid_rows,
            repeats=tally.repeats,
            steps=marks[STEPS],
            unrolls=marks[UNROLLS],
            produced_at_ms=tally.produced_at_ms,
            policies=policies
            and (
                (policies[0].epoch, policies[0].version),
                (policies[1].epoch, policies[1].version),
            ),
            streams=tally.sequences.to_ranges(),
            archived_at_ms=now_ms(),
        )

    def abandon(self) -> None:
        """Leave nothing behind."""
        for file in self._files.values():
            file.abandon()
        self._files = {}

    def _write_group(self) -> None:
        if not self._group:
            return
        if not self._files:
            name = f".{self._partition:05d}-{self._first:020d}.tmp"
            self._files = {
                place: _File(self._folder / place, name, schema)
                for place, schema in (
                    (STEPS, step_schema(self._columns)),
                    (UNROLLS, UNROLL_SCHEMA),
                )
            }
        unrolls = [each for each in self._group if isinstance(each, PlacedUnroll)]
        # A group of the one for each group of the other: they are read together.
        self._files[STEPS].write(step_table(unrolls, self._columns))
        self._files[UNROLLS].write(unroll_table(self._group))
        self._group = []
        self._group_rows = self._group_bytes = 0


class _File:
    """A Parquet file under a temporary name."""

    def __init__(self, folder: Path, name: str, schema: Any) -> None:
        self._folder = folder
        self._path = folder / name
        self._writer = pq.ParquetWriter(
            self._path,
            schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=_DICTIONARY,
            write_statistics=_STATISTICS,
        )

    def write(self, table: Any) -> None:
        if len(table):
            self._writer.write_table(table, row_group_size=len(table))

    def finish(self, name: str) -> FileMark:
        """Close it; make it durable; give it its name, and make that durable."""
        self._writer.close()
        with self._path.open("rb+") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = file.tell()
        self._path.rename(self._folder / name)
        sync_directory(self._folder)
        return FileMark(bytes=size, sha256=digest)

    def abandon(self) -> None:
        with suppress(OSError):  # it writes a footer, and the disk may be full
            self._writer.close()
        self._path.unlink(missing_ok=True)
