"""Numbers and sources on the command line -> the dead letters they mean."""

from __future__ import annotations

import re
from typing import Any

from infra.errors import RollstreamError
from infra.kafka.dead_letters import Letter

_SOURCE = re.compile(r"[\w.-]+\[\d+\]@-?\d+")


class UnknownLetter(RollstreamError):
    """No dead letter of that number or source."""


def where(letter: Letter) -> str:
    """Return a letter's source as it is written on the command line."""
    return str(letter.record.source)


def find(letters: list[Letter], names: list[str]) -> list[Letter]:
    """Return the letters that numbers, or sources, name; in their order.

    A source that was buried twice means its newest letter.

    Raises:
        UnknownLetter: there is none of that name.
    """
    known = {where(letter): letter for letter in letters}
    known |= {str(letter.number): letter for letter in letters}
    for name in names:
        if name not in known:
            expected = "a number" if not _SOURCE.fullmatch(name) else "a source"
            raise UnknownLetter(
                f"dead letter: expected {expected} of the list, found {name!r}",
                "`rollstream dead-letters EXPERIMENT` lists numbers and sources",
            )
    return list({known[name].number: known[name] for name in names}.values())


def facts(letter: Letter) -> dict[str, Any]:
    """Return a letter as JSON-able values."""
    record = letter.record
    return {
        "number": letter.number,
        "source": where(letter),
        "topic": record.source.topic,
        "partition": record.source.partition,
        "offset": record.source.offset,
        "reader": record.reader,
        "error": record.error,
        "bytes": record.value_bytes,
        "appended_at_ms": letter.appended_at_ms,
        "reinjected": letter.reinjected or None,
    }
