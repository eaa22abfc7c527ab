"""What peers and Kafka's own clients are measured by: returns, arrivals, rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.beside.broker_limit import pipeline_bytes_per_s
from benchmarks.beside.ingest import INGEST, REDIS
from benchmarks.beside.perf_output import carried_bytes_per_s
from benchmarks.beside.scripts import arrivals as arrivals_module
from benchmarks.beside.scripts import cartpole_rollouts as rollouts_module
from benchmarks.beside.scripts.arrivals import Arrivals, n_step, priorities
from benchmarks.beside.scripts.cartpole_rollouts import Pace, Rollouts, layout
from benchmarks.beside.section import Place
from benchmarks.peers import PeerUnavailable
from stream_processors.nstep import n_step as production_n_step


def unroll_of(rewards, terminated, truncated, valid):
    return {
        "rewards": np.asarray(rewards, np.float32),
        "terminated": np.asarray(terminated, np.bool_),
        "truncated": np.asarray(truncated, np.bool_),
        "valid": np.asarray(valid, np.bool_),
    }


@settings(deadline=None, max_examples=200)
@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_peers_returns_are_those_of_a_processor_that_is_told_no_more(n, steps, seed):
    rng = np.random.default_rng(seed)
    ends = rng.random((steps, 4)) < 0.3
    terminated = ends & (rng.random(ends.shape) < 0.5)
    # The row after an end is a reset.
    valid = np.ones(ends.shape, np.bool_)
    for step in range(1, steps):
        valid[step] = ~(ends[step - 1] & valid[step - 1])
    terminated &= valid
    truncated = ends & valid & ~terminated
    rewards = rng.standard_normal(ends.shape)
    unroll = unroll_of(rewards, terminated, truncated, valid)
    found = production_n_step(
        unroll["rewards"], terminated, truncated, valid,
        num_steps=steps, n=n, gamma=0.99, closed=True,
    )  # fmt: skip
    returns, discounts, taken = n_step(unroll, n)
    np.testing.assert_allclose(returns, found.returns, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(discounts, found.discounts, rtol=1e-6)
    np.testing.assert_array_equal(taken, found.bootstrap_steps)


def test_priorities_are_td_errors_at_the_row_that_is_bootstrapped_from():
    unroll = unroll_of([[1.0], [1.0]], [[False], [False]], [[False]] * 2, [[True]] * 2)
    unroll["q_max"] = np.array([[5.0], [6.0], [10.0]], np.float32)
    unroll["q_taken"] = np.array([[4.0], [6.0]], np.float32)
    # 1 + 0.99 + 0.99**2 * 10 - 4, and 1 + 0.99 * 10 - 6.
    expected = [[1.99 + 9.801 - 4], [10.9 - 6]]
    np.testing.assert_allclose(priorities(unroll, 2), expected, rtol=1e-6)


def test_where_there_is_no_redis_server_nothing_is_installed(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: None)
    (redis,) = [each for each in INGEST.sides if each.name == REDIS]
    # It has no settings, and so no cache directory.
    with pytest.raises(PeerUnavailable, match="apt-get install redis-server"):
        redis.measure(Place(None, {}, None, True, print))


def test_an_unroll_is_what_its_layout_says_and_follows_the_one_before():
    rollouts = Rollouts(num_envs=3, num_steps=40, seed=1)
    first, second = rollouts.collect(), rollouts.collect()
    for name, (shape, kind) in layout(40, 3).items():
        assert (first[name].shape, first[name].dtype) == (shape, kind), name
    np.testing.assert_array_equal(first["observations"][-1], second["observations"][0])
    ended = np.concatenate([u["terminated"] | u["truncated"] for u in (first, second)])
    valid = np.concatenate([first["valid"], second["valid"]])
    # Exactly the rows after an end are resets.
    np.testing.assert_array_equal(valid[1:], ~ended[:-1])
    assert not valid.all() and set(np.unique(first["actions"])) == {0, 1}
    assert (first["q_taken"] <= first["q_max"][:-1]).all()


def test_a_producer_s_steps_are_cartpole_s():
    import gymnasium

    unroll = Rollouts(num_envs=4, num_steps=20, seed=3).collect()
    env = gymnasium.make_vec(
        "CartPole-v1", num_envs=4, vectorization_mode="vector_entry_point"
    )
    observed, _ = env.reset(seed=3)
    for step, actions in enumerate(unroll["actions"]):
        np.testing.assert_array_equal(unroll["observations"][step], observed)
        observed, rewards, terminated, _, _ = env.step(actions)
        np.testing.assert_array_equal(unroll["rewards"][step], rewards)
        np.testing.assert_array_equal(unroll["terminated"][step], terminated)


class Clock:
    """The time, set by hand; sleeping moves it."""

    def __init__(self, at_s=100.0):
        self.at_s = at_s

    def time(self):
        return self.at_s + 1e9

    def monotonic(self):
        return self.at_s

    def sleep(self, seconds):
        self.at_s += seconds


def test_only_what_arrives_after_the_warm_up_and_in_time_counts(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(arrivals_module, "time", clock)
    found = Arrivals(warm_up_s=2, seconds=4)
    clock.at_s = 150.0  # it begins with the first, whenever that comes
    assert not found.are_over
    for second, late_ms in [(0, 900), (2, 900), (3, 10), (5, 20), (6, 30), (6.5, 900)]:
        clock.at_s = 150.0 + second
        found.add(100, clock.time() - late_ms / 1000, 4_000)
    assert found.are_over
    figures = found.figures()
    assert figures["steps_per_s"] == 300 / 4
    assert figures["bytes_per_step"] == 40
    assert figures["p50_ms"] == pytest.approx(20, abs=1e-3)


def test_a_learner_to_whom_nothing_comes_does_not_wait_for_ever(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(arrivals_module, "time", clock)
    found = Arrivals(warm_up_s=2, seconds=4)
    clock.at_s += 119
    assert not found.are_over
    clock.at_s += 2
    with pytest.raises(TimeoutError, match="found none"):
        _ = found.are_over
    with pytest.raises(ValueError, match="found none"):
        found.figures()


def test_a_pace_is_kept_and_what_was_missed_is_not_made_up_for(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(rollouts_module, "time", clock)
    pace, began_s = Pace(1_000, 100), clock.at_s
    for _ in range(10):
        pace.wait()
        clock.at_s += 0.03
    assert clock.at_s - began_s == pytest.approx(10 * 0.1 + 0.03)
    clock.at_s += 5
    stopped_s = clock.at_s
    for _ in range(10):
        pace.wait()
    assert clock.at_s - stopped_s == pytest.approx(9 * 0.1, abs=0.11)


ROWS = """\
2026-11-30T22:00:01.000Z, 0, 0.0, 0.0, 0, 0.0, 10, 5, 0.0, 0.0
2026-11-30T22:00:02.000Z, 0, 100.0, 100.0, 290, 290.0, 0, 1000, 100.0, 290.0
[main] WARN something, with, many, commas, in it
2026-11-30T22:00:04.000Z, 0, 400.0, 150.0, 1160, 435.0, 0, 2000, 150.0, 435.0
2026-11-30T22:00:05.000Z, 0, 90"""
TEN = 1796076000.0  # 2026-11-30T22:00:00Z


@pytest.mark.parametrize(
    ("began_s", "ended_s", "mib_per_s"),
    [
        (0, 10, 400 / 3),  # whole rows only
        (2, 10, 150),
        (2.5, 10, 0),  # one row alone is no rate
        (20, 30, 0),
    ],
)
def test_a_consumer_s_rate_is_of_its_rows_within_the_time(began_s, ended_s, mib_per_s):
    found = carried_bytes_per_s([ROWS], TEN + began_s, TEN + ended_s)
    assert found == pytest.approx(mib_per_s * 2**20)


def test_consumers_rates_add_up():
    found = carried_bytes_per_s([ROWS, ROWS, ""], TEN, TEN + 10)
    assert found == pytest.approx(2 * 400 / 3 * 2**20)


def test_the_pipeline_writes_each_step_twice():
    # 1,000 rows of 40 bytes, 800 of them valid steps: 50 bytes a step; a batch has 16
    # more a row: 56,000 bytes.
    found = pipeline_bytes_per_s(800, 800, 50, 0.8)
    assert found == pytest.approx(40_000 + 56_000)
