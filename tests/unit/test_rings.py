"""Rings that lie side by side are rings like any other."""

import numpy as np

from learner.stored_rows import Ring


def test_rings_side_by_side_hold_what_single_ones_hold():
    rng = np.random.default_rng(3)
    dtypes = (np.int64, np.float32, np.int32)
    together, single = Ring.side_by_side(11, *dtypes), [Ring(11, d) for d in dtypes]
    assert [ring.rows.dtype for ring in together] == list(dtypes)
    for position in range(0, 60, 4):
        for one, other in zip(together, single, strict=True):
            values = rng.integers(0, 1000, rng.integers(1, 11)).astype(one.rows.dtype)
            one.put(position, values)
            other.put(position, values)
    for one, other in zip(together, single, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
        np.testing.assert_array_equal(one.get(9, 7), other.get(9, 7))


def test_what_is_of_one_row_is_in_one_place():
    first, *others = Ring.side_by_side(8, np.int64, np.float32, np.int32)
    begin = first.rows.__array_interface__["data"][0]
    for other in others:
        assert 0 < other.rows.__array_interface__["data"][0] - begin < 16
        assert other.rows.strides == first.rows.strides == (16,)


def test_rows_are_taken_together():
    numbers, shares = Ring.side_by_side(5, np.int64, np.float32)
    numbers.put(0, np.arange(5))
    shares.put(0, np.arange(5, dtype=np.float32) / 2)
    taken = numbers.together.take([3, 1, 3])
    assert [list(record) for record in taken] == [[3, 1.5], [1, 0.5], [3, 1.5]]
    assert numbers.together is shares.together
