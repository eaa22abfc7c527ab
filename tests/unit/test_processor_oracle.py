"""A slow reading of what processors owe: one row at a time, no numpy arithmetic.

Other tests compare with it; here it is itself held against numbers worked by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from schemas.records import NO_POLICY, StreamEnd, TransitionBatch, Unroll
from schemas.tensors import pack

Row = tuple[str, int, int, int]  # worker, incarnation, step, env


@dataclass(frozen=True)
class Owed:
    """What one row is worth; m 0: not a transition."""

    returns: float
    discount: float
    m: int


def owed_by_segment(
    unrolls: Sequence[Unroll], n: int, gamma: float, scale: float
) -> dict[Row, Owed]:
    """Return what the rows of consecutive unrolls are worth, nothing following them."""
    found = {}
    for env in range(unrolls[0].num_envs):
        steps = [step for unroll in unrolls for step in _steps(unroll, env)]
        seen = [_finite(unroll, env) for unroll in unrolls]
        finite = [seen[0][0]] + [ok for each in seen for ok in each[1:]]
        for i in range(len(steps)):
            row = (unrolls[0].worker, unrolls[0].incarnation, steps[i][0], env)
            found[row] = _owed(steps, finite, i, n, gamma, scale)
    return found


def _steps(unroll: Unroll, env: int) -> Iterable[tuple[int, float, bool, bool, bool]]:
    columns = (unroll.rewards, unroll.terminated, unroll.truncated, unroll.valid)
    values = [column.array()[:, env].tolist() for column in columns]
    for i in range(unroll.num_steps):
        yield (unroll.first_step + i, *(column[i] for column in values))


def _finite(unroll: Unroll, env: int) -> list[bool]:
    array = unroll.observations[""].array()[:, env]
    return [all(math.isfinite(x) for x in row.ravel()) for row in array]


def _owed(
    steps: Sequence[tuple[int, float, bool, bool, bool]],
    finite: Sequence[bool],
    start: int,
    n: int,
    gamma: float,
    scale: float,
) -> Owed:
    total, m = 0.0, 0
    for _, reward, terminated, truncated, valid in steps[start : start + n]:
        if not valid:
            break
        total += gamma**m * reward * scale
        m += 1
        if terminated:
            return Owed(total, 0.0, m)
        if truncated:
            break
    keeps = m > 0 and finite[start + m]
    return Owed(total, gamma**m if keeps else 0.0, m)


def owed_by_log(
    log: Iterable[Unroll | StreamEnd], n: int, gamma: float, scale: float = 1.0
) -> dict[Row, Owed]:
    """Return what each row of a partition is worth; the first record of a row counts.

    A segment ends where a stream does not go on as expected, where a newer incarnation
    of its worker speaks, and at its own end.
    """
    found: dict[Row, Owed] = {}
    open_segments: dict[tuple[str, int], list[Unroll]] = {}
    taken: set[tuple[str, int, int]] = set()

    def close(worker: str, up_to: int) -> None:
        for key in [k for k in open_segments if k[0] == worker and k[1] <= up_to]:
            owed = owed_by_segment(open_segments.pop(key), n, gamma, scale)
            found.update({row: o for row, o in owed.items() if row not in found})

    for record in log:
        if isinstance(record, StreamEnd):
            close(record.worker, record.incarnation)
            continue
        close(record.worker, record.incarnation - 1)
        key = (record.worker, record.incarnation)
        if (*key, record.sequence) in taken:
            continue
        taken.add((*key, record.sequence))
        segment = open_segments.get(key)
        if segment and not _goes_on(segment[-1], record):
            close(*key)
        open_segments.setdefault(key, []).append(record)
        if record.end_of_stream:
            close(*key)
    for worker, incarnation in list(open_segments):
        close(worker, incarnation)
    return found


def _goes_on(last: Unroll, record: Unroll) -> bool:
    return (
        record.sequence == last.sequence + 1
        and record.first_step == last.first_step + last.num_steps
        and record.num_envs == last.num_envs
    )


def rows_of(batch: TransitionBatch) -> dict[Row, Owed]:
    """Return what a batch says of its rows."""
    columns = (batch.returns, batch.discounts, batch.bootstrap_steps)
    returns, discounts, m = (column.array() for column in columns)
    return {
        (batch.worker, batch.incarnation, batch.first_step + i, env): Owed(
            float(returns[i, env]), float(discounts[i, env]), int(m[i, env])
        )
        for i in range(batch.num_steps)
        for env in range(batch.num_envs)
    }


def assert_same(found: dict[Row, Owed], owed: dict[Row, Owed]) -> None:
    assert found.keys() == owed.keys()
    for row, expected in owed.items():
        got = found[row]
        assert got.m == expected.m, (row, got, expected)
        near = {"rel": 1e-6, "abs": 1e-6}
        assert got.returns == pytest.approx(expected.returns, **near), row
        assert got.discount == pytest.approx(expected.discount, **near), row


def make_unroll(
    rewards: Sequence[Sequence[float]],
    *,
    worker: str = "w0",
    incarnation: int = 0,
    sequence: int = 0,
    first_step: int = 0,
    terminated: Sequence[tuple[int, int]] = (),
    truncated: Sequence[tuple[int, int]] = (),
    invalid: Sequence[tuple[int, int]] = (),
    observations: np.ndarray | None = None,
    encoding: str = "RAW",
    behaviour: dict[str, np.ndarray] | None = None,
    end: bool = False,
    experiment: str = "test",
    run_id: str = "run1",
    produced_at_ms: int = 0,
) -> Unroll:
    """Make an unroll of rewards [T][B]; flags are set at the given (row, env)."""
    table = np.asarray(rewards, np.float32)
    steps, envs = table.shape
    flags = {}
    for name, at in (("terminated", terminated), ("truncated", truncated)):
        flags[name] = np.zeros((steps, envs), np.bool_)
        for place in at:
            flags[name][place] = True
    valid = np.ones((steps, envs), np.bool_)
    for place in invalid:
        valid[place] = False
    if observations is None:
        count = np.arange(first_step, first_step + steps + 1, dtype=np.float32)
        observations = np.repeat(count[:, None, None], envs, axis=1)
    return Unroll(
        experiment=experiment,
        run_id=run_id,
        worker=worker,
        incarnation=incarnation,
        sequence=sequence,
        first_step=first_step,
        num_steps=steps,
        num_envs=envs,
        policy=NO_POLICY,
        produced_at_ms=produced_at_ms,
        end_of_stream=end,
        observations={"": pack(observations, encoding)},  # type: ignore[arg-type]
        actions={"": pack(np.zeros((steps, envs), np.int64))},
        rewards=pack(table),
        terminated=pack(flags["terminated"]),
        truncated=pack(flags["truncated"]),
        valid=pack(valid),
        episodes=pack(np.zeros(envs, np.int64)),
        states={},
        behaviour={k: pack(v) for k, v in (behaviour or {}).items()},
        infos={},
    )


def make_end(worker: str = "w0", incarnation: int = 0) -> StreamEnd:
    return StreamEnd("test", "run1", worker, incarnation, "test", 0)


def _column(owed: dict[Row, Owed]) -> list[tuple[float, float, int]]:
    return [(o.returns, o.discount, o.m) for _, o in sorted(owed.items())]


def test_rewards_of_one_at_gamma_099_are_worth_2_9701_over_three_steps() -> None:
    owed = owed_by_segment([make_unroll([[1.0]] * 4)], 3, 0.99, 1.0)
    assert _column(owed)[0] == pytest.approx((2.9701, 0.970299, 3))


@pytest.mark.parametrize(
    ("kind", "discount", "reason"),
    [
        ("terminated", 0.0, "nothing follows a termination"),
        ("truncated", 0.9801, "a truncated episode would have gone on"),
    ],
)
def test_an_episode_that_ends_at_row_1_is_worth_1_99(
    kind: str, discount: float, reason: str
) -> None:
    unroll = make_unroll([[1.0]] * 4, **{kind: [(1, 0)]})  # type: ignore[arg-type]
    owed = owed_by_segment([unroll], 3, 0.99, 1.0)
    assert _column(owed)[0] == pytest.approx((1.99, discount, 2)), reason


def test_a_record_of_a_newer_incarnation_ends_the_segment_of_the_older_one() -> None:
    older, newer = (make_unroll([[1.0]], incarnation=i) for i in (4, 7))
    owed = owed_by_log([older, newer], n=3, gamma=0.5)
    assert _column(owed) == [(1.0, 0.5, 1), (1.0, 0.5, 1)]


def test_a_repeated_record_counts_once() -> None:
    first, second = (make_unroll([[1.0]], sequence=i, first_step=i) for i in range(2))
    owed = owed_by_log([first, second, first], n=2, gamma=0.5)
    assert _column(owed) == [(1.5, 0.25, 2), (1.0, 0.5, 1)]
