"""Sampled stacks -> where the time goes, as shares; pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Stack = tuple[str, ...]

_PLACE = re.compile(r"^(?P<function>.*) \((?P<file>[^():]+)(?::\d+)?\)$")
_PACKAGES = re.compile(r".*/site-packages/|.*/lib/python[\d.]+/")


@dataclass(frozen=True)
class Share:
    """How often a function was seen.

    Attributes:
        name: of the function, with its file or class.
        alone: share of all samples in which it was the innermost.
        in_all: share in which it was anywhere.
    """

    name: str
    alone: float
    in_all: float


def from_folded(text: str) -> Counter[Stack]:
    """Read lines ``outermost;...;innermost COUNT``, as py-spy writes them.

    Line numbers, and the thread's own frame, are left out.
    """
    found: Counter[Stack] = Counter()
    for line in text.splitlines():
        frames, _, count = line.rpartition(" ")
        if frames and count.isdigit():
            named = [_named(frame) for frame in frames.split(";")]
            found[tuple(f for f in named if not f.startswith("thread "))] += int(count)
    return found


def from_flight_recorder(events: Sequence[Mapping[str, Any]]) -> Counter[Stack]:
    """Read the events of ``jfr print --json``: samples of a JVM."""
    found: Counter[Stack] = Counter()
    for event in events:
        frames = (event["values"].get("stackTrace") or {}).get("frames") or ()
        named = [_java(frame["method"]) for frame in reversed(frames)]
        if named:
            found[tuple(named)] += 1
    return found


def shares(stacks: Mapping[Stack, int], most: int) -> list[Share]:
    """Return the functions that were innermost most often, of all samples."""
    total = sum(stacks.values())
    alone: Counter[str] = Counter()
    in_all: Counter[str] = Counter()
    for stack, count in stacks.items():
        alone[stack[-1]] += count
        for name in set(stack):
            in_all[name] += count
    ranked = alone.most_common(most)
    return [Share(name, n / total, in_all[name] / total) for name, n in ranked]


def _named(frame: str) -> str:
    match = _PLACE.match(frame)
    if match is None:
        return frame
    file = _PACKAGES.sub("", match["file"])
    return f"{match['function']} ({file})"


def _java(method: Mapping[str, Any]) -> str:
    kind = str(method["type"]["name"]).replace("/", ".").rpartition(".")[2]
    return f"{kind}.{method['name']}"
