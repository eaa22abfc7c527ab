"""Evidence -> how long what was hit took to be useful again."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from tests.chaos.evidence import Evidence, Injected, Logged

Line = dict[str, Any]  # of a journal
HARMLESS = {"thaw", "note"}
BACK = 0.9
BACK_WITHIN_S = 30.0
"""So much of the rate before a fault is to be there again, so soon."""

_WINDOW_S = 2.0
_BASELINE_S = 5.0
# What a process had sent may be appended this much later.
_UNDER_WAY_S = 0.1


def recoveries_s(evidence: Evidence) -> list[tuple[Injected, float]]:
    """Return, for each fault that was noted, the seconds to new useful output.

    Worker: a record of a newer incarnation in the trajectories, or of the same one if
    it was not ended. Processor: a batch that is no repetition in every partition that
    has load. Learner: an optimizer step of another process, or of the same one if it
    was not ended; where no process of its own was harmed, a new batch of every
    partition. Broker: an acknowledged new record of every partition. One that nothing
    came after is left out.
    """
    measure = {
        "worker": _worker, "processor": _processor, "learner": _learner,
        "broker": _broker,
    }  # fmt: skip
    found = []
    for fault in evidence.injected:
        if fault.role in measure and fault.what not in HARMLESS:
            at_s = measure[fault.role](evidence, fault)
            if at_s is not None:
                found.append((fault, at_s - fault.at_s))
    return found


def _worker(evidence: Evidence, fault: Injected) -> float | None:
    mine = [
        (logged.at_s, unroll.incarnation)
        for logged, unroll in evidence.unrolls
        if unroll.worker == f"w{fault.index}"
    ]
    if fault.pid and all(end.pid != fault.pid for end in evidence.ended):
        since_s = fault.at_s + _UNDER_WAY_S
        return min((at_s for at_s, _ in mine if at_s > since_s), default=None)
    before = max((i for at_s, i in mine if at_s <= fault.at_s), default=-1)
    return min((at_s for at_s, i in mine if i > before), default=None)


def _processor(evidence: Evidence, fault: Injected) -> float | None:
    """Of the partition that waits longest."""
    first: dict[int, float] = {}
    highest: dict[int, int] = {}
    for logged, batch in evidence.batches:
        p = logged.partition
        is_new = batch.source.offset > highest.get(p, -1)
        highest[p] = max(highest.get(p, -1), batch.source.offset)
        if is_new and logged.at_s > fault.at_s + _UNDER_WAY_S:
            first.setdefault(p, logged.at_s)
    return max(first.values(), default=None)


def _learner(evidence: Evidence, fault: Injected) -> float | None:
    if not fault.pid:
        return _last_to_come(
            evidence.replay, list(evidence.of("learner", "insert")), fault
        )
    ended = any(end.pid == fault.pid for end in evidence.ended)
    for life in evidence.lives:
        if not life.role.startswith("learner") or (ended and life.pid == fault.pid):
            continue
        for line in life.of("update"):
            if line["at_s"] > fault.at_s:
                return float(line["at_s"])
    return None


def _broker(evidence: Evidence, fault: Injected) -> float | None:
    return _last_to_come(evidence.trajectories, evidence.acks, fault)


def _last_to_come(
    log: list[Logged], lines: list[Line], fault: Injected
) -> float | None:
    """Of each partition the first line of a record appended after the fault."""
    appended_s = {each.address: each.at_s for each in log}
    first: dict[int, float] = {}
    for line in lines:
        p = line["partition"]
        if appended_s.get((p, line["offset"]), 0.0) > fault.at_s:
            first[p] = min(first.get(p, math.inf), line["at_s"])
    return max(first.values(), default=None)


class Rate:
    """Steps acknowledged in a span of time.

    Args:
        acks: lines of the workers' journals.
        noted: what happened, harmless or not, oldest first.

    Attributes:
        before: steps/s before anything happened; 0.0: nothing did, or no steps came.
    """

    def __init__(self, acks: Iterable[Line], noted: Sequence[Injected]) -> None:
        steps = sorted((a["at_s"], a["num_steps"] * a["num_envs"]) for a in acks)
        self._times = [at_s for at_s, _ in steps]
        self._sums = [0, *itertools.accumulate(count for _, count in steps)]
        self._faults = [f.at_s for f in noted if f.what not in HARMLESS]
        self.before = 0.0
        if self._faults and steps:
            end_s = noted[0].at_s
            begin_s = max(self._times[0], end_s - _BASELINE_S)
            if begin_s < end_s:
                self.before = self._between(begin_s, end_s) / (end_s - begin_s)

    def back_s(self) -> float | None:
        """Return when 90 % of it came again, in seconds after the last fault.

        In windows of 2 s. None: it was not known before, or it has not come again.
        """
        if not self.before:
            return None
        at_s = self._faults[-1]
        while at_s + _WINDOW_S <= self._times[-1]:
            wanted = BACK * self.before * _WINDOW_S
            if self._between(at_s, at_s + _WINDOW_S) >= wanted:
                return round(at_s - self._faults[-1], 1)
            at_s += 0.1
        return None

    def _between(self, begin_s: float, end_s: float) -> int:
        left, right = (bisect.bisect(self._times, at_s) for at_s in (begin_s, end_s))
        return self._sums[right] - self._sums[left]
