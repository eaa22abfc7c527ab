"""Chosen rows of a past -> one Parquet file, with the columns of an archive's steps."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from archive.columns import Columns
from archive.episode_cutter import Bounds, Choose
from archive.errors import ArchiveError
from archive.parts import GROUP_BYTES, GROUP_ROWS
from archive.placement import slots_of
from archive.recorded import Recorded, Source
from archive.sequences import Sequences, stream_name
from archive.step_table import PlacedUnroll, step_schema, step_table
from infra.errors import RollstreamError
from schemas.records import Unroll
from schemas.tensors import Array


class NothingToExport(RollstreamError):
    """There is no row of what is wanted."""


def export_parquet(
    path: Path, source: Source, bounds: Bounds, choose: Choose | None
) -> int:
    """Write the steps of a source; the file is there whole, or not at all.

    Args:
        path: of the file; there may be none yet.
        source: what is read.
        bounds: what of it.
        choose: says which rows are wanted, of which each is valid; None: all rows, also
            those that are not.

    Returns:
        how many rows.

    Raises:
        NothingToExport: none is wanted.
        ArchiveError: there is such a file, or the disk refuses it.
    """
    if path.exists():
        raise ArchiveError(
            f"{path}: expected no file, found one", "name another with --out"
        )
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        num_rows = _write(unfinished, source, bounds, choose)
        if not num_rows:
            raise NothingToExport(f"{source.info.identity}: there is no row to export")
        os.rename(unfinished, path)
    except OSError as exc:
        raise ArchiveError(
            f"{path} cannot be written: {exc.strerror or exc}",
            "free space there, or name another file with --out",
        ) from exc
    finally:
        unfinished.unlink(missing_ok=True)
    return num_rows


def _write(path: Path, source: Source, bounds: Bounds, choose: Choose | None) -> int:
    env = source.info.env
    file = _StepsFile(path, Columns.of_env(env) if env is not None else None)
    try:
        for partition, (first, end) in sorted(bounds.items()):
            for recorded in _once(source.read(partition, first, end)):
                file.add(recorded, choose(recorded) if choose is not None else None)
        file.write_group()
    finally:
        file.close()
    return file.num_rows


def _once(records: Iterable[Recorded]) -> Iterator[Recorded]:
    """Yield each sequence of a stream once: producers that were killed repeat some."""
    seen = Sequences()
    for recorded in records:
        unroll = recorded.record
        if isinstance(unroll, Unroll):
            stream = stream_name(unroll.worker, unroll.incarnation)
            if not seen.has(stream, unroll.sequence):
                seen.add(stream, unroll.sequence, unroll.sequence + 1)
                yield recorded


class _StepsFile:
    """Takes records, writes their wanted rows in groups; memory is a group's."""

    def __init__(self, path: Path, columns: Columns | None) -> None:
        self.num_rows = 0
        self._path = path
        self._columns = columns
        self._writer: pq.ParquetWriter | None = None
        self._group: list[PlacedUnroll] = []
        self._masks: list[Array] = []
        self._rows = self._bytes = 0

    def add(self, recorded: Recorded, chosen: Array | None) -> None:
        unroll = recorded.record
        assert isinstance(unroll, Unroll)
        if chosen is not None and not chosen.any():
            return
        if self._columns is None:
            self._columns = Columns.of_unroll(unroll)
        placed = PlacedUnroll.of(
            recorded.address, recorded.appended_at_ms, unroll, slots_of(self._columns)
        )
        if not placed.num_rows:
            return
        self._group.append(placed)
        if chosen is None:
            chosen = np.ones((unroll.num_steps, unroll.num_envs), np.bool_)
        # Within a record the rows of each environment are together.
        self._masks.append(chosen.T.reshape(-1))
        self._rows += placed.num_rows
        self._bytes += placed.raw_bytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self.write_group()

    def write_group(self) -> None:
        if not self._group or self._columns is None:
            return
        if self._writer is None:
            schema = step_schema(self._columns)
            self._writer = pq.ParquetWriter(self._path, schema, compression="zstd")
        table = step_table(self._group, self._columns)
        mask = np.concatenate(self._masks)
        self._writer.write_table(table if mask.all() else table.filter(mask))
        self.num_rows += int(mask.sum())
        self._group, self._masks, self._rows, self._bytes = [], [], 0, 0

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
