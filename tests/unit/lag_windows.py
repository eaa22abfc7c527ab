"""Windows of samples for tests of the lag's judge and figures."""

from __future__ import annotations

from typing import Any

from infra.monitoring.lag.model import Sample, Standing
from infra.monitoring.lag.window import Window

START_S = 1_000.0
TOLD = "told"


def look(at_s: float, committed: int | None, end: int, **more: Any) -> Sample:
    """A sample, ``at_s`` seconds after the start; ``position``: told just then."""
    now_s = START_S + at_s
    position = more.pop("position", None)
    if position is not None:
        told_s = START_S + more.pop("told_s", at_s)
        held, waits = more.pop("held", 0), more.pop("waits", False)
        more["standing"] = Standing(position, held, told_s, waits)
    values: dict[str, Any] = {"begin": 0, "stable_end": end, "members": 1} | more
    return Sample(at_s=now_s, committed=committed, end=end, **values)


def window(*looks: Sample) -> Window:
    return Window(*looks)


def steady(
    seconds: float,
    committed: int | None = 0,
    end: int = 100,
    *,
    reads: float = 0.0,
    comes: float = 0.0,
    every_s: float = 1.0,
    from_s: float = 0.0,
    **more: Any,
) -> list[Sample]:
    """Samples of records that come and are read at even rates, so many a second.

    ``position`` in ``more`` moves with what is read, and the committed offset does not.
    """
    position = more.pop("position", None)
    looks = []
    for i in range(int(seconds / every_s) + 1):
        t = i * every_s
        read = int(reads * t)
        values = dict(more)
        at = committed
        if position is not None:
            values["position"] = position + read
        elif committed is not None:
            at = committed + read
        looks.append(look(from_s + t, at, end + int(comes * t), **values))
    return looks
