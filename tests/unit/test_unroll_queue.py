"""Unrolls are given out once, in order, whole; against worked and slow answers."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from learner.batch_arrays import BatchMismatch
from learner.unroll_queue import UnrollQueue
from schemas.tensors import pack
from tests.unit.unroll_batches import (
    COLUMNS,
    ENV,
    STATELESS,
    log_prob,
    policy_stream,
    unroll,
    value,
)

RNG = np.random.default_rng(0)


def make_queue(stack=1, columns=COLUMNS):
    queue = UnrollQueue(ENV, columns, frame_stack=stack)
    queue.origins.watch()
    return queue


def put(queue, *batches, at=0):
    for offset, batch in enumerate(batches, start=at):
        queue.insert(batch, 0, offset)


def take(queue, rows):
    return queue.sample(rows, 0.4, RNG)


def with_number(tensor, at, number):
    array = tensor.array().copy()
    array[at] = number
    return pack(array)


def test_whole_unrolls_are_taken_from_the_front_until_there_are_rows_enough():
    queue, stream = make_queue(), policy_stream("w0", 30, 2, (100,))
    put(queue, *(unroll(stream, at, at + 5) for at in range(0, 30, 5)))
    assert queue.samplable_rows == queue.learnable_rows == queue.rows == 60
    first = take(queue, 11)  # one unroll has 10 rows
    assert first.valid.shape == (5, 4) and first.num_rows == 20
    assert queue.samplable_rows == 40
    # [t, column]: two unrolls of two environments, side by side.
    assert first.observations[""][:, 0, 2].tolist() == [0, 1, 2, 3, 4, 5]
    assert first.observations[""][:, 3, 2].tolist() == [5, 6, 7, 8, 9, 10]
    assert first.observations[""][0, :, 1].tolist() == [0, 1, 0, 1]
    assert first.returns[2, 1] == stream.reward(2, 1)
    assert first.discounts.tolist() == [[pytest.approx(0.9)] * 4] * 5
    assert first.bootstrap_steps.tolist() == [[1] * 4] * 5
    assert first.behaviour["log_prob"][1, 2] == pytest.approx(log_prob("w0", 6, 0))
    assert first.behaviour["value"][5, 2] == pytest.approx(value("w0", 10, 0))
    assert first.states["h"].tolist() == [[0, 0], [0, 0], [5, 5], [5, 5]]
    assert first.weights.tolist() == [1, 1, 1, 1]
    assert take(queue, 10**6).num_rows == 40
    assert queue.samplable_rows == queue.rows == 0
    with pytest.raises(ValueError, match="found none"):
        take(queue, 1)


def test_a_shorter_unroll_is_filled_up_with_rows_that_are_not_valid():
    queue = make_queue()
    long, short = policy_stream("w0", 4, 1, (100,)), policy_stream("w1", 4, 2, (100,))
    put(queue, unroll(long, 0, 4), unroll(short, 0, 2))
    sample = take(queue, 6)
    assert sample.valid.tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 0], [1, 0, 0]]
    assert sample.num_rows == 8
    # What the last valid row led to is there; behind it the last one again, since
    # there may be no action 0.
    assert sample.observations[""][:, 1, 2].tolist() == [0, 1, 2, 2, 2]
    assert sample.actions[""][:, 1].tolist() == [0, 1, 1, 1]
    assert sample.returns[2:, 1:].any() == sample.discounts[2:, 1:].any() == 0
    assert sample.behaviour["value"].shape == (5, 3)
    assert sample.behaviour["log_prob"].shape == (4, 3)


def test_reset_rows_are_not_learnt_from_and_a_termination_has_no_bootstrap():
    """Episodes of 2 rows: 0 1 | 2 is the reset row | 3 4 | 5 the reset row."""
    queue, stream = make_queue(), policy_stream("w0", 6, 1, (2,))
    put(queue, unroll(stream, 0, 6))
    sample = take(queue, 1)
    assert sample.valid[:, 0].tolist() == [True, True, False, True, True, False]
    # The first episode was truncated, the second terminated.
    expected = [0.9, 0.9, 0, 0.9, 0, 0]
    assert sample.discounts[:, 0].tolist() == pytest.approx(expected)


def test_what_is_not_finite_is_not_learnt_from_nor_bootstrapped_from():
    stream = policy_stream("w0", 6, 1, (100,))
    batch = unroll(stream, 0, 6)
    seen = {"": with_number(batch.observations[""], (2, 0, 3), np.nan)}
    said = dict(batch.behaviour)
    said["log_prob"] = with_number(said["log_prob"], (4, 0), np.nan)
    said["value"] = with_number(said["value"], (6, 0), np.inf)
    queue = make_queue(columns=STATELESS)
    put(queue, replace(batch, observations=seen, behaviour=said))
    assert (queue.rows, queue.samplable_rows) == (6, 4)
    assert queue.refused_rows == queue.dropped_rows == 2
    sample = take(queue, 1)
    assert sample.valid[:, 0].tolist() == [True, True, False, True, False, True]
    # Row 1 leads to the observation that is not finite, row 5 to the value.
    assert sample.discounts[:, 0].tolist() == pytest.approx([0.9, 0, 0, 0.9, 0, 0])
    for arrays in (sample.observations, sample.behaviour):
        assert all(np.isfinite(array).all() for array in arrays.values())
    assert np.isfinite(sample.returns).all()


def test_a_state_that_is_not_finite_spoils_rows_up_to_the_next_reset():
    stream = policy_stream("w0", 6, 1, (2,))
    batch = unroll(stream, 0, 6)
    states = {"h": with_number(batch.states["h"], (0, 1), np.nan)}
    queue = make_queue()
    put(queue, replace(batch, states=states))
    sample = take(queue, 1)
    assert sample.valid[:, 0].tolist() == [False, False, False, True, True, False]
    assert np.isfinite(sample.states["h"]).all()


def test_with_recurrent_states_nothing_is_learnt_behind_a_row_that_cannot_be():
    """Its learner would go on from zeros there; the worker went on from its state.

    Episodes of 4 rows, so that 4 is the reset row, and 5 begins with a state of zeros.
    """
    batch = unroll(policy_stream("w0", 8, 1, (4,)), 0, 8)
    said = dict(batch.behaviour)
    said["log_prob"] = with_number(said["log_prob"], (1, 0), np.nan)
    for columns, expected in [
        (COLUMNS, [1, 0, 0, 0, 0, 1, 1, 1]),
        (STATELESS, [1, 0, 1, 1, 0, 1, 1, 1]),
    ]:
        queue = make_queue(columns=columns)
        put(queue, replace(batch, behaviour=said))
        assert queue.refused_rows == 7 - sum(expected)
        assert take(queue, 1).valid[:, 0].tolist() == [bool(v) for v in expected]


def test_with_recurrent_states_rows_without_frames_spoil_those_behind_them():
    """4 to 6 are missing, and 2 frames make an observation; 9 is the reset row."""
    stream = policy_stream("w0", 12, 1, (9,))
    for columns, expected in [(COLUMNS, [0, 0, 0, 1]), (STATELESS, [0, 1, 0, 1])]:
        queue = make_queue(stack=2, columns=columns)
        put(queue, unroll(stream, 0, 4))
        put(queue, unroll(stream, 7, 11), at=1)
        take(queue, 1)
        assert take(queue, 1).valid[:, 0].tolist() == [bool(v) for v in expected]


@pytest.mark.parametrize(
    ("column", "wrong", "message"),
    [
        ("log_prob", None, "behaviour/log_prob: .*found none"),
        ("value", None, "behaviour/value: .*found none"),
        ("value", np.zeros((3, 2), "<f4"), r"value: .*\[4, 2\].*float32\[3, 2\]"),
        ("log_prob", np.zeros((3, 2), "<i8"), r"log_prob: .*int64"),
    ],
)
def test_a_batch_without_what_its_policy_said_is_refused_by_name(
    column, wrong, message
):
    batch = unroll(policy_stream("w0", 3), 0, 3)
    said = dict(batch.behaviour)
    del said[column]
    if wrong is not None:
        said[column] = pack(wrong)
    queue = make_queue()
    with pytest.raises(BatchMismatch, match=message):
        queue.insert(replace(batch, behaviour=said), 0, 0)
    with pytest.raises(BatchMismatch, match="states/h: .*found none"):
        queue.insert(replace(batch, states={}), 0, 0)
    assert queue.rows == queue.samplable_rows == queue.refused_rows == 0


def test_rows_of_random_actions_are_stale_though_they_say_nothing():
    queue, stream = make_queue(), policy_stream("w0", 9, 2, (100,))
    put(queue, unroll(stream, 0, 3, version=None), unroll(stream, 3, 6))
    assert queue.samplable_rows == 6
    assert queue.drop_older(0) == 6 and queue.drop_older(0) == 0
    assert take(queue, 1).num_rows == 6


def test_old_unrolls_are_dropped_also_behind_newer_ones():
    queue = make_queue()
    streams = [policy_stream(f"w{n}", 4, 1, (100,)) for n in range(4)]
    versions = [5, 3, 6, 2]
    put(queue, *(unroll(s, 0, 4, version=v) for s, v in zip(streams, versions)))  # noqa: B905
    assert queue.drop_older(2) == 0
    assert queue.drop_older(5) == 8
    assert (queue.rows, queue.samplable_rows) == (8, 8)
    sample = take(queue, 100)
    assert sample.observations[""][0, :, 0].tolist() == [0, 2]  # of w0 and w2


def test_rows_are_told_by_who_acted_in_them():
    queue = make_queue()
    fast, slow = policy_stream("w0", 9, 2, (100,)), policy_stream("w1", 9, 1, (100,))
    put(
        queue,
        unroll(fast, 0, 3, version=7, produced_at_ms=1500),
        unroll(fast, 3, 6, version=8, produced_at_ms=2500),
        unroll(slow, 0, 3, version=7, produced_at_ms=3500),
    )
    take(queue, 100)
    acted = queue.origins.take()
    names = [queue.origins.workers[number] for number in acted.workers]
    assert list(zip(names, acted.counts, acted.versions, acted.at_s, strict=True)) == [
        ("w0", 6, 7, 1.5), ("w0", 6, 8, 2.5), ("w1", 3, 7, 3.5),
    ]  # fmt: skip
    assert queue.origins.take() is None


def test_stacks_go_on_from_the_unroll_before_though_it_was_learnt_from():
    """3 frames; episodes of 4 rows, so that 5 begins one and 4 is the reset row."""
    queue, stream = make_queue(stack=3), policy_stream("w0", 8, 1, (4,))
    put(queue, unroll(stream, 0, 2))
    steps = take(queue, 1).observations[""][:, 0, :, 2]
    assert steps.tolist() == [[0, 0, 0], [0, 0, 1], [0, 1, 2]]
    put(queue, unroll(stream, 2, 4), at=1)
    steps = take(queue, 1).observations[""][:, 0, :, 2]
    assert steps.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    put(queue, unroll(stream, 4, 8), at=2)
    sample = take(queue, 1)
    assert sample.valid[:, 0].tolist() == [False, True, True, True]
    steps = sample.observations[""][1:, 0, :, 2]
    assert steps.tolist() == [[5, 5, 5], [5, 5, 6], [5, 6, 7], [6, 7, 8]]


def test_rows_whose_frames_are_not_known_are_not_learnt_from():
    queue, stream = make_queue(3, STATELESS), policy_stream("w0", 20, 1, (100,))
    put(queue, unroll(stream, 0, 4))
    put(queue, unroll(stream, 8, 12), at=1)  # 4 to 7 are missing
    take(queue, 1)
    sample = take(queue, 1)
    assert sample.valid[:, 0].tolist() == [False, False, True, True]
    assert sample.observations[""][2, 0, :, 2].tolist() == [8, 9, 10]
    queue.pass_over(unroll(stream, 12, 16))  # no valid row: an episode begins at 16
    put(queue, unroll(stream, 16, 20), at=2)
    sample = take(queue, 1)
    assert sample.valid.all()
    assert sample.observations[""][0, 0, :, 2].tolist() == [16, 16, 16]


def test_a_checkpoint_refers_to_what_waits_and_to_the_frames_that_it_needs():
    batches = [
        unroll(policy_stream("w0", 40, 1, (100,)), a, a + 4) for a in range(0, 40, 4)
    ]
    plain, stacked = make_queue(), make_queue(stack=3)
    for queue in (plain, stacked):
        put(queue, *batches[:5])
        take(queue, 12)  # three of five
    assert [ref.offset for ref in plain.references().chunks] == [3, 4]
    assert plain.oldest_offsets() == {0: 3}
    assert [ref.offset for ref in stacked.references().chunks] == [2, 3, 4]
    take(stacked, 100)
    assert [ref.offset for ref in stacked.references().chunks] == [4]
    ended = replace(batches[5], end_of_stream=True)
    put(stacked, ended, at=5)
    take(stacked, 100)
    assert stacked.references().chunks == () and stacked.oldest_offsets() == {}


def test_frames_of_a_stream_that_is_over_are_not_kept_in_the_log():
    queue = make_queue(stack=3)
    gone, other = (policy_stream(w, 24, 1, (100,)) for w in ("w3", "w0"))
    put(queue, unroll(gone, 0, 4), unroll(other, 0, 4))
    take(queue, 100)
    queue.over_before("w3", 1)  # its own incarnation: it goes on
    assert queue.oldest_offsets() == {0: 0}
    queue.over_before("w3", 2)
    assert queue.oldest_offsets() == {0: 1}
    # What was under way has all its frames, and is referred to as long as it waits.
    put(queue, unroll(gone, 4, 8), at=2)
    assert [ref.offset for ref in queue.references().chunks] == [0, 1, 2]
    sample = take(queue, 100)
    assert sample.valid.all()
    assert sample.observations[""][0, 0, :, 2].tolist() == [2, 3, 4]
    assert queue.oldest_offsets() == {0: 1}
    newer = policy_stream("w3", 8, 1, (100,), incarnation=2)
    put(queue, unroll(newer, 0, 4), at=3)
    take(queue, 100)
    assert [ref.offset for ref in queue.references().chunks] == [1, 3]


def test_what_fills_a_hole_late_takes_no_frames_from_the_newest():
    queue, stream = make_queue(3, STATELESS), policy_stream("w0", 24, 1, (100,))
    pieces = [(0, 4), (8, 12), (4, 8), (12, 16)]
    put(queue, *(unroll(stream, *piece) for piece in pieces))
    valid = [take(queue, 1).valid[:, 0].tolist() for _ in pieces]
    # 4 to 8 came behind 8 to 12, whose first frames were not known; nor are its own.
    assert valid == [[True] * 4, *[[False, False, True, True]] * 2, [True] * 4]
    older = policy_stream("w0", 24, 1, (100,), incarnation=0)
    put(queue, unroll(older, 0, 4), unroll(stream, 16, 20), at=4)
    assert all(take(queue, 1).valid.all() for _ in range(2))


def test_a_stream_that_has_ended_is_not_kept_by_what_comes_late_of_it():
    queue, stream = make_queue(stack=3), policy_stream("w0", 24, 1, (100,))
    put(queue, replace(unroll(stream, 4, 8), end_of_stream=True))
    put(queue, unroll(stream, 0, 4), at=1)
    while queue.samplable_rows:
        take(queue, 1)
    assert queue.oldest_offsets() == {}


def test_what_is_gone_from_the_log_is_counted():
    stream = policy_stream("w0", 12, 2, (3,))
    batches = [unroll(stream, at, at + 4) for at in (0, 4, 8)]
    queue, restored = make_queue(), make_queue()
    put(queue, *batches)
    rows = Counter(int(batch.valid.array().sum()) for batch in batches)
    assert queue.samplable_rows == sum(rows.elements())
    log = [(0, 2, batches[2]), (0, 1, unroll(stream, 5, 8)), (0, 7, batches[0])]
    gone = sum(int(batch.valid.array().sum()) for batch in batches[:2])
    assert restored.restore(queue.references(), log) == gone
    assert take(restored, 100).num_rows == int(batches[2].valid.array().sum())
