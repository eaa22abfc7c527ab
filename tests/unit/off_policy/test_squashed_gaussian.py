import math

import numpy as np
import pytest
import torch

from learner.algorithms.squashed_gaussian import squashed_sample, to_unit_box
from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.learner_specs import box


def one(*values):
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(
    ("mean", "log_std", "noise", "action", "log_prob"),
    [
        # log N(0; 0, 1) = -log(2 pi) / 2, and tanh is flat nowhere near 0.
        (0.0, 0.0, 0.0, 0.0, -0.9189385),
        # 1 - tanh(1)^2 = 0.4199743, whose logarithm is -0.8675616.
        (1.0, 0.0, 0.0, 0.7615942, -0.9189385 + 0.8675616),
        # The same place, a deviation of 1/2 and two of them away.
        (0.0, math.log(0.5), 2.0, 0.7615942, -0.9189385 - 2 + math.log(2) + 0.8675616),
    ],
)
def test_sample_and_its_density_are_those_by_hand(
    mean, log_std, noise, action, log_prob
):
    actions, log_probs = squashed_sample(one(mean), one(log_std), one(noise))
    assert actions.item() == pytest.approx(action, abs=1e-7)
    assert log_probs.item() == pytest.approx(log_prob, abs=1e-6)


def test_coordinates_are_independent():
    parts = [squashed_sample(one(m), one(s), one(0.3))[1] for m, s in [(1, 0), (-2, 1)]]
    _, together = squashed_sample(one(1, -2), one(0, 1), one(0.3, 0.3))
    assert together.item() == pytest.approx(sum(p.item() for p in parts))


@pytest.mark.parametrize(("mean", "std"), [(0.0, 1.0), (0.7, 0.4), (-1.0, 0.2)])
def test_density_over_all_actions_adds_up_to_one(mean, std):
    edges = np.linspace(-1, 1, 200_001)
    actions = (edges[:-1] + edges[1:]) / 2
    noise = torch.from_numpy((np.arctanh(actions) - mean) / std)[:, None]
    ones = torch.ones_like(noise)
    _, log_probs = squashed_sample(mean * ones, math.log(std) * ones, noise)
    assert log_probs.exp().sum().item() * 1e-5 == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("mean", [-60.0, 60.0])
def test_far_out_density_and_gradients_are_finite(mean):
    inputs = [torch.tensor([[value]], requires_grad=True) for value in (mean, 0.5)]
    actions, log_probs = squashed_sample(*inputs, torch.tensor([[0.1]]))
    # log(1 - tanh(u)^2) is close to log 4 - 2 |u| there.
    before = mean + math.exp(0.5) * 0.1
    expected = -0.9189385 - 0.005 - 0.5 - (math.log(4) - 2 * abs(before))
    assert log_probs.item() == pytest.approx(expected, rel=1e-5)
    (actions.sum() + log_probs.sum()).backward()
    assert all(torch.isfinite(value.grad).all() for value in inputs)


def bounded(low, high):
    low, high = np.array(low, "<f4"), np.array(high, "<f4")
    return SpaceField("", "box", "<f4", low.shape, pack(low), pack(high))


def test_recorded_actions_are_scaled_by_the_bounds():
    field = bounded([-2, 0], [2, 10])
    actions = np.array([[0, 10], [-2, 2.5], [2, 5]], "<f4")
    assert to_unit_box(actions, field).tolist() == [[0, 1], [-1, -0.5], [1, 0]]


def test_recorded_actions_of_any_shape_become_rows():
    field = bounded([[-1, -1], [-1, -1]], [[1, 1], [1, 1]])
    actions = np.array([[[0.5, 0.25], [0, -1]]], "<f4")
    assert to_unit_box(actions, field).tolist() == [[0.5, 0.25, 0, -1]]


def test_what_rounding_pushes_out_of_the_box_is_at_its_edge():
    field = bounded([-2.0], [2.0])
    actions = np.array([[np.nextafter(np.float32(2), np.float32(3))]])
    assert to_unit_box(actions, field).tolist() == [[1.0]]


def test_a_box_without_bounds_is_refused():
    with pytest.raises(ValueError, match="expected bounds"):
        to_unit_box(np.zeros((1, 4)), box())
