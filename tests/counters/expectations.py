"""Counters as they were measured and as they are expected -> what is not as it was."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path

Counters = Mapping[str, float]
"""Values by name; less is better."""

FILE = Path(__file__).with_name("expected.json")
MORE = 0.02
"""A counter may rise by so much of itself: a word more in a record, say."""

LESS = 0.05
"""And fall by so much, until somebody writes down that it is better now."""

OTHER_PYTHON = 0.15
"""What Python's own work may differ by in another minor version."""

_OF_PYTHON = ("bytecodes", "calls")
_HOW = "if that is meant, `python -m tests.counters.update` writes it down"


def python_version() -> str:
    """Return the minor version, as ``3.11``."""
    return ".".join(platform.python_version_tuple()[:2])


def load() -> tuple[str, dict[str, dict[str, float]]]:
    """Return the Python that it was measured with, and counters by group."""
    whole = json.loads(FILE.read_text("utf-8"))
    return whole["python"], whole["counters"]


def save(counters: Mapping[str, Counters]) -> None:
    """Write the file anew."""
    whole = {"python": python_version(), "counters": counters}
    FILE.write_text(json.dumps(whole, indent=2, sort_keys=True) + "\n", "utf-8")


def differences(found: Counters, expected: Counters, *, same_python: bool) -> list[str]:
    """Return in words which counters of a group are not as expected."""
    told = [
        f"{name}: not in {FILE.name}, or not measured any more; {_HOW}"
        for name in sorted(found.keys() ^ expected.keys())
    ]
    for name in sorted(found.keys() & expected.keys()):
        more, less = _tolerances(name, same_python=same_python)
        was, now = expected[name], found[name]
        if now > was * (1 + more):
            told.append(f"{name}: {_change(was, now)}; {more:.0%} more is let be")
        elif now < was * (1 - less):
            told.append(f"{name}: {_change(was, now)}: better; {_HOW}")
    return told


def changes(old: Mapping[str, Counters], new: Mapping[str, Counters]) -> list[str]:
    """Return in words what a new file says otherwise than the old one."""
    told = []
    for group in sorted(old.keys() | new.keys()):
        before, now = old.get(group, {}), new.get(group, {})
        for name in sorted(before.keys() | now.keys()):
            if before.get(name) != now.get(name):
                was, is_ = before.get(name), now.get(name)
                told.append(f"{group}: {name}: {_change(was, is_)}")
    return told


def _tolerances(name: str, *, same_python: bool) -> tuple[float, float]:
    if not same_python and name.startswith(_OF_PYTHON):
        return OTHER_PYTHON, OTHER_PYTHON
    return MORE, LESS


def _change(was: float | None, now: float | None) -> str:
    if was is None or now is None:
        return f"{_number(was)} -> {_number(now)}"
    by = f" ({now / was - 1:+.1%})" if was else ""
    return f"{_number(was)} -> {_number(now)}{by}"


def _number(value: float | None) -> str:
    if value is None:
        return "nothing"
    return f"{value:,.0f}" if value >= 1e5 else f"{value:,g}"
