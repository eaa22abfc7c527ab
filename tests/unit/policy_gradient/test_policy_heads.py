import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner.policy_heads import policy_head, rows_of
from tests.unit.learner_specs import box, discrete
from tests.unit.policy_gradient.some_sequences import sequences

SEEDS = st.integers(0, 2**32)


def logits(*values):
    return {"logits": torch.tensor(values, dtype=torch.float64)}


def normal(mean, std):
    mean, std = (torch.tensor(v, dtype=torch.float64) for v in (mean, std))
    return {"mean": mean, "log_std": std.log()}


@pytest.mark.parametrize("start", [0, 5])
def test_categorical_by_hand(start):
    head = policy_head(discrete(3, start=start))
    ours = logits([math.log(1), math.log(2), math.log(5)])  # 1/8, 2/8, 5/8
    theirs = logits([0.0, 0.0, 0.0])
    assert head.name == "categorical"
    found = head.log_prob(ours, torch.tensor([start + 2]))
    assert found.tolist() == pytest.approx([math.log(5 / 8)])
    entropy = -(1 / 8 * math.log(1 / 8) + 1 / 4 * math.log(1 / 4))
    entropy -= 5 / 8 * math.log(5 / 8)
    assert head.entropy(ours).tolist() == pytest.approx([entropy])
    assert head.entropy(theirs).tolist() == pytest.approx([math.log(3)])


def test_a_certain_policy_has_no_entropy_and_is_finite():
    head = policy_head(discrete(2))
    sure = logits([0.0, -1e4])
    assert head.entropy(sure).tolist() == [0]
    assert head.log_prob(sure, torch.tensor([1])).tolist() == [-1e4]


def test_gaussian_by_hand():
    head = policy_head(box((2,)))
    ours = normal([[1.0, -2.0]], [[0.5, 2.0]])
    found = head.log_prob(ours, torch.tensor([[2.0, 0.0]]))
    # z = [2, 1]: -(4 + 1) / 2 - log(.5 * 2) - log 2 pi
    assert found.tolist() == pytest.approx([-2.5 - math.log(2 * math.pi)])
    assert head.entropy(ours).tolist() == pytest.approx([1 + math.log(2 * math.pi)])


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_gaussian_adds_up_the_actions_coordinates_only(shape):
    head, lead = policy_head(box(shape)), (4, 5)
    taken = torch.randn(*lead, *shape)
    outputs = {
        "mean": torch.randn(*lead, *shape),
        "log_std": torch.zeros(*lead, *shape),
    }
    reference = torch.distributions.Normal(outputs["mean"], 1.0).log_prob(taken)
    expected = reference.reshape(*lead, -1).sum(-1)
    assert torch.allclose(head.log_prob(outputs, taken), expected, atol=1e-5)
    assert head.entropy(outputs).shape == lead


@given(SEEDS)
def test_heads_agree_with_torchs_distributions(seed):
    generator = torch.Generator().manual_seed(seed)

    def some(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    ours = {"logits": some(6, 4)}
    theirs = torch.distributions.Categorical(logits=ours["logits"])
    head, taken = policy_head(discrete(4)), torch.arange(6) % 4
    assert torch.allclose(head.log_prob(ours, taken), theirs.log_prob(taken))
    assert torch.allclose(head.entropy(ours), theirs.entropy())
    ours = {"mean": some(6, 2), "log_std": some(6, 2)}
    theirs = torch.distributions.Independent(
        torch.distributions.Normal(ours["mean"], ours["log_std"].exp()), 1
    )
    head, taken = policy_head(box((2,))), some(6, 2)
    assert torch.allclose(head.log_prob(ours, taken), theirs.log_prob(taken))
    assert torch.allclose(head.entropy(ours), theirs.entropy())


def test_the_gaussians_own_samples_are_taken_where_they_are_recorded():
    action = box((2,))
    recorded = sequences(action=action)
    taken = policy_head(action).taken(recorded)
    assert np.array_equal(taken, recorded.behaviour["sample"])
    assert not np.array_equal(taken, recorded.actions[""])
    del recorded.behaviour["sample"]
    assert np.array_equal(policy_head(action).taken(recorded), recorded.actions[""])


def test_rows_of_a_stretch_leave_out_recurrent_states():
    outputs = {"value": torch.arange(6).view(3, 2), "next_state/h": torch.zeros(2, 8)}
    found = rows_of(outputs, torch.tensor([[True, False], [True, True]]))
    assert set(found) == {"value"} and found["value"].tolist() == [0, 2, 3]
