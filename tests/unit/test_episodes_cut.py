"""Episodes of a log against the account that the environments themselves kept."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.episode_cutter import EpisodeCutter
from schemas.records import PolicyRef, StreamEnd
from schemas.tensors import pack
from tests.unit.recorded_worlds import MemorySource, World, episodes_of

SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=12)


def whole(world, lost=()):
    """What must be found, by (env, number).

    Nothing of it lies in a lost record, nor does the end before it: without that nobody
    can tell a reset from a step without a reward.
    """
    edges = [*world.first_steps, world.step]
    gone = {row for i in lost for row in range(edges[i], edges[i + 1])}
    return {
        key: told
        for key, told in world.told.items()
        if told.ending and told.rewards and not told.is_spoilt
        and not gone.intersection([told.rows[0] - 1, *told.rows])
    }  # fmt: skip


def assert_told(found, told):
    assert {(e.env, e.number) for e in found} == set(told)
    assert len(found) == len(told)
    for episode in found:
        expected = told[episode.env, episode.number]
        np.testing.assert_array_equal(episode.observations[""], expected.observations)
        assert episode.actions[""].tolist() == expected.actions
        assert episode.rewards.tolist() == expected.rewards
        quiet = [False] * (len(expected.rewards) - 1)
        assert episode.terminations.tolist() == [*quiet, "T" in expected.ending]
        is_cut = "C" in expected.ending or expected.ending == "failed"
        assert episode.truncations.tolist() == [*quiet, is_cut]
        assert episode.failed == (expected.ending == "failed")
        assert episode.first_policy == min(expected.policies)
        assert episode.last_policy == max(expected.policies)


@given(seed=st.integers(0, 1000), shapes=SHAPES, more=st.data())
@settings(max_examples=150, deadline=None)
def test_episodes_are_those_that_the_environments_had(seed, shapes, more):
    world = World(seed)
    records = [world.unroll(steps) for steps in shapes]
    lost = more.draw(st.sets(st.integers(0, len(shapes) - 1)))
    kept = [record for i, record in enumerate(records) if i not in lost]
    # Repetitions, as a producer that was killed leaves them.
    if kept and more.draw(st.booleans()):
        at = more.draw(st.integers(0, len(kept) - 1))
        kept.insert(more.draw(st.integers(at + 1, len(kept))), kept[at])
    cutter = EpisodeCutter()
    found = list(episodes_of(MemorySource({0: kept}), cutter))
    assert_told(found, whole(world, lost))
    assert cutter.counts.episodes == len(found)
    assert cutter.counts.env_steps == sum(map(len, found))


def test_streams_of_several_workers_and_incarnations_are_told_apart():
    worlds = [World(5, "w0", 4), World(6, "w1", 5), World(7, "w0", 9)]
    parts = [[world.unroll(20) for _ in range(4)] for world in worlds]
    mixed = [record for pair in zip(parts[0], parts[1], strict=True) for record in pair]
    source = MemorySource({0: [*mixed, *parts[2]], 3: [World(8).unroll(30)]})
    found = list(episodes_of(source))
    assert {(e.worker, e.incarnation) for e in found[:-1]} >= {
        ("w0", 4), ("w1", 5), ("w0", 9)
    }  # fmt: skip
    for world in worlds:
        mine = [
            e for e in found
            if (e.worker, e.incarnation) == (world.worker, world.incarnation)
        ]  # fmt: skip
        assert_told(mine, whole(world))


def test_what_is_open_when_a_stream_ends_is_unfinished_and_never_joined_to_more():
    world = World(3)
    first, second = world.unroll(6), world.unroll(40)
    closed = StreamEnd("past", "r1", "w0", 0, "stopped", 0)
    cutter = EpisodeCutter()
    before = cutter.take(first)
    assert cutter.take(closed) == []
    assert cutter.counts.unfinished > 0
    found = before + cutter.take(second)
    spanning = [key for key, told in whole(world).items()
                if told.rows[0] <= 6 <= told.rows[-1]]  # fmt: skip
    assert spanning
    expected = {k: told for k, told in whole(world).items() if k not in spanning}
    assert_told(found, expected)


@given(seed=st.integers(0, 1000), shapes=SHAPES)
@settings(max_examples=60, deadline=None)
def test_only_what_is_chosen_as_a_whole_is_found(seed, shapes):
    world = World(seed)
    records = [world.unroll(steps) for steps in shapes]
    rng = np.random.default_rng(seed)
    unwanted = {key for key in world.told if rng.random() < 0.5}
    # Of an episode that is not wanted, one valid row is not.
    rows = {}
    for env, number in unwanted & set(whole(world)):
        told = world.told[env, number]
        has_reset = number > 0
        steps = told.rows[has_reset : has_reset + len(told.rewards)]
        rows[env, int(rng.choice(steps))] = True

    def choose(recorded):
        unroll = recorded.record
        mask = np.ones((unroll.num_steps, unroll.num_envs), np.bool_)
        for env, row in rows:
            if 0 <= row - unroll.first_step < unroll.num_steps:
                mask[row - unroll.first_step, env] = False
        return mask

    cutter = EpisodeCutter()
    found = list(episodes_of(MemorySource({0: records}), cutter, choose))
    told = whole(world)
    assert_told(found, {k: v for k, v in told.items() if k not in unwanted})
    assert cutter.counts.not_chosen == len(unwanted & set(told))


def test_an_end_that_is_hidden_in_a_blank_record_joins_nothing():
    world = World(11, num_envs=1)
    records = [world.unroll(8) for _ in range(8)]
    blanks = {
        i: dataclasses.replace(
            record,
            **{
                flag: pack(np.zeros((8, 1), np.bool_))
                for flag in ("terminated", "truncated", "valid")
            },
        )
        for i, record in enumerate(records)
        if i in (2, 5)
    }
    log = [blanks.get(i, record) for i, record in enumerate(records)]
    found = EpisodeCutter()
    episodes = [e for record in log for e in found.take(record)]
    told = whole(world)
    assert episodes
    for episode in episodes:
        one = told[episode.env, episode.number]
        assert_told([episode], {(episode.env, episode.number): one})


def test_a_record_that_cannot_be_opened_leaves_a_hole(caplog):
    world = World(13)
    records = [world.unroll(6) for _ in range(6)]
    damaged = dataclasses.replace(
        records[2],
        observations={
            "": dataclasses.replace(records[2].observations[""], encoding="ZSTD")
        },
    )
    log = [*records[:2], damaged, *records[3:]]
    found = list(episodes_of(MemorySource({0: log})))
    assert_told(found, whole(world, lost={2}))
    assert "rollstream.past.trajectories[0]@4 is passed over" in caplog.text


def test_an_open_episode_holds_nothing_of_the_others():
    world = World(1, num_envs=64)
    cutter = EpisodeCutter()
    for _ in range(50):
        cutter.take(world.unroll(8))
    for env in cutter._streams["w0"].envs:
        for part in env.parts:
            assert part.observations[""].base is None


def test_lengths_and_policies_by_hand():
    world = World(0, num_envs=1)
    record = world.unroll(4)
    changed = dataclasses.replace(
        record,
        policy=PolicyRef(2, 7),
        rewards=pack(np.array([[1.0], [2.0], [0.0], [4.0]])),
        terminated=pack(np.array([[False], [True], [False], [False]])),
        truncated=pack(np.array([[False], [False], [False], [True]])),
        valid=pack(np.array([[True], [True], [False], [True]])),
        episodes=pack(np.array([0], "<i8")),
    )
    first, second = EpisodeCutter().take(changed)
    observed = record.observations[""].array()[:, 0]
    assert (len(first), len(second), second.number) == (2, 1, 1)
    assert (first.rewards.tolist(), second.rewards.tolist()) == ([1, 2], [4])
    np.testing.assert_array_equal(first.observations[""], observed[:3])
    np.testing.assert_array_equal(second.observations[""], observed[3:])
    assert first.first_policy == PolicyRef(2, 7)
    with pytest.raises(dataclasses.FrozenInstanceError):
        first.number = 3
