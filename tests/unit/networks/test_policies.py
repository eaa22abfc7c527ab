"""Policies, and the values that go with them."""

import pytest
import torch

from learner.networks import (
    ActionValueNetwork,
    PolicyValueNetwork,
    SquashedGaussianPolicy,
)
from learner.networks.squashed_gaussian import LOG_STD_MAX, LOG_STD_MIN
from tests.unit.learner_specs import box, discrete
from tests.unit.networks.specs import network_spec

OBSERVATION = (box((4,)),)


def observe(*lead):
    return {"": torch.randn(*lead, 4)}


def reached(network, loss):
    """The names of the parameters that a loss has a gradient for."""
    network.zero_grad()
    loss.backward()
    return {
        name
        for name, parameter in network.named_parameters()
        if parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
    }


@pytest.mark.parametrize("units", [0, 3])
@pytest.mark.parametrize("separate", [True, False])
def test_policy_and_value_have_torsos_apart_where_the_spec_says_so(separate, units):
    spec = network_spec(separate_value=separate, lstm=units, activation="tanh")
    network = PolicyValueNetwork(OBSERVATION, discrete(3), spec)
    states = {f.name: torch.ones(2, *f.shape) for f in network.states}
    outputs = network(observe(2), states)
    of_value = reached(network, outputs["value"].sum())
    of_policy = reached(network, network(observe(2), states)["logits"][:, 0].sum())
    assert bool(of_value & of_policy) == (not separate)
    assert len(network.states) == (2 if units else 0) * (1 + separate)
    assert "value_head.weight" in of_value and "policy_head.weight" in of_policy


def gram(weight):
    flat = weight.detach().flatten(1)
    flat = flat if len(flat) <= flat.shape[1] else flat.t()
    return flat @ flat.t()


def test_weights_begin_orthogonal_with_the_gains_of_the_field():
    spec = network_spec(hidden=(64, 64), separate_value=True)
    network = PolicyValueNetwork(OBSERVATION, discrete(3), spec)
    gains = {"torso.body": 2.0, "value_torso.body": 2.0, "policy_head": 1e-4}
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            assert not parameter.detach().any(), name
            continue
        square = next((g for part, g in gains.items() if name.startswith(part)), 1.0)
        expected = square * torch.eye(min(parameter.shape))
        assert torch.allclose(gram(parameter), expected, atol=1e-5), name


def test_convolutions_and_recurrence_begin_orthogonal_too():
    field = box((36, 36), "|u1")
    network = PolicyValueNetwork((field,), discrete(3), network_spec(lstm=4))
    first = network.torso.encoder.encoders[0][1][0].weight
    assert torch.allclose(gram(first), 2 * torch.eye(32), atol=1e-5)
    core = network.torso.core
    assert torch.allclose(gram(core.weight_hh), torch.eye(4), atol=1e-5)
    assert not core.bias_hh.detach().any()


def test_a_policy_begins_near_uniform():
    torch.manual_seed(0)
    network = PolicyValueNetwork(OBSERVATION, discrete(5), network_spec())
    probabilities = network(observe(100))["logits"].softmax(-1).detach()
    assert float((probabilities - 0.2).abs().max()) < 0.01


def test_the_deviation_of_a_box_is_the_same_everywhere_and_is_learnt():
    network = PolicyValueNetwork(OBSERVATION, box((2, 3)), network_spec())
    outputs = network(observe(7))
    assert outputs["mean"].shape == outputs["log_std"].shape == (7, 2, 3)
    assert outputs["value"].shape == (7,)
    assert not outputs["log_std"].detach().any(), "of 1 at first"
    assert reached(network, outputs["log_std"].sum()) == {"log_std"}


@pytest.mark.parametrize("action", [discrete(3), box((2, 3)), box(())])
@pytest.mark.parametrize("units", [0, 3])
def test_an_unrolled_policy_is_a_stepped_one(action, units):
    network = PolicyValueNetwork(OBSERVATION, action, network_spec(lstm=units))
    inputs = observe(5, 3)[""]
    states = first = {f.name: torch.randn(3, *f.shape) for f in network.states}
    valid = torch.ones(4, 3, dtype=torch.bool)
    unrolled = network.unroll({"": inputs}, first, valid)
    for t in range(5):
        outputs = network({"": inputs[t]}, states)
        states = {name: outputs[f"next_state/{name}"] for name in states}
        for name in outputs.keys() - {f"next_state/{n}" for n in states}:
            found, expected = unrolled[name][t], outputs[name]
            assert found.shape == expected.shape
            assert torch.allclose(found, expected, rtol=0, atol=1e-6), name


def test_the_deviation_of_a_squashed_gaussian_is_bounded():
    policy = SquashedGaussianPolicy(OBSERVATION, box((2,)), network_spec())
    with torch.no_grad():
        policy.head.weight.zero_()
        policy.head.bias.copy_(torch.tensor([5.0, -6.0, 100.0, -100.0]))
    outputs = policy(observe(1))
    assert outputs["mean"].tolist() == [[5.0, -6.0]]
    assert outputs["log_std"][0].tolist() == [LOG_STD_MAX, LOG_STD_MIN]
    with torch.no_grad():
        policy.head.bias[2:] = 0
    assert policy(observe(1))["log_std"][0].tolist() == [-1.5, -1.5]


def test_an_action_value_looks_at_observation_and_action():
    critic = ActionValueNetwork(OBSERVATION, box((2,)), network_spec(hidden=()))
    with torch.no_grad():
        critic.head.weight.copy_(torch.tensor([[1.0, 2, 3, 4, 10, 100]]))
        critic.head.bias.fill_(0.5)
    observations = {"": torch.tensor([[1.0, 0, 0, 1], [0, 1, 0, 0]])}
    values = critic(observations, torch.tensor([[1.0, -1], [0.5, 0]]))
    assert values.tolist() == [1 + 4 + 10 - 100 + 0.5, 2 + 5 + 0.5]


def test_an_action_value_takes_images_and_actions_of_any_shape():
    fields = (box((36, 36), "|u1", "a"), box((2,), name="b"))
    critic = ActionValueNetwork(fields, box((2, 3)), network_spec())
    observations = {
        "a": torch.zeros(4, 36, 36, dtype=torch.uint8),
        "b": torch.zeros(4, 2),
    }
    assert critic(observations, torch.zeros(4, 2, 3)).shape == (4,)
    assert critic(observations, torch.zeros(4, 6)).shape == (4,)
