"""Text of any origin -> text that a terminal or a log shows, and does not obey."""

from __future__ import annotations


def printable(text: str) -> str:
    """Return the text with a mark in place of each control character."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
