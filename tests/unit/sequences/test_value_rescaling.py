import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.value_rescaling import rescale, unscale


def of(function, *values, dtype=torch.float32):
    return function(torch.tensor(values, dtype=dtype)).tolist()


def test_h_has_the_golden_values():
    # sqrt(3 + 1) - 1 + 0.003; sqrt(101) - 1 + 0.1; odd
    golden = [0.0, 1.003, 9.1498756, -1.003]
    assert of(rescale, 0.0, 3.0, 100.0, -3.0) == pytest.approx(golden, rel=1e-6)


def test_inverse_has_the_golden_values():
    assert of(unscale, 0.0, 1.003, 9.1498756, -1.003) == pytest.approx(
        [0.0, 3.0, 100.0, -3.0], rel=1e-5, abs=1e-6
    )


@given(st.floats(-1e6, 1e6))
def test_inverse_undoes_h(value):
    again = unscale(rescale(torch.tensor([value], dtype=torch.float64)))
    assert again.item() == pytest.approx(value, rel=1e-9, abs=1e-9)


@given(st.floats(-1e6, 1e6, width=32))
def test_float32_is_enough(value):
    again = unscale(rescale(torch.tensor([value])))
    assert again.item() == pytest.approx(value, rel=1e-5, abs=1e-6)


def test_gradients_are_finite_at_zero():
    value = torch.zeros(1, requires_grad=True)
    unscale(rescale(value)).sum().backward()
    assert torch.isfinite(value.grad).all()
