"""Actions drawn from a normal distribution, and what is recorded of them."""

import math

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.gaussian_actor import GaussianActor, normal_log_density
from tests.unit.acting.policies import echoing, play

TWO = {"mean": [0, 1], "log_std": [2, 3], "value": 4}
BOX = spaces.Box(np.array([-1, 0], "<f4"), np.array([3, 10], "<f4"))


def actor_of(num_envs=2, *, squashed=0.0, outputs=TWO, action=BOX, **more):
    policy = echoing("gaussian", outputs, action, options={"squashed": squashed})
    return GaussianActor(policy, num_envs, **more)


def rows_of(row, steps, num_envs):
    return np.tile(np.asarray(row, np.float32), (steps + 1, num_envs, 1))


def density(x, mean, log_std):
    """The logarithm of the normal density, by its formula, in float64."""
    std = math.exp(log_std)
    peak = 1 / (std * math.sqrt(2 * math.pi))
    return math.log(peak) - (x - mean) ** 2 / (2 * std * std)


def test_the_record_has_the_sample_its_density_and_the_values():
    rows = rows_of([0.5, -1, -0.5, 0.25, 7], 50, 2)
    actions, columns = play(actor_of(), rows)
    sample = columns["sample"].astype(np.float64)
    assert sample.shape == (50, 2, 2) and columns["value"].shape == (51, 2)
    expected = [
        [density(x, 0.5, -0.5) + density(y, -1, 0.25) for x, y in row] for row in sample
    ]
    np.testing.assert_allclose(columns["log_prob"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(actions, sample.clip([-1, 0], [3, 10]))
    assert (actions[..., 1] == 0).any(), "some were beyond the bounds"
    assert {c.dtype for c in columns.values()} == {np.dtype("<f4")}
    assert (columns["value"] == 7).all()


def test_squashed_samples_are_scaled_to_the_bounds():
    rows = rows_of([0.5, -1, -0.5, 0.25, 0], 50, 2)
    actions, columns = play(actor_of(squashed=1.0), rows)
    tanh = np.tanh(columns["sample"].astype(np.float64))
    expected = np.array([-1, 0]) + (tanh + 1) / 2 * np.array([4, 10])
    np.testing.assert_allclose(actions, expected, rtol=1e-5, atol=1e-5)
    _, plain = play(actor_of(), rows)
    np.testing.assert_array_equal(columns["log_prob"], plain["log_prob"])


@pytest.mark.parametrize("squashed", [0.0, 1.0])
def test_the_mean_is_taken_where_nothing_is_left_to_chance(squashed):
    rows = rows_of([0.5, 2, 1, 1, 0], 3, 2)
    actions, columns = play(actor_of(squashed=squashed, greedy=True), rows)
    assert (columns["sample"] == [0.5, 2]).all()
    scaled = [1 + 2 * math.tanh(0.5), 5 + 5 * math.tanh(2)]
    expected = np.full_like(actions, [0.5, 2] if squashed == 0 else scaled)
    np.testing.assert_allclose(actions, expected, rtol=1e-6)


def test_a_graph_without_a_value_gives_none():
    outputs = {"mean": [0, 1], "log_std": [2, 3]}
    _, columns = play(actor_of(outputs=outputs), rows_of([0, 1, 0, 0], 2, 2))
    assert columns.keys() == {"sample", "log_prob"}


def test_samples_come_as_often_as_the_normal_distribution_says():
    rows = rows_of([0.5, -2, -0.5, 1, 0], 200, 250)
    _, columns = play(actor_of(250), rows, seed=3)
    for axis, (mean, log_std) in enumerate([(0.5, -0.5), (-2, 1)]):
        z = (columns["sample"][..., axis].ravel() - mean) / math.exp(log_std)
        edges = np.array([-2, -1, -0.5, 0, 0.5, 1, 2])
        below = np.array([0.5 * (1 + math.erf(x / math.sqrt(2))) for x in edges])
        expected = np.diff([0, *below, 1]) * z.size
        found = np.bincount(edges.searchsorted(z), minlength=8)
        # 7 degrees of freedom: above 24.32 once in a thousand times.
        assert float(((found - expected) ** 2 / expected).sum()) < 24.32
    both = columns["sample"].reshape(-1, 2)
    # Of 50,000 pairs: five deviations of a correlation of 0.
    assert abs(np.corrcoef(both.T)[0, 1]) < 5 / math.sqrt(len(both))


any_number = st.floats(width=32, allow_nan=True, allow_infinity=True)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(any_number, min_size=5, max_size=5),
    st.sampled_from([0.0, 1.0]),
    st.booleans(),
    st.sampled_from([(-1, 3), (-0.1, 0.1), (-1e30, 1e30), (-(2**24) - 1, 2**24 + 1)]),
    st.sampled_from([np.float32, np.float64]),
)
def test_no_action_is_beyond_its_bounds_or_no_number(
    row, squashed, greedy, bounds, dtype
):
    low, high = bounds
    box = spaces.Box(low, high, (2,), dtype)
    actor = actor_of(1, squashed=squashed, action=box, greedy=greedy)
    actions, columns = play(actor, rows_of(row, 20, 1))
    assert all(box.contains(action) for action in actions[:, 0])
    assert np.isfinite(columns["sample"]).all()
    assert np.isfinite(columns["log_prob"]).all()


def test_tanh_reaches_the_bounds_and_not_beyond():
    """Middle and half of these are rounded: their sum may be too large or small."""
    rng = np.random.default_rng(0)
    for low, wide in rng.normal(size=(200, 2)).astype(np.float32):
        box = spaces.Box(low, low + abs(wide), (2,))
        actor = actor_of(1, squashed=1.0, action=box, greedy=True)
        actions, _ = play(actor, rows_of([-50, 50, 0, 0, 0], 1, 1))
        found = actions[0, 0]
        assert box.contains(found)
        np.testing.assert_allclose(
            found, [box.low[0], box.high[0]], rtol=1e-6, atol=1e-6
        )


def test_without_bounds_nothing_infinite_is_an_action():
    box = spaces.Box(-np.inf, np.inf, (2,), np.float16)
    actor = actor_of(1, action=box, greedy=True)
    with np.errstate(over="raise"):
        actions, _ = play(actor, rows_of([1e30, -1e30, 0, 0, 0], 1, 1))
    assert actions[0, 0].tolist() == [65504, -65504]


@pytest.mark.parametrize(
    "row", [[np.nan, 0, 0, 0], [0, np.inf, 0, 0], [0, 0, np.nan, 0], [0, 0, 90, 200]]
)
def test_what_is_no_distribution_is_replaced_by_the_standard_one(row):
    actor = actor_of(2)
    rows = rows_of([0, 0, 1, 1, 0], 4, 2)
    rows[2, 1] = [*row, 0]
    _, columns = play(actor, rows)
    assert np.argwhere(actor.odd).tolist() == [[2, 1]]
    x, y = columns["sample"][2, 1].astype(np.float64)
    expected = density(x, 0, 0) + density(y, 0, 0)
    assert columns["log_prob"][2, 1] == pytest.approx(expected, rel=1e-5)
    play(actor, rows_of([0, 0, 1, 1, 0], 4, 2))
    assert actor.odd is None


def test_actions_may_have_any_shape():
    outputs = {"mean": [[0, 1], [2, 3]], "log_std": [[4, 4], [4, 4]]}
    actor = actor_of(3, outputs=outputs, action=spaces.Box(-9, 9, (2, 2)), greedy=True)
    actions, columns = play(actor, rows_of([1, 2, 3, 4, 0], 2, 3))
    assert actions[1, 2].tolist() == [[1, 2], [3, 4]]
    assert columns["sample"].shape == (2, 3, 2, 2)
    assert columns["log_prob"].shape == (2, 3)
    # Four coordinates at their means, all deviations 1.
    np.testing.assert_allclose(columns["log_prob"], -2 * math.log(2 * math.pi))


def test_a_small_deviation_costs_no_precision():
    sample = np.array([[[1 + 2**-20]]], np.float32)
    log_std = np.array([[[math.log(2**-20)]]])
    found = normal_log_density(sample, np.ones((1, 1, 1), np.float32), log_std)
    assert found[0, 0] == pytest.approx(density(1 + 2**-20, 1, math.log(2**-20)))
