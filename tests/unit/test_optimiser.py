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


def falling(step):
    return RATE * (1 - step / 20)


def test_a_rate_that_falls_is_that_of_torchs_adam_to_the_bit():
    module, theirs = network(), network()
    optimiser, adam = ours_of(module), adam_of(theirs)
    (leaf,) = adam.param_groups[0]["params"]
    parameters = list(theirs.parameters())
    pairs = zip(losses(module, seed=1), losses(theirs, seed=1), strict=True)
    for step, (loss, other) in enumerate(pairs):
        optimiser.learning_rate = adam.param_groups[0]["lr"] = falling(step)
        optimiser.step(loss)
        gradients = torch.autograd.grad(other, parameters)
        leaf.grad = torch.cat([g.reshape(-1) for g in gradients])
        adam.step()
        nn.utils.vector_to_parameters(leaf.detach().clone(), parameters)
    assert torch.equal(flat(module), flat(theirs))
    assert not torch.equal(flat(module), flat(network()))


def test_optimisers_of_parts_go_on_to_the_bit_after_a_resume():
    """As SAC's: of one module's parts, each with its own moments and rate."""

    def run(module, optimisers, seed, steps):
        for loss in losses(module, seed, steps):
            optimisers[0].step(loss)
        for loss in losses(module, seed + 1, steps):
            optimisers[1].step(loss)

    def parts(module):
        return [ours_of(module[0]), ours_of(module[2])]

    whole = network()
    before = parts(whole)
    run(whole, before, 1, 7)
    resumed = network()
    after = parts(resumed)
    resumed.load_state_dict({n: t.clone() for n, t in whole.state_dict().items()})
    for ours, others in zip(after, before, strict=True):
        ours.load_state_dict(others.state_dict())
    run(whole, before, 5, 7)
    run(resumed, after, 5, 7)
    assert torch.equal(flat(resumed), flat(whole))
    for ours, others in zip(after, before, strict=True):
        for name, moment in ours.state_dict().items():
            assert torch.equal(moment, others.state_dict()[name]), name
    assert not torch.equal(flat(whole), flat(network()))


def test_a_part_leaves_the_rest_as_it_is():
    module = network()
    optimiser = ours_of(module[2])
    rest = module[0].weight.detach().clone()
    (loss,) = losses(module, seed=1, count=1)
    optimiser.step(loss)
    assert torch.equal(module[0].weight, rest)
    assert not torch.equal(module[2].weight, network()[2].weight)


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_what_is_not_finite_changes_neither_parameters_nor_moments(number):
    module = network()
    optimiser = ours_of(module)
    good, bad = losses(module, seed=1, count=2)
    optimiser.step(good)
    parameters, moments = flat(module), optimiser.state_dict()
    assert not optimiser.step(bad * number) < float("inf")
    assert torch.equal(flat(module), parameters)
    for name, moment in optimiser.state_dict().items():
        assert torch.equal(moment, moments[name]), name
