"""Datasets of Minari that tests write, and what must come back of them."""

from __future__ import annotations

import json

import numpy as np
from gymnasium import spaces
from gymnasium.vector.utils import concatenate, create_empty_array

from archive.episodes import Episode
from archive.minari_dataset import MinariDataset
from archive.minari_export import export_minari
from archive.minari_ids import dataset_folder
from archive.minari_import import SOURCE, MinariSource
from archive.spaces import unnest
from producers.spaces import describe
from schemas.records import NO_POLICY, EnvDescription, PolicyRef
from tests.unit.recorded_worlds import episodes_of, experiment_named

ID = "rollstream/past-v0"
PLAIN = (spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(1 << 40))
CARTPOLE = (
    spaces.Box(
        np.array([-4.8, -np.inf, -0.41887903, -np.inf], np.float32),
        np.array([4.8, np.inf, 0.41887903, np.inf], np.float32),
    ),
    spaces.Discrete(2),
)
NESTED = (
    spaces.Dict(
        camera=spaces.Dict(left=spaces.Box(0, 255, (40, 36, 3), np.uint8)),
        pair=spaces.Tuple([spaces.Discrete(4, start=-1), spaces.MultiBinary((2, 2))]),
        half=spaces.Box(-1, 1, (), np.float16),
    ),
    spaces.Tuple([spaces.MultiDiscrete([3, 4]), spaces.Box(-1, 1, (1,), np.float64)]),
)


def described(observation, action, env_id="CartPole-v1"):
    return EnvDescription(
        env_id,
        describe(observation),
        describe(action),
        500,
        "sync",
        {"numpy": np.__version__},
    )


def sampled(space, count):
    values = [space.sample() for _ in range(count)]
    stacked = concatenate(space, values, create_empty_array(space, count))
    return unnest(stacked, describe(space), count)


def episode(observation, action, length, number=0, *, ending="T"):
    flags = np.zeros((2, length), np.bool_)
    flags[0, -1], flags[1, -1] = ending in ("T", "B"), ending in ("C", "B")
    return Episode(
        worker="w3",
        incarnation=7,
        env=2,
        number=number,
        observations=sampled(observation, length + 1),
        actions=sampled(action, length),
        rewards=np.random.default_rng(number).normal(size=length),
        terminations=flags[0],
        truncations=flags[1],
        first_policy=NO_POLICY,
        last_policy=PolicyRef(1, 4),
        produced_at_ms=1_700_000_000_000,
        failed=False,
    )


def export(root, episodes, env, dataset_id=ID, *, recover=None, seed=lambda e: None):
    export_minari(
        dataset_folder(root, dataset_id),
        dataset_id,
        episodes,
        env,
        recover=recover,
        seed=seed,
        facts={"rollstream": {"source": "past/r1@x"}},
    )


def assert_same_arrays(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


def assert_same(found, expected):
    """What is learnt from; not who did it."""
    assert_same_arrays(found.observations, expected.observations)
    assert_same_arrays(found.actions, expected.actions)
    for name in ("rewards", "terminations", "truncations"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    assert found.rewards.dtype == expected.rewards.dtype


def source_of(root, dataset_id=ID):
    dataset = MinariDataset(root, dataset_id, describe)
    return MinariSource(dataset, experiment_named(SOURCE))


def by_dataset(source):
    """The episodes of a dataset's records, in the order that it has them in."""
    found = list(episodes_of(source))
    streams = len(source.bounds())
    return sorted(found, key=lambda e: e.number * streams + int(e.worker[1:]))


def change(root, **changes):
    """Change a dataset's metadata; None: leave it out."""
    path = root / ID / "data" / "metadata.json"
    values = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in values.items() if v is not None}))
