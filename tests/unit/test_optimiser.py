"""FlatAdam against torch's own Adam, which old checkpoints were made with."""

import copy

import pytest
import torch
from torch import nn

from learner.optimiser import FlatAdam

RATE, EPSILON = 0.01, 1e-5


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def losses(module, seed, count=20):
    """Losses whose gradients differ by powers of ten."""
    generator = torch.Generator().manual_seed(seed)
    for power in range(count):
        inputs = torch.randn(4, 3, generator=generator)
        yield (module(inputs) ** 2).mean() * 10.0 ** (power % 5 - 2)


def flat(module):
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


def reference_run(module, adam, seed):
    """What torch's optimiser makes of the same losses; it holds one flat tensor."""
    (leaf,) = adam.param_groups[0]["params"]
    parameters = list(module.parameters())
    for loss in losses(module, seed):
        leaf.grad = torch.cat(
            [g.reshape(-1) for g in torch.autograd.grad(loss, parameters)]
        )
        adam.step()
        nn.utils.vector_to_parameters(leaf.detach().clone(), parameters)


def adam_of(module):
    return torch.optim.Adam([nn.Parameter(flat(module))], RATE, eps=EPSILON, fused=True)


def ours_of(module):
    return FlatAdam(
        module, learning_rate=RATE, epsilon=EPSILON, max_grad_norm=float("inf")
    )


def test_parameters_and_moments_are_those_of_torchs_adam_to_the_bit():
    module, theirs = network(), network()
    optimiser, adam = ours_of(module), adam_of(theirs)
    for loss in losses(module, seed=1):
        optimiser.step(loss)
    reference_run(theirs, adam, seed=1)
    assert torch.equal(flat(module), flat(theirs))
    (state,) = adam.state.values()
    assert (
        set(optimiser.state_dict()) == set(state) == {"step", "exp_avg", "exp_avg_sq"}
    )
    for name, tensor in optimiser.state_dict().items():
        assert torch.equal(tensor, state[name]), name
    assert not torch.equal(flat(module), flat(network()))


def test_a_state_that_torchs_adam_has_saved_goes_on_to_the_bit():
    theirs = network()
    adam = adam_of(theirs)
    reference_run(theirs, adam, seed=1)
    (state,) = adam.state.values()
    module = copy.deepcopy(theirs)
    optimiser = ours_of(module)
    optimiser.load_state_dict(state)
    for loss in losses(module, seed=2):
        optimiser.step(loss)
    # A copy was taken: what was loaded is as it was.
    assert float(state["step"]) == 20
    reference_run(theirs, adam, seed=2)
    assert torch.equal(flat(module), flat(theirs))


@pytest.mark.parametrize("limit", [1e-3, 1e9])
def test_the_norm_that_is_told_is_that_before_clipping(limit):
    module = network()
    parameters = list(module.parameters())
    (loss,) = losses(module, seed=1, count=1)
    gradients = torch.autograd.grad(loss, parameters, retain_graph=True)
    expected = sum(float((g**2).sum()) for g in gradients) ** 0.5
    optimiser = FlatAdam(
        module, learning_rate=RATE, epsilon=EPSILON, max_grad_norm=limit
    )
    assert optimiser.step(loss) == pytest.approx(expected, rel=1e-5)
