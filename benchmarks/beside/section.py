"""What is measured beside others: sections, their figures, and who takes part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from infra.settings import Settings

OURS = "rollstream"


@dataclass(frozen=True)
class Place:
    """Where a side is measured.

    Attributes:
        settings: that point at the running cluster.
        services: its processes: pids by name (``kafka``, ``zookeeper``).
        logs: a directory for what processes say.
        quick: as short as it can be and still mean something.
        show: is told what goes on, a line at a time.
    """

    settings: Settings
    services: Mapping[str, int]
    logs: Path
    quick: bool
    show: Callable[[str], None]


@dataclass(frozen=True)
class Measured:
    """What a side came to in one round.

    Attributes:
        figures: by the key of a Figure; what a side cannot be asked is left out.
        versions: of what it was made with.
    """

    figures: Mapping[str, float]
    versions: Mapping[str, str]


@dataclass(frozen=True)
class Figure:
    """One thing that is measured of each side.

    Attributes:
        key: of it in Measured.figures, with its unit at the end: ``p50_ms``.
        title: of its column.
        better: which way is better; the ratio to ours is shown where it is said.
        digits: after the point.
    """

    key: str
    title: str
    better: Literal["high", "low", ""] = ""
    digits: int = 0


@dataclass(frozen=True)
class Side:
    """Who does the work.

    Attributes:
        name: of it, as people say it: ``dm-reverb, whole chunks``.
        measure: does the work once; raises RollstreamError.
        is_ours: it is the production code.
        in_quick: it is measured also where all has to be short.
    """

    name: str
    measure: Callable[[Place], Measured]
    is_ours: bool = False
    in_quick: bool = True

    @property
    def slug(self) -> str:
        """Its name as a file's."""
        kept = [c if c.isalnum() else "-" for c in self.name.lower()]
        return "-".join(filter(None, "".join(kept).split("-")))


@dataclass(frozen=True)
class Goal:
    """What we want to reach.

    Attributes:
        text: in words, with the number.
        reached: whether the medians reach it: figures by side's name and key.
    """

    text: str
    reached: Callable[[Mapping[str, Mapping[str, float]]], bool]


@dataclass(frozen=True)
class Section:
    """One piece of work.

    Attributes:
        name: for ``--section``.
        title: of its table.
        text: what is done, and what is not the same for everyone: two or three lines.
        figures: columns of its table; the first is what the picture shows.
        sides: in the order in which they take turns; ours first.
        goals: of ours.
        most_rounds: where it takes long; None: as many as are asked for.
    """

    name: str
    title: str
    text: str
    figures: tuple[Figure, ...]
    sides: tuple[Side, ...]
    goals: tuple[Goal, ...] = ()
    most_rounds: int | None = None
