"""A snapshot -> the JSON that the page reads."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any

from infra.monitoring.dashboard.lag_shown import lag_values
from infra.monitoring.snapshot import Snapshot

# Names and reasons come from topics: longer ones are nobody's.
MAX_TEXT = 2_000


def encode(value: Any) -> bytes:
    """Return JSON of ASCII characters in one line."""
    return json.dumps(plain(value), separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any) -> Any:
    """Return what JSON can say: no NaN, no endless numbers, no endless texts."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else value[: MAX_TEXT - 1] + "…"
    if isinstance(value, Mapping):
        return {str(key)[:MAX_TEXT]: plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if is_dataclass(value):
        return {name: plain(getattr(value, name)) for name in _names(value.__class__)}
    raise TypeError(f"expected a value of a snapshot, found {type(value).__name__}")


def snapshot_values(snapshot: Snapshot) -> dict[str, Any]:
    """Return what ``/api/snapshot`` answers, and each message of the stream."""
    return {
        "at_s": snapshot.at_s,
        "problem": snapshot.problem,
        "lag": lag_values(
            snapshot.lag, [each.experiment for each in snapshot.experiments]
        ),
        "experiments": snapshot.experiments,
    }


@cache
def _names(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))
