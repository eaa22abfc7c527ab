import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from learner.bootstrap import has_target


def found(valid, discounts, steps):
    columns = [np.array(values)[:, None] for values in (valid, discounts, steps)]
    return has_target(columns[0].astype(bool), *columns[1:])[:, 0].tolist()


def test_last_row_may_bootstrap_from_the_observation_behind_it_and_no_further():
    assert found([1, 1, 1], [0.8, 0.8, 0.9], [2, 2, 1]) == [True, True, True]
    assert found([1, 1, 1], [0.8, 0.8, 0.8], [2, 2, 2]) == [True, True, False]


def test_termination_needs_no_observation():
    assert found([1, 1, 1], [0.7, 0.0, 0.0], [3, 9, 2**30]) == [True, True, True]


def test_reset_rows_padding_and_what_reaches_into_it_are_left_out():
    # Rows 3 and 4 only fill up; the observation at 3 is there, the one at 4 is not.
    assert found([1, 0, 1, 0, 0], [0.9, 0, 0.9, 0, 0], [1, 0, 1, 0, 0]) == [
        True, False, True, False, False,
    ]  # fmt: skip
    assert found([1, 0, 1, 0, 0], [0.9, 0, 0.8, 0, 0], [1, 0, 2, 0, 0])[2] is False


def test_row_that_is_valid_and_looks_nowhere_is_not_learnt_from():
    assert found([1, 1], [0.0, 0.9], [0, 1]) == [False, True]


@given(
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([0.0, 0.5]), st.integers(0, 5)),
        min_size=1,
        max_size=8,
    )
)
def test_agrees_with_a_loop(rows):
    valid, discounts, steps = zip(*rows, strict=True)
    expected = []
    for t, (is_valid, discount, m) in enumerate(rows):
        there = t + m <= len(rows) and m >= 1 and valid[t + m - 1]
        expected.append(bool(is_valid and m >= 1 and (discount == 0 or there)))
    assert found(valid, discounts, steps) == expected
