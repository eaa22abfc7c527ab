"""Episodes -> a Minari dataset -> episodes again."""

from __future__ import annotations

import dataclasses

import gymnasium
import minari
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from archive.minari_dataset import MinariDataset
from archive.minari_export import MAX_STEPS, env_to_recover
from archive.minari_ids import DatasetError, datasets_root
from archive.minari_import import NothingInDataset
from archive.spaces import unnest
from infra.errors import RollstreamError
from producers.spaces import describe
from schemas.codec import decode, encode
from schemas.experiment import EnvSpec
from schemas.records import Unroll
from tests.unit.minari_datasets import (
    ID,
    NESTED,
    PLAIN,
    assert_same,
    assert_same_arrays,
    by_dataset,
    described,
    episode,
    export,
    source_of,
)
from tests.unit.recorded_worlds import MemorySource, World, episodes_of


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    assert datasets_root() == tmp_path / "datasets"
    return tmp_path / "datasets"


@pytest.mark.parametrize("pair", [PLAIN, NESTED], ids=["plain", "nested"])
def test_minari_opens_what_was_exported(root, pair):
    env = described(*pair)
    episodes = [
        episode(*pair, length, number, ending=ending)
        for number, (length, ending) in enumerate([(5, "T"), (1, "C"), (3, "B")])
    ]
    export(root, iter(episodes), env, seed=lambda e: 2**62 + e.number)
    assert list(minari.list_local_datasets()) == [ID]
    dataset = minari.load_dataset(ID)
    assert (dataset.total_episodes, dataset.total_steps) == (3, 9)
    assert (dataset.observation_space, dataset.action_space) == pair
    for found, expected in zip(dataset.iterate_episodes(), episodes, strict=True):
        length = len(expected)
        assert_same_arrays(
            unnest(found.observations, env.observation, length + 1),
            expected.observations,
        )
        assert_same_arrays(unnest(found.actions, env.action, length), expected.actions)
        assert found.rewards.tolist() == expected.rewards.tolist()
        assert found.terminations.tolist() == expected.terminations.tolist()
        assert found.truncations.tolist() == expected.truncations.tolist()
        assert repr(found)
    metadata = list(dataset.storage.get_episode_metadata(range(3)))
    assert [each["seed"] for each in metadata] == [2**62, 2**62 + 1, 2**62 + 2]
    assert (
        metadata[1]["rollstream"] | {"env": 2, "last_policy": [1, 4]}
        == (metadata[1]["rollstream"])
    )
    assert dataset.storage.metadata["rollstream"] == {"source": "past/r1@x"}
    size = dataset.storage.metadata["dataset_size"]
    assert size == dataset.storage.get_size() < 1.0


@given(seed=st.integers(0, 500), shapes=st.lists(st.integers(1, 40), max_size=10))
@settings(max_examples=15, deadline=None)
def test_a_log_comes_back_from_minari_as_the_same_episodes(
    tmp_path_factory, seed, shapes
):
    root = tmp_path_factory.mktemp("datasets")
    world = World(seed)
    log = MemorySource({0: [world.unroll(steps) for steps in shapes]})
    episodes = list(episodes_of(log))
    export(root, iter(episodes), log.info.env)
    if not episodes:
        with pytest.raises(NothingInDataset):
            source_of(root)
        return
    source = source_of(root)
    found = by_dataset(source)
    assert len(found) == len(episodes)
    for one, expected in zip(found, episodes, strict=True):
        assert_same(one, expected)
    assert source.info.env.observation == describe(
        minari.MinariDataset(root / ID / "data").observation_space
    )


def test_records_are_as_a_worker_writes_them_from_any_offset_on(root):
    pair = PLAIN
    episodes = [episode(*pair, length, i) for i, length in enumerate([700] * 20)]
    export(root, iter(episodes), described(*pair))
    source = source_of(root)
    assert source.info.identity == f"minari/{ID}@{source.info.topic_id}"
    bounds = source.bounds()
    assert list(bounds) == list(range(8))
    # Three episodes: 3 x 700 steps and 2 reset rows, 1024 a record.
    assert bounds[0] == (0, 3)
    whole = [each.record for each in source.read(0, 0, 3)]
    assert [(u.sequence, u.first_step, u.num_steps) for u in whole] == [
        (0, 0, 1024), (1, 1024, 1024), (2, 2048, 54)
    ]  # fmt: skip
    assert [u.end_of_stream for u in whole] == [False, False, True]
    assert [u.episodes.array().tolist() for u in whole] == [[0], [1], [2]]
    invalid = [u.first_step + np.flatnonzero(~u.valid.array()) for u in whole]
    assert np.concatenate(invalid).tolist() == [700, 1401]
    for record in whole:
        assert decode(encode(record), Unroll) == record
    for first in range(3):
        again = source_of(root).read(0, first, 3)
        assert [each.record for each in again] == whole[first:]
        assert [e.address.offset for e in source.read(0, first, 9)] == list(
            range(first, 3)
        )
    found = by_dataset(source)
    assert len(found) == 20
    for one, expected in zip(found, episodes, strict=True):
        assert_same(one, expected)


def test_a_record_that_begins_with_a_reset_row_belongs_to_the_next_episode(root):
    # 1024 rows a record: the first has no room for the reset row.
    made = [episode(*PLAIN, 1024), *(episode(*PLAIN, 3, i) for i in range(1, 9))]
    export(root, made, described(*PLAIN))
    source = source_of(root)
    second = list(source.read(0, 1, 2))[0].record
    assert second.valid.array()[:, 0].tolist() == [False, True, True, True]
    assert second.episodes.array().tolist() == [1]
    for one, expected in zip(by_dataset(source), made, strict=True):
        assert_same(one, expected)


def test_an_end_that_is_not_told_is_a_truncation(root):
    export(
        root, [episode(*PLAIN, 4, 0, ending=""), episode(*PLAIN, 2, 1)],
        described(*PLAIN),
    )  # fmt: skip
    (first, second) = by_dataset(source_of(root))
    assert first.truncations.tolist() == [False, False, False, True]
    assert not first.terminations.any()
    assert second.terminations.tolist() == [False, True]
    assert not second.truncations.any()


def test_what_minari_cannot_read_in_one_piece_is_cut(root):
    long = episode(*PLAIN, MAX_STEPS + 10)
    export(root, [long, episode(*PLAIN, 3, 1)], described(*PLAIN), seed=lambda e: 5)
    dataset = minari.load_dataset(ID)
    parts = list(dataset.iterate_episodes())
    assert [len(part) for part in parts] == [MAX_STEPS, 10, 3]
    assert [part.truncations[-1] for part in parts] == [True, False, False]
    np.testing.assert_array_equal(
        np.concatenate([parts[0].observations[:-1], parts[1].observations]),
        long.observations[""],
    )
    metadata = list(dataset.storage.get_episode_metadata(range(3)))
    assert [each.get("seed") for each in metadata] == [5, None, 5]
    assert metadata[1]["rollstream"]["first_step"] == MAX_STEPS


def test_the_environment_can_be_recovered(root):
    spec = EnvSpec.model_validate(
        {
            "id": "CartPole-v1",
            "kwargs": {"sutton_barto_reward": True},
            "wrappers": [{"name": "TimeLimit", "kwargs": {"max_episode_steps": 7}}],
        },
        by_alias=True,
    )
    recover = env_to_recover(gymnasium.spec("CartPole-v1"), spec)
    assert gymnasium.spec("CartPole-v1").kwargs == {}
    pair = PLAIN[0], spaces.Discrete(2)
    export(root, [episode(*pair, 3)], described(*pair), recover=recover)
    env = minari.load_dataset(ID).recover_environment()
    env.reset(seed=1)
    steps = 1
    while not env.step(steps % 2)[3]:
        steps += 1
    assert steps == 7
    env.close()
    dataset = MinariDataset(root, ID, describe)
    assert dataset.env == {
        "id": "CartPole-v1",
        "kwargs": {"sutton_barto_reward": True},
        "wrappers": [{"name": "TimeLimit", "kwargs": {"max_episode_steps": 7}}],
    }


def test_an_export_that_fails_leaves_nothing_and_replaces_nothing(root):
    def broken():
        yield episode(*PLAIN, 3)
        raise RollstreamError("the source is damaged")

    with pytest.raises(RollstreamError, match="is damaged"):
        export(root, broken(), described(*PLAIN))
    assert list((root / "rollstream").iterdir()) == []
    export(root, [episode(*PLAIN, 3)], described(*PLAIN))
    with pytest.raises(DatasetError, match=f"{ID}: expected none of this id"):
        export(root, [episode(*PLAIN, 2)], described(*PLAIN))
    assert minari.load_dataset(ID).total_steps == 3
    with pytest.raises(DatasetError, match="expected real numbers"):
        field = dataclasses.replace(describe(PLAIN[0])[0], dtype="<c8")
        odd = dataclasses.replace(described(*PLAIN), observation=(field,))
        export(root, [], odd, "odd-v0")


def test_rewards_that_are_not_finite_make_rows_that_are_not_valid(root):
    odd = episode(*PLAIN, 4)
    odd.rewards[2] = np.nan
    export(root, [odd], described(*PLAIN))
    (record,) = [each.record for each in source_of(root).read(0, 0, 1)]
    assert record.valid.array()[:, 0].tolist() == [True, True, False, True]
