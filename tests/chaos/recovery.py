"""Evidence -> how long what was hit took to be useful again."""

from __future__ import annotations

import bisect

from tests.chaos.evidence import Evidence, Injected

HARMLESS = {"thaw", "note"}
_WINDOW_S = 2.0
_BASELINE_S = 5.0
# What a killed processor had sent may be appended this much later.
_UNDER_WAY_S = 0.1


def recoveries_s(evidence: Evidence) -> list[tuple[Injected, float]]:
    """Return, for each fault that was noted, the seconds to new useful output.

    Worker: a record of a newer incarnation in the trajectories. Processor: a batch that
    is no repetition in every partition that has load. Learner: an optimizer step of
    another process, or of the same one where it was not ended. Broker: an acknowledged
    record. One that nothing came after is left out.
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
    ended = any(end.pid == fault.pid for end in evidence.ended)
    for life in evidence.lives:
        if not life.role.startswith("learner") or (ended and life.pid == fault.pid):
            continue
        for line in life.of("update"):
            if line["at_s"] > fault.at_s:
                return float(line["at_s"])
    return None


def _broker(evidence: Evidence, fault: Injected) -> float | None:
    acks = (line["at_s"] for line in evidence.acks if line["at_s"] > fault.at_s)
    return min(acks, default=None)


def rate_back_s(evidence: Evidence) -> float | None:
    """Return when steps come at 90 % of the rate again, after the last fault.

    The rate is that before the first one. By steps appended to the trajectories, in
    windows of 2 s; None: they never did.
    """
    faults = [f.at_s for f in evidence.injected if f.what not in HARMLESS]
    steps = sorted(
        (logged.at_s, unroll.num_steps * unroll.num_envs)
        for logged, unroll in evidence.unrolls
    )
    if not faults or not steps:
        return None
    times = [at_s for at_s, _ in steps]
    sums = [0]
    for _, count in steps:
        sums.append(sums[-1] + count)

    def between(begin_s: float, end_s: float) -> int:
        left, right = (bisect.bisect(times, at_s) for at_s in (begin_s, end_s))
        return sums[right] - sums[left]

    began_s = max(times[0], faults[0] - _BASELINE_S)
    wanted = 0.9 * between(began_s, faults[0]) / max(faults[0] - began_s, 1e-9)
    at_s = faults[-1]
    while at_s + _WINDOW_S <= times[-1]:
        if between(at_s, at_s + _WINDOW_S) >= wanted * _WINDOW_S:
            return round(at_s - faults[-1], 1)
        at_s += 0.1
    return None
