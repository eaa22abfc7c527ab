"""The checker: C1 to C10, pure functions of `Evidence`; each returns what it found.

C1  every acknowledged unroll is read by a fresh read_committed reader
C2  each step once in the trajectories, and once in what the learner trained on
C3  each stream goes on without a gap, in order, and is closed
C4  nothing of an aborted transaction was used
C5  one value at each offset
C6  a committed offset never falls, and never passes what is done
C7  the replay topic, repeats removed, is what a slow oracle says; nothing is lost
C8  after healing, nothing is left to read, and the reported lag is 0
C9  processes end as they should: no traceback, none left
C10 policy versions grow; no worker goes back; the newest is the last acknowledged
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from tests.chaos.evidence import Address, Evidence, Logged, follow_training
from tests.chaos.findings import Finding, at
from tests.chaos.offsets import c6
from tests.chaos.streams import check_streams
from tests.unit.test_processor_oracle import Owed, Row, owed_by_log, rows_of

_NEAR = 1e-6
_SHOWN = 5


def c1(evidence: Evidence) -> list[Finding]:
    read = {logged.address: _identity(unroll) for logged, unroll in evidence.unrolls}
    found = []
    for ack in evidence.acks:
        where = (ack["partition"], ack["offset"])
        if (there := read.get(where)) != _identity_of_line(ack):
            what = f"acknowledged {_identity_of_line(ack)}, read {there}"
            found.append(Finding("C1", what, at(where)))
    return found


def _identity(unroll: Any) -> tuple[Any, ...]:
    return (
        unroll.worker,
        unroll.incarnation,
        unroll.sequence,
        unroll.first_step,
        unroll.num_steps,
    )


def _identity_of_line(line: dict[str, Any]) -> tuple[Any, ...]:
    names = ("worker", "incarnation", "sequence", "first_step", "num_steps")
    return tuple(line[name] for name in names)


def c2(evidence: Evidence) -> list[Finding]:
    found = [
        Finding("C2", f"step {step} is in the trajectories again", where)
        for step, where in _repeated_steps(evidence)
    ]
    training = follow_training(evidence.lives)
    found += [Finding("C2", text) for text in training.odd]
    trained: set[tuple[str, int, int]] = set()
    for line in training.inserts:
        for step in range(line["first_step"], line["first_step"] + line["num_steps"]):
            who = (line["worker"], line["incarnation"], step)
            if who in trained:
                where = at((line["partition"], line["offset"]))
                found.append(Finding("C2", f"trained twice on step {who}", where))
            trained.add(who)
    return found + _not_trained(evidence, trained)


def _repeated_steps(evidence: Evidence) -> Iterator[tuple[Any, str]]:
    """By what the observations say, not by what the product counts."""
    seen: set[tuple[int, ...]] = set()
    for logged, unroll in evidence.unrolls:
        observations = unroll.observations[""].array()[:-1]
        who = observations[unroll.valid.array()].astype("int64")
        for step in map(tuple, who.tolist()):
            if step in seen:
                yield step, at(logged.address)
            seen.add(step)


def _not_trained(
    evidence: Evidence, trained: set[tuple[str, int, int]]
) -> Iterator[Finding] | list[Finding]:
    if evidence.healed is None or not evidence.healed.is_drained:
        return []
    there = {
        (unroll.worker, unroll.incarnation, unroll.first_step + t)
        for _, unroll in evidence.unrolls
        if unroll.valid.array().any()  # there is nothing to learn from others
        for t in range(unroll.num_steps)
    }
    lost = [Finding("C2", f"never trained on step {who}") for who in there - trained]
    return lost + [
        Finding("C2", f"trained on step {who}, which no worker has sent")
        for who in trained - there
    ]


def c3(evidence: Evidence) -> list[Finding]:
    is_over = evidence.healed is not None and evidence.healed.is_drained
    found = []
    for partition, log in _by_partition(evidence.trajectories):
        for offset, what in check_streams(log, must_be_closed=is_over):
            found.append(Finding("C3", what, at((partition, offset))))
    return found


def _by_partition(log: Iterable[Logged]) -> list[tuple[int, list[Logged]]]:
    found: dict[int, list[Logged]] = {}
    for logged in log:
        found.setdefault(logged.partition, []).append(logged)
    return sorted(found.items())


def c4(evidence: Evidence) -> list[Finding]:
    return [
        Finding("C4", "made of a record that was aborted", at(logged.address))
        for logged, batch in evidence.batches
        if (batch.source.partition, batch.source.offset) in evidence.uncommitted
    ]


def c5(evidence: Evidence) -> list[Finding]:
    found = []
    readings = {"trajectories": evidence.trajectories, "replay": evidence.replay}
    for kind, log in readings.items():
        second = evidence.second_digests.get(kind, {})
        begin = _first_left(second)
        seen: dict[Address, str] = {}
        for logged in log:
            if seen.setdefault(logged.address, logged.digest) != logged.digest:
                found.append(Finding("C5", f"{kind}: two values", at(logged.address)))
            was_deleted = logged.offset < begin.get(logged.partition, math.inf)
            if not was_deleted and second.get(logged.address) != logged.digest:
                what = f"{kind}: another value when read again"
                found.append(Finding("C5", what, at(logged.address)))
    return found


def _first_left(digests: Mapping[Address, str]) -> dict[int, int]:
    """By partition: what is before was deleted before the second reading."""
    first: dict[int, int] = {}
    for partition, offset in digests:
        first[partition] = min(first.get(partition, offset), offset)
    return first


def c7(evidence: Evidence) -> list[Finding]:
    owed = _owed(evidence)
    found: list[Finding] = []
    seen: set[Row] = set()
    for logged, batch in evidence.batches:
        for row, got in rows_of(batch).items():
            expected = owed.get(row)
            if expected is None:
                what = f"row {row}, which the trajectories do not hold"
                found.append(Finding("C7", what, at(logged.address)))
            elif not _same(got, expected):
                what = f"row {row}: expected {expected}, found {got}"
                found.append(Finding("C7", what, at(logged.address)))
            seen.add(row)
    if evidence.healed is not None and evidence.healed.is_drained:
        missing = owed.keys() - seen
        found += [Finding("C7", f"row {row} has no batch") for row in sorted(missing)]
    if evidence.summary.get("lost_steps"):
        found.append(Finding("C7", f"lost_steps {evidence.summary['lost_steps']}"))
    return found


def _owed(evidence: Evidence) -> dict[Row, Owed]:
    owed: dict[Row, Owed] = {}
    spec = (evidence.n_step, evidence.gamma, evidence.reward_scale)
    for _, log in _by_partition(evidence.trajectories):
        records = [each.record for each in log if each.record is not None]
        owed |= owed_by_log(records, *spec)  # type: ignore[arg-type]
    return owed


def _same(got: Owed, expected: Owed) -> bool:
    return got.m == expected.m and all(
        abs(a - b) <= _NEAR + _NEAR * abs(b)
        for a, b in ((got.returns, expected.returns), (got.discount, expected.discount))
    )


def c8(evidence: Evidence) -> list[Finding]:
    healed = evidence.healed
    if healed is None:
        return [Finding("C8", "the run was never healed")]
    found = []
    if not healed.is_drained:
        what = f"records are left unread {healed.took_s:.0f} s after healing"
        found.append(Finding("C8", what))
    elif healed.took_s > healed.within_s:
        what = f"expected all read within {healed.within_s:g} s of healing"
        found.append(Finding("C8", f"{what}, found {healed.took_s:.1f} s"))
    for role, lag in healed.lag.items():
        if lag != 0:
            found.append(Finding("C8", f"the {role}'s reported lag is {lag}"))
    return found


def c9(evidence: Evidence) -> list[Finding]:
    found = [Finding("C9", f"left running: {what}") for what in evidence.left_running]
    for end in evidence.ended:
        who = f"{end.role}/{end.index}"
        if end.asked and not end.harmed and end.code != 0:
            what = f"exit code {end.code} after {end.took_s:.1f} s, told to stop"
            found.append(Finding("C9", what, who))
        if not end.asked and not end.harmed:
            what = f"ended by itself with {end.code}: {end.words[:400]}"
            found.append(Finding("C9", what, who))
    for who, text in evidence.logs.items():
        if "Traceback (most recent call last)" in text:
            at = text.index("Traceback (most recent call last)")
            found.append(Finding("C9", f"a traceback: {text[at : at + 1500]}", who))
    return found


def c10(evidence: Evidence) -> list[Finding]:
    found = []
    newest = (-1, -1)
    for published in evidence.policies:
        if published.version <= newest or published.version[1] <= newest[1]:
            what = f"version {published.version} after {newest}"
            found.append(Finding("C10", what, f"offset {published.offset}"))
        newest = max(newest, published.version)
    return found + _workers_went_back(evidence) + _newest_policy(evidence)


def _workers_went_back(evidence: Evidence) -> list[Finding]:
    found = []
    held: dict[str, tuple[int, int]] = {}
    for logged, unroll in evidence.unrolls:
        version = (unroll.policy.epoch, unroll.policy.version)
        if version == (-1, -1):
            continue  # a process that has just started acts at random
        if version < held.get(unroll.worker, version):
            what = f"{unroll.worker} acts by {version} after {held[unroll.worker]}"
            found.append(Finding("C10", what, at(logged.address)))
        held[unroll.worker] = version
    return found


def _newest_policy(evidence: Evidence) -> list[Finding]:
    acked = [line for line in evidence.of("learner", "policy")]
    if not acked:
        return []
    last = max(tuple(line["version"]) for line in acked)
    newest = max((p.version for p in evidence.policies), default=(-1, -1))
    ends = [end for end in evidence.ended if end.role == "learner"]
    # A learner that was killed may have sent one whose report it did not live to see.
    is_clean = bool(ends) and ends[-1].code == 0
    if newest < last or (is_clean and newest != last):
        what = f"the newest in the topic is {newest}, the last acknowledged {last}"
        return [Finding("C10", what)]
    return []


CHECKS: dict[str, Callable[[Evidence], list[Finding]]] = {
    "C1": c1, "C2": c2, "C3": c3, "C4": c4, "C5": c5,
    "C6": c6, "C7": c7, "C8": c8, "C9": c9, "C10": c10,
}  # fmt: skip


def check_all(evidence: Evidence, without: Iterable[str] = ()) -> list[Finding]:
    """Return the findings of all checks, those of ``without`` left out."""
    return [
        finding
        for name, check in CHECKS.items()
        if name not in without
        for finding in check(evidence)
    ]


def assert_clean(evidence: Evidence, without: Iterable[str] = ()) -> None:
    """Fail with the first findings of each check."""
    findings = check_all(evidence, without)
    shown: list[str] = []
    for name in CHECKS:
        mine = [str(f) for f in findings if f.check == name]
        shown += mine[:_SHOWN] + ([f"... {len(mine)} in all"] if mine[_SHOWN:] else [])
    assert not findings, f"{evidence.name}:\n" + "\n".join(shown)
