"""The command line, and ``Client``, which is imported when it is first asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollstream.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from rollstream.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
