"""Values of actions, their heads, and the names of what is learnt."""

import copy

import pytest
import torch
from torch.func import functional_call

from learner.networks import QNetwork
from learner.optimiser import flatten_parameters
from tests.unit.learner_specs import box
from tests.unit.networks.specs import network_spec

ONE = torch.ones(1, 1)


def with_bias(network, *bias):
    """A network whose head answers these numbers, whatever it sees."""
    with torch.no_grad():
        network.head.weight.zero_()
        network.head.bias.copy_(torch.tensor(bias))
    return network


def make(num_actions, atoms=1, support=None, **spec):
    spec = network_spec(**{"hidden": ()} | spec)
    return QNetwork((box((1,)),), num_actions, spec, atoms, support)


def test_dueling_adds_the_value_to_centred_advantages():
    network = with_bias(make(3, dueling=True), 10.0, 1.0, 2.0, 6.0)  # V, A...
    assert network({"": ONE})["q"].tolist() == [[8.0, 9.0, 13.0]]


def test_the_mean_of_quantiles_is_their_plain_mean():
    network = with_bias(make(2, atoms=3), 1.0, 2.0, 6.0, -1.0, -1.0, -1.0)
    assert network.values(ONE).tolist() == [[[1, 2, 6], [-1, -1, -1]]]
    assert network({"": ONE})["q"].tolist() == [[3.0, -1.0]]


def test_the_mean_of_a_categorical_distribution_is_over_its_support():
    logs = torch.tensor([0.2, 0.3, 0.5]).log().tolist()
    network = with_bias(make(2, atoms=3, support=(-1.0, 3.0)), *logs, 0.0, 0.0, 0.0)
    assert network.support.tolist() == [-1.0, 1.0, 3.0]
    q = network({"": ONE})["q"][0].tolist()
    assert q == pytest.approx([-0.2 + 0.3 + 1.5, 1.0])


def test_dueling_of_a_distribution_centres_each_atom():
    network = make(2, atoms=2, dueling=True)
    with_bias(network, 10.0, 20.0, 1.0, 2.0, 5.0, 8.0)  # V of each atom; A, A
    assert network.values(ONE).tolist() == [[[8.0, 17.0], [12.0, 23.0]]]


def test_names_are_those_of_older_checkpoints():
    network = QNetwork((box((4,)),), 2, network_spec(hidden=(8, 8)))
    assert list(network.state_dict()) == [
        "encoder.scale", "body.0.weight", "body.0.bias", "body.2.weight", "body.2.bias",
        "head.weight", "head.bias",
    ]  # fmt: skip


def test_a_network_begins_with_the_same_numbers_as_ever():
    """Its layers are made in the order of old, so a seed gives the same network."""
    torch.manual_seed(3)
    layers = [torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)]
    torch.manual_seed(3)
    network = QNetwork((box((4,)),), 2, network_spec())
    assert torch.equal(network.body[0].weight, layers[0].weight)
    assert torch.equal(network.head.weight, layers[1].weight)


@pytest.mark.parametrize("units", [0, 3])
def test_the_torso_is_the_networks_own_also_in_copies_and_flat(units):
    network = copy.deepcopy(QNetwork((box((4,)),), 2, network_spec(lstm=units)))
    flat = flatten_parameters(network)
    inputs = {"": torch.ones(2, 4)}
    states = {f.name: torch.ones(2, *f.shape) for f in network.states}
    with torch.no_grad():
        flat.zero_()
        features, _ = network.torso(inputs, states)
    assert features.tolist() == (torch.zeros(2, 8) if not units else features).tolist()
    assert float(network(inputs, states)["q"].detach().abs().max()) == 0
    names = dict(network.named_parameters())
    ones = {name: torch.ones_like(p) for name, p in names.items()}
    called = functional_call(network, ones, (inputs, states))
    assert float(called["q"].abs().min()) > 0


@pytest.mark.parametrize("units", [0, 3])
def test_an_unrolled_network_is_a_stepped_one(units):
    network = QNetwork((box((4,)),), 2, network_spec(lstm=units, dueling=True))
    inputs = torch.randn(5, 3, 4)
    states = first = {f.name: torch.randn(3, *f.shape) for f in network.states}
    valid = torch.ones(5, 3, dtype=torch.bool)
    features, after = network.torso.unroll({"": inputs}, first, valid)
    unrolled = network.q(features)
    for t in range(5):
        outputs = network({"": inputs[t]}, states)
        states = {name: outputs[f"next_state/{name}"] for name in states}
        assert torch.allclose(unrolled[t], outputs["q"], rtol=0, atol=1e-6)
    for name, state in states.items():
        assert torch.allclose(after[name], state, atol=1e-6)
