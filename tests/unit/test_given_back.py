"""Errors that come back with a sample's indices, by hand and beside a slow loop."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.given_back import given_back


def test_rows_that_left_and_errors_that_are_not_finite_are_left_out():
    # A ring of 4, in which the positions 6 to 9 are held; slot 3 waits.
    bootstrap_at = np.array([5, 6, 7, -1])
    slots, priorities = given_back(
        np.array([5, 6, 7, 8, 9, 10]),
        np.array([1.0, -2.0, 3.0, 4.0, np.nan, 6.0], np.float32),
        bootstrap_at,
        range(6, 10),
        0.5,
    )
    assert slots.tolist() == [2, 0]
    assert priorities.tolist() == [2.5, 4.5]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_what_is_kept_agrees_with_a_slow_loop(data):
    capacity = data.draw(st.integers(1, 9))
    first = data.draw(st.integers(0, 50))
    held = range(first, first + data.draw(st.integers(0, capacity)))
    error = st.floats(width=32)
    rows = data.draw(st.lists(st.tuples(st.integers(0, 70), error), max_size=20))
    ring = data.draw(st.lists(st.integers(-1, 5), min_size=capacity, max_size=capacity))
    bootstrap_at = np.zeros((capacity, 3), np.int64)[:, 1]  # a field of records
    bootstrap_at[:] = ring
    slots, priorities = given_back(
        np.array([at for at, _ in rows], np.int64),
        np.array([error for _, error in rows], np.float32),
        bootstrap_at,
        held,
        1e-3,
    )
    expected = [
        (at % capacity, abs(error) + 1e-3)
        for at, error in rows
        if at in held and np.isfinite(error) and ring[at % capacity] >= 0
    ]
    assert list(zip(slots.tolist(), priorities.tolist(), strict=True)) == expected


def test_as_many_errors_as_rows_are_needed():
    with pytest.raises(ValueError, match="as many errors"):
        given_back(np.arange(3), np.zeros(2), np.arange(4), range(4), 0.1)
