"""Batches without a valid row: noted, and given no room.

A replayed past has them for what was not chosen of it, a live run where all of a
worker's environments reset at once.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.replay_buffer import ReplayBuffer
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, Stream, replay
from tests.unit.test_intake import ENDLESS, feed_of, make_intake, make_spec
from tests.unit.test_replay_buffer import (
    approx_target,
    rng,
    sampled_rows,
    stack_by_brute_force,
)


def blanked(stream, first, last):
    """The batch of rows that were not chosen: zeros, but for the first observation."""
    batch = stream.batch(first, last)
    observations = np.zeros((last - first + 1, stream.envs, 4), "<f4")
    observations[0] = stream.observations[first]
    return replace(batch, observations={"": pack(observations, "ZSTD")})


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("stack", [1, 3])
def test_rows_before_a_blank_batch_stay_learnable(n, stack):
    """Rows 0 to 5 in three batches, then a blank one, then rows 8 and 9."""
    stream = Stream("w0", steps=10, envs=2, lengths=ENDLESS, n=n)
    stream.valid[6:8] = False
    buffer = ReplayBuffer(ENV, replay(16), unroll_length=2, frame_stack=stack)
    for first in (0, 2, 4):
        buffer.insert(stream.batch(first, first + 2), 0, first)
    waiting = buffer.rows - buffer.samplable_rows
    buffer.pass_over(blanked(stream, 6, 8))
    # They look no further than the first observation of the blank one: theirs as well.
    assert waiting == 0 == buffer.dropped_rows
    buffer.insert(stream.batch(8, 10), 0, 8)
    assert buffer.samplable_rows == buffer.rows == 16, "none had to leave for it"
    sample = buffer.sample(200, 0.4, rng())
    found = set()
    for i, stacked in enumerate(sample.observations[""].reshape(200, stack, 4)):
        _, env, step, _ = stacked[-1].astype(int).tolist()
        expected = stream.target(step, env)
        after = sample.bootstrap_observations[""][i].reshape(stack, 4)
        target = float(sample.returns[i]), float(sample.discounts[i])
        assert (*target, int(after[-1, 2]) - step) == approx_target(expected)
        assert stacked.tolist() == stack_by_brute_force(stream, step, env, stack)
        found.add((env, step))
    assert found == {(env, step) for env in (0, 1) for step in (*range(6), 8, 9)}


@st.composite
def partly_chosen(draw):
    """Streams in batches, some of them without a valid row; each: (batch, is blank)."""
    log = []
    for index in range(draw(st.integers(1, 2))):
        stream = Stream(
            f"w{index}",
            steps=draw(st.integers(2, 24)),
            envs=draw(st.integers(1, 2)),
            lengths=tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))),
            n=draw(st.integers(1, 6)),
        )
        ends = sorted(draw(st.sets(st.integers(1, stream.steps - 1), max_size=9)))
        cuts = list(zip([0, *ends], [*ends, stream.steps], strict=True))
        for first, last in cuts:
            stream.valid[first:last] &= draw(st.integers(0, 3)) > 0
        for first, last in cuts:
            is_blank = not stream.valid[first:last].any()
            batch = blanked(stream, first, last) if is_blank else None
            log.append((batch or stream.batch(first, last), is_blank))
    return log


@settings(max_examples=120, deadline=None)
@given(partly_chosen(), st.sampled_from([1, 2, 4]), st.integers(0, 40))
def test_a_blank_batch_changes_no_sample_whether_it_is_held_or_not(log, stack, restart):
    """Nor does a restart at any point, also directly behind one."""
    held, without = (
        ReplayBuffer(ENV, replay(1000), unroll_length=1, frame_stack=stack)
        for _ in range(2)
    )
    for offset, (batch, is_blank) in enumerate(log):
        held.insert(batch, 0, offset)
        if is_blank:
            without.pass_over(batch)
        else:
            without.insert(batch, 0, offset)
        if offset == restart:
            again = ReplayBuffer(ENV, replay(1000), unroll_length=1, frame_stack=stack)
            whole = [(0, at, batch) for at, (batch, _) in enumerate(log)]
            assert again.restore(without.references(), whole) == 0
            without = again
    assert sum(not blank for _, blank in log) == len(without.references().chunks)
    names = ("rows", "samplable_rows", "learnable_rows", "dropped_rows")
    assert [getattr(held, name) for name in names] == [
        getattr(without, name) for name in names
    ]
    assert observed(held) == observed(without)


def observed(buffer):
    """What can be sampled: each row with its frames and target, bytes and all."""
    if not buffer.samplable_rows:
        return set()
    sample = buffer.sample(6 * buffer.samplable_rows, 0.4, rng())
    columns = (
        sample.observations[""],
        sample.bootstrap_observations[""],
        sample.returns,
        sample.discounts,
    )
    return {tuple(row.tobytes() for row in rows) for rows in zip(*columns, strict=True)}


def test_a_blank_batch_is_in_the_ledger_and_gives_credit_and_is_not_in_the_buffer():
    intake = make_intake(make_spec(n=1, length=4))
    stream = Stream("w0", 16, 2, ENDLESS, 1)
    stream.valid[4:8] = False
    first, blank, third, last = (
        replace(batch, sequence=number)
        for number, batch in enumerate(stream.batches(4))
    )
    blank = replace(blanked(stream, 4, 8), sequence=1)
    intake.windows.grant(0.0, room=99.0)
    feed_of(intake).log.extend([first, blank, blank, third])
    while feed_of(intake).log:
        assert intake.take_in()
    counters = intake.counters
    assert (counters.batches, counters.blank_batches) == (2, 1)
    assert counters.env_steps == intake.replay.rows == 16
    assert intake.sources[0].ledger.lost_steps == 0
    assert counters.duplicate_steps == 0, "of which none is valid"
    assert feed_of(intake).handled_offsets == [0, 1, 2, 3]
    chunks = intake.sources[0].buffer.references().chunks
    assert [chunk.sequence for chunk in chunks] == [0, 2]
    # The rows before it and those behind it can be sampled, each.
    assert {step for _, _, step in sampled_rows(intake.sources[0].buffer)} == {
        *range(4), *range(8, 12)
    }  # fmt: skip
    # 12 steps have come, the blank ones among them; and two unrolls are let go.
    intake.windows.grant(1.0, room=99.0)
    assert intake.windows.allowed_step("w0") == 12 + 2 * 4
    # Nothing was learnt from it: source offsets are those of first steps here.
    (data,) = intake.data.ranges()
    assert (data.first_offset, data.next_offset, data.env_steps) == (0, 9, 16)


def test_blank_batches_leave_room_and_limiter_alone():
    """A past of which little was chosen: the buffer holds that, and waits for more."""
    intake = make_intake(make_spec(n=1, length=4, capacity=64, min_size=24))
    stream = Stream("w0", 400, 2, ENDLESS, 1)
    chosen = range(0, 400, 40)
    stream.valid[:] = False
    for step in chosen:
        stream.valid[step : step + 4] = True
    log = [
        stream.batch(step, step + 4)
        if step in chosen
        else blanked(stream, step, step + 4)
        for step in range(0, 400, 4)
    ]
    feed_of(intake).log.extend(replace(b, sequence=i) for i, b in enumerate(log))
    for _ in range(len(log)):
        intake.take_in()
        if intake.limiter.can_sample(4):
            intake.limiter.sample(4)
    assert intake.counters.blank_batches == 90
    assert intake.limiter.inserts == 80 == intake.counters.env_steps
    kept = {step for _, _, step in sampled_rows(intake.sources[0].buffer)}
    assert kept == {step + i for step in chosen[-8:] for i in range(4)}
