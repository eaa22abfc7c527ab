"""Archives what comes, until told to stop."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from archive.archiving import Archiving

EVERY_S = 60.0
"""How old what is not archived may be: shorter, and the files are small."""

_LOOK_S = 1.0


def follow(
    archiving: Archiving,
    wait: Callable[[float], bool],
    tell: Callable[[Mapping[int, int]], None],
    every_s: float = EVERY_S,
) -> None:
    """Archive at once what there is, then what has come, each time as one part.

    Args:
        archiving: does it.
        wait: waits for so many seconds; returns whether to stop.
        tell: is told how many offsets are not archived, by partition.
        every_s: how often, and sooner when it would be more than a part.
    """
    ran_s = -math.inf
    while True:
        behind = archiving.behind()
        due = time.monotonic() - ran_s >= every_s
        if any(behind.values()) and (due or archiving.is_full(behind)):
            archiving.run()
            ran_s = time.monotonic()
            behind = archiving.behind()
        tell(behind)
        if wait(min(_LOOK_S, every_s)):
            return
