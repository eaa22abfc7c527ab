"""How far back, as a person says it -> milliseconds since the epoch."""

from __future__ import annotations

import re

from rollstream.errors import BadInput
from rollstream.peek_command import parse_time_ms

_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_SPAN = re.compile(r"(\d{1,9})([smhd])")


class BadTime(BadInput):
    """A time on the command line that says nothing."""


def parse_since(text: str, now_ms: int) -> int:
    """Return the moment that ``10m``, ``2h``, or ISO 8601 with a zone, means.

    Raises:
        BadTime: it is neither.
        BadOffset: a time without a zone, or none at all.
    """
    if match := _SPAN.fullmatch(text):
        return now_ms - int(match[1]) * _UNITS_MS[match[2]]
    if not text[:4].isdigit():
        raise BadTime(
            f"since: expected 30s, 10m, 2h, 1d or a time in ISO 8601, found {text!r}"
        )
    return parse_time_ms(text)
