"""What an archive holds: a header, then a line for each part or gap, in JSON.

A line is what makes a part: files without one are not of the archive. Lines are only
ever appended, and are on the disk before anything depends on them.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from archive.columns import Columns, ColumnsJson
from archive.errors import ArchiveDamaged, ArchiveError
from archive.recorded import SourceInfo
from infra.clock import now_ms
from infra.durable import sync_directory, write_durably
from schemas.codec import decode, encode
from schemas.errors import SchemaError
from schemas.experiment import SpecError, parse_json
from schemas.records import EnvDescription, Member

FORMAT = 1
NAME = "manifest.jsonl"
MAX_BYTES = 1 << 30

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0)]
Policy = tuple[int, int]
"""Epoch and version."""


class _Line(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class Header(_Line):
    """Whose experience it is, and what columns its steps have."""

    format: Literal[1] = 1
    experiment: str
    """The spec of the run, as JSON."""
    run_id: str
    topic: str
    topic_id: str
    env: str | None
    """What the workers found: a Member's Avro bytes in base64."""
    columns: ColumnsJson
    created_at_ms: int

    @classmethod
    def of(cls, info: SourceInfo, columns: Columns) -> Header:
        """Return the header of an archive that is begun now."""
        return cls(
            experiment=info.experiment.to_json(),
            run_id=info.run_id,
            topic=info.topic,
            topic_id=info.topic_id,
            env=None if info.env is None else _to_text(info.env),
            columns=columns.to_json(),
            created_at_ms=now_ms(),
        )

    def source_info(self) -> SourceInfo:
        """Return whose it is; raises SchemaError or SpecError."""
        return SourceInfo(
            experiment=parse_json(self.experiment),
            run_id=self.run_id,
            topic=self.topic,
            topic_id=self.topic_id,
            env=None if self.env is None else _from_text(self.env),
        )


class FileMark(_Line):
    """How a file was when it was written."""

    bytes: Count
    sha256: Sha256


class Part(_Line):
    """Offsets [first, next) of a partition, and the files that hold their records."""

    kind: Literal["part"] = "part"
    partition: Annotated[int, Field(ge=0, le=99_999)]
    first: Count
    next: Count
    records: Count
    """In the files; offsets without one were of another run, or marks of Kafka's."""
    stream_ends: Count
    rows: Count
    valid_rows: Count
    repeats: Count
    """Records left out: the archive has their sequence from another offset."""
    steps: FileMark | None
    unrolls: FileMark | None
    """None of both: no record, no file."""
    produced_at_ms: tuple[int, int] | None
    """The first and last time in it."""
    policies: tuple[Policy, Policy] | None
    """The lowest and highest that acted in it."""
    streams: dict[str, list[tuple[int, int]]]
    """By worker/incarnation the sequences in it, as ranges [first, next)."""
    archived_at_ms: int

    @property
    def name(self) -> str:
        """Of its file of steps, and of its file of unrolls."""
        return part_name(self.partition, self.first, self.next)

    @property
    def bytes(self) -> int:
        """Of both files."""
        return sum(mark.bytes for mark in (self.steps, self.unrolls) if mark)


class GapLine(_Line):
    """Offsets [first, next) of a partition that were deleted before they were read."""

    kind: Literal["gap"] = "gap"
    partition: Annotated[int, Field(ge=0, le=99_999)]
    first: Count
    next: Count
    found_at_ms: int


Line = Part | GapLine
_LINES: TypeAdapter[Line] = TypeAdapter(
    Annotated[Part | GapLine, Field(discriminator="kind")]
)


def part_name(partition: int, first: int, next_: int) -> str:
    """Return the name of a part's files: they sort by partition and offset."""
    return f"{partition:05d}-{first:020d}-{next_:020d}.parquet"


class Manifest:
    """A header and its lines, checked against each other.

    Attributes:
        lines: in the order they were written.
        size: bytes of the file that they take.
    """

    def __init__(self, header: Header, lines: Iterable[Line], size: int) -> None:
        self.header = header
        self.lines: list[Line] = []
        self.size = size
        self._next: dict[int, int] = {}
        for line in lines:
            self.note(line)

    @property
    def parts(self) -> list[Part]:
        """The parts."""
        return [line for line in self.lines if isinstance(line, Part)]

    def positions(self) -> dict[int, int]:
        """Return where each partition goes on of which something is known."""
        return dict(self._next)

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Return (first offset, next offset) of what there is, by partition."""
        first: dict[int, int] = {}
        for part in self.parts:
            first.setdefault(part.partition, part.first)
        return {p: (first.get(p, end), end) for p, end in self._next.items()}

    def note(self, line: Line) -> None:
        """Take in a line; raises ArchiveDamaged where it does not follow the others."""
        expected = self._next.get(line.partition, line.first)
        if line.first != expected or line.next < line.first:
            raise ArchiveDamaged(
                f"{NAME}: expected partition {line.partition} to go on at offset "
                f"{expected}, found {line.first} to {line.next}",
                "archive into another folder (--out)",
            )
        self._next[line.partition] = line.next
        self.lines.append(line)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an archive; what was torn off its end is passed over.

    Raises:
        ArchiveError: there is none, or it is of another format.
        ArchiveDamaged: a line is not what was written.
    """
    path = folder / NAME
    try:
        data = _read(path)
    except OSError as exc:
        raise ArchiveError(
            f"{path}: expected the manifest of an archive, found {exc.strerror}",
            "name a folder that `rollstream archive` made",
        ) from exc
    whole = data[: data.rfind(b"\n") + 1]
    texts = whole.splitlines()
    if not texts:
        raise _damaged(path, 1, "a header", "nothing")
    header = _header(path, texts[0])
    lines = [_line(path, number, text) for number, text in enumerate(texts[1:], 2)]
    return Manifest(header, lines, len(whole))


def _read(path: Path) -> bytes:
    """Return what a plain file holds; a link, a pipe or a device is an OSError."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            raise OSError(errno.EINVAL, "no plain file, or one that is too large")
        return file.read(found.st_size)


def create_manifest(folder: Path, header: Header) -> Manifest:
    """Begin an archive; its header is there whole, or not at all."""
    data = header.model_dump_json().encode() + b"\n"
    temporary = folder / f".{NAME}.tmp"
    temporary.unlink(missing_ok=True)  # it may be a link
    write_durably(temporary, data)
    temporary.rename(folder / NAME)
    sync_directory(folder)
    return Manifest(header, [], len(data))


def append(folder: Path, manifest: Manifest, line: Line) -> None:
    """Write a line behind those that are known; it is on the disk afterwards."""
    data = line.model_dump_json().encode() + b"\n"
    number = os.open(folder / NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(number, "r+b") as file:
        file.seek(manifest.size)
        if b"\n" in file.read():  # the lock was taken away from us
            raise ArchiveError(
                f"{folder}: expected nobody else to write it, found another's lines",
                "begin again; let one process at a time archive into a folder",
            )
        # Whatever is behind was torn off by a kill, and is no line.
        file.truncate(manifest.size)
        file.seek(manifest.size)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    manifest.note(line)
    manifest.size += len(data)


def _header(path: Path, text: bytes) -> Header:
    try:
        value: Any = json.loads(text)
        found = value.get("format") if isinstance(value, dict) else None
        if found != FORMAT:
            raise ArchiveError(
                f"{path}: expected format {FORMAT}, found {str(found)[:20]!r}",
                "read it with the version of rollstream that wrote it",
            )
        header = Header.model_validate_json(text)
        header.source_info()
        Columns.from_json(header.columns)
    except (ValueError, SchemaError, SpecError) as exc:
        raise _damaged(path, 1, "a header", str(exc)) from exc
    return header


def _line(path: Path, number: int, text: bytes) -> Line:
    try:
        return _LINES.validate_json(text)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, error["loc"]))
        raise _damaged(
            path, number, "a part or gap", f"{where}: {error['msg']}"
        ) from exc


def _damaged(path: Path, number: int, expected: str, found: str) -> ArchiveDamaged:
    return ArchiveDamaged(
        f"{path}: line {number}: expected {expected}, found {found[:300]}",
        "restore the file from a copy, or archive into another folder (--out)",
    )


def _to_text(env: EnvDescription) -> str:
    member = Member("", "", "worker", 0, "", 0, 0, env)
    return base64.b64encode(encode(member)).decode()


def _from_text(text: str) -> EnvDescription | None:
    return decode(base64.b64decode(text, validate=True), Member).env
