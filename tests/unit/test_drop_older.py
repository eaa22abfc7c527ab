"""Rows of old policies leave a replay buffer's samples wherever they are, for good."""

from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.chunks import Chunks
from learner.replay_buffer import ReplayBuffer
from schemas.records import NO_POLICY, PolicyRef
from tests.unit.replay_batches import ENV, Stream, replay

CAPACITY = 64


@cache
def stream_of(worker):
    return Stream(worker, 400, 2, (4, 7), 3)


def make_buffer():
    return ReplayBuffer(ENV, replay(CAPACITY), unroll_length=4)


def batch_of(worker, first, version):
    policy = NO_POLICY if version is None else PolicyRef(1, version)
    return stream_of(worker).batch(first, first + 4, policy=policy)


def samplable(buffer):
    """(worker, env, step) of each row that can be drawn."""
    slots = np.flatnonzero(buffer._priorities._tree._sums[:CAPACITY])
    seen = buffer.gather(slots, np.ones(len(slots))).observations[""].astype(int)
    return {tuple(row[:3]) for row in seen.tolist()}


def test_a_stale_batch_behind_a_newer_one_is_dropped():
    buffer = make_buffer()
    for offset, version in enumerate([9, 3, None, 8]):
        buffer.insert(batch_of(f"w{offset}", 0, version), 0, offset)
    before = samplable(buffer)
    dropped = buffer.drop_older(8)
    left = samplable(buffer)
    assert {worker for worker, _, _ in left} == {0, 2, 3}  # at random: stays
    assert before - left == {row for row in before if row[0] == 1}
    # w1's rows, and those of them that wait for the next batch.
    assert dropped == int(stream_of("w1").valid[:4].sum())
    assert buffer.drop_older(8) == 0
    assert buffer.dropped_rows == 0 and not buffer.is_full


def test_nobody_looks_through_all_batches_for_those_that_are_too_old(monkeypatch):
    def refuse(self):
        raise AssertionError("31,250 batches take 36 ms, for each that comes too late")

    buffer = make_buffer()
    for offset, version in enumerate([9, 3, None, 8]):
        buffer.insert(batch_of(f"w{offset}", 0, version), 0, offset)
    monkeypatch.setattr(Chunks, "__iter__", refuse)
    assert buffer.drop_older(4) > 0 and buffer.drop_older(4) == 0


def test_what_was_dropped_takes_room_until_its_turn_has_come():
    buffer = make_buffer()
    for number in range(8):  # 8 rows each: full
        buffer.insert(batch_of("w0", 4 * number, number), 0, number)
    assert buffer.drop_older(6) > 0 and not buffer.is_full
    for number in range(8, 40):
        buffer.insert(batch_of("w0", 4 * number, number), 0, number)
    assert buffer.is_full
    assert buffer.rows == sum(c.valid_rows for c in buffer._chunks)
    assert buffer.samplable_rows == len(samplable(buffer))


ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 2), st.integers(-1, 6)),
        st.tuples(st.just("drop"), st.integers(0, 6)),
        st.tuples(st.just("learn"), st.integers(1, 8)),
    ),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(acts=ACTS)
def test_drops_in_any_order_leave_what_another_buffer_has_of_newer_policies(acts):
    buffer, whole = make_buffer(), make_buffer()
    log, versions, steps = [], {}, [0, 0, 0]
    least, rng = -1, np.random.default_rng(0)
    for act, *arguments in acts:
        if act == "insert":
            worker, version = arguments
            batch = batch_of(
                f"w{worker}", steps[worker], None if version < 0 else version
            )
            for step in range(steps[worker], steps[worker] + 4):
                versions[worker, step] = version
            steps[worker] += 4
            log.append((0, len(log), batch))
            for each in (buffer, whole):
                each.insert(batch, 0, len(log) - 1)
            # What comes is judged at once, as what is there was.
            buffer.drop_older(least)
        elif act == "drop":
            least = max(least, *arguments)
            held = buffer.learnable_rows
            assert buffer.drop_older(least) == held - buffer.learnable_rows
        elif buffer.samplable_rows:
            drawn = buffer.sample(arguments[0], 0.4, rng)
            errors = rng.normal(size=arguments[0]).astype(np.float32)
            buffer.update_priorities(drawn.indices, errors)
        is_new = {k: v < 0 or v >= least for k, v in versions.items()}
        expected = {row for row in samplable(whole) if is_new[row[0], row[2]]}
        assert samplable(buffer) == expected
        assert buffer.samplable_rows == len(expected)
    same_as_restored(buffer, log)


def same_as_restored(buffer, log):
    """Bit for bit: what was added up step by step, and what is made of the leaves."""
    restored = make_buffer()
    assert restored.restore(buffer.references(), log) == 0
    for name in ("rows", "samplable_rows", "learnable_rows", "dropped_rows", "is_full"):
        assert getattr(restored, name) == getattr(buffer, name), name
    mine, theirs = buffer._priorities, restored._priorities
    assert mine._tree._sums.tobytes() == theirs._tree._sums.tobytes()
    assert mine._tree._mins.tobytes() == theirs._tree._mins.tobytes()
    assert mine.default == theirs.default
    if buffer.samplable_rows:
        one, other = (
            each.sample(16, 0.4, np.random.default_rng(1))
            for each in (buffer, restored)
        )
        assert one.indices.tolist() == other.indices.tolist()
        assert one.weights.tobytes() == other.weights.tobytes()
        for name in ("returns", "discounts"):
            assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
