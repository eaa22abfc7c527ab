"""Layers that are counted, and those that torch makes, are the same."""

from dataclasses import replace

import numpy as np
import pytest

from infra.planning.network_cost import acting_cost, gradient_steps, training_flops
from learner.algorithms import build
from schemas.sizes import stacked
from schemas.tensors import pack
from tests.unit import learner_specs
from tests.unit.learner_specs import DICT_OBSERVATION, box, discrete, environment


def spec(algorithm="dqn", env=None, **learner):
    n_step = 1 if algorithm in ("ppo", "impala") else 3
    processor = {"nStep": n_step}
    return learner_specs.spec(processor, env, algorithm=algorithm, **learner)


def bounded(*shape):
    low, high = (pack(np.full(shape, bound, np.float32)) for bound in (-1, 1))
    return replace(box(shape), low=low, high=high)


LSTM = {"hidden": [16], "lstm": 8}
CASES = {
    "mlp": ({}, environment(), {}),
    "no layer": ({"network": {"hidden": []}}, environment(), {}),
    "dueling": ({"network": {"dueling": True}}, environment(), {}),
    "atoms": (
        {"distribution": {"kind": "categorical", "atoms": 21}}, environment(), {}
    ),
    "dict": ({}, environment(*DICT_OBSERVATION), {}),
    "lstm": ({"algorithm": "r2d2", "network": LSTM}, environment(), {}),
    "ppo": ({"algorithm": "ppo"}, environment(action=discrete(5)), {}),
    "ppo, one torso": (
        {"algorithm": "ppo", "network": LSTM | {"separateValue": False}},
        environment(), {},
    ),
    "impala": ({"algorithm": "impala", "network": LSTM}, environment(), {}),
    "sac": ({"algorithm": "sac"}, environment(action=bounded(3)), {}),
    "nature": ({}, environment(box((84, 84), "|u1")), {"frameStack": 4}),
    "residual": (
        {"network": {"imageEncoder": "impala"}},
        environment(box((20, 31, 3), "|u1"), box((4,), name="x")), {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", list(CASES))
def test_parameters_are_those_of_the_published_actor(case):
    learner, env, env_spec = CASES[case]
    wanted = spec(env=env_spec, **learner)
    actor = build(env, wanted).actor()
    # A gaussian's deviation is no layer; nor are buffers parameters.
    made = sum(
        tensor.numel()
        for name, tensor in actor.module.named_parameters()
        if not name.endswith("log_std")
    )
    seen = [stacked(f, wanted.env.frame_stack) for f in env.observation]
    assert acting_cost(wanted.learner, seen, env.action[0]).parameters == made


def test_operations_are_two_for_each_product():
    learner = spec(network={"hidden": [10]}).learner
    cost = acting_cost(learner, [box((4,))], discrete(3))
    assert cost.flops == 2 * (4 * 10 + 10 * 3)


def test_a_convolution_is_as_many_products_as_places():
    """The CNN of DQN on 4 frames of 84 x 84, summed up by hand."""
    learner = spec(network={"hidden": []}).learner
    cost = acting_cost(learner, [box((4, 84, 84), "|u1")], discrete(6))
    products = (
        20 * 20 * 32 * 4 * 64  # 8 x 8, stride 4
        + 9 * 9 * 64 * 32 * 16  # 4 x 4, stride 2
        + 7 * 7 * 64 * 64 * 9  # 3 x 3
        + 7 * 7 * 64 * 512
        + 512 * 6
    )
    assert cost.flops == 2 * products


@pytest.mark.parametrize(
    ("learner", "times"),
    [
        ({}, 5),  # there and back, the target's, and the choice
        ({"double": False}, 4),
        ({"algorithm": "impala"}, 4),
        ({"algorithm": "ppo", "ppo": {"epochs": 3}}, 10),
    ],
)
def test_learning_is_so_many_times_acting(learner, times):
    wanted = spec(**learner).learner
    seen, action = [box((4,))], discrete(2)
    acting = acting_cost(wanted, seen, action).flops
    assert training_flops(wanted, seen, action) == times * acting


def test_ppo_takes_a_step_for_each_minibatch_of_each_epoch():
    ppo = {"epochs": 4, "minibatchSize": 256}
    learner = spec(algorithm="ppo", batchSize=900, ppo=ppo).learner
    assert gradient_steps(learner) == 4 * 4
    assert gradient_steps(spec().learner) == 1
