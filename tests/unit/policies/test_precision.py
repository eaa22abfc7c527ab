import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.policies.precision import halved, widened

FLOATS = st.floats(width=32, min_value=-65_504, max_value=65_504)


def there_and_back(values):
    return widened(halved({"w": values})["w"], "<f4")


@given(st.lists(FLOATS, max_size=20))
def test_the_error_is_as_stated(numbers):
    values = np.array(numbers, np.float32)
    error = np.abs(there_and_back(values).astype(float) - values.astype(float))
    bound = np.maximum(np.abs(values).astype(float) * 2.0**-11, 2.0**-25)
    assert (error <= bound).all()


@given(st.lists(FLOATS, max_size=20))
def test_what_was_rounded_is_rounded_no_further(numbers):
    once = there_and_back(np.array(numbers, np.float32))
    assert there_and_back(once).tobytes() == once.tobytes()


def test_a_tensor_that_would_overflow_stays_as_it_is():
    values = np.array([1, -70_000], np.float32)
    assert halved({"w": values})["w"].dtype == np.float32
    assert there_and_back(values).tolist() == [1, -70_000]


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_stay_so(odd):
    assert not np.isfinite(there_and_back(np.array([1, odd], np.float32))[1])


@pytest.mark.parametrize("dtype", ["<f8", "<i8", "|u1", "|b1"])
def test_others_are_untouched(dtype):
    values = np.array([1, 0, 1], dtype)
    assert halved({"w": values})["w"] is values
    assert widened(values, "<f4") is values


def test_what_a_graph_takes_as_half_is_not_widened():
    values = np.ones(3, np.float16)
    assert widened(values, "<f2") is values
