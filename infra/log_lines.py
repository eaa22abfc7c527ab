"""A line of a role's log -> what was said, when, and how bad it is; pure."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from infra.printable import printable

MAX_LINE_BYTES = 1 << 16
"""Of a longer line, which no process of ours writes, this much is read."""

LEVELS = {
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARNING": logging.WARNING,
    "ERROR": logging.ERROR,
    "CRITICAL": logging.CRITICAL,
}
_MAX_TIME_MS = 253_402_300_800_000  # the year 10000
_OURS = b'{"time": "'
# Native code, and Python before it logs, say so when they end a process.
_CRASH = re.compile(
    r"Traceback \(most recent|Fatal Python error|terminate called|Segmentation fault"
    r"|[\w.]*(Error|Exception)(:|$)|%[0-3]\|"
)


@dataclass(frozen=True)
class LogLine:
    """Something that a role process, or what it started, has written.

    Attributes:
        role: whose log it is in.
        index: likewise.
        time_ms: since the epoch; of a raw line, when it was there at the latest.
        level: its name, as in `logging`; of a raw line it is a guess.
        message: one line or more.
        exception: a traceback, or "".
        logger: who said it, within the process; "" for a raw line.
    """

    role: str
    index: int
    time_ms: int
    level: str
    message: str
    exception: str = ""
    logger: str = ""

    @property
    def severity(self) -> int:
        """The level as a number, to compare."""
        return LEVELS.get(self.level, logging.INFO)

    @property
    def is_raw(self) -> bool:
        """Whether it was not logged, but written to stdout or stderr."""
        return not self.logger

    def in_short(self, max_length: int) -> str:
        """Return it in one line that any terminal shows, with what was raised."""
        raised = self.exception.strip().splitlines()[-1:]
        text = ": ".join([" ".join(self.message.split()), *raised])
        return printable(text[:max_length])


class LineParser:
    """Reads the lines of one log in their order."""

    def __init__(self, role: str, index: int) -> None:
        self._role, self._index = role, index
        self._crashing = False

    def parse(self, lines: Iterable[bytes], written_at_ms: int) -> list[LogLine]:
        """Return what lines say.

        Args:
            lines: without their ends.
            written_at_ms: when the last of them was there; a raw line has the time of
                the next that has one, or this.
        """
        found = [part for line in lines for part in _parts(line[:MAX_LINE_BYTES])]
        times = []
        for part in reversed(found):
            written_at_ms = part.get("time_ms", written_at_ms)
            times.append(written_at_ms)
        return [
            LogLine(self._role, self._index, **self._with_level(part) | {"time_ms": at})
            for part, at in zip(found, reversed(times), strict=True)
        ]

    def _with_level(self, part: dict[str, Any]) -> dict[str, Any]:
        if "level" in part:
            self._crashing = False
            return part
        # What follows a crash's first line, until somebody logs, belongs to it.
        self._crashing = self._crashing or bool(_CRASH.match(part["message"]))
        return {"level": "ERROR" if self._crashing else "INFO", **part}


def _parts(line: bytes) -> Iterator[dict[str, Any]]:
    """Yield the fields of a logged line; of raw text, before one or alone, itself."""
    raw, mark, rest = line.partition(_OURS)
    fields = _fields(mark + rest) if mark else None
    if fields is None:
        raw = line
    if text := raw.decode(errors="replace").rstrip():
        yield {"message": text}
    if fields is not None:
        yield fields


def _fields(line: bytes) -> dict[str, Any] | None:
    try:
        values = json.loads(line)
        time_ms = int(datetime.fromisoformat(values["time"]).timestamp() * 1000)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
    texts = {
        name: values.get(name, "")
        for name in ("level", "message", "exception", "logger")
    }
    is_ours = all(isinstance(text, str) for text in texts.values())
    if not is_ours or not 0 <= time_ms < _MAX_TIME_MS:
        return None
    return {"time_ms": time_ms, **texts}
