import math

import numpy as np
import pytest
import torch

from learner.algorithms import build
from learner.algorithms.base import AlgorithmState
from learner.networks import UnsupportedSpace
from learner.sample import Sample
from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.learner_specs import box, discrete, environment, spec
from tests.unit.off_policy.samples import (
    assert_same,
    column,
    random_sample,
    saved_and_read,
)


def bounded(*shape, low=-2.0, high=2.0):
    bounds = [pack(np.full(shape, end, "<f4")) for end in (low, high)]
    return SpaceField("push", "box", "<f4", shape, *bounds)


def sac(*, observation=4, action=None, hidden=(), sac=None, **learner):
    env = environment(box((observation,)), action=action or bounded(1))
    network = {"hidden": list(hidden)}
    return build(env, spec(algorithm="sac", network=network, sac=sac or {}, **learner))


MEAN, BENT, TEMPERATURE = 0.5, 0.1, 0.2
CRITICS = {"critics": [(1, 2, 0), (2, -1, 0.5)], "targets": [(3, 0, 0), (0, 1, 0)]}


def by_hand(**learner):
    """Q = [s + 2a, 2s - a + .5], Q' = [3s, a], mean s / 2, log std of a tanh of .1."""
    algorithm = sac(observation=1, **learner)
    state = algorithm.state_dict()
    tensors = dict(state.tensors)
    for name, lines in CRITICS.items():
        for i, (of_state, of_action, bias) in enumerate(lines):
            head = f"{name}/both.{i}.head"
            tensors[f"{head}.weight"] = torch.tensor([[of_state, of_action]]).float()
            tensors[f"{head}.bias"] = torch.tensor([bias]).float()
    tensors["policy/head.weight"] = torch.tensor([[MEAN], [0.0]])
    tensors["policy/head.bias"] = torch.tensor([0.0, BENT])
    tensors["temperature/log"] = torch.tensor([math.log(TEMPERATURE)])
    algorithm.load_state_dict(AlgorithmState(tensors, state.values))
    return algorithm


STATES, AFTER = np.array([1.0, -2.0]), np.array([0.5, 3.0])
ACTIONS = np.array([0.25, -1.0])  # of the box's -2 to 2: recorded as 0.5 and -2
RETURNS, DISCOUNTS = np.array([1.0, 0.5]), np.array([0.9, 0.0])
WEIGHTS = np.array([1.0, 0.5])


def two_rows(**changes):
    values = {
        "indices": np.arange(2),
        "weights": column(*WEIGHTS),
        "observations": {"": column(*STATES)[:, None]},
        "actions": {"push": 2 * column(*ACTIONS)[:, None]},
        "returns": column(*RETURNS),
        "discounts": column(*DISCOUNTS),
        "bootstrap_observations": {"": column(*AFTER)[:, None]},
    }
    return Sample(**values | changes)


def act(states, noise, mean=(MEAN, 0.0), bent=(0.0, BENT)):
    """The oracle's policy, in double precision: actions and log-densities [N]."""
    log_std = -1.5 + 3.5 * np.tanh(bent[0] * states + bent[1])
    before = mean[0] * states + mean[1] + np.exp(log_std) * noise
    actions = np.tanh(before)
    gaussian = -0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)
    return actions, gaussian - np.log(1 - actions**2)


def value(name, states, actions):
    return [s * states + a * actions + b for s, a, b in CRITICS[name]]


def noise_of(algorithm):
    """What the next update draws: for the target, then for the policy."""
    generator = torch.Generator()
    generator.set_state(algorithm.state_dict().tensors["noise"])
    draws = [torch.randn(2, 1, generator=generator) for _ in range(2)]
    return [draw[:, 0].double().numpy() for draw in draws]


def expected_errors(noise):
    actions, log_probs = act(AFTER, noise)
    soft = np.minimum(*value("targets", AFTER, actions)) - TEMPERATURE * log_probs
    return np.array(value("critics", STATES, ACTIONS)) - (RETURNS + DISCOUNTS * soft)


def policy_loss(noise, mean, bent):
    actions, log_probs = act(STATES, noise, mean, bent)
    values = np.minimum(*value("critics", STATES, actions))
    return (WEIGHTS * (TEMPERATURE * log_probs - values)).mean()


def test_errors_and_loss_are_the_oracle_s():
    algorithm = by_hand()
    errors = expected_errors(noise_of(algorithm)[0])
    result = algorithm.update(two_rows())
    magnitudes = np.abs(errors).mean(0)
    assert result.td_errors.tolist() == pytest.approx(magnitudes, rel=1e-5)
    loss = (WEIGHTS * errors**2 / 2).mean(1).sum()
    assert result.loss == pytest.approx(loss, rel=1e-5)
    # Row 1 terminates: y = 0.5 whatever comes after. Q = [-4, -2.5]: 4.5 and 3 off.
    assert result.td_errors[1] == pytest.approx(3.75)


def test_errors_of_opposite_signs_do_not_cancel_in_a_priority():
    between = column(0.0, -3.25)  # Both values of row 1, -4 and -2.5.
    result = by_hand().update(two_rows(returns=between))
    assert result.td_errors[1] == pytest.approx(0.75)


def moment(algorithm, name):
    """The gradient of the first update: Adam's moment is a tenth of it."""
    return 10 * algorithm.state_dict().tensors[f"optimiser/{name}/exp_avg"].numpy()


def test_gradients_of_the_critics_are_those_by_hand():
    algorithm = by_hand(maxGradNorm=1e6)
    errors = expected_errors(noise_of(algorithm)[0])
    algorithm.update(two_rows())
    expected = []
    for error in errors:
        each = WEIGHTS * error / 2
        expected += [(each * x).sum() for x in (STATES, ACTIONS, np.ones(2))]
    assert moment(algorithm, "critics").tolist() == pytest.approx(expected, rel=1e-4)


def test_gradient_of_the_policy_is_that_of_finite_differences():
    algorithm = by_hand(maxGradNorm=1e6)
    noise = noise_of(algorithm)[1]
    algorithm.update(two_rows())

    def loss(p):  # head.weight, then head.bias
        return policy_loss(noise, (p[0], p[2]), (p[1], p[3]))

    at, step = np.array([MEAN, 0.0, 0.0, BENT]), 1e-6
    expected = [
        (loss(at + step * one) - loss(at - step * one)) / (2 * step)
        for one in np.eye(4)
    ]
    assert moment(algorithm, "policy").tolist() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("target", [None, 3.0])
def test_gradient_of_the_temperature_is_the_surplus_of_entropy(target):
    algorithm = by_hand(sac={"targetEntropy": target}, maxGradNorm=1e6)
    _, log_probs = act(STATES, noise_of(algorithm)[1])
    result = algorithm.update(two_rows())
    wanted = -1.0 if target is None else target
    expected = -(WEIGHTS * (log_probs + wanted)).mean()
    assert moment(algorithm, "temperature")[0] == pytest.approx(expected, rel=1e-4)
    assert result.figures["entropy"] == pytest.approx(-log_probs.mean(), rel=1e-5)
    assert result.figures["temperature"] == pytest.approx(TEMPERATURE)


@pytest.mark.parametrize(("target", "sign"), [(-50.0, -1), (50.0, 1)])
def test_temperature_rises_where_entropy_is_wanting(target, sign):
    algorithm = by_hand(sac={"targetEntropy": target, "actorLearningRate": 0.125})
    algorithm.update(two_rows())
    log = algorithm.state_dict().tensors["temperature/log"].item()
    assert log == pytest.approx(math.log(TEMPERATURE) + sign * 0.125, rel=1e-3)


def test_a_fixed_temperature_stays():
    algorithm = sac(sac={"fixedTemperature": True, "initialTemperature": 0.3})
    rng = np.random.default_rng(0)
    for _ in range(3):
        result = algorithm.update(random_sample(rng, bounded(1)))
    assert result.figures["temperature"] == pytest.approx(0.3)


def test_targets_follow_by_tau():
    algorithm = by_hand(sac={"tau": 0.25})
    before = algorithm.state_dict().tensors
    algorithm.update(two_rows())
    after = algorithm.state_dict().tensors
    for i in range(2):
        name = f"both.{i}.head.weight"
        target, own = before[f"targets/{name}"], after[f"critics/{name}"]
        expected = 0.75 * target + 0.25 * own
        torch.testing.assert_close(after[f"targets/{name}"], expected)


def test_step_sizes_are_of_critics_and_of_policy():
    algorithm = by_hand(
        learningRate=0.5, adamEpsilon=1e-12, sac={"actorLearningRate": 0.125}
    )
    before = algorithm.state_dict().tensors
    algorithm.update(two_rows())
    after = algorithm.state_dict().tensors
    for name, size in [("critics/both.1.head.bias", 0.5), ("policy/head.bias", 0.125)]:
        moved = (after[name] - before[name]).abs()
        assert moved.tolist() == pytest.approx([size] * len(moved), rel=1e-3)


def test_step_sizes_fall_together():
    settings = {"learningRateDecayUpdates": 2, "sac": {"actorLearningRate": 0.125}}
    algorithm = by_hand(**settings)
    for _ in range(2):
        algorithm.update(two_rows())
    before = algorithm.state_dict().tensors
    algorithm.update(two_rows())
    after = algorithm.state_dict().tensors
    for name in ("critics/both.0.head.bias", "policy/head.bias", "temperature/log"):
        assert torch.equal(after[name], before[name])


@pytest.mark.parametrize("part", ["critics", "policy"])
def test_gradients_are_clipped_apart(part):
    algorithm = by_hand(maxGradNorm=0.125)
    result = algorithm.update(two_rows())
    assert np.linalg.norm(moment(algorithm, part)) == pytest.approx(0.125, rel=1e-4)
    assert result.grad_norm > 0.125


@pytest.mark.parametrize(
    "changes",
    [
        {"returns": column(np.nan, 0)},
        {"returns": column(np.inf, 0)},
        {"weights": column(1.0, np.nan)},
        {"observations": {"": column(1, np.inf)[:, None]}},
        {"bootstrap_observations": {"": column(np.nan, 1)[:, None]}},
        {"actions": {"push": column(np.nan, 1)[:, None]}},
        # The loss is finite, 5e37; the norm of the critics' gradient is not.
        {"observations": {"": column(1, 1e19)[:, None]}},
    ],
)
def test_update_that_is_not_finite_changes_nothing(changes):
    algorithm = by_hand()
    algorithm.update(two_rows())
    before = algorithm.state_dict()
    result = algorithm.update(two_rows(**changes))
    assert not result.finite and len(result.td_errors) == 2
    assert_same(algorithm.state_dict(), before)
    assert algorithm.update(two_rows()).finite


def run(algorithm, samples):
    return [algorithm.update(sample).loss for sample in samples]


def samples(count, action):
    rng = np.random.default_rng(0)
    return [random_sample(rng, action) for _ in range(count)]


@pytest.mark.parametrize("shape", [(1,), (2, 3), ()])
def test_goes_on_to_the_bit_from_a_state_in_the_middle(shape):
    action = bounded(*shape)
    given = samples(10, action)
    torch.manual_seed(1)
    straight, first, second = (sac(action=action, hidden=[16]) for _ in range(3))
    run(straight, given)
    run(first, given[:4])
    torch.manual_seed(2)  # of no account: the noise has a generator of its own
    second.load_state_dict(saved_and_read(first.state_dict()))
    run(second, given[4:])
    assert_same(second.state_dict(), straight.state_dict())
    assert second.updates == 10


def test_state_of_other_networks_is_refused():
    state = sac(hidden=[8]).state_dict()
    with pytest.raises(ValueError, match="network tensors: expected"):
        sac(hidden=[9]).load_state_dict(state)


def test_critics_begin_differently_and_targets_like_them():
    tensors = sac(hidden=[8]).state_dict().tensors
    first, second = (tensors[f"critics/both.{i}.head.weight"] for i in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(tensors["targets/both.1.head.weight"], second)


def test_workers_get_a_squashed_gaussian():
    algorithm = sac(action=bounded(2), hidden=[8])
    actor = algorithm.actor()
    assert (actor.head, actor.exploration) == ("gaussian", "sample")
    assert actor.exploration_options == {"squashed": 1}
    outputs = actor.module({"": torch.randn(5, 4)})
    assert {name: list(t.shape) for name, t in outputs.items()} == {
        "mean": [5, 2],
        "log_std": [5, 2],
    }
    tensors = algorithm.policy_tensors()
    before = tensors["head.bias"].copy()
    run(algorithm, samples(1, bounded(2)))
    assert np.array_equal(tensors["head.bias"], before)
    assert not np.array_equal(algorithm.policy_tensors()["head.bias"], before)


def test_actions_without_bounds_and_discrete_ones_are_refused():
    for action in (box((1,)), discrete(2)):
        with pytest.raises(UnsupportedSpace, match="expected (finite bounds|one box)"):
            sac(action=action)


def test_best_action_of_a_bandit_is_found():
    """The reward is highest at 0.5 between -2 and 2: 0.25 of -1 to 1."""
    settings = {"fixedTemperature": True, "initialTemperature": 0.05}
    settings["actorLearningRate"] = 1e-3
    algorithm = sac(observation=1, hidden=[32, 32], learningRate=0.01, sac=settings)
    rng, seen = np.random.default_rng(0), np.ones((64, 1), np.float32)
    for _ in range(300):
        actions = rng.uniform(-2, 2, (64, 1)).astype(np.float32)
        algorithm.update(
            Sample(
                indices=np.arange(64),
                weights=np.ones(64, np.float32),
                observations={"": seen},
                actions={"push": actions},
                returns=-((actions[:, 0] - 0.5) ** 2),
                discounts=np.zeros(64, np.float32),
                bootstrap_observations={"": seen},
            )
        )
    mean = algorithm.actor().module({"": torch.ones(1, 1)})["mean"].tanh().item()
    assert mean == pytest.approx(0.25, abs=0.1)
