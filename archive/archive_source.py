"""A folder that was archived, as a past that can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from archive.columns import Columns
from archive.manifest import GapLine, Manifest, read_manifest
from archive.part_files import read_part
from archive.recorded import Gap, Recorded, SourceInfo


class ArchiveSource:
    """Reads an archive; see `archive.recorded.Source`. It may grow meanwhile."""

    def __init__(self, folder: Path) -> None:
        """Open it.

        Raises:
            ArchiveError: it is no archive, or one of another format.
            ArchiveDamaged: its manifest is not what was written.
        """
        self._folder = folder
        self._manifest = read_manifest(folder)
        self._columns = Columns.from_json(self._manifest.header.columns)
        self._info = self._manifest.header.source_info()

    @property
    def info(self) -> SourceInfo:
        """Whose it is."""
        return self._info

    @property
    def manifest(self) -> Manifest:
        """What is in it, as it was when it was last looked at."""
        return self._manifest

    def bounds(self) -> Mapping[int, tuple[int, int]]:
        """Return (first offset, next offset) of what there is now, by partition."""
        self._manifest = read_manifest(self._folder)
        return self._manifest.bounds()

    def gaps(self) -> list[Gap]:
        """Return what was deleted before it was archived."""
        return [
            Gap(line.partition, line.first, line.next)
            for line in self._manifest.lines
            if isinstance(line, GapLine)
        ]

    def read(self, partition: int, first: int, end: int) -> Iterator[Recorded]:
        """Yield the records with first <= offset < end, in order.

        Raises:
            ArchiveDamaged: a file is missing, or is not what was written: says which.
        """
        for part in self._manifest.parts:
            if part.partition == partition and part.first < end and part.next > first:
                yield from read_part(self._folder, part, self._columns, first, end)

    def close(self) -> None:
        """Let go of it: nothing is held."""
