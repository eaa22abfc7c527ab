from dataclasses import replace

import numpy as np
import pytest
import torch

from learner.algorithms import build
from learner.algorithms.r2d2 import R2d2
from learner.experience import make_experience
from learner.networks import UnsupportedSpace
from learner.sample import Sequences
from learner.sequence_buffer import SequenceBuffer
from tests.unit.learner_specs import box, discrete, environment, spec

ENV = environment(box((3,)), action=discrete(2, start=5))


def made(burn_in=2, length=4, env=ENV, **changes):
    values = {
        "algorithm": "r2d2",
        "network": {"hidden": [8], "lstm": 6},
        "r2d2": {"burnIn": burn_in, "sequenceLength": length, "rescaleValues": False},
        "device": "cpu",
    }
    return R2d2(env, spec(**values | changes))


def sequences(length=6, count=3, seed=0, **changes):
    """Sequences whose rows are all valid, n = 1."""
    rng = np.random.default_rng(seed)
    rows = (length, count)
    values = {
        "indices": np.arange(count),
        "weights": np.ones(count, np.float32),
        "observations": {"": rng.normal(size=(length + 1, count, 3)).astype("<f4")},
        "actions": {"": rng.integers(5, 7, rows)},
        "returns": rng.normal(size=rows).astype("<f4"),
        "discounts": np.full(rows, 0.9, np.float32),
        "bootstrap_steps": np.ones(rows, np.int32),
        "valid": np.ones(rows, bool),
        "states": {n: rng.normal(size=(count, 6)).astype("<f4") for n in "hc"},
        "behaviour": {},
    }
    return Sequences(**values | changes)


def slow_q(network, sample):
    """One environment and one step at a time: q [L+1, N, A]."""
    length, count = sample.valid.shape
    found = np.zeros((length + 1, count, 2))
    for n in range(count):
        states = {k: torch.tensor(v[n : n + 1]) for k, v in sample.states.items()}
        for t in range(length + 1):
            seen = {"": torch.tensor(sample.observations[""][t, n : n + 1])}
            with torch.no_grad():
                outputs = network(seen, states)
            found[t, n] = outputs["q"][0].numpy()
            states = {k: outputs["next_state/" + k] for k in states}
            if t < length and not sample.valid[t, n]:
                states = {k: torch.zeros_like(v) for k, v in states.items()}
    return found


def slow_errors(q, q_target, sample, burn_in):
    """|δ| of the rows that are learnt from, by sequence."""
    length, count = sample.valid.shape
    found = [[] for _ in range(count)]
    for n in range(count):
        for t in range(burn_in, length):
            after = t + sample.bootstrap_steps[t, n]
            if not sample.valid[t, n] or after > length:
                continue
            best = q[after, n].argmax()
            target = sample.returns[t, n]
            target += sample.discounts[t, n] * q_target[after, n, best]
            found[n].append(abs(q[t, n, sample.actions[""][t, n] - 5] - target))
    return found


def with_resets(sample, seed=1):
    """The same with rows that are no transitions, and targets that end before them."""
    rng = np.random.default_rng(seed)
    valid = rng.random(sample.valid.shape) < 0.7
    steps = np.where(valid, 1, 0).astype(np.int32)
    return replace(sample, valid=valid, bootstrap_steps=steps)


@pytest.mark.parametrize("burn_in", [0, 1, 3])
def test_priorities_are_of_the_errors_that_a_slow_walk_finds(burn_in):
    algorithm = made(burn_in, 6 - burn_in)
    with torch.no_grad():  # or online and target network are the same
        for parameter in algorithm._target.parameters():
            parameter.mul_(1.3)
    sample = with_resets(sequences())
    errors = slow_errors(
        slow_q(algorithm._network, sample),
        slow_q(algorithm._target, sample),
        sample,
        burn_in,
    )
    expected = [0.9 * max(e) + 0.1 * np.mean(e) for e in errors]
    result = algorithm.update(sample)
    assert result.finite and result.td_errors == pytest.approx(expected, rel=1e-4)
    rows = [e**2 / 2 if e < 1 else e - 0.5 for each in errors for e in each]
    assert result.loss == pytest.approx(np.mean(rows), rel=1e-4)


def test_burn_in_moves_the_state_but_has_no_gradient():
    algorithm, sample = made(), sequences()
    observations = {"": torch.tensor(sample.observations[""], requires_grad=True)}
    states = {n: torch.tensor(s, requires_grad=True) for n, s in sample.states.items()}
    valid = torch.tensor(sample.valid)
    q = algorithm._q_behind(observations, states, valid)
    assert q.shape == (5, 3, 2)
    assert q.detach().numpy() == pytest.approx(
        slow_q(algorithm._network, sample)[2:], rel=1e-4, abs=1e-6
    )
    q.sum().backward()
    gradient = observations[""].grad.abs().sum((1, 2))
    assert (gradient[:2] == 0).all() and (gradient[2:] > 0).all()
    assert states["h"].grad is None


def test_without_burn_in_nothing_is_learnt_through_the_stored_state():
    sample = sequences()
    first = made(0, 6).update(sample)
    moved = {name: state + 1 for name, state in sample.states.items()}
    other = made(0, 6).update(replace(sample, states=moved))
    assert first.loss != other.loss  # but it matters


def test_target_is_of_the_target_network_at_the_online_one_s_choice():
    sample = sequences(length=1, count=1)
    algorithm = made(0, 1)
    with torch.no_grad():
        algorithm._target.head.bias.add_(torch.tensor([10.0, 20.0]))
    online = slow_q(algorithm._network, sample)[:, 0]
    target = slow_q(algorithm._target, sample)[1, 0, online[1].argmax()]
    taken = online[0, sample.actions[""][0, 0] - 5]
    expected = abs(taken - (sample.returns[0, 0] + np.float32(0.9) * target))
    assert algorithm.update(sample).td_errors == pytest.approx([expected], rel=1e-5)


def test_rows_of_a_sequence_are_weighted_alike():
    sample = sequences()
    plain = made().update(sample)
    half = made().update(replace(sample, weights=np.full(3, 0.5, np.float32)))
    assert half.loss == pytest.approx(plain.loss / 2)
    assert half.td_errors == pytest.approx(plain.td_errors)


def test_what_fills_up_a_short_sequence_changes_nothing():
    sample = sequences(count=1)
    valid = np.array([1, 1, 1, 1, 0, 0], bool)[:, None]
    short = replace(sample, valid=valid, bootstrap_steps=valid.astype(np.int32))
    noise = {"": sample.observations[""].copy()}
    noise[""][5:] = 1e6
    others = replace(short, observations=noise, returns=short.returns + 9e9 * ~valid)
    one, other = made(), made()
    assert one.update(short).loss == pytest.approx(other.update(others).loss)
    for name, tensor in one.policy_tensors().items():
        assert tensor == pytest.approx(other.policy_tensors()[name], abs=1e-6), name


def test_loss_that_is_not_finite_changes_nothing():
    algorithm, sample = made(), sequences()
    before = algorithm.policy_tensors()
    returns = np.full_like(sample.returns, np.inf)
    result = algorithm.update(replace(sample, returns=returns))
    assert not result.finite and algorithm.updates == 0
    for name, tensor in algorithm.policy_tensors().items():
        assert np.array_equal(tensor, before[name])


def test_target_network_is_copied_by_period():
    algorithm = made(targetUpdatePeriod=2)
    before = {k: v.clone() for k, v in algorithm._target.state_dict().items()}
    algorithm.update(sequences())
    for name, tensor in algorithm._target.state_dict().items():
        assert torch.equal(tensor, before[name])
    algorithm.update(sequences())
    for name, tensor in algorithm._target.state_dict().items():
        assert torch.equal(tensor, algorithm._network.state_dict()[name])


def test_restored_algorithm_goes_on_bit_for_bit():
    one, other = made(), made(learningRate=1e-3)
    for seed in range(3):
        one.update(sequences(seed=seed))
    one.rng.random(5)
    other.load_state_dict(one.state_dict())
    assert other.updates == 3 and other.rng.random() == one.rng.random()
    results = [each.update(sequences(seed=9)) for each in (one, other)]
    assert results[0].loss == results[1].loss
    for name, tensor in one.policy_tensors().items():
        assert np.array_equal(tensor, other.policy_tensors()[name])


def test_learns_the_return_of_a_bandit():
    algorithm = made(0, 6, learningRate=0.03)
    rows = sequences(discounts=np.zeros((6, 3), np.float32))
    returns = (rows.actions[""] - 5).astype(np.float32)
    losses = [algorithm.update(replace(rows, returns=returns)).loss for _ in range(100)]
    assert losses[0] > 0.05 and losses[-1] < 1e-3


def test_actor_has_the_state_of_its_network():
    actor = made().actor()
    assert (actor.head, actor.exploration) == ("q", "epsilon_ladder")
    assert [(f.name, f.shape) for f in actor.states] == [("h", (6,)), ("c", (6,))]


def test_it_is_built_by_name_and_given_sequences():
    told = spec(
        algorithm="r2d2",
        network={"hidden": [8], "lstm": 6},
        r2d2={"burnIn": 2, "sequenceLength": 4},
        replay={"capacity": 100, "minSize": 1},
        batchSize=8,
    )
    algorithm = build(ENV, told)
    assert algorithm.learns_from == "sequences" and algorithm.sequence_length == 6
    experience = make_experience(
        algorithm, ENV, told, told.learner.replay, unroll_length=3
    )
    assert isinstance(experience, SequenceBuffer)


def test_continuous_actions_are_refused():
    with pytest.raises(UnsupportedSpace, match="r2d2"):
        made(env=environment(box((3,)), action=box((2,))))
