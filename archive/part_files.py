"""A part's pair of files, checked -> its records."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedReader
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from archive.columns import Columns
from archive.errors import ArchiveDamaged
from archive.manifest import FileMark, Part
from archive.parts import STEPS, UNROLLS
from archive.recorded import Recorded
from archive.restoring import restore
from schemas.errors import SchemaError

DAMAGE = (
    SchemaError, pa.ArrowException, OSError, LookupError, ValueError, TypeError,
    AttributeError,
)  # fmt: skip
"""What a file that is not what was written may raise, deep in its reader."""

_MEND = (
    "restore the file from a copy; while the topic still has these offsets, archive it "
    "again into another folder (--out)"
)
# A pipe must not be waited for, nor a link be followed.
_PLAINLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_GROUP_BYTES = 1 << 30
_OTHER_BYTES = 256
"""Of a row, beside its observation and action."""
# A file that was checked once, as it was then, is not read twice for that.
_checked: set[tuple[str, int, int, str]] = set()


def read_part(
    folder: Path, part: Part, columns: Columns, first: int, end: int
) -> Iterator[Recorded]:
    """Yield a part's records with first <= offset < end; memory is a group's.

    Raises:
        ArchiveDamaged: a file is missing, or is not what was written.
    """
    if part.steps is None or part.unrolls is None:
        return
    with ExitStack() as closing:
        steps_file = closing.enter_context(
            open_checked(folder, STEPS, part.name, part.steps)
        )
        unrolls_file = closing.enter_context(
            open_checked(folder, UNROLLS, part.name, part.unrolls)
        )
        try:
            steps = pq.ParquetFile(steps_file, pre_buffer=False)
            unrolls = pq.ParquetFile(unrolls_file, pre_buffer=False)
            for each in _records(steps, unrolls, columns, first, end):
                if first <= each.address.offset < end:
                    yield each
        except DAMAGE as exc:
            raise ArchiveDamaged(
                f"{folder / STEPS / part.name}: cannot be read: {exc!r}", _MEND
            ) from exc


def _records(
    steps: pq.ParquetFile,
    unrolls: pq.ParquetFile,
    columns: Columns,
    first: int,
    end: int,
) -> Iterator[Recorded]:
    width = _OTHER_BYTES + sum(
        each.size * np.dtype(each.dtype).itemsize
        for each in (*columns.observation, *columns.action)
    )
    group_of_steps = 0
    for group in range(unrolls.num_row_groups):
        _check_rows(unrolls, group, _OTHER_BYTES)
        places = unrolls.read_row_group(
            group, columns=["offset", "rows"], use_threads=False
        )
        offsets = places.column("offset").to_numpy()
        has_steps = any(places.column("rows").to_pylist())
        if len(offsets) and offsets[0] < end and offsets[-1] >= first:
            if has_steps:
                _check_rows(steps, group_of_steps, width)
            yield from restore(
                steps.read_row_group(group_of_steps, use_threads=False)
                if has_steps
                else steps.schema_arrow.empty_table(),
                unrolls.read_row_group(group, use_threads=False),
                columns,
            )
        group_of_steps += has_steps


def _check_rows(file: pq.ParquetFile, group: int, row_bytes: int) -> None:
    """Raise ValueError for a small file that would fill the memory once opened."""
    rows = file.metadata.row_group(group).num_rows
    if rows * row_bytes > _MAX_GROUP_BYTES:
        raise ValueError(
            f"group {group}: expected at most {_MAX_GROUP_BYTES:,} bytes, found "
            f"{rows:,} rows of some {row_bytes:,}"
        )


def open_checked(folder: Path, place: str, name: str, mark: FileMark) -> BufferedReader:
    """Open a file of a part; its size and hash are checked once in a process.

    Raises:
        ArchiveDamaged: it is missing, no plain file, or not what was written.
    """
    path = folder / place / name
    try:
        # Neither the file nor its directory may lead out of the archive.
        directory = os.open(folder / place, os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            number = os.open(name, _PLAINLY, dir_fd=directory)
        finally:
            os.close(directory)
    except OSError as exc:
        raise ArchiveDamaged(
            f"{path}: expected {mark.bytes} bytes, found: {exc.strerror}", _MEND
        ) from exc
    file = os.fdopen(number, "rb")
    try:
        _check(path, file, mark)
    except BaseException:
        file.close()
        raise
    return file


def _check(path: Path, file: BufferedReader, mark: FileMark) -> None:
    found = os.fstat(file.fileno())
    if not stat.S_ISREG(found.st_mode) or found.st_size != mark.bytes:
        raise ArchiveDamaged(
            f"{path}: expected {mark.bytes} bytes, found {found.st_size}", _MEND
        )
    seen = str(path), found.st_ino, found.st_mtime_ns, mark.sha256
    if seen in _checked:
        return
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != mark.sha256:
        raise ArchiveDamaged(
            f"{path}: expected the hash {mark.sha256}, found {digest}", _MEND
        )
    file.seek(0)
    _checked.add(seen)
