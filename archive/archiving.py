"""A past, and what of it is archived -> the rest of it, archived, part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from archive.columns import Columns
from archive.errors import ArchiveError
from archive.folder import ArchiveFolder
from archive.manifest import NAME, Part
from archive.parts import MAX_BYTES, MAX_ROWS, PartWriter
from archive.recorded import Gap, Recorded, Source
from archive.sequences import stream_name
from infra.errors import OffsetError
from schemas.records import Unroll

_NO_COLUMNS = Columns((), ())


@dataclass
class Counts:
    """What was archived since this process began.

    Attributes:
        records: in parts.
        env_steps: rows of them that are transitions.
        rows: of the tables of steps.
        bytes: of files.
        repeats: records left out, as the archive has their sequence.
        gap_records: offsets that were deleted before they were read.
        parts: pairs of files.
        reading: records read for the part that is being written.
        reading_rows: rows of its table of steps.
    """

    records: int = 0
    env_steps: int = 0
    rows: int = 0
    bytes: int = 0
    repeats: int = 0
    gap_records: int = 0
    parts: int = 0
    reading: int = 0
    reading_rows: int = 0


@dataclass(frozen=True)
class Listener:
    """What whoever archives is told and asked.

    Attributes:
        must_stop: asked after each record; what has been read is committed then.
        on_part: a part is in the archive, up to this offset of its partition.
        on_gap: offsets were deleted before they were read; says which.
        on_record: one was read.
    """

    must_stop: Callable[[], bool] = lambda: False
    on_part: Callable[[int, int], None] = lambda partition, next_: None
    on_gap: Callable[[str], None] = lambda reason: None
    on_record: Callable[[], None] = lambda: None


class Archiving:
    """Archives a source into a folder; as often as it is asked, and nothing twice."""

    def __init__(
        self, open_source: Callable[[], Source], path: Path, listener: Listener
    ) -> None:
        """Open the source; and the folder, where it was begun before.

        Args:
            open_source: opens the past; asked again when a first record is there.
            path: of the archive.
            listener: is told and asked.

        Raises:
            ArchiveError: see `ArchiveFolder.open`.
            RollstreamError: the source cannot be opened.
        """
        self._open_source = open_source
        self._path = path
        self._listener = listener
        self._source = open_source()
        self._looked_up_to: dict[int, int] = {}
        self._initial_gaps: list[Gap] | None = None
        self._raw_bytes = 0
        self._folder: ArchiveFolder | None = None
        self.counts = Counts()
        if (path / NAME).exists():
            with _writing(path):
                self._folder = ArchiveFolder.open(path, self._source.info, _NO_COLUMNS)

    def close(self) -> None:
        """Let go of the source, and let another process write the folder."""
        self._source.close()
        if self._folder is not None:
            self._folder.close()

    def behind(self) -> dict[int, int]:
        """Return how many offsets are not archived, by partition."""
        positions = self.positions()
        return {
            partition: max(end - max(positions.get(partition, first), first), 0)
            for partition, (first, end) in self._source.bounds().items()
        }

    def positions(self) -> dict[int, int]:
        """Return where each partition goes on that was begun."""
        return {} if self._folder is None else self._folder.manifest.positions()

    def is_full(self, behind: Mapping[int, int]) -> bool:
        """Whether as many offsets as these, by partition, would fill a part.

        By what came so far: a record's size is known only once it is read.
        """
        most = max(behind.values(), default=0)
        if not self.counts.records:
            return most > 0
        rows = most * self.counts.rows / self.counts.records
        size = most * self._raw_bytes / self.counts.records
        return rows >= MAX_ROWS or size >= MAX_BYTES

    def run(self) -> None:
        """Archive what there is now, partition by partition, a part at a time.

        Whatever is killed when, a part is in the archive whole or not at all:

        1. Read records into files under temporary names.
        2. Make the files durable, give them their names, and make those durable.
        3. Append the part's line to the manifest: it is in the archive.
        4. Tell the listener, who may commit offsets for those who watch.

        Raises:
            ArchiveError: the folder cannot be written.
            RollstreamError: the source cannot be read.
        """
        with _writing(self._path):
            if self._folder is None:
                self._begin()
            if (folder := self._folder) is None:
                return
            ends = {p: end for p, (_, end) in self._source.bounds().items()}
            left = sorted(ends)
            while left and not self._listener.must_stop():
                left = [p for p in left if self._one_part(folder, p, ends[p])]

    def _begin(self) -> None:
        """Begin the folder with the first unroll: its worker has said what it has."""
        if (first := self._first_unroll()) is None:
            return
        identity = self._source.info.identity
        self._source.close()
        self._source = self._open_source()
        info = self._source.info
        if info.identity != identity:
            raise ArchiveError(
                f"{self._path}: expected to archive {identity}, found that "
                f"{info.identity} is in force now",
                "begin again",
            )
        columns = Columns.of_env(info.env) if info.env else Columns.of_unroll(first)
        self._folder = ArchiveFolder.open(self._path, info, columns)

    def _first_unroll(self) -> Unroll | None:
        for partition, (log_start, end) in self._source.bounds().items():
            first = max(log_start, self._looked_up_to.get(partition, log_start))
            for each in self._source.read(partition, first, end):
                if isinstance(each.record, Unroll):
                    return each.record
            self._looked_up_to[partition] = end
        return None

    def _one_part(self, folder: ArchiveFolder, partition: int, end: int) -> bool:
        """Archive a part; return whether there is more of the partition."""
        log_start, _ = self._source.bounds()[partition]
        first = self._find_gap(folder, partition, log_start)
        if first > end:
            raise ArchiveError(
                f"{self._path}: expected partition {partition} of "
                f"{self._source.info.topic} to go on at offset {first}, found that it "
                f"ends at {end}",
                "archive what the topic has now into another folder (--out)",
            )
        if first == end:
            return False
        try:
            next_ = self._write(folder, partition, first, end)
        except OffsetError:
            if self._source.bounds()[partition][0] <= log_start:
                raise
            return True  # it expired while we read it: a gap
        return next_ < end

    def _find_gap(self, folder: ArchiveFolder, partition: int, log_start: int) -> int:
        """Write down what is gone; return where the partition goes on."""
        position = folder.manifest.positions().get(partition)
        if position is None:
            if self._initial_gaps is None:
                self._initial_gaps = self._source.gaps()
            found = [
                g.first_offset for g in self._initial_gaps if g.partition == partition
            ]
            position = min(found, default=log_start)
        if position < log_start:
            folder.note_gap(partition, position, log_start)
            self.counts.gap_records += log_start - position
            self._listener.on_gap(
                f"{self._source.info.topic}[{partition}]: offsets {position} to "
                f"{log_start - 1} had expired before they were archived"
            )
        return max(position, log_start)

    def _write(
        self, folder: ArchiveFolder, partition: int, first: int, end: int
    ) -> int:
        """Write a part and commit it; return where the next begins."""
        writer = folder.begin(partition, first)
        try:
            next_ = self._read(folder, writer, (partition, first, end))  # Step 1.
            if next_ == first:
                return first
            part = writer.finish(next_)  # Step 2.
            folder.commit(part)  # Step 3.
        finally:
            self.counts.reading = self.counts.reading_rows = 0
            writer.abandon()
        self._count(part, writer)
        self._listener.on_part(partition, part.next)  # Step 4.
        return part.next

    def _read(
        self, folder: ArchiveFolder, writer: PartWriter, place: tuple[int, int, int]
    ) -> int:
        """Read until the part is full; return the offset behind what was read."""
        _, next_, end = place
        try:
            for each in self._source.read(*place):
                if _is_repeat(folder, writer, each):
                    writer.tally.repeats += 1
                else:
                    writer.add(each)
                next_ = each.address.offset + 1
                self.counts.reading += 1
                self.counts.reading_rows = writer.tally.rows
                self._listener.on_record()
                if writer.is_full or self._listener.must_stop():
                    return next_
        except OffsetError:
            if next_ == place[1]:
                raise
            return next_  # what has been read is not lost
        return end

    def _count(self, part: Part, writer: PartWriter) -> None:
        counts = self.counts
        counts.records += part.records
        counts.env_steps += part.valid_rows
        counts.rows += part.rows
        counts.bytes += part.bytes
        counts.repeats += part.repeats
        counts.parts += 1
        self._raw_bytes += writer.tally.raw_bytes


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise ArchiveError(
            f"{path}: cannot be written: {exc.strerror or exc}",
            "make room on the disk, or set ROLLSTREAM_ARCHIVES to another one",
        ) from exc


def _is_repeat(folder: ArchiveFolder, writer: PartWriter, each: Recorded) -> bool:
    """Whether its sequence is archived from another offset, or will be by this part."""
    record = each.record
    if not isinstance(record, Unroll):
        return False
    stream = stream_name(record.worker, record.incarnation)
    return folder.has(stream, record.sequence) or writer.tally.sequences.has(
        stream, record.sequence
    )
