"""n-step returns: published values, faults of others, and a slow oracle."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_processors.nstep import NStep, n_step
from tests.unit.test_processor_oracle import make_unroll, owed_by_segment


def column(*values: float) -> np.ndarray:
    return np.array(values, np.float64)[:, None]


def flags(length: int, *at: int) -> np.ndarray:
    found = np.zeros((length, 1), np.bool_)
    found[list(at)] = True
    return found


def returns_of(
    rewards: np.ndarray,
    n: int,
    gamma: float,
    terminated: tuple[int, ...] = (),
    truncated: tuple[int, ...] = (),
    invalid: tuple[int, ...] = (),
) -> NStep:
    length = len(rewards)
    return n_step(
        rewards,
        flags(length, *terminated),
        flags(length, *truncated),
        ~flags(length, *invalid),
        num_steps=length,
        n=n,
        gamma=gamma,
        closed=True,
    )


def targets(found: NStep, values: np.ndarray) -> np.ndarray:
    """Bootstrap from values [N + 1], by plain indexing."""
    rows = np.arange(len(found.returns))
    at = values[rows + found.bootstrap_steps[:, 0]]
    return found.returns[:, 0] + found.discounts[:, 0] * at


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        (3, [2.8, -3.15, 0.7, 1.7, 3.4]),
        (5, [1.315, 0.63, 0.7, 1.7, 3.4]),
        (9, [1.315, 0.63, 0.7, 1.7, 3.4]),
    ],
)
def test_published_targets_with_a_discount_of_its_own_per_step(
    n: int, expected: list[float]
) -> None:
    # With c_t the product of the discounts before t, c_t r_t and c_t v_t are rewards
    # and values whose discount is 1 at every step.
    discounts = np.array([0.5, 0.9, 1.0, 0.5, 0.8])
    scale = np.concatenate([[1.0], np.cumprod(discounts)])
    rewards = np.array([1.0, 0.0, -1.0, 0.0, 1.0])
    values = np.array([0.0, 3.0, 1.0, 5.0, -5.0, 3.0])
    found = returns_of(column(*(rewards * scale[:-1])), n, gamma=1.0)
    assert targets(found, values * scale) / scale[:-1] == pytest.approx(expected)


def test_published_targets_across_an_episode_end() -> None:
    found = returns_of(column(1, 2, 3, 4, 5, 6, 7), 3, 0.9, terminated=(3,))
    values = np.array([0.0, 100, 200, 300, 400, 500, 600, 700])
    assert targets(found, values) == pytest.approx(
        [
            1 + 0.9 * 2 + 0.81 * 3 + 0.729 * 300,
            2 + 0.9 * 3 + 0.81 * 4,
            3 + 0.9 * 4,
            4,
            5 + 0.9 * 6 + 0.81 * 7 + 0.729 * 700,
            6 + 0.9 * 7 + 0.81 * 700,
            7 + 0.9 * 700,
        ]
    )


def test_windows_shrink_towards_an_episode_end_and_none_is_short_at_its_start() -> None:
    found = returns_of(column(1, 1, 1), 3, 0.5 * 0.4, terminated=(2,))
    assert found.returns[:, 0] == pytest.approx([1.24, 1.2, 1.0])
    assert found.discounts[:, 0].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("options", "expected", "reason"),
    [
        ({}, (2.9701, 0.970299, 3), "the last gamma is folded in"),
        ({"terminated": (1,)}, (1.99, 0.0, 2), "no bootstrap after termination"),
        ({"truncated": (1,)}, (1.99, 0.9801, 2), "bootstrap after truncation"),
        ({"terminated": (1,), "truncated": (1,)}, (1.99, 0.0, 2), "both: terminated"),
        ({"invalid": (2,)}, (1.99, 0.9801, 2), "up to before a row not valid"),
        ({"invalid": (0,)}, (0.0, 0.0, 0), "a row not valid is worth nothing"),
        ({"invalid": (1,), "terminated": (1,)}, (1.0, 0.99, 1), "its flags are void"),
    ],
)
def test_where_a_return_ends(
    options: dict[str, tuple[int, ...]],
    expected: tuple[float, float, int],
    reason: str,
) -> None:
    found = returns_of(column(1, 1, 1, 1), 3, 0.99, **options)
    got = (found.returns[0, 0], found.discounts[0, 0], found.bootstrap_steps[0, 0])
    assert got == pytest.approx(expected), reason


def test_no_window_mixes_two_episodes_of_three_steps() -> None:
    # Observations 11, 12, 13 (truncated), 20 (reset row), 21, ...: rows 0, 1, 2 are
    # steps, row 3 is the reset row, and so on for 20 episodes.
    num = 20 * 4
    rewards = column(*[1.0, 1.0, 1.0, 0.0] * 20)
    cut, reset = tuple(range(2, num, 4)), tuple(range(3, num, 4))
    found = returns_of(rewards, 2, 0.9, truncated=cut, invalid=reset)
    for start in range(0, num, 4):
        rows = slice(start, start + 4)
        assert found.bootstrap_steps[rows, 0].tolist() == [2, 2, 1, 0]
        assert found.discounts[rows, 0] == pytest.approx([0.81, 0.81, 0.9, 0.0])
        assert found.returns[rows, 0] == pytest.approx([1.9, 1.9, 1.0, 0.0])


def test_the_last_rows_of_an_episode_of_ten_steps_end_with_it() -> None:
    rewards = column(*[0.0] * 9, 8.0)
    found = returns_of(rewards, 3, 0.5, terminated=(9,))
    assert found.bootstrap_steps[-3:, 0].tolist() == [3, 2, 1]
    assert found.returns[-3:, 0].tolist() == [2.0, 4.0, 8.0]


def test_a_reward_on_the_last_step_of_an_unroll_changes_its_targets() -> None:
    quiet = returns_of(column(*[0.0] * 20), 3, 0.9)
    loud = returns_of(column(*[0.0] * 19, 1.0), 3, 0.9)
    assert (loud.returns - quiet.returns)[-3:, 0] == pytest.approx([0.81, 0.9, 1.0])


def test_a_truncated_episode_bootstraps_from_its_own_end_alone() -> None:
    # Episode 1: r = 0, 0, V = 1, 1, truncated, V(final) = 10; episode 2 with V = 50.
    found = returns_of(column(0, 0, 0, 0), 4, 1.0, truncated=(1,), invalid=(2,))
    values = np.array([1.0, 1.0, 10.0, 50.0, 50.0])
    assert (targets(found, values)[:2] - values[:2]).tolist() == [9.0, 9.0]


def test_returns_do_not_carry_over_a_lost_life_that_counts_as_termination() -> None:
    found = returns_of(column(1, 2, 4, 8), 4, 1.0, terminated=(1,), truncated=(3,))
    assert found.returns[:, 0].tolist() == [3.0, 2.0, 12.0, 8.0]
    assert found.discounts[:, 0].tolist() == [0.0, 0.0, 1.0, 1.0]


def test_rewards_of_rows_not_valid_may_be_anything() -> None:
    found = returns_of(column(1, np.nan, 1), 3, 0.5, invalid=(1,))
    assert found.returns[:, 0].tolist() == [1.0, 0.0, 1.0]


def test_small_rewards_survive_next_to_huge_ones() -> None:
    rewards = column(*[1e-3] * 4, *[1e12] * 4)
    found = returns_of(rewards, 2, 0.5)
    assert found.returns[:3, 0] == pytest.approx([1.5e-3] * 3, rel=1e-6)


def test_an_observation_that_is_not_finite_is_not_bootstrapped_from() -> None:
    length = 4
    finite = ~flags(length + 1, 2)
    none = flags(length)
    found = n_step(
        column(1, 1, 1, 1),
        none,
        none,
        ~none,
        num_steps=length,
        n=2,
        gamma=0.5,
        closed=True,
        finite=finite,
    )
    assert found.discounts[:, 0].tolist() == [0.0, 0.25, 0.25, 0.5]


def test_an_open_segment_must_hold_the_whole_horizon() -> None:
    none = flags(5)
    with pytest.raises(ValueError, match="expected 6 .* found 5"):
        n_step(column(*[1.0] * 5), none, none, ~none, num_steps=4, n=3, gamma=0.9)


@settings(max_examples=150, deadline=None)
@given(
    data=st.data(),
    length=st.integers(1, 40),
    envs=st.integers(1, 3),
    n=st.integers(1, 45),
    gamma=st.sampled_from([0.0, 0.5, 0.99, 1.0]),
    scale=st.sampled_from([0.1, 1.0, 3.0]),
)
def test_equals_the_slow_oracle(
    data: st.DataObject, length: int, envs: int, n: int, gamma: float, scale: float
) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    rate = data.draw(st.sampled_from([0.0, 0.1, 0.5]))
    marks = [
        [tuple(place) for place in np.argwhere(rng.random((length, envs)) < rate)]
        for _ in range(3)
    ]
    rewards = rng.normal(size=(length, envs)).astype(np.float32)
    unroll = make_unroll(
        rewards.tolist(),
        terminated=marks[0],
        truncated=marks[1],
        invalid=marks[2],
    )
    found = n_step(
        rewards,
        unroll.terminated.array(),
        unroll.truncated.array(),
        unroll.valid.array(),
        num_steps=length,
        n=n,
        gamma=gamma,
        reward_scale=scale,
        closed=True,
    )
    for (_, _, step, env), owed in owed_by_segment([unroll], n, gamma, scale).items():
        assert found.bootstrap_steps[step, env] == owed.m
        assert found.discounts[step, env] == pytest.approx(owed.discount)
        assert found.returns[step, env] == pytest.approx(owed.returns, abs=1e-5)
