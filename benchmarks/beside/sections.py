"""All sections, in the order in which they are measured."""

from __future__ import annotations

from benchmarks.beside.broker_limit import BROKER_LIMIT
from benchmarks.beside.encodings import ENCODINGS
from benchmarks.beside.frames import FRAMES
from benchmarks.beside.ingest import HELD, INGEST
from benchmarks.beside.sampling import SAMPLING
from benchmarks.beside.section import Section
from benchmarks.beside.training import TRAINING
from benchmarks.named import named

SECTIONS: tuple[Section, ...] = (
    INGEST,
    HELD,
    BROKER_LIMIT,
    FRAMES,
    ENCODINGS,
    SAMPLING,
    TRAINING,
)


def chosen(names: list[str]) -> list[Section]:
    """Return the sections of some names; of none: all.

    Raises:
        ValueError: there is no such section.
    """
    return named(SECTIONS, names, "sections")
