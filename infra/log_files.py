"""The logs of a run's roles on this machine: their last lines, and those that come."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from infra.log_lines import MAX_LINE_BYTES, LineParser, LogLine
from infra.log_rotation import BACKUPS

MAX_WORDS = 500
"""Characters of what is told of a process that ended."""

SAID_NOTHING = "it said nothing"
"""Of a process that wrote nothing before it ended."""

_LAST_LINES = 500
_FATAL = "Fatal Python error"
_WINDOW_BYTES = 1 << 17
_NAME = re.compile(r"([a-z]+)-(\d{1,9})\.log")


def find_logs(directory: Path) -> dict[tuple[str, int], Path]:
    """Return the logs of a run's roles, by role and index; {} without a directory."""
    found = {}
    for path in directory.glob("*.log"):
        if match := _NAME.fullmatch(path.name):
            found[match[1], int(match[2])] = path
    return dict(sorted(found.items()))


def last_words(path: Path, lived_s: float) -> str:
    """Return what a process said of its end: its last error, warning, or line.

    Args:
        path: its log, which earlier processes have written as well.
        lived_s: seconds since it was started.
    """
    since_ms = int((time.time() - lived_s) * 1000)
    log = LogFile(path, "", 0)
    lines = log.tail(_LAST_LINES, since_ms=since_ms) + log.unfinished()
    if crash := _fatal_error(lines):
        return crash.in_short(MAX_WORDS)
    for least in (logging.ERROR, logging.WARNING, logging.NOTSET):
        for line in reversed(lines):
            if line.severity >= least:
                return line.in_short(MAX_WORDS)
    return SAID_NOTHING


def _fatal_error(lines: list[LogLine]) -> LogLine | None:
    """Return what `faulthandler` wrote first, and the innermost frame; None: nothing.

    It ends with a list of all extension modules, which says nothing.
    """
    starts = [i for i, line in enumerate(lines) if line.message.startswith(_FATAL)]
    crash = lines[starts[-1] :] if starts else []
    if not crash or not all(line.is_raw for line in crash):
        return None  # a child's, and this process went on
    said = [line.message for line in crash]
    frames = [b for a, b in pairwise(said) if a.startswith("Current thread")]
    return replace(crash[0], message=", ".join([said[0], *frames[:1]]))


class LogFile:
    """One role's log: what it holds, then what is written, over its rotations.

    `infra.log_rotation` copies a full file to ``.1`` and empties it: a new ``.1`` holds
    what follows the place where we were, and the file itself begins anew.
    """

    def __init__(self, path: Path, role: str, index: int) -> None:
        self._path = path
        self._who = role, index
        self._parser = LineParser(role, index)
        self._position = 0
        # The newest backup that there was when we were there.
        self._backup: tuple[int, int] | None = None
        self._unfinished = b""
        self._shrunk = False

    def tail(
        self,
        count: int | None,
        *,
        since_ms: int = 0,
        wanted: Callable[[LogLine], bool] = lambda line: True,
    ) -> list[LogLine]:
        """Return the last lines, oldest first, and let `new` go on behind them.

        Args:
            count: how many at most; None: all.
            since_ms: none that are older.
            wanted: which of them count.
        """
        self._backup = _newest_backup(self._path)
        self._position = _size(self._path)
        self._unfinished = _unfinished(self._path, self._position)
        found: list[LogLine] = []
        for path in (self._path, *reversed(_backups(self._path))):
            missing = None if count is None else count - len(found)
            if missing == 0:
                break
            own_end = self._position - len(self._unfinished)
            end = own_end if path == self._path else _size(path)
            lines, oldest_ms = self._last(path, end, missing, since_ms, wanted)
            found = lines + found
            if oldest_ms < since_ms:
                break
        return found

    def _last(
        self,
        path: Path,
        end: int,
        count: int | None,
        since_ms: int,
        wanted: Callable[[LogLine], bool],
    ) -> tuple[list[LogLine], int]:
        """Return the last lines of a file, and the time of the oldest looked at."""
        window = _WINDOW_BYTES
        while True:
            start = max(end - window, 0)
            lines = _read(path, start, end).split(b"\n")
            if start:
                del lines[:1]  # its beginning is missing
            parser = LineParser(*self._who)
            parsed = parser.parse(lines, _written_at_ms(path))
            if path == self._path:
                self._parser = parser  # it goes on with what follows
            found = [x for x in parsed if x.time_ms >= since_ms and wanted(x)]
            oldest_ms = parsed[0].time_ms if parsed else since_ms
            enough = count is not None and len(found) >= count
            if start == 0 or enough or oldest_ms < since_ms:
                return found if count is None else found[-count:], oldest_ms
            window *= 8

    def unfinished(self) -> list[LogLine]:
        """Return what stands behind the last line's end: of who died, its last."""
        return self._parser.parse([self._unfinished], _written_at_ms(self._path))

    def new(self) -> list[LogLine]:
        """Return the lines that were finished since the last call, oldest first."""
        newest = _newest_backup(self._path)
        position, data = self._begin_again_if_shrunk(newest), b""
        newer = _backups(self._path, newer_than=self._backup)
        if self._backup and len(newer) == BACKUPS:
            position = 0  # where we were is gone, or was about to go
        for path in newer:
            data += _read(path, position)
            position = 0
        size = _size(self._path)
        rest = _read(self._path, position, size) if size >= position else b""
        if _newest_backup(self._path) != newest:
            return []  # it was emptied meanwhile; the next call finds all of it
        self._backup, self._position = newest, position + len(rest)
        *lines, self._unfinished = (self._unfinished + data + rest).split(b"\n")
        if len(self._unfinished) > MAX_LINE_BYTES:
            lines.append(self._unfinished)
            self._unfinished = b""
        return self._parser.parse(lines, _written_at_ms(self._path))

    def _begin_again_if_shrunk(self, newest: tuple[int, int] | None) -> int:
        """Return where to go on: at 0 in a file that somebody has cut or replaced."""
        cut = newest == self._backup and _size(self._path) < self._position
        # Seen once, it may be on its way to a backup.
        begin_again, self._shrunk = cut and self._shrunk, cut and not self._shrunk
        return 0 if begin_again else self._position


def _backups(path: Path, newer_than: tuple[int, int] | None = None) -> list[Path]:
    """Return what was moved aside, oldest first."""
    found: list[Path] = []
    for number in range(1, BACKUPS + 1):
        backup = path.with_name(f"{path.name}.{number}")
        identity = _identity(backup)
        if newer_than is not None and identity == newer_than:
            break
        if identity is not None:
            found.insert(0, backup)
    return found


def _newest_backup(path: Path) -> tuple[int, int] | None:
    backups = _backups(path)
    return _identity(backups[-1]) if backups else None


def _identity(path: Path) -> tuple[int, int] | None:
    """Return what stays the same of a file when it is renamed; None without one."""
    try:
        found = path.stat()
    except OSError:
        return None
    # The number of a deleted file is given to another one.
    return found.st_ino, found.st_mtime_ns


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _written_at_ms(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns // 1_000_000
    except OSError:
        return int(time.time() * 1000)


def _unfinished(path: Path, end: int) -> bytes:
    return _read(path, max(end - MAX_LINE_BYTES, 0), end).rpartition(b"\n")[2]


def _read(path: Path, start: int, end: int | None = None) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(-1 if end is None else max(end - start, 0))
    except OSError:
        return b""
