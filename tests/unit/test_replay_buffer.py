import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.replay_buffer import BatchMismatch, ReplayBuffer
from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, GAMMA, Stream, replay


def rng():
    return np.random.default_rng(0)


def buffer_of(batches, capacity=1000, unroll_length=1, **changes):
    buffer = ReplayBuffer(ENV, replay(capacity, **changes), unroll_length=unroll_length)
    for offset, batch in enumerate(batches):
        buffer.insert(batch, 0, offset)
    return buffer


def sampled_rows(buffer):
    """Every row that can be sampled: {(worker, env, step): what came with it}."""
    if not buffer.samplable_rows:
        return {}
    sample = buffer.sample(4 * buffer.samplable_rows, 0.4, rng())
    rows = {}
    for i, (worker, env, step, episode) in enumerate(sample.observations[""].tolist()):
        assert sample.actions[""][i] == step % 1000
        after = sample.bootstrap_observations[""][i].tolist()
        assert after[:2] == [worker, env], "bootstraps from another stream"
        assert after[3] == episode, "bootstraps from another episode"
        rows[int(worker), int(env), int(step)] = (
            float(sample.returns[i]),
            float(sample.discounts[i]),
            int(after[2] - step),
        )
    return rows


def approx_target(target):
    return pytest.approx(target, rel=1e-6)


def test_small_ring_never_mixes_episodes():  # windows cross the write head when full
    stream = Stream("w0", steps=80, lengths=(3,), n=2)
    buffer = ReplayBuffer(ENV, replay(5), unroll_length=1)
    seen = 0
    for offset, batch in enumerate(stream.batches(1)):
        buffer.insert(batch, 0, offset)
        for (_, env, step), found in sampled_rows(buffer).items():
            assert found == approx_target(stream.target(step, env))
            assert found[1] in (0.0, pytest.approx(GAMMA ** found[2]))
            seen += 1
    assert seen > 200


def test_partly_filled_ring_keeps_the_last_rewards():
    stream = Stream("w0", steps=10, lengths=(10,), n=3)
    rows = sampled_rows(buffer_of(stream.batches(10), 10_000, 10))
    # rewards 1..7, 1..3: the last three returns, by hand
    expected = {7: 1 + 0.9 * 2 + 0.81 * 3, 8: 2 + 0.9 * 3, 9: 3.0}
    assert {s: rows[0, 0, s][0] for s in expected} == approx_target(expected)
    assert [rows[0, 0, s][2] for s in (7, 8, 9)] == [3, 2, 1]


def test_truncated_episode_bootstraps_from_its_own_final_observation():
    stream = Stream("w0", steps=16, lengths=(3,), n=3)
    rows = sampled_rows(buffer_of(stream.batches(4)))
    # Episode 0 is steps 0-2, its final observation that of step 3; step 3 resets.
    assert {s: rows[0, 0, s][2] for s in (0, 1, 2)} == {0: 3, 1: 2, 2: 1}
    assert (0, 0, 3) not in rows and (0, 0, 7) not in rows


def test_rows_wait_for_the_batch_they_bootstrap_from():
    first, second, third = Stream("w0", steps=6, lengths=(99,), n=3).batches(2)
    buffer = buffer_of([first])
    assert (buffer.rows, buffer.samplable_rows, buffer.learnable_rows) == (2, 0, 2)
    buffer.insert(second, 0, 1)  # its last observation is that of step 4
    assert sorted(sampled_rows(buffer)) == [(0, 0, 0), (0, 0, 1)]
    buffer.insert(third, 0, 2)
    assert len(sampled_rows(buffer)) == 6 == buffer.learnable_rows


def test_rows_before_a_hole_are_never_sampled_and_counted_when_they_leave():
    first, _, third = Stream("w0", steps=9, lengths=(99,), n=3).batches(3)
    buffer = buffer_of([first, third], capacity=6, unroll_length=3)
    assert sorted(sampled_rows(buffer))[:2] == [(0, 0, 0), (0, 0, 6)]
    assert buffer.dropped_rows == 0
    buffer.insert(Stream("w1", steps=3, n=1).batches(3)[0], 0, 2)
    assert buffer.dropped_rows == 2  # steps 1 and 2


def test_row_that_claims_to_look_ages_ahead_waits_and_costs_no_time():
    ahead = pack(np.array([[2**31 - 1], [1]], "<i4"))
    stream = Stream("w0", steps=4, lengths=(99,), n=1)
    first, second = stream.batch(0, 2, bootstrap_steps=ahead), stream.batch(2, 4)
    started_at = time.thread_time()  # a busy machine takes no more of it
    buffer = buffer_of([first, second])
    assert time.thread_time() - started_at < 1
    assert (buffer.samplable_rows, buffer.learnable_rows) == (3, 4)


def test_late_batch_fills_the_hole_and_does_not_outlive_what_it_needs():
    first, second, third = Stream("w0", steps=6, lengths=(99,), n=3).batches(2)
    buffer = buffer_of([third, first, second], capacity=6, unroll_length=2)
    assert len(sampled_rows(buffer)) == 6
    buffer.insert(Stream("w1", steps=2, n=1).batches(2)[0], 0, 3)  # evicts third
    assert sorted(sampled_rows(buffer)) == [(0, 0, 0), (0, 0, 1), (1, 0, 0), (1, 0, 1)]
    assert buffer.samplable_rows == 4


def test_buffer_of_a_few_rows_can_be_sampled_in_large_batches():
    buffer = buffer_of(Stream("w0", steps=4, lengths=(99,), n=3).batches(4), 4, 4)
    assert len(buffer.sample(32, 0.4, rng()).indices) == 32


def test_sampling_an_empty_buffer_raises():
    with pytest.raises(ValueError, match="above zero"):
        buffer_of([]).sample(1, 0.4, rng())


def with_priorities(priorities, **changes):
    stream = Stream("w0", steps=len(priorities), lengths=(99,), n=1)
    values = np.array(priorities, "<f4").reshape(-1, 1)
    batch = stream.batch(0, len(priorities), priorities=pack(values))
    return buffer_of([batch], priority_epsilon=1e-9, **changes)


def weight_by_row(buffer, beta):
    sample = buffer.sample(1000, beta, rng())
    steps = sample.observations[""][:, 2].astype(int)
    weights = dict(zip(steps.tolist(), sample.weights.tolist(), strict=True))
    counts = np.bincount(steps) / len(steps)
    return [weights[step] for step in sorted(weights)], counts


def test_probabilities_and_weights_match_the_golden_values():
    buffer = with_priorities([1, 2, 3, 4], alpha=0.6)
    weights, counts = weight_by_row(buffer, beta=0.4)
    assert counts == pytest.approx(
        [0.1482295, 0.2246739, 0.2865546, 0.340542], abs=2e-3
    )
    assert weights == pytest.approx([1, 0.8467453, 0.7682294, 0.7169776], rel=1e-6)


def test_weights_are_normalised_over_the_buffer():
    weights, _ = weight_by_row(with_priorities([0.1, 0.2, 0.7], alpha=1.0), beta=1.0)
    assert weights == pytest.approx([1, 0.5, 0.142857], rel=1e-5)


def test_weights_can_be_normalised_over_the_batch():
    buffer = with_priorities([1e-9, 1.0], alpha=1.0, weights_normalised_by="batch")
    assert set(buffer.sample(8, 1.0, rng()).weights.tolist()) == {1.0}  # row 1 alone


def test_update_applies_alpha_once_to_the_error_plus_epsilon():
    buffer = with_priorities([1, 1], alpha=0.5)
    sample = buffer.sample(2, 0.4, rng())
    buffer.update_priorities(sample.indices, np.array([-4.0, 16.0], np.float32))
    _, counts = weight_by_row(buffer, beta=0.4)
    assert counts == pytest.approx([2 / 6, 4 / 6], abs=2e-3)
    assert buffer.references().priorities == pytest.approx([4.0, 16.0])


def test_rows_without_a_priority_get_the_running_maximum():
    buffer = with_priorities([np.nan, np.inf, 0.0, -1.0, 0.5])
    assert buffer.references().priorities.tolist() == [0.5] * 5
    sample = buffer.sample(5, 0.4, rng())
    buffer.update_priorities(sample.indices, np.array([3, 0, 0, 0, 0], np.float32))
    late = Stream("w1", steps=1, n=1).batch(
        0, 1, priorities=pack(np.full((1, 1), np.nan, "<f4"))
    )
    buffer.insert(late, 0, 9)
    assert buffer.references().priorities[-1] == pytest.approx(3.0)


def test_errors_that_are_not_finite_never_reach_the_priorities():
    buffer = with_priorities([1, 2])
    sample = buffer.sample(2, 0.4, rng())
    buffer.update_priorities(sample.indices, np.array([np.nan, np.inf], np.float32))
    assert buffer.references().priorities.tolist() == [1.0, 2.0]


def test_rows_evicted_since_the_sample_are_ignored():
    first, second = Stream("w0", steps=4, lengths=(99,), n=1).batches(2)
    buffer = buffer_of([first], capacity=2, unroll_length=2)
    old = buffer.sample(2, 0.4, rng()).indices
    buffer.insert(second, 0, 1)
    buffer.update_priorities(old, np.array([9.0, 9.0], np.float32))
    assert buffer.references().priorities.tolist() == [1.0, 1.0]


def test_observation_that_is_not_finite_is_no_row_and_no_bootstrap():
    stream = Stream("w0", steps=4, lengths=(99,), n=1)
    stream.observations[2, 0, 1] = np.nan
    buffer = buffer_of(stream.batches(2))
    sample = buffer.sample(12, 0.4, rng())
    steps = sample.observations[""][:, 2]
    assert set(steps.tolist()) == {0, 1, 3}
    assert set(sample.discounts[steps == 1].tolist()) == {0.0}
    assert np.isfinite(sample.bootstrap_observations[""]).all()
    assert (buffer.rows, buffer.dropped_rows) == (4, 1)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"returns": pack(np.array([[np.nan], [1]], "<f4"))}, "a return is not finite"),
        ({"discounts": pack(np.array([[np.inf], [1]], "<f4"))}, "nor a discount"),
        (
            {
                "returns": pack(np.array([[np.inf], [1]], "<f4")),
                "discounts": pack(np.array([[0], [1]], "<f4")),
            },
            "inf * 0 warns",
        ),
        ({"bootstrap_steps": pack(np.array([[0], [1]], "<i4"))}, "no step ahead"),
        ({"bootstrap_steps": pack(np.array([[-5], [1]], "<i4"))}, "backwards"),
    ],
)
def test_rows_that_cannot_be_learnt_from_are_left_out(changes, reason):
    batch = Stream("w0", steps=2, lengths=(99,), n=1).batch(0, 2, **changes)
    buffer = buffer_of([batch])
    assert sorted(sampled_rows(buffer)) == [(0, 0, 1)], reason
    assert buffer.dropped_rows == 1


@pytest.mark.parametrize(
    "observations",
    [
        {"other": pack(np.zeros((3, 1, 4), "<f4"))},
        {},
        {"": pack(np.zeros((3, 1, 5), "<f4"))},
        {"": pack(np.zeros((3, 1, 4), "<f8"))},
    ],
)
def test_batch_of_another_environment_is_refused_and_changes_nothing(observations):
    stream = Stream("w0", steps=2, n=1)
    buffer = buffer_of(stream.batches(2))
    other = replace(Stream("w1", steps=2, n=1).batch(0, 2), observations=observations)
    with pytest.raises(BatchMismatch, match="observations"):
        buffer.insert(other, 0, 1)
    assert sorted(sampled_rows(buffer)) == [(0, 0, 0), (0, 0, 1)]


@pytest.mark.parametrize("action", [-1, 1000, 2**40])
def test_an_action_that_there_is_not_is_refused_before_it_is_an_index(action):
    actions = {"": pack(np.array([[999], [action]], "<i8"))}
    stream = Stream("w0", steps=2, lengths=(99,), n=1)
    buffer = buffer_of([])
    with pytest.raises(BatchMismatch, match=f"actions/: expected 0 to 999.*{action}"):
        buffer.insert(stream.batch(0, 2, actions=actions), 0, 0)
    assert buffer.rows == 0
    from_2 = SpaceField("", "discrete", "<i8", (), n=(3,), start=(2,))
    buffer = ReplayBuffer(replace(ENV, action=(from_2,)), replay(9), unroll_length=1)
    for value, is_fine in ((1, False), (2, True), (4, True), (5, False)):
        batch = Stream(f"w{value}", steps=1).batch(
            0, 1, actions={"": pack(np.array([[value]], "<i8"))}
        )
        if is_fine:
            buffer.insert(batch, 0, value)
        else:
            with pytest.raises(BatchMismatch, match="expected 2 to 4"):
                buffer.insert(batch, 0, value)


def test_batch_that_is_there_already_is_refused():
    batch = Stream("w0", steps=2).batches(2)[0]
    with pytest.raises(ValueError, match="not in the buffer"):
        buffer_of([batch, batch])


def test_batch_larger_than_the_buffer_is_refused():
    with pytest.raises(ValueError, match="capacity"):
        buffer_of(Stream("w0", steps=4).batches(4), capacity=3, unroll_length=4)


def test_fields_keep_their_names_and_dtypes_but_float64_is_cast():
    fields = (
        SpaceField("b", "box", "<f8", (2,)),
        SpaceField("a/img", "box", "|u1", (2, 2)),
        SpaceField("d", "discrete", "<i8", (), n=(5,), start=(0,)),
    )
    values = {
        "a/img": np.arange(8, dtype="|u1").reshape(2, 1, 2, 2),
        "d": np.array([[3], [4]]),
        "b": np.array([[[0.1, 1e300]], [[0.2, 0.3]]]),  # 1e300: infinite as float32
    }
    stream = Stream("w0", steps=1, n=1)
    batch = stream.batch(
        0, 1, observations={k: pack(v, "ZSTD") for k, v in values.items()}
    )
    env = replace(ENV, observation=fields)
    buffer = ReplayBuffer(env, replay(4), unroll_length=1)
    buffer.insert(batch, 0, 0)
    assert buffer.dropped_rows == buffer.refused_rows == 1
    assert (buffer.rows, buffer.learnable_rows) == (1, 0)
    values["b"][0, 0, 1] = 0.7
    good = replace(
        batch, worker="w1", observations={k: pack(v) for k, v in values.items()}
    )
    buffer.insert(good, 0, 1)
    sample = buffer.sample(1, 0.4, rng())
    found = sample.observations
    assert found["b"].tolist() == [[np.float32(0.1), np.float32(0.7)]]
    assert found["b"].dtype == np.float32
    assert found["a/img"].tolist() == [[[0, 1], [2, 3]]] and found["d"].tolist() == [3]
    assert found["a/img"].dtype == np.uint8 and found["d"].dtype == np.int64
    assert sample.bootstrap_observations["a/img"].tolist() == [[[4, 5], [6, 7]]]


# --- the same by brute force -------------------------------------------------------


def samplable_by_brute_force(live, streams):
    """Rows of live batches whose bootstrap observation lies in a live batch."""
    there = {
        (name, step) for name, first, last in live for step in range(first, last + 1)
    }
    rows = {}
    for name, first, last in live:
        stream = streams[name]
        for step in range(first, last):
            for env in range(stream.envs):
                target = stream.target(step, env)
                if stream.valid[step, env] and (name, step + target[2]) in there:
                    rows[int(name[1:]), env, step] = target
    return rows


@st.composite
def histories(draw):
    """Streams cut into batches, some lost, some late, in a possible order."""
    streams, queues = {}, []
    for index in range(draw(st.integers(1, 3))):
        stream = Stream(
            f"w{index}",
            steps=draw(st.integers(4, 30)),
            envs=draw(st.integers(1, 3)),
            lengths=tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))),
            n=draw(st.integers(1, 7)),
        )
        streams[stream.worker] = stream
        ends = sorted(draw(st.sets(st.integers(1, stream.steps - 1), max_size=8)))
        cuts = list(zip([0, *ends], [*ends, stream.steps], strict=True))
        cuts = [cut for cut in cuts if draw(st.integers(0, 9)) > 0]  # lost
        if cuts and draw(st.booleans()):  # one comes late
            cuts.append(cuts.pop(draw(st.integers(0, len(cuts) - 1))))
        queues.append([(stream.worker, *cut) for cut in cuts])
    order = []
    while any(queues):
        order.append(draw(st.sampled_from([q for q in queues if q])).pop(0))
    return streams, order


@settings(max_examples=120, deadline=None)
@given(histories(), st.integers(90, 200))
def test_buffer_agrees_with_brute_force(history, capacity):
    streams, order = history
    buffer = ReplayBuffer(ENV, replay(capacity), unroll_length=1)
    live, held = [], 0
    for offset, (name, first, last) in enumerate(order):
        size = (last - first) * streams[name].envs
        while held + size > capacity:
            gone = live.pop(0)
            held -= (gone[2] - gone[1]) * streams[gone[0]].envs
        live.append((name, first, last))
        held += size
        buffer.insert(streams[name].batch(first, last), 0, offset)
        expected = samplable_by_brute_force(live, streams)
        found = sampled_rows(buffer)
        assert found.keys() == expected.keys()
        assert buffer.samplable_rows == len(expected)
        for row, target in expected.items():
            assert found[row] == approx_target(target)
    assert buffer.rows == sum(
        int(streams[name].valid[first:last].sum()) for name, first, last in live
    )
    assert buffer.learnable_rows == buffer.rows  # some wait, and each may come


# --- checkpoints by reference ------------------------------------------------------


def three_streams(lengths=(5, 9)):
    streams = [Stream(f"w{i}", 24, envs=2, lengths=lengths, n=5) for i in range(3)]
    batches = [s.batches(4) for s in streams]
    return [
        (stream, turn, batches[stream][turn])
        for turn in range(6)
        for stream in range(3)
    ]


def filled(log, capacity=100):
    buffer = ReplayBuffer(ENV, replay(capacity), unroll_length=4)
    for partition, offset, batch in log:
        buffer.insert(batch, partition, offset)
        if buffer.samplable_rows:
            sample = buffer.sample(16, 0.4, rng())
            buffer.update_priorities(sample.indices, sample.returns)
    return buffer


def assert_equal_samples(one, other):
    for _ in range(3):
        a, b = one.sample(64, 0.4, rng()), other.sample(64, 0.4, rng())
        for name in ("indices", "weights", "returns", "discounts"):
            assert np.array_equal(getattr(a, name), getattr(b, name)), name
        for name in ("observations", "bootstrap_observations", "actions"):
            assert np.array_equal(getattr(a, name)[""], getattr(b, name)[""]), name
        one.update_priorities(a.indices, a.discounts)
        other.update_priorities(b.indices, b.discounts)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(18)))
def test_restored_buffer_goes_on_as_the_first_would_have(order):
    log = three_streams()
    buffer = filled(log)
    restored = ReplayBuffer(ENV, replay(100), unroll_length=4)
    lost = restored.restore(buffer.references(), [log[i] for i in order])
    assert lost == 0
    for name in ("rows", "samplable_rows", "learnable_rows", "dropped_rows"):
        assert getattr(restored, name) == getattr(buffer, name), name
    highest = [b.references().max_priority for b in (restored, buffer)]
    assert highest[0] == highest[1]
    assert restored.oldest_offsets() == buffer.oldest_offsets()
    assert_equal_samples(buffer, restored)
    for offset, batch in enumerate(Stream("w9", 24, envs=2, n=2).batches(4)):
        assert buffer.insert(batch, 3, offset) == restored.insert(batch, 3, offset)
        assert_equal_samples(buffer, restored)


def test_what_expired_or_is_something_else_is_counted_unrestorable():
    log = three_streams(lengths=(99,))
    buffer = filled(log)
    references = buffer.references()
    first, second = references.chunks[0], references.chunks[1]
    changed = []
    for partition, offset, batch in log:
        if (partition, offset) == (first.partition, first.offset):
            continue  # expired
        if (partition, offset) == (second.partition, second.offset):
            batch = replace(batch, incarnation=77)
        changed.append((partition, offset, batch))
    restored = ReplayBuffer(ENV, replay(100), unroll_length=4)
    assert restored.restore(references, changed) == 16
    assert restored.rows == buffer.rows - 16
    lost = {(0, 0)} | {(int(first.worker[1:]), first.first_step)}
    assert not lost & {(w, s) for w, _, s in sampled_rows(restored)}
    # What is left can be saved, and lost rows are not counted again.
    again = ReplayBuffer(ENV, replay(100), unroll_length=4)
    assert again.restore(restored.references(), changed) == 0


def test_restoring_into_less_capacity_keeps_the_newest():
    log = three_streams(lengths=(99,))
    buffer = filled(log)
    restored = ReplayBuffer(ENV, replay(40), unroll_length=4)
    lost = restored.restore(buffer.references(), log)
    assert restored.rows == 40 and lost == buffer.rows - 40
    newest = [chunk.offset for chunk in buffer.references().chunks[-5:]]
    assert [chunk.offset for chunk in restored.references().chunks] == newest


def test_oldest_offsets_are_those_still_referred_to():
    batches = Stream("w0", steps=8, lengths=(99,), n=1).batches(2)
    buffer = ReplayBuffer(ENV, replay(4), unroll_length=2)
    addresses = [(0, 10), (1, 5), (0, 11), (0, 12)]
    for (partition, offset), batch in zip(addresses, batches, strict=True):
        buffer.insert(batch, partition, offset)
    assert buffer.oldest_offsets() == {0: 11}


# --- stacked frames ----------------------------------------------------------------


def stack_by_brute_force(stream, step, env, k):
    """The k newest frames of the episode, oldest first; its first frame repeated."""
    start = step
    while start > 0 and stream.valid[start - 1, env] and step - start < k - 1:
        start -= 1
    frames = [max(start, step - back) for back in range(k - 1, -1, -1)]
    return stream.observations[frames, env].tolist()


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("length", [1, 3, 8])
def test_frames_are_stacked_by_step_within_their_episode(k, length):
    stream = Stream("w0", steps=40, envs=2, lengths=(2, 5, 11), n=3)
    buffer = ReplayBuffer(ENV, replay(60), unroll_length=length, frame_stack=k)
    for offset, batch in enumerate(stream.batches(length)):
        buffer.insert(batch, 0, offset)
    sample = buffer.sample(400, 0.4, rng())
    for i, stacked in enumerate(sample.observations[""]):
        _, env, step, _ = stacked[-1].astype(int).tolist()
        assert stacked.tolist() == stack_by_brute_force(stream, step, env, k)
        after = sample.bootstrap_observations[""][i]
        there = int(after[-1][2])
        assert after.tolist() == stack_by_brute_force(stream, there, env, k)
    assert buffer.learnable_rows == buffer.rows  # no frame of theirs is missing


def test_rows_whose_frames_before_are_not_known_are_left_out():
    stream = Stream("w0", steps=12, lengths=(99,), n=1)
    buffer = ReplayBuffer(ENV, replay(100), unroll_length=6, frame_stack=4)
    buffer.insert(stream.batches(6)[1], 0, 0)  # steps 6 to 11; nothing before them
    sample = buffer.sample(100, 0.4, rng())
    newest = sample.observations[""][:, -1, 2]
    assert set(newest.astype(int).tolist()) == {9, 10, 11}
    for stacked in sample.observations[""][:, :, 2].tolist():
        assert stacked == [stacked[3] - 3, stacked[3] - 2, stacked[3] - 1, stacked[3]]
    assert buffer.dropped_rows == 3
