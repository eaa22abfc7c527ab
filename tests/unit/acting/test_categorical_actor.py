"""Actions drawn from a softmax, and what is recorded of them."""

import math

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from producers.categorical_actor import CategoricalActor, log_softmax_of
from tests.unit.acting.policies import echoing, play

THREE = {"logits": [0, 1, 2], "value": 3}
ACTION = spaces.Discrete(3, start=5)


def actor_of(num_envs=2, outputs=THREE, action=ACTION, **more):
    return CategoricalActor(echoing("categorical", outputs, action), num_envs, **more)


def rows_of(row, steps, num_envs):
    return np.tile(np.asarray(row, np.float32), (steps + 1, num_envs, 1))


def test_the_likeliest_action_is_taken_where_nothing_is_left_to_chance():
    rows = np.array([[[1, 4, 0, 0.5], [3, 0, 6, -1]]] * 2, np.float32)
    actions, columns = play(actor_of(greedy=True), rows)
    assert actions.tolist() == [[1 + 5, 2 + 5]], "the space starts at 5"
    assert actions.dtype == np.int64
    assert columns["log_prob"].tolist() == [[0, 0]], "it is certain"


def test_the_columns_are_the_value_of_each_row_and_the_log_probability():
    # Probabilities 1/2, 1/3, 1/6.
    logits = np.log([3, 2, 1])
    rows = rows_of([*logits, 0], 200, 2)
    rows[:, :, 3] = np.arange(201)[:, None]
    actions, columns = play(actor_of(), rows)
    expected = np.log(np.array([1 / 2, 1 / 3, 1 / 6]))[actions - 5]
    np.testing.assert_allclose(columns["log_prob"], expected, rtol=1e-6)
    assert columns["value"].tolist() == [[t, t] for t in range(201)]
    assert {c.dtype for c in columns.values()} == {np.dtype("<f4")}
    assert set(actions.flat) == {5, 6, 7}


@pytest.mark.parametrize(
    "probabilities",
    [(0.5, 0.3, 0.15, 0.05), (0.25, 0.25, 0.25, 0.25), (0.98, 0.014, 0.005, 0.001)],
)
def test_actions_come_as_often_as_the_softmax_says(probabilities):
    outputs = {"logits": [0, 1, 2, 3], "value": 4}
    actor = actor_of(500, outputs, spaces.Discrete(4))
    # Any number may be added to all logits.
    row = [*(np.log(probabilities) + 7), 0]
    actions, _ = play(actor, rows_of(row, 200, 500), seed=1)
    found = np.bincount(actions.ravel(), minlength=4)
    expected = np.array(probabilities) * actions.size
    # 3 degrees of freedom: above 16.27 once in a thousand times.
    assert float(((found - expected) ** 2 / expected).sum()) < 16.27
    # Neighbouring steps and environments are independent: 0.04 are 9 deviations.
    other = actions[1:, 1:] == actions[:-1, :-1]
    assert abs(other.mean() - np.square(probabilities).sum()) < 0.04


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.floats(-50, 50, width=32) | st.just(-math.inf), min_size=2, max_size=9
    ).filter(lambda row: max(row) > -math.inf),
    st.integers(0, 8),
)
def test_log_probabilities_are_those_of_a_softmax(row, pick):
    """By the definition, in exact sums of Python's floats."""
    pick %= len(row)
    logits = np.array(row, np.float32)[None, None]
    found, odd = log_softmax_of(logits, np.array([[pick]]))
    total = math.fsum(math.exp(x - 50) for x in row)
    expected = row[pick] - 50 - math.log(total)
    assert found[0, 0] == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert odd is None and found.dtype == np.float32


def test_an_action_that_there_is_not_is_never_taken():
    rows = rows_of([-np.inf, 0, 0, 0], 500, 2)
    actions, columns = play(actor_of(), rows)
    assert set(actions.flat) == {6, 7}
    np.testing.assert_allclose(columns["log_prob"], math.log(0.5), rtol=1e-6)


@pytest.mark.parametrize(
    ("row", "taken"),
    [
        ([np.nan, 0, 0], 0),
        ([0, np.nan, 100], 1),
        ([0, 1, np.inf], 2),
        ([-np.inf, -np.inf, -np.inf], 0),
    ],
)
def test_what_is_no_distribution_gives_an_action_of_the_space_for_certain(row, taken):
    actor = actor_of()
    rows = rows_of([0, 0, 0, 0], 4, 2)
    rows[1, 1] = [*row, 0]
    actions, columns = play(actor, rows)
    assert actions[1, 1] == taken + 5
    assert columns["log_prob"][1, 1] == 0
    assert np.argwhere(actor.odd).tolist() == [[1, 1]]
    others = np.delete(columns["log_prob"].ravel(), 3)
    np.testing.assert_allclose(others, math.log(1 / 3), rtol=1e-6)
    play(actor, rows_of([0, 0, 0, 0], 4, 2))
    assert actor.odd is None


def test_an_unroll_cut_short_has_the_columns_of_the_steps_it_took():
    rows = np.random.default_rng(0).normal(size=(51, 2, 4)).astype(np.float32)
    _, expected = play(actor_of(), rows)
    cut = actor_of()
    cut.begin(50, np.random.default_rng(0))
    for t in range(20):
        cut.act(t, {"": rows[t]})
    found = cut.finish(20, {"": rows[20]})
    np.testing.assert_array_equal(found["log_prob"], expected["log_prob"][:20])
    np.testing.assert_array_equal(found["value"], expected["value"][:21])


def test_the_columns_of_an_unroll_outlive_the_next():
    actor = actor_of()
    _, first = play(actor, rows_of([0, 1, 2, 3], 3, 2))
    before = {name: column.copy() for name, column in first.items()}
    play(actor, rows_of([5, 1, 2, 9], 3, 2))
    for name, column in first.items():
        np.testing.assert_array_equal(column, before[name])
