import time
from dataclasses import replace

import numpy as np
import pytest

from learner.batch_arrays import BatchMismatch
from learner.sequence_buffer import SequenceBuffer
from schemas.records import PolicyRef
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, Stream, replay
from tests.unit.sequences.histories import STATES, Piece


def buffer_of(batches, length=4, capacity=1000, burn_in=0, frame_stack=1, **changes):
    buffer = SequenceBuffer(
        ENV,
        replay(capacity, **changes),
        unroll_length=1,
        sequence_length=length,
        burn_in=burn_in,
        states=STATES,
        frame_stack=frame_stack,
    )
    for offset, batch in enumerate(batches):
        buffer.insert(batch, 0, offset)
    return buffer


def sample(buffer, batch_size=1000, beta=0.4):
    return buffer.sample(batch_size, beta, np.random.default_rng(0))


def steps_of(sequences):
    """By first step, the steps that are valid."""
    found = {}
    for n in range(len(sequences.indices)):
        steps = sequences.observations[""][:, n, 2].astype(int)
        found[int(steps[0])] = steps[:-1][sequences.valid[:, n]].tolist()
    return found


def starts(buffer):
    return sorted(steps_of(sample(buffer)))


# --- when a sequence can be drawn ---------------------------------------------------


def test_batches_half_as_long_as_sequences_overlap_by_half():
    buffer = buffer_of(Stream("w0", 8, lengths=(99,), n=1).batches(2))
    assert steps_of(sample(buffer)) == {
        0: [0, 1, 2, 3],
        2: [2, 3, 4, 5],
        4: [4, 5, 6, 7],
    }
    assert (buffer.rows, buffer.samplable_rows, buffer.learnable_rows) == (8, 6, 8)


def test_sequence_waits_for_its_rows_and_is_short_where_they_will_not_come():
    first, second, _, fourth = Stream("w0", 8, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([first], length=6)
    with pytest.raises(ValueError, match="above zero"):
        sample(buffer)
    buffer.insert(second, 0, 1)
    assert buffer.samplable_rows == 0
    buffer.insert(fourth, 0, 3)
    assert steps_of(sample(buffer)) == {0: [0, 1, 2, 3], 2: [2, 3]}


def test_late_batch_makes_sequences_longer():
    first, second, third = Stream("w0", 6, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([first, third])
    assert steps_of(sample(buffer)) == {0: [0, 1]}
    buffer.insert(second, 0, 2)
    assert steps_of(sample(buffer)) == {0: [0, 1, 2, 3], 2: [2, 3, 4, 5]}


@pytest.mark.parametrize("what", ["end", "incarnation", "blank"])
def test_stream_that_is_over_gives_its_short_sequences(what):
    stream = Stream("w0", 4, lengths=(99,), n=1)
    first, second = stream.batches(2)
    buffer = buffer_of([first])
    if what == "end":
        buffer.insert(replace(second, end_of_stream=True), 0, 1)
        assert steps_of(sample(buffer)) == {0: [0, 1, 2, 3], 2: [2, 3]}
        return
    if what == "incarnation":
        other = Stream("w0", 1, lengths=(99,), incarnation=2).batches(1)[0]
        buffer.insert(other, 0, 1)
    else:
        buffer.pass_over(second)
    assert steps_of(sample(buffer)) == {0: [0, 1]}


def test_worker_that_is_gone_gives_its_short_sequences_and_may_yet_be_heard_of():
    first, second, third = Stream("w0", 6, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([first])
    buffer.over_before("w0", 1)  # this very incarnation: it goes on
    assert buffer.samplable_rows == 0
    buffer.over_before("w0", 2)
    buffer.over_before("w0", 2)
    assert steps_of(sample(buffer)) == {0: [0, 1]} and buffer.samplable_rows == 2
    buffer.insert(second, 0, 1)  # was under way
    assert steps_of(sample(buffer)) == {0: [0, 1, 2, 3], 2: [2, 3]}
    buffer.insert(third, 0, 2)
    assert steps_of(sample(buffer))[2] == [2, 3, 4, 5]
    buffer.insert(Stream("w0", 2, lengths=(99,), incarnation=2).batches(2)[0], 0, 3)
    assert buffer.samplable_rows == 6 and buffer.learnable_rows == 8, "that waits"


def test_only_rows_with_a_target_behind_the_burn_in_count_as_learnt():
    # Rows 0 and 1 warm up; 2 and 3 look two ahead; 4 and 5 beyond the sequence's end.
    stream = Stream("w0", 7, lengths=(99,), n=3)
    buffer = buffer_of(stream.batches(2)[:3], length=6, burn_in=2)
    found = sample(buffer, 1)
    assert found.valid.all() and len(found.valid) == 6
    assert found.bootstrap_steps[:, 0].tolist() == [3] * 5 + [2]
    assert found.num_rows == 2


def test_sequence_without_a_row_to_learn_from_is_never_given_out():
    # Two rows are left, and the burn-in takes two; with n = 3 targets are beyond.
    batches = Stream("w0", 4, lengths=(99,), n=1).batches(2)
    batches[1] = replace(batches[1], end_of_stream=True)
    assert starts(buffer_of(batches, burn_in=2)) == [0]
    batches = Stream("w0", 9, lengths=(99,), n=3).batches(2)[:2]
    other = Stream("w0", 1, incarnation=2).batches(1)[0]
    assert starts(buffer_of([*batches, other], length=6)) == [0]


def test_eviction_of_a_hole_s_late_filling_shortens_what_went_over_it():
    first, second, third = Stream("w0", 6, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([second, first, third], length=6, capacity=6)
    assert steps_of(sample(buffer)) == {0: [0, 1, 2, 3, 4, 5]}
    buffer.insert(Stream("w1", 2, n=1).batches(2)[0], 0, 3)  # evicts the second
    assert steps_of(sample(buffer))[0] == [0, 1]
    assert buffer.rows == 6 and buffer.is_full


def test_sequence_that_an_eviction_leaves_nothing_to_learn_from_is_drawn_no_more():
    first, second, third = Stream("w0", 6, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([second, first, third], length=6, capacity=6, burn_in=2)
    assert starts(buffer) == [0]
    buffer.insert(Stream("w1", 2, n=1).batches(2)[0], 0, 3)  # evicts the second
    assert buffer.samplable_rows == 0
    with pytest.raises(ValueError, match="above zero"):
        sample(buffer)


def test_rows_behind_a_sequence_s_end_are_refused():
    buffer = buffer_of(Stream("w0", 6, lengths=(99,), n=1).batches(6))
    assert (buffer.rows, buffer.samplable_rows) == (6, 4)
    assert buffer.refused_rows == buffer.dropped_rows == 2


def test_sequences_do_not_go_on_where_there_are_other_environments():
    first = Stream("w0", 4, envs=2, lengths=(99,), n=1).batch(0, 2)
    second = Stream("w0", 4, envs=3, lengths=(99,), n=1).batch(2, 4)
    assert steps_of(sample(buffer_of([first, second]))) == {0: [0, 1]}


# --- what it holds -----------------------------------------------------------------


def test_batch_size_counts_rows():
    buffer = buffer_of(Stream("w0", 8, envs=2, lengths=(99,), n=1).batches(4))
    for batch_size, expected in ((1, 1), (4, 1), (11, 2), (64, 16)):
        assert sample(buffer, batch_size).valid.shape == (4, expected)


def test_states_are_zero_where_none_were_recorded():
    buffer = buffer_of(Stream("w0", 4, lengths=(99,), n=1).batches(4))
    assert sample(buffer).states["h"].tolist()[0] == [0.0, 0.0]


@pytest.mark.parametrize(
    "states",
    [
        {"h": pack(np.zeros((1, 3), "<f4"))},
        {"h": pack(np.zeros((1, 2), "<f8"))},
        {"c": pack(np.zeros((1, 2), "<f4"))},
    ],
)
def test_states_of_another_policy_are_refused_and_change_nothing(states):
    batch = Stream("w0", 4, n=1).batches(4)[0]
    buffer = buffer_of([])
    with pytest.raises(BatchMismatch, match="states: expected"):
        buffer.insert(replace(batch, states=states), 0, 0)
    assert buffer.rows == 0


def test_state_that_is_not_finite_begins_no_sequence():
    stream = Stream("w0", 8, envs=2, lengths=(99,), n=1)
    bad = np.array([[np.nan, 0], [1, 1]], "<f4")
    buffer = buffer_of([stream.batch(0, 4, states={"h": pack(bad)})])
    assert sample(buffer).states["h"].tolist()[0] == [1.0, 1.0]
    assert set(sample(buffer).indices.tolist()) == {1}
    assert (buffer.rows, buffer.samplable_rows, buffer.refused_rows) == (8, 4, 4)


def test_rows_that_are_not_finite_are_not_learnt_from_and_keep_the_state_alive():
    stream = Stream("w0", 4, lengths=(99,), n=1)
    stream.observations[2, 0, 0] = np.nan
    found = sample(buffer_of(stream.batches(4)))
    assert found.valid[:, 0].all()
    assert found.bootstrap_steps[:, 0].tolist() == [1, 1, 0, 1]
    # Row 1 would bootstrap from what is not finite.
    assert found.discounts[:, 0].tolist() == pytest.approx([0.9, 0.0, 0.0, 0.9])
    assert np.isfinite(found.observations[""]).all()


def test_returns_that_are_not_finite_never_come_out():
    returns = pack(np.array([[1], [np.nan], [np.inf], [2]], "<f4"))
    batch = Stream("w0", 4, lengths=(99,), n=1).batch(0, 4, returns=returns)
    found = sample(buffer_of([batch]))
    assert found.returns[:, 0].tolist() == [1.0, 0.0, 0.0, 2.0]
    assert found.bootstrap_steps[:, 0].tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_frames_are_stacked_within_their_episode(k, length):
    stream = Stream("w0", 40, envs=2, lengths=(2, 5, 11), n=2)
    buffer = buffer_of(stream.batches(length), length=8, frame_stack=k)
    found = sample(buffer, 8 * 200)
    assert found.observations[""].shape[2:] == (k, 4)
    for n in range(200):
        for stack in found.observations[""][:, n]:
            _, env, step, _ = stack[-1].astype(int).tolist()
            begin = step
            while begin > 0 and stream.valid[begin - 1, env] and step - begin < k - 1:
                begin -= 1
            frames = [max(begin, step - back) for back in range(k - 1, -1, -1)]
            assert stack.tolist() == stream.observations[frames, env].tolist()


def test_sequences_do_not_go_on_where_the_frames_before_were_not_known():
    first, second, third = Stream("w0", 6, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([first, third, second], frame_stack=3)
    # The third came without what is before it, and keeps no frames of it.
    assert steps_of_newest(sample(buffer)) == {0: [0, 1, 2, 3], 2: [2, 3]}


def steps_of_newest(sequences):
    newest = {"": sequences.observations[""][:, :, -1]}
    return steps_of(replace(sequences, observations=newest))


# --- priorities --------------------------------------------------------------------


def test_new_items_get_the_largest_priority_ever_found():
    first, second = Stream("w0", 8, lengths=(99,), n=1).batches(4)
    buffer = buffer_of([first], priority_epsilon=1e-9)
    assert buffer.references().priorities.tolist() == [1.0]
    index = sample(buffer, 4).indices
    buffer.update_priorities(index, np.array([3.0], np.float32))
    buffer.update_priorities(index, np.array([0.5], np.float32))
    buffer.insert(second, 0, 1)
    assert buffer.references().priorities.tolist() == pytest.approx([0.5, 3.0])


def test_items_are_drawn_by_priority_and_weighted_against_it():
    batches = Stream("w0", 16, lengths=(99,), n=1).batches(4)
    buffer = buffer_of(batches, alpha=0.6, priority_epsilon=1e-9)
    errors = np.array([1, 2, 3, 4], np.float32)
    buffer.update_priorities(np.arange(4) * 4, errors)
    found = sample(buffer, 4 * 1000, beta=0.4)
    counts = np.bincount(found.indices // 4) / 1000
    golden = [0.1482295, 0.2246739, 0.2865546, 0.340542]
    assert counts == pytest.approx(golden, abs=2e-3)
    weights = dict(zip(found.indices.tolist(), found.weights.tolist(), strict=True))
    assert [weights[i] for i in (0, 4, 8, 12)] == pytest.approx(
        [1, 0.8467453, 0.7682294, 0.7169776], rel=1e-6
    )


def test_errors_that_are_not_finite_or_of_what_has_gone_are_ignored():
    first, second = Stream("w0", 8, lengths=(99,), n=1).batches(4)
    buffer = buffer_of([first, second], capacity=4)
    errors = np.array([9.0, np.nan, np.inf, 9.0], np.float32)
    # evicted; not finite, twice; a row that begins no sequence
    buffer.update_priorities(np.array([0, 4, 4, 5]), errors)
    assert buffer.references().priorities.tolist() == [1.0]
    assert set(sample(buffer).indices.tolist()) == {4}


# --- the rest of Experience --------------------------------------------------------


def test_older_policies_rows_are_dropped_wherever_they_are():
    stream = Stream("w0", 12, lengths=(99,), n=1)
    batches = [
        replace(batch, policy=PolicyRef(0, version))
        for version, batch in zip((5, 5, 1, 5, 5, 5), stream.batches(2), strict=True)
    ]
    log = [(0, offset, batch) for offset, batch in enumerate(batches)]
    buffer = buffer_of(batches)
    assert buffer.drop_older(2) == 2 and buffer.drop_older(2) == 0
    found = {0: [0, 1, 2, 3], 2: [2, 3], 6: [6, 7, 8, 9], 8: [8, 9, 10, 11]}
    assert steps_of(sample(buffer)) == found
    assert (buffer.rows, buffer.learnable_rows) == (12, 10)
    restored = buffer_of([])
    assert restored.restore(buffer.references(), log) == 0
    assert 4 not in starts(restored) and restored.learnable_rows == 10


def test_rows_in_which_no_policy_acted_stay():
    buffer = buffer_of(Stream("w0", 4, lengths=(99,), n=1).batches(4))
    assert buffer.drop_older(9) == 0 and starts(buffer) == [0]


def test_origins_count_the_valid_rows_that_were_drawn():
    stream = Stream("w0", 6, lengths=(2,), n=1)  # rows 2 and 5 are resets
    buffer = buffer_of(stream.batches(2), length=4)
    buffer.origins.watch()
    found = sample(buffer, 40)
    acted = buffer.origins.take()
    assert acted.counts.sum() == found.valid.sum()
    assert len(acted.counts) == 3  # of all batches, also those gone on to


def test_oldest_offsets_are_those_still_referred_to():
    batches = Stream("w0", 8, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([], capacity=4)
    addresses = [(0, 10), (1, 5), (0, 11), (0, 12)]
    for (partition, offset), batch in zip(addresses, batches, strict=True):
        buffer.insert(batch, partition, offset)
    assert buffer.oldest_offsets() == {0: 11}


def test_what_expired_is_counted_and_ends_what_went_over_it():
    stream = Stream("w0", 12, envs=2, lengths=(99,), n=1)
    log = [(0, n, Piece(stream, 2 * n, 2 * n + 2).batch()) for n in range(6)]
    buffer = buffer_of([batch for *_, batch in log])
    restored = buffer_of([])
    left = [item for item in log if item[1] != 2]  # steps 4 and 5
    assert restored.restore(buffer.references(), left) == 4
    assert restored.rows == buffer.rows - 4
    found = {0: [0, 1, 2, 3], 2: [2, 3], 6: [6, 7, 8, 9], 8: [8, 9, 10, 11]}
    assert steps_of(sample(restored)) == found
    again = buffer_of([])
    assert again.restore(restored.references(), left) == 0


def test_restoring_into_less_capacity_keeps_the_newest():
    stream = Stream("w0", 24, envs=2, lengths=(99,), n=1)
    log = [(0, n, batch) for n, batch in enumerate(stream.batches(4))]
    buffer = buffer_of([batch for *_, batch in log])
    restored = buffer_of([], capacity=20)
    assert restored.restore(buffer.references(), log) == buffer.rows - 16
    assert starts(restored) == [16, 20]


def test_a_thousand_sequences_take_no_time_row_by_row():
    """N sequences of L rows are put together by whole arrays."""
    stream = Stream("w0", 400, envs=16, lengths=(50,), n=1)
    buffer = buffer_of(stream.batches(20), length=40, capacity=10_000)
    rng = np.random.default_rng(0)
    best = min(_seconds(buffer, rng) for _ in range(5))
    assert best < 0.03  # 40,000 rows: some 0.002 s; a loop over them takes 0.1 s


def _seconds(buffer, rng):
    started_at = time.process_time()
    buffer.sample(40_000, 0.4, rng)
    return time.process_time() - started_at
