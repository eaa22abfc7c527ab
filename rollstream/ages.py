"""Milliseconds -> how long ago, as a person says it."""

from __future__ import annotations


def age(milliseconds: int) -> str:
    """Return a time span in its largest whole unit but one: "3 s", "12 min", "5 h"."""
    seconds = max(0, milliseconds) // 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
