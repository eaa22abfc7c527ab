import itertools

import numpy as np

from producers.seeding import StreamSeeds, evaluation_seeds


def test_seeds_of_workers_incarnations_envs_and_episodes_never_meet():
    ranges = itertools.product((1, 2), range(5), (0, 1, 2**32 + 1), range(8), range(20))
    seeds = [StreamSeeds(s, w, i).episode(e, k) for s, w, i, e, k in ranges]
    assert len(set(seeds)) == len(seeds) == 2 * 5 * 3 * 8 * 20


def test_neighbouring_environments_are_not_neighbouring_seeds():
    # seed + j, as vector environments count, would run into the next worker's seeds.
    seeds = [StreamSeeds(1, 0, 0).episode(env, 0) for env in range(100)]
    assert np.abs(np.diff(sorted(seeds))).min() > 1000


def test_a_large_incarnation_is_not_two_small_numbers():
    assert StreamSeeds(1, 0, 5 << 32).vector(0) != StreamSeeds(1, 0, 0).vector(5 << 32)
    assert StreamSeeds(1, 1, 0).vector(0) != StreamSeeds(1, 1 << 32, 0).vector(0)


def test_seeds_are_the_same_on_every_machine():
    # Worked out with numpy alone: an episode can be played again years later.
    words = np.random.SeedSequence(7, spawn_key=(0, 0, 3, 0, 11, 0, 2, 0, 5))
    expected = int(words.generate_state(1, np.uint64)[0]) >> 1
    assert StreamSeeds(7, 3, 11).episode(2, 5) == expected < 2**63


def test_action_draws_repeat_and_differ_between_workers():
    first, again = (StreamSeeds(1, 0, 4).action_rng().random(8) for _ in range(2))
    other = StreamSeeds(1, 1, 4).action_rng().random(8)
    np.testing.assert_array_equal(first, again)
    assert not np.isin(first, other).any()


def test_evaluations_share_no_seed_with_each_other_or_with_workers():
    rounds = itertools.product((0, 3), range(50), (0, 1))
    streams = [evaluation_seeds(1, e, v, r) for e, v, r in rounds]
    streams += [StreamSeeds(1, w, 0) for w in range(100)]
    seeds = {stream.episode(env, 0) for stream in streams for env in range(3)}
    assert len(seeds) == len(streams) * 3
