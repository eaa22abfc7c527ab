"""A folder of an archive, opened by the one process that writes it.

    <archives>/<experiment>/<run id>/manifest.jsonl, steps/, unrolls/, .lock

See `archive.manifest` for what is in it and what is not.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from archive.columns import Columns
from archive.errors import ArchiveError
from archive.manifest import (
    NAME,
    GapLine,
    Header,
    Manifest,
    Part,
    append,
    create_manifest,
    read_manifest,
)
from archive.parts import STEPS, UNROLLS, PartWriter
from archive.recorded import SourceInfo
from archive.sequences import Sequences
from infra.clock import now_ms
from infra.durable import sync_directory

LOCK = ".lock"
_OURS = re.compile(r"\d{5}-\d{20}-\d{20}\.parquet|\.\d{5}-\d{20}\.tmp")


class ArchiveFolder:
    """Takes parts, one after the other; never the same offsets or sequences twice.

    Attributes:
        manifest: what there is.
    """

    def __init__(self, path: Path, lock: int, manifest: Manifest) -> None:
        self.path = path
        self.manifest = manifest
        self._lock = lock
        self._columns = Columns.from_json(manifest.header.columns)
        self._sequences = Sequences()
        for part in manifest.parts:
            self._sequences.add_all(part.streams)

    @classmethod
    def open(cls, path: Path, info: SourceInfo, columns: Columns) -> ArchiveFolder:
        """Open an archive to go on with it, or begin it.

        Args:
            path: its folder.
            info: whose experience it is to hold.
            columns: of a new one.

        Raises:
            ArchiveError: another process writes it, or it is another past's.
            ArchiveDamaged: its manifest cannot be read.
        """
        _make_folders(path)
        lock = _take_lock(path)
        try:
            manifest = _manifest(path, info, columns)
            for name in left_over(path, manifest):
                (path / name).unlink()
            return cls(path, lock, manifest)
        except BaseException:
            os.close(lock)
            raise

    def close(self) -> None:
        """Let another process write it."""
        os.close(self._lock)

    def has(self, stream: str, sequence: int) -> bool:
        """Whether a sequence of a stream is in a part already."""
        return self._sequences.has(stream, sequence)

    def begin(self, partition: int, first: int) -> PartWriter:
        """Begin a part."""
        return PartWriter(self.path, self._columns, partition, first)

    def commit(self, part: Part) -> None:
        """Make the files of a part belong to the archive: its line is what does it."""
        append(self.path, self.manifest, part)
        self._sequences.add_all(part.streams)

    def note_gap(self, partition: int, first: int, next_: int) -> None:
        """Write down that offsets were deleted before they were read."""
        line = GapLine(
            partition=partition, first=first, next=next_, found_at_ms=now_ms()
        )
        append(self.path, self.manifest, line)


def left_over(path: Path, manifest: Manifest) -> list[str]:
    """Return files, below ``path``, of parts that were never finished, or not noted."""
    known = {part.name for part in manifest.parts if part.steps}
    return [
        f"{place}/{name}"
        for place in (STEPS, UNROLLS)
        for name in _names(path / place)
        if _OURS.fullmatch(name) and name not in known
    ]


def _names(folder: Path) -> Iterator[str]:
    with os.scandir(folder) as entries:
        yield from sorted(entry.name for entry in entries)


def _manifest(path: Path, info: SourceInfo, columns: Columns) -> Manifest:
    if not (path / NAME).exists():
        return create_manifest(path, Header.of(info, columns))
    manifest = read_manifest(path)
    found = manifest.header.source_info().identity
    if found != info.identity:
        raise ArchiveError(
            f"{path}: expected the archive of {info.identity}, found {found}",
            "name another folder with --out",
        )
    return manifest


def _make_folders(path: Path) -> None:
    try:
        for place in (STEPS, UNROLLS):
            (path / place).mkdir(parents=True, exist_ok=True)
        for each in (path, path.parent, path.parent.parent):
            sync_directory(each)
    except OSError as exc:
        raise ArchiveError(
            f"{path}: cannot be made: {exc.strerror}",
            "name another folder with --out, or set ROLLSTREAM_ARCHIVES",
        ) from exc


def _take_lock(path: Path) -> int:
    # Held by the process, and by nobody once it is gone, however it went.
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        lock = os.open(path / LOCK, flags, 0o644)
    except OSError as exc:
        raise ArchiveError(
            f"{path / LOCK}: expected a file to write, found: {exc.strerror}",
            "name another folder with --out",
        ) from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        owner = os.read(lock, 32).decode(errors="replace")
        os.close(lock)
        raise ArchiveError(
            f"{path}: expected nobody else to write it, found process {owner or '?'}",
            "let it finish, or name another folder with --out",
        ) from exc
    os.truncate(lock, 0)
    os.write(lock, str(os.getpid()).encode())
    return lock
