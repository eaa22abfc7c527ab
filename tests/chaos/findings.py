"""What a check found, and where."""

from __future__ import annotations

from dataclasses import dataclass

from tests.chaos.evidence import Address


@dataclass(frozen=True)
class Finding:
    """Something that must not be."""

    check: str
    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.check}: {self.what}" + (f" [{self.where}]" if self.where else "")


def at(address: Address) -> str:
    """Say where a record is."""
    return f"partition {address[0]} offset {address[1]}"
