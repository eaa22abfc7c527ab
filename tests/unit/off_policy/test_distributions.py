import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.algorithms.distributions import (
    categorical_errors,
    cross_entropy,
    mean_errors,
    project,
    quantile_errors,
    quantile_huber_loss,
)

THREE = torch.tensor([0.0, 1.0, 2.0])


def row(*values):
    return torch.tensor([values], dtype=torch.float32)


@pytest.mark.parametrize(
    ("values", "masses", "expected"),
    [
        # Between two atoms: the nearer one gets more.
        ([0.25], [1.0], [0.75, 0.25, 0.0]),
        # 0.5 halves its 0.2; 1 is an atom itself; 3 is beyond the greatest.
        ([0.5, 1.0, 3.0], [0.2, 0.3, 0.5], [0.1, 0.4, 0.5]),
        # At the bounds, and far beyond them: nothing is lost.
        ([0.0, 2.0], [0.4, 0.6], [0.4, 0.0, 0.6]),
        ([-9.0, 1e30], [0.4, 0.6], [0.4, 0.0, 0.6]),
        ([-math.inf, math.inf], [0.4, 0.6], [0.4, 0.0, 0.6]),
        # Terminal, R = 1.5: all of it is in one place.
        ([1.5, 1.5, 1.5], [0.2, 0.3, 0.5], [0.0, 0.5, 0.5]),
    ],
)
def test_mass_goes_to_the_atoms_around_it(values, masses, expected):
    found = project(row(*values), row(*masses), THREE)
    assert found[0].tolist() == pytest.approx(expected, abs=1e-6)


def test_projection_of_what_is_not_a_number_is_none():
    found = project(row(math.nan, 1.0), row(0.5, 0.5), THREE)
    assert not torch.isfinite(found).all()


def projected_slowly(values, masses, support):
    """Algorithm 1 of the paper, a number at a time."""
    last = len(support) - 1
    least, greatest = support[0], support[-1]
    apart = (greatest - least) / last
    found = np.zeros(len(support))
    for value, mass in zip(values, masses, strict=True):
        at = (min(max(value, least), greatest) - least) / apart
        below, above = min(math.floor(at), last), min(math.ceil(at), last)
        if below == above:
            found[below] += mass
        else:
            found[below] += mass * (above - at)
            found[above] += mass * (at - below)
    return found


@st.composite
def distributions(draw, within=False):
    """values [M], masses [M] of sum 1, support [A]."""
    least = draw(st.floats(-50, 50))
    width = draw(st.floats(0.5, 100))
    support = np.linspace(least, least + width, draw(st.integers(2, 60)))
    count = draw(st.integers(1, 20))
    ends = (least, least + width) if within else (-200, 200)
    values = draw(st.lists(st.floats(*ends), min_size=count, max_size=count))
    masses = draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    return np.array(values), np.array(masses) / sum(masses), support


def as_double(*arrays):
    return [torch.from_numpy(np.asarray(array, np.float64)) for array in arrays]


@given(distributions())
def test_projection_is_what_the_paper_s_algorithm_gives(given_one):
    values, masses, support = as_double(*given_one)
    found = project(values[None], masses[None], support)[0].numpy()
    assert found == pytest.approx(projected_slowly(*given_one), abs=1e-8)
    assert found.sum() == pytest.approx(1, abs=1e-9)
    assert (found >= -1e-12).all()


@given(distributions(within=True))
def test_projection_keeps_the_mean_of_what_is_within_the_support(given_one):
    values, masses, support = as_double(*given_one)
    found = project(values[None], masses[None], support)[0]
    assert float(found @ support) == pytest.approx(float(masses @ values), abs=1e-7)


def test_cross_entropy_is_least_where_the_two_agree():
    target = row(0.2, 0.3, 0.5)
    entropy = -(0.2 * math.log(0.2) + 0.3 * math.log(0.3) + 0.5 * math.log(0.5))
    assert float(cross_entropy(target, target.log())) == pytest.approx(entropy)
    # Logits that are alike: each is a third.
    assert float(cross_entropy(target, row(7, 7, 7))) == pytest.approx(math.log(3))


def test_categorical_errors_are_those_by_hand():
    # Z' = [.2, .3, .5] on [0, 1, 2]; .5 + .5 z = [.5, 1, 1.5] -> [.1, .65, .25].
    said, after = row(0.5, 0.25, 0.25).log(), row(0.2, 0.3, 0.5).log()
    errors = categorical_errors(THREE)(said, after, *column(0.5), *column(0.5))
    expected = -(0.1 * math.log(0.5) + 0.9 * math.log(0.25))
    assert float(errors.losses) == pytest.approx(expected, rel=1e-6)
    assert float(errors.td_errors) == pytest.approx(0.75 - 1.15, rel=1e-5)


def column(*values):
    return [torch.tensor([value]) for value in values]


@pytest.mark.parametrize(
    ("quantiles", "targets", "expected"),
    [
        # u = 1 and -1: both weigh 1/4, and cost 1/2.
        ([0.0, 2.0], [1.0], 0.25),
        # Too high: u = [-3, -2] costs 2.5 and 1.5. Of these the first quantile pays
        # 3/4 of the mean 2, the second 1/4.
        ([3.0, 3.0], [0.0, 1.0], 2.0),
        # Too low: the other way round.
        ([0.0, 0.0], [3.0, 2.0], 2.0),
        ([0.0, 0.0], [4.0, 4.0, 0.0], 0.25 * 3.5 * 2 / 3 + 0.75 * 3.5 * 2 / 3),
        ([1.0], [1.0], 0.0),
    ],
)
def test_quantile_huber_loss_is_the_one_by_hand(quantiles, targets, expected):
    found = quantile_huber_loss(row(*quantiles), row(*targets))
    assert float(found) == pytest.approx(expected, rel=1e-6)


def quantile_loss_slowly(quantiles, targets, kappa):
    total = 0.0
    for i, quantile in enumerate(quantiles):
        tau = (2 * i + 1) / (2 * len(quantiles))
        for target in targets:
            error = target - quantile
            huber = 0.5 * error**2
            if abs(error) > kappa:
                huber = kappa * (abs(error) - 0.5 * kappa)
            weight = 1 - tau if error < 0 else tau
            total += weight * huber / kappa / len(targets)
    return total


numbers = st.lists(st.floats(-20, 20), min_size=1, max_size=9)


@given(numbers, numbers, st.floats(0.1, 3))
def test_quantile_huber_loss_is_the_sum_over_pairs(quantiles, targets, kappa):
    found = quantile_huber_loss(
        *(t[None] for t in as_double(quantiles, targets)), kappa
    )
    expected = quantile_loss_slowly(quantiles, targets, kappa)
    assert float(found) == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_quantiles_are_where_the_loss_is_least():
    targets = torch.linspace(0, 1, 101)[None]
    quantiles = torch.full((1, 4), 0.5, requires_grad=True)
    for _ in range(400):
        quantiles.grad = None
        quantile_huber_loss(quantiles, targets, kappa=0.01).sum().backward()
        with torch.no_grad():
            quantiles -= 0.01 * quantiles.grad
    expected = [0.125, 0.375, 0.625, 0.875]
    assert quantiles[0].tolist() == pytest.approx(expected, abs=0.02)


def test_quantile_errors_are_those_by_hand():
    # 1 + .5 [0, 2] = [1, 2]. Quantile 0: u = [1, 2] costs (.5 + 1.5) / 2, of it 1/4;
    # quantile 4: u = [-3, -2] costs (2.5 + 1.5) / 2, of it 1/4.
    errors = quantile_errors(row(0, 4), row(0, 2), *column(1.0, 0.5))
    assert float(errors.losses) == pytest.approx(0.75)
    assert float(errors.td_errors) == pytest.approx(2 - 1.5)


@pytest.mark.parametrize(("said", "loss"), [(1.0, 0.405), (6.4, 4.0)])
def test_error_of_a_mean_is_huber_s(said, loss):
    errors = mean_errors(row(said), row(1.0), *column(1.0, 0.9))
    assert float(errors.td_errors) == pytest.approx(said - 1.9, rel=1e-5)
    assert float(errors.losses) == pytest.approx(loss, rel=1e-5)


@given(numbers)
@settings(max_examples=30)
def test_after_an_end_the_target_is_the_return_alone(after):
    rows, alike = row(*after), row(*[0.0] * len(after))
    for errors in (quantile_errors, categorical_errors(THREE)):
        if errors is not quantile_errors:
            rows, alike = row(*after[:1], 0, 0), row(0, 0, 0)
        found = [
            errors(alike, z, *column(1.25, 0.0)).losses.item() for z in (rows, alike)
        ]
        assert found[0] == pytest.approx(found[1], rel=1e-5)
