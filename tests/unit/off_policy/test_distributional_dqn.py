import math

import numpy as np
import pytest
import torch

from learner.algorithms import build
from learner.algorithms.base import AlgorithmState
from learner.sample import Sample
from tests.unit.learner_specs import box, discrete, environment, spec
from tests.unit.off_policy.samples import (
    assert_same,
    column,
    random_sample,
    saved_and_read,
)

CATEGORICAL = {"kind": "categorical", "atoms": 3, "vMin": 0, "vMax": 2}
QUANTILE = {"kind": "quantile", "atoms": 2}
KINDS = [{"kind": "none"}, CATEGORICAL, QUANTILE]


def constant(distribution, own, target, **learner):
    """What is said of both actions is the same in any state."""
    tiny = {"hidden": [], "observationScale": []}
    env = environment(box((1,)))
    algorithm = build(env, spec(network=tiny, distribution=distribution, **learner))
    state = algorithm.state_dict()
    said = {"network": own, "target": target}
    tensors = dict(state.tensors)
    for name, values in said.items():
        bias = torch.tensor(values, dtype=torch.float32).reshape(-1)
        tensors[f"{name}/head.bias"] = bias
        tensors[f"{name}/head.weight"] = torch.zeros(len(bias), 1)
    algorithm.load_state_dict(AlgorithmState(tensors, state.values))
    return algorithm


def one_row(action, value=1.0, discount=0.5):
    return Sample(
        indices=np.arange(1),
        weights=column(0.5),
        observations={"": column(1.0)[:, None]},
        actions={"": np.array([action])},
        returns=column(value),
        discounts=column(discount),
        bootstrap_observations={"": column(2.0)[:, None]},
    )


# Means 1.3 and 0.75: the network chooses action 0. The target network says 0.5 and 1.7.
LOGITS = np.log([[0.2, 0.3, 0.5], [0.5, 0.25, 0.25]])
TARGET_LOGITS = np.log([[0.5, 0.5, 1e-30], [0.1, 0.1, 0.8]])


def test_categorical_loss_is_the_one_by_hand():
    result = constant(CATEGORICAL, LOGITS, TARGET_LOGITS).update(one_row(1))
    # 1 + z / 2 = [1, 1.5, 2] of mass [.5, .5, 0] -> [0, .75, .25], of mean 1.25. The
    # two atoms with mass have probability 1/4 each.
    assert result.td_errors.tolist() == pytest.approx([0.75 - 1.25], rel=1e-5)
    assert result.loss == pytest.approx(0.5 * math.log(4), rel=1e-5)


def test_without_double_the_target_network_chooses_the_distribution():
    algorithm = constant(CATEGORICAL, LOGITS, TARGET_LOGITS, double=False)
    # [1, 1.5, 2] of mass [.1, .1, .8] -> [0, .15, .85], of mean 1.85.
    result = algorithm.update(one_row(1))
    assert result.td_errors.tolist() == pytest.approx([0.75 - 1.85], rel=1e-5)


def test_quantile_loss_is_the_one_by_hand():
    own, target = [[0, 4], [1, 2]], [[0, 2], [10, 10]]
    result = constant(QUANTILE, own, target).update(one_row(0))
    # See test_distributions: 0.75; the weight is a half.
    assert result.td_errors.tolist() == pytest.approx([0.5])
    assert result.loss == pytest.approx(0.375)


@pytest.mark.parametrize("distribution", [CATEGORICAL, QUANTILE])
def test_what_is_not_finite_changes_nothing(distribution):
    algorithm = build(environment(), spec(distribution=distribution))
    sample = random_sample(np.random.default_rng(0), discrete(2))
    algorithm.update(sample)
    before = algorithm.state_dict()
    sample.returns[3] = np.nan
    assert not algorithm.update(sample).finite
    assert_same(algorithm.state_dict(), before)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("distribution", KINDS, ids=lambda d: d["kind"])
def test_goes_on_to_the_bit_from_a_state_in_the_middle(distribution, dueling):
    settings = {"distribution": distribution, "targetUpdatePeriod": 3}
    settings["network"] = {"hidden": [16], "dueling": dueling}
    rng = np.random.default_rng(0)
    samples = [random_sample(rng, discrete(2)) for _ in range(10)]
    straight = build(environment(), spec(**settings))
    for sample in samples:
        straight.update(sample)
    first, second = (build(environment(), spec(**settings)) for _ in range(2))
    for sample in samples[:4]:
        first.update(sample)
    second.load_state_dict(saved_and_read(first.state_dict()))
    for sample in samples[4:]:
        second.update(sample)
    assert_same(second.state_dict(), straight.state_dict())


@pytest.mark.parametrize("distribution", [CATEGORICAL, QUANTILE])
def test_workers_see_means_alone(distribution):
    algorithm = build(environment(), spec(distribution=distribution))
    actor = algorithm.actor()
    assert (actor.head, actor.exploration) == ("q", "epsilon_ladder")
    outputs = actor.module({"": torch.randn(5, 4)})
    assert {name: list(t.shape) for name, t in outputs.items()} == {"q": [5, 2]}


def test_value_of_a_bandit_is_learnt_as_a_distribution():
    """Action 1 gives 0 or 2, by a coin; action 0 always 0.5."""
    support = {"kind": "categorical", "atoms": 5, "vMin": 0, "vMax": 2}
    algorithm = build(
        environment(box((1,))),
        spec(distribution=support, network={"hidden": []}, learningRate=0.02),
    )
    rng = np.random.default_rng(0)
    for _ in range(400):
        actions = rng.integers(0, 2, 64)
        rewards = np.where(actions == 1, 2 * rng.integers(0, 2, 64), 0.5)
        seen = np.zeros((64, 1), np.float32)
        result = algorithm.update(
            Sample(
                indices=np.arange(64),
                weights=np.ones(64, np.float32),
                observations={"": seen},
                actions={"": actions},
                returns=rewards.astype(np.float32),
                discounts=np.zeros(64, np.float32),
                bootstrap_observations={"": seen},
            )
        )
        assert result.finite
    network = algorithm.actor().module
    features, _ = network.torso({"": torch.zeros(1, 1)})
    found = network.values(features).softmax(-1)[0]
    assert found[0].tolist() == pytest.approx([0, 1, 0, 0, 0], abs=0.1)
    assert found[1].tolist() == pytest.approx([0.5, 0, 0, 0, 0.5], abs=0.1)
