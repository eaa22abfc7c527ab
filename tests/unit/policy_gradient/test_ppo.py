"""What only PPO does: minibatches, and to stop early."""

import numpy as np
import pytest
import torch

from learner.algorithms.actor_critic import open_rollout
from learner.policy_heads import policy_head
from tests.unit.learner_specs import discrete
from tests.unit.policy_gradient.some_sequences import sequences
from tests.unit.policy_gradient.test_actor_critics import flat, make, updated

ACTION = discrete(3, start=2)


def of_its_own(algorithm, found):
    """The same sequences, as if the policy itself had acted."""
    head, module = policy_head(ACTION), algorithm.actor().module
    observations = {"": torch.from_numpy(found.observations[""])}
    with torch.no_grad():
        outputs = module.unroll(observations, {}, torch.from_numpy(found.valid))
        outputs = {name: output[:-1] for name, output in outputs.items()}
        log_probs = head.log_prob(outputs, torch.from_numpy(found.actions[""]))
    found.behaviour["log_prob"] = log_probs.numpy()
    return found


@pytest.mark.parametrize(("lstm", "size"), [(0, 10), (0, 1000), (8, 10), (8, 1)])
def test_in_each_epoch_each_valid_row_comes_once(lstm, size):
    algorithm = make(
        "ppo", lstm=lstm, ppo={"epochs": 2, "minibatchSize": size}
    )  # fmt: skip
    found = sequences(0, action=ACTION, lstm=lstm)
    rollout = open_rollout(found, policy_head(ACTION), torch.device("cpu"))
    parts = [rows.tolist() for rows, _ in algorithm._minibatches(rollout)]
    half = len(parts) // 2
    expected = np.flatnonzero(found.valid).tolist()
    for epoch in (parts[:half], parts[half:]):
        assert sorted(row for rows in epoch for row in rows) == expected
    if size != 1000:
        assert parts[:half] != parts[half:]
    envs = found.valid.shape[1]
    if lstm:
        assert half == min(envs, round(len(expected) / size))
        for rows in parts:  # whole sequences
            own = [r for r in expected if r % envs in {row % envs for row in rows}]
            assert sorted(rows) == own
    else:
        assert half == max(1, round(len(expected) / size))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_stops_before_the_step_behind_which_policies_would_be_too_far_apart():
    settings = {"epochs": 50, "minibatchSize": 1000, "targetKl": 1e-3}
    algorithm = make("ppo", ppo=settings, learningRate=0.01)
    steps, descend = [], algorithm._descend
    algorithm._descend = lambda loss: steps.append(descend(loss)) or steps[-1]
    (result,) = updated(
        algorithm, of_its_own(algorithm, sequences(0, action=ACTION))
    )  # fmt: skip
    assert 1 <= len(steps) < 50
    assert result.figures["early_stops"] == 1 and algorithm.updates == 1
    # What other policies did long ago is too far from the start: no step is made.
    before = flat(algorithm)
    (result,) = updated(algorithm, sequences(1, action=ACTION))
    assert np.array_equal(flat(algorithm), before)
    assert result.figures["early_stops"] == 1
    algorithm = make("ppo")
    (result,) = updated(algorithm, sequences(1, action=ACTION))
    assert result.figures["early_stops"] == 0


def test_ratios_begin_at_1_where_the_policy_itself_acted():
    algorithm = make("ppo", ppo={"epochs": 1, "minibatchSize": 1000})
    (result,) = updated(algorithm, of_its_own(algorithm, sequences(0, action=ACTION)))
    assert result.figures["kl"] == pytest.approx(0, abs=1e-6)
    assert result.figures["clip_fraction"] == 0


def test_values_may_be_kept_near_those_before():
    found, moved = sequences(0, action=ACTION), []
    for clip in (0.0, 1e-6):
        settings = {"epochs": 1, "minibatchSize": 8, "valueClip": clip}
        algorithm = make("ppo", ppo=settings, learningRate=0.05)
        updated(algorithm, found)
        moved.append(flat(algorithm))
    assert not np.array_equal(*moved)


def test_a_step_that_fails_undoes_those_before_it():
    algorithm = make("ppo")
    updated(algorithm, sequences(0, action=ACTION))
    before, steps, descend = algorithm.state_dict(), [], algorithm._descend

    def fail_at_the_third(loss):
        steps.append(descend(loss))
        return steps[-1] if len(steps) < 3 else float("nan")

    algorithm._descend = fail_at_the_third
    assert not algorithm.update(sequences(1, action=ACTION)).finite
    assert len(steps) == 3
    after = algorithm.state_dict()
    assert after.values == before.values
    for name, tensor in before.tensors.items():
        assert torch.equal(tensor, after.tensors[name]), name
