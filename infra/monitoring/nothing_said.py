"""What is shown of a run whose state nobody has published yet; pure."""

from __future__ import annotations

NOTHING_SAID = "nothing was published of its state"
"""The reason."""


def state_unsaid(managed_by: str) -> str:
    """Return its state: agents will take it on, of others nothing is known."""
    return "pending" if managed_by == "agents" else "unknown"
