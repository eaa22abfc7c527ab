"""Priorities, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stream_processors.nstep import NStep
from stream_processors.priorities import td_priorities

FOUND = NStep(
    returns=np.array([[1.0], [2.0], [3.0], [0.0]], np.float32),
    discounts=np.array([[0.25], [0.0], [0.5], [0.0]], np.float32),
    bootstrap_steps=np.array([[2], [2], [1], [0]], np.int32),
)
TAKEN = np.array([[0.5], [0.5], [9.0], [7.0]], np.float32)


def test_the_priority_is_the_absolute_td_error_plus_epsilon() -> None:
    values = np.array([[0], [0], [4], [10], [0]], np.float32)
    found = td_priorities(FOUND, values, TAKEN, 0.125)
    # |1 + .25*4 - .5|, |2 + 0 - .5|, |3 + .5*10 - 9|; the last row is not valid.
    assert found[:3, 0].tolist() == [1.625, 1.625, 1.125]
    assert np.isnan(found[3, 0])


def test_no_bootstrap_asks_for_no_value() -> None:
    values = np.full((5, 1), np.nan, np.float32)
    found = td_priorities(FOUND, values, TAKEN, 0.0)
    assert found[1, 0] == 1.5
    assert np.isnan(found[[0, 2], 0]).all()


@pytest.mark.parametrize(("values", "taken"), [(None, TAKEN), (TAKEN, None)])
def test_without_behaviour_values_there_is_none(
    values: np.ndarray | None, taken: np.ndarray | None
) -> None:
    assert np.isnan(td_priorities(FOUND, values, taken, 1.0)).all()


def test_an_infinite_error_is_none() -> None:
    values = np.array([[0], [0], [np.inf], [10], [0]], np.float32)
    found = td_priorities(FOUND, values, TAKEN, 1.0)
    assert np.isnan(found[0, 0]) and np.isfinite(found[2, 0])


def test_a_perfect_prediction_still_has_a_priority() -> None:
    found = td_priorities(
        FOUND, np.zeros((5, 1), np.float32), FOUND.returns, np.float32(1e-6)
    )
    assert found[:3, 0] == pytest.approx([1e-6] * 3)
