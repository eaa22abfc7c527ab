"""Things with names, and those that were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar


class Named(Protocol):
    """What has a name."""

    @property
    def name(self) -> str:
        """What it is asked for by."""
        ...


T = TypeVar("T", bound=Named)


def named(every: Iterable[T], names: Sequence[str], what: str) -> list[T]:
    """Return those of some names, each once; of none: all.

    Args:
        every: in order.
        names: of those asked for.
        what: they are, in the plural.

    Raises:
        ValueError: there is none of a name.
    """
    known = {each.name: each for each in every}
    if unknown := sorted(set(names) - known.keys()):
        raise ValueError(
            f"expected {what} of {', '.join(known)}, found {', '.join(unknown)}"
        )
    return [known[name] for name in dict.fromkeys(names or known)]
