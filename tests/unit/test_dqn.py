import json
import math

import numpy as np
import pytest
import safetensors.torch
import torch

from learner.algorithms import build
from learner.algorithms.base import AlgorithmState
from learner.networks import UnsupportedSpace
from learner.sample import Sample
from tests.unit.learner_specs import DICT_OBSERVATION, box, discrete, environment, spec

TINY = {"hidden": [], "observationScale": []}


def tiny(start=0, **learner):
    """Q(s) = [s, 2 s + 1]; the target network says [3 s, s / 2]."""
    env = environment(box((1,)), action=discrete(2, start=start, name="move"))
    algorithm = build(env, spec(network=TINY, **learner))
    own = {
        "encoder.scale": torch.ones(1),
        "head.weight": torch.tensor([[1.0], [2.0]]),
        "head.bias": torch.tensor([0.0, 1.0]),
    }
    target = own | {
        "head.weight": torch.tensor([[3.0], [0.5]]),
        "head.bias": torch.zeros(2),
    }
    state = algorithm.state_dict()
    tensors = {f"network/{k}": v for k, v in own.items()}
    tensors |= {f"target/{k}": v for k, v in target.items()}
    algorithm.load_state_dict(AlgorithmState(tensors, state.values))
    return algorithm


def column(*values):
    return np.array(values, np.float32)


def two_rows(start=0, **changes):
    values = {
        "indices": np.arange(2),
        "weights": column(1.0, 0.5),
        "observations": {"": column(1, 2)[:, None]},
        "actions": {"move": np.array([0, 1]) + start},
        "returns": column(1.0, 0.5),
        "discounts": column(0.9, 0.0),
        "bootstrap_observations": {"": column(2, 7)[:, None]},
    }
    return Sample(**values | changes)


# By hand. Row 0: Q(2) = [2, 5] chooses action 1, which the target network values at 1:
# y = 1 + 0.9 * 1 = 1.9, Q(1, 0) = 1, error -0.9, huber 0.405, weight 1.
# Row 1: y = 0.5, Q(2, 1) = 5, error 4.5, huber 4, weight 0.5. Loss (0.405 + 2) / 2.
LOSS = 1.2025
# d loss / d Q(s, a) is -0.9 / 2 and 0.5 / 2; times s for the weights.
GRADIENT = {"weight": [-0.45, 0.5], "bias": [-0.45, 0.25]}
NORM = math.sqrt(0.45**2 + 0.5**2 + 0.45**2 + 0.25**2)


@pytest.mark.parametrize("start", [0, 3])
def test_double_dqn_loss_matches_the_one_by_hand(start):
    result = tiny(start).update(two_rows(start))
    assert result.td_errors.tolist() == pytest.approx([-0.9, 4.5], rel=1e-6)
    assert result.loss == pytest.approx(LOSS, rel=1e-6)
    assert result.grad_norm == pytest.approx(NORM, rel=1e-6)
    assert result.finite


def test_without_double_the_target_network_chooses_too():
    result = tiny(double=False).update(two_rows())
    # The target network says [6, 1] of observation 2: y = 1 + 0.9 * 6 = 6.4.
    assert result.td_errors.tolist() == pytest.approx([-5.4, 4.5], rel=1e-6)


def test_first_step_of_adam_moves_each_parameter_by_the_learning_rate():
    algorithm = tiny(learningRate=0.125, adamEpsilon=1e-12)
    algorithm.update(two_rows())
    tensors = algorithm.policy_tensors()
    assert tensors["head.weight"].ravel().tolist() == pytest.approx([1.125, 1.875])
    assert tensors["head.bias"].tolist() == pytest.approx([0.125, 0.875])


@pytest.mark.parametrize("limit", [0.1, 100.0])
def test_gradient_is_clipped_by_its_norm(limit):
    algorithm = tiny(maxGradNorm=limit)
    algorithm.update(two_rows())
    moment = algorithm.state_dict().tensors["optimiser/exp_avg"]  # 0.1 x gradient
    scale = 0.1 * min(1.0, limit / NORM)
    expected = [g * scale for g in GRADIENT["weight"] + GRADIENT["bias"]]
    assert moment.tolist() == pytest.approx(expected, rel=1e-5)


def test_target_network_is_replaced_every_so_many_updates():
    algorithm = tiny(targetUpdatePeriod=2)
    algorithm.update(two_rows())
    assert algorithm.state_dict().tensors["target/head.bias"].tolist() == [0, 0]
    algorithm.update(two_rows())
    tensors = algorithm.state_dict().tensors
    for name in ("head.weight", "head.bias"):
        assert torch.equal(tensors[f"target/{name}"], tensors[f"network/{name}"])


@pytest.mark.parametrize(
    "changes",
    [
        {"returns": column(np.nan, 0)},
        {"returns": column(np.inf, 0)},
        {"observations": {"": column(1, np.inf)[:, None]}},
        # The loss is finite, 5e37; the norm of its gradient is not.
        {"observations": {"": column(1, 1e38)[:, None]}},
        {"weights": column(1.0, np.nan)},
    ],
)
def test_update_that_is_not_finite_changes_nothing(changes):
    algorithm = tiny()
    algorithm.update(two_rows())
    before = algorithm.state_dict()
    result = algorithm.update(two_rows(**changes))
    after = algorithm.state_dict()
    assert not result.finite and len(result.td_errors) == 2
    assert after.values == before.values
    for name, tensor in before.tensors.items():
        assert torch.equal(tensor, after.tensors[name]), name
    assert algorithm.update(two_rows()).finite


def random_sample(rng, fields=(), count=8):
    fields = fields or environment().observation

    def some(field):
        shape = (count, *field.shape)
        if field.kind == "box" and field.dtype != "|u1":
            return rng.standard_normal(shape).astype(np.float32)
        return rng.integers(2, 4, shape).astype(field.dtype)

    return Sample(
        indices=np.arange(count),
        weights=rng.random(count).astype(np.float32),
        observations={f.name: some(f) for f in fields},
        actions={"": rng.integers(0, 2, count)},
        returns=rng.standard_normal(count).astype(np.float32),
        discounts=rng.random(count).astype(np.float32),
        bootstrap_observations={f.name: some(f) for f in fields},
    )


def run(algorithm, updates, seed):
    rng = np.random.default_rng(seed)
    return [algorithm.update(random_sample(rng)).loss for _ in range(updates)]


def test_same_seed_gives_the_same_bits_and_another_does_not():
    losses = [run(build(environment(), spec()), 20, 0) for _ in range(2)]
    assert losses[0] == losses[1]
    other = spec().model_copy(update={"seed": 2})
    assert run(build(environment(), other), 20, 0) != losses[0]


def test_state_survives_safetensors_and_json_and_goes_on_to_the_bit():
    first = build(environment(), spec(targetUpdatePeriod=7))
    run(first, 10, 0)
    first.rng.random(3)
    state = first.state_dict()
    tensors = safetensors.torch.load(safetensors.torch.save(dict(state.tensors)))
    values = json.loads(json.dumps(state.values))
    expected = run(first, 10, 1), first.rng.random(5).tolist()
    second = build(environment(), spec(targetUpdatePeriod=7))
    second.load_state_dict(AlgorithmState(tensors, values))
    assert second.updates == 10
    assert (run(second, 10, 1), second.rng.random(5).tolist()) == expected
    # The state was a copy: what came after did not change it.
    assert torch.equal(tensors["network/head.bias"], state.tensors["network/head.bias"])


def test_state_of_another_network_is_refused():
    state = build(environment(), spec(network={"hidden": [8]})).state_dict()
    algorithm = build(environment(), spec(network={"hidden": [9]}))
    with pytest.raises(ValueError, match="network tensors: expected"):
        algorithm.load_state_dict(state)


def test_policy_tensors_are_copies_with_buffers():
    algorithm = build(environment(), spec(network={"observationScale": [0.5]}))
    tensors = algorithm.policy_tensors()
    before = tensors["head.bias"].copy()
    run(algorithm, 1, 0)
    assert np.array_equal(tensors["head.bias"], before)
    assert not np.array_equal(algorithm.policy_tensors()["head.bias"], before)
    assert tensors["encoder.scale"].tolist() == [0.5] * 4


def test_dict_observations_of_all_kinds_are_learnt_from():
    algorithm = build(environment(*DICT_OBSERVATION), spec(network={"dueling": True}))
    sample = random_sample(np.random.default_rng(0), DICT_OBSERVATION)
    losses = [algorithm.update(sample).loss for _ in range(60)]
    assert losses[-1] < losses[0] / 2


def test_continuous_actions_are_refused():
    with pytest.raises(UnsupportedSpace, match="one discrete action for dqn"):
        build(environment(action=box((2,))), spec())
