import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.algorithms.sequence_losses import (
    n_step_targets,
    sequence_loss,
    sequence_priorities,
)


def column(*values, dtype=torch.float32):
    return torch.tensor(values, dtype=dtype)[:, None]


def test_targets_bootstrap_so_many_rows_ahead():
    found = n_step_targets(
        column(1.0, 2.0, 3.0),
        column(0.81, 0.0, 0.9),
        column(2, 1, 1, dtype=torch.int32),
        column(10.0, 20.0, 30.0, 40.0),
        rescaled=False,
    )
    # 1 + .81 * 30; 2, for the episode terminates; 3 + .9 * 40
    assert found[:, 0].tolist() == pytest.approx([25.3, 2.0, 39.0])


def test_rescaled_targets_are_h_of_a_target_between_real_values():
    # h(3) = 1.003, so V = 1.003 is a return of 3: y = h(97 + 1 * 3) = h(100)
    found = n_step_targets(
        column(97.0),
        column(1.0),
        column(1, dtype=torch.int32),
        column(0.0, 1.003),
        rescaled=True,
    )
    assert found.item() == pytest.approx(9.1498756, rel=1e-6)


def test_priority_is_the_golden_mixture_of_maximum_and_mean():
    errors = column(0.5, -1.0, 2.0, -0.25)
    learnt = torch.ones(4, 1, dtype=torch.bool)
    # .9 * 2 + .1 * (3.75 / 4)
    assert sequence_priorities(errors, learnt, 0.9).item() == pytest.approx(1.89375)


def test_priority_is_of_learnt_rows_alone_and_of_none_not_a_number():
    errors = torch.tensor([[3.0, 1.0], [float("nan"), 7.0]])
    learnt = torch.tensor([[True, False], [False, False]])
    found = sequence_priorities(errors, learnt, 0.5)
    assert found[0].item() == 3.0 and torch.isnan(found[1])


def test_loss_is_the_weighted_mean_of_hubers_over_learnt_rows():
    errors = torch.tensor([[0.5, 3.0], [float("nan"), -1.0]])
    learnt = torch.tensor([[True, True], [False, True]])
    # (1 * .125 + .5 * (2.5 + .5)) / 3
    found = sequence_loss(errors, learnt, torch.tensor([1.0, 0.5]))
    assert found.item() == pytest.approx(1.625 / 3)


def test_rows_that_are_not_learnt_from_have_no_gradient():
    errors = torch.tensor([[1.0], [float("nan")], [2.0]], requires_grad=True)
    learnt = torch.tensor([[True], [False], [False]])
    sequence_loss(errors, learnt, torch.ones(1)).backward()
    assert errors.grad[:, 0].tolist() == [1.0, 0.0, 0.0]


def test_nothing_to_learn_from_is_a_loss_of_zero():
    nothing = torch.zeros(2, 1, dtype=torch.bool)
    assert sequence_loss(torch.ones(2, 1), nothing, torch.ones(1)).item() == 0.0


def slow_h(x):
    return np.sign(x) * (np.sqrt(abs(x) + 1) - 1) + 1e-3 * x


def slow_inverse(y):
    """By bisection: the root of h(x) = y."""
    low, high = -1e7, 1e7
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if slow_h(middle) < y else (low, middle)
    return low


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 6), st.integers(1, 3), st.integers(0, 2**31), st.booleans())
def test_all_agrees_with_loops(length, count, seed, rescaled):
    rng = np.random.default_rng(seed)
    shape = (length, count)
    returns, taken = rng.normal(0, 5, shape), rng.normal(0, 2, shape)
    discounts = rng.choice([0.0, 0.5, 0.99], shape)
    steps = rng.integers(1, 4, shape)
    values = rng.normal(0, 3, (length + 1, count))
    learnt, weights = rng.random(shape) < 0.7, rng.random(count)
    losses, sizes = [], [[] for _ in range(count)]
    for t in range(length):
        for n in range(count):
            if not learnt[t, n]:
                continue
            after = values[min(t + steps[t, n], length), n]
            real = slow_inverse(after) if rescaled else after
            target = returns[t, n] + discounts[t, n] * real
            error = taken[t, n] - (slow_h(target) if rescaled else target)
            size = abs(error)
            losses.append(weights[n] * (size**2 / 2 if size < 1 else size - 0.5))
            sizes[n].append(size)
    errors = torch.tensor(taken) - n_step_targets(
        *map(torch.tensor, (returns, discounts, steps, values)), rescaled=rescaled
    )
    mask = torch.tensor(learnt)
    loss = sequence_loss(errors, mask, torch.tensor(weights)).item()
    assert loss == pytest.approx(np.mean(losses) if losses else 0.0, rel=1e-4, abs=1e-6)
    for n, found in enumerate(sequence_priorities(errors, mask, 0.9).tolist()):
        expected = 0.9 * max(sizes[n]) + 0.1 * np.mean(sizes[n]) if sizes[n] else np.nan
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-6, nan_ok=True)
