"""C6: a committed offset never falls, and never passes what is done."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from tests.chaos.evidence import Address, Committed, Evidence
from tests.chaos.findings import Finding, at

_CLOCK_S = 0.05  # the broker stamps milliseconds, and we ask it over a socket


def c6(evidence: Evidence) -> list[Finding]:
    found = []
    highest: dict[tuple[str, int], Committed] = {}
    for sample in evidence.committed:
        key = sample.role, sample.partition
        before = highest.get(key)
        if before and sample.offset < before.offset:
            what = f"{sample.role}: committed fell from {before.offset} to"
            where = f"partition {sample.partition}"
            found.append(Finding("C6", f"{what} {sample.offset}", where))
        if before is None or sample.offset > before.offset:
            highest[key] = sample
    return found + _too_far(evidence)


def _too_far(evidence: Evidence) -> list[Finding]:
    """Commits that came before what they stand for was done."""
    done = {"processor": _batches_at(evidence), "learner": _checkpoints_at(evidence)}
    found = []
    checked: dict[tuple[str, int], int] = {}
    for sample in evidence.committed:
        key = sample.role, sample.partition
        for offset in range(checked.get(key, 0), sample.offset):
            at_s = done[sample.role](sample.partition, offset)
            if at_s is not None and at_s > sample.at_s + _CLOCK_S:
                what = f"{sample.role}: committed {sample.offset} before {offset}"
                where = at((sample.partition, offset))
                found.append(Finding("C6", f"{what} was done", where))
        checked[key] = max(checked.get(key, 0), sample.offset)
    return found


DoneAt = Callable[[int, int], float | None]


def _batches_at(evidence: Evidence) -> DoneAt:
    """When an unroll's first batch was in the replay topic; None: it needs none."""
    first: dict[Address, float] = {}
    for logged, batch in evidence.batches:
        source = batch.source.partition, batch.source.offset
        first[source] = min(first.get(source, float("inf")), logged.at_s)
    identities: dict[Any, Address] = {}
    needed = set()
    for logged, unroll in evidence.unrolls:
        who = unroll.worker, unroll.incarnation, unroll.sequence
        if identities.setdefault(who, logged.address) == logged.address:
            needed.add(logged.address)
    never = float("inf")
    return lambda p, o: first.get((p, o), never) if (p, o) in needed else None


def _checkpoints_at(evidence: Evidence) -> DoneAt:
    """When a durable checkpoint first held an offset of the replay topic."""
    # By partition, positions that grow and when each was first durable.
    reached: dict[int, tuple[list[int], list[float]]] = {}
    marked: dict[tuple[int, ...], dict[int, int]] = {}
    for line in evidence.of("learner", "mark", "durable"):
        key = tuple(line["checkpoint"])
        if line["kind"] == "mark":
            marked[key] = {int(p): o for p, o in line["positions"].items()}
            continue
        for partition, position in marked[key].items():
            positions, times = reached.setdefault(partition, ([-1], [0.0]))
            if position > positions[-1]:
                positions.append(position)
                times.append(line["at_s"])

    def done_at(partition: int, offset: int) -> float:
        positions, times = reached.get(partition, ([-1], [0.0]))
        index = bisect_right(positions, offset)
        return times[index] if index < len(times) else float("inf")

    return done_at
