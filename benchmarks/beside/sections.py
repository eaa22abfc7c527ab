"""All sections, in the order in which they are measured."""

from __future__ import annotations

from benchmarks.beside.section import Section

SECTIONS: tuple[Section, ...] = ()


def chosen(names: list[str]) -> list[Section]:
    """Return the sections of some names; of none: all.

    Raises:
        ValueError: there is no such section.
    """
    known = {section.name: section for section in SECTIONS}
    if unknown := sorted(set(names) - known.keys()):
        raise ValueError(
            f"expected sections of {', '.join(known)}, found {', '.join(unknown)}"
        )
    return [known[name] for name in dict.fromkeys(names or known)]
