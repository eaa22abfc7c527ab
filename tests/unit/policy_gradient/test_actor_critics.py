"""PPO and IMPALA alike: states, what is not finite, what is not valid, all spaces."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.torch
import torch

from learner.algorithms import build
from learner.algorithms.actor_critic import NoBehaviour
from learner.algorithms.base import AlgorithmState
from learner.networks import UnsupportedSpace
from schemas.records import EnvDescription
from tests.unit.learner_specs import box, discrete, environment, spec
from tests.unit.policy_gradient.some_sequences import sequences

SMALL = {"ppo": {"epochs": 2, "minibatchSize": 16}, "impala": {}}
ACTIONS = [discrete(3, start=2), box((2,)), box(())]
each = pytest.mark.parametrize("algorithm", ["ppo", "impala"])
each_action = pytest.mark.parametrize("action", ACTIONS, ids=["discrete", "box", "()"])
each_core = pytest.mark.parametrize("lstm", [0, 8])


def make(algorithm, action=ACTIONS[0], lstm=0, seed=None, **more):
    network = {"hidden": [16], "lstm": lstm}
    part = {algorithm: SMALL[algorithm]} | more
    made = spec(
        {"nStep": 1, "gamma": 0.9}, algorithm=algorithm, network=network, **part
    )
    if seed is not None:
        made = made.model_copy(update={"seed": seed})
    return build(environment(action=action), made)


def some(seed, action=ACTIONS[0], lstm=0, **more):
    return sequences(seed, action=action, lstm=lstm, **more)


def flat(algorithm):
    return np.concatenate([t.ravel() for t in algorithm.policy_tensors().values()])


def updated(algorithm, *all_sequences):
    results = [algorithm.update(s) for s in all_sequences]
    assert all(r.finite and r.td_errors is None for r in results)
    return results


def changed(found, *, only_where, **fields):
    """Sequences with other numbers in some rows; ``only_where``: [L, N] bool."""
    columns = {}
    for name, value in fields.items():
        columns[name] = np.where(only_where, value, getattr(found, name))
    return dataclasses.replace(found, **columns)


@each
@each_action
@each_core
def test_state_goes_on_to_the_bit(algorithm, action, lstm):
    first = make(algorithm, action, lstm)
    updated(first, *(some(i, action, lstm) for i in range(3)))
    state = first.state_dict()
    tensors = safetensors.torch.load(safetensors.torch.save(dict(state.tensors)))
    values = json.loads(json.dumps(state.values))
    expected = updated(first, some(3, action, lstm), some(4, action, lstm))
    second = make(algorithm, action, lstm, seed=9)
    second.load_state_dict(AlgorithmState(tensors, values))
    assert updated(second, some(3, action, lstm), some(4, action, lstm)) == expected
    assert np.array_equal(flat(first), flat(second)) and second.updates == 5
    assert first.rng.bit_generator.state == second.rng.bit_generator.state


@each
def test_same_seed_gives_the_same_bits_and_another_does_not(algorithm):
    one, same, other = (make(algorithm, seed=seed) for seed in (1, 1, 2))
    for made in (one, same, other):
        updated(made, some(0), some(1))
    assert np.array_equal(flat(one), flat(same))
    assert not np.array_equal(flat(one), flat(other))


@each
@each_core
@pytest.mark.parametrize("field", ["returns", "discounts"])
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_update_that_is_not_finite_changes_nothing(algorithm, lstm, field, number):
    made = make(algorithm, lstm=lstm)
    updated(made, some(0, lstm=lstm))
    before, good = made.state_dict(), some(1, lstm=lstm)
    where = np.zeros_like(good.valid)
    where[tuple(np.argwhere(good.valid)[-1])] = True
    bad = changed(good, only_where=where, **{field: np.float32(number)})
    result, after = made.update(bad), made.state_dict()
    assert not result.finite and after.values == before.values
    for name, tensor in before.tensors.items():
        assert torch.equal(tensor, after.tensors[name]), name
    updated(made, good)


@each
@each_core
def test_rows_that_are_not_valid_change_nothing(algorithm, lstm):
    expected = make(algorithm, lstm=lstm)
    (wanted,) = updated(expected, some(0, lstm=lstm))
    good = some(0, lstm=lstm)
    wrong = changed(
        good, only_where=~good.valid, returns=np.float32(np.nan), discounts=np.inf
    )
    wrong.behaviour["log_prob"][~good.valid] = np.nan
    # An observation counts where a row acts in it, or the one before bootstraps.
    unseen = np.ones(wrong.observations[""].shape[:2], bool)
    unseen[:-1] &= ~good.valid
    unseen[1:] &= ~(good.valid & (good.discounts != 0))
    wrong.observations[""][unseen] = np.nan
    found = make(algorithm, lstm=lstm)
    wrong = dataclasses.replace(wrong, discounts=wrong.discounts.astype(np.float32))
    (result,) = updated(found, wrong)
    # With a core the state of a row behind a reset is zero: what was met is forgotten.
    assert result.loss == pytest.approx(wanted.loss, rel=1e-5)
    assert np.allclose(flat(found), flat(expected), atol=1e-6)


@each
@each_core
def test_longer_by_rows_that_are_not_valid(algorithm, lstm):
    good = some(0, lstm=lstm)
    pad = {"observations": 0.0, "actions": 2, "behaviour": 0.0}

    def longer(array, value):
        return np.concatenate([array, np.full_like(array[:2], value)])

    padded = dataclasses.replace(
        good,
        **{n: {k: longer(a, v) for k, a in getattr(good, n).items()}
           for n, v in pad.items()},
        returns=longer(good.returns, 5.0),
        discounts=longer(good.discounts, 0.5),
        bootstrap_steps=longer(good.bootstrap_steps, 1),
        valid=longer(good.valid, False),
    )  # fmt: skip
    results, parameters = [], []
    for batch in (good, padded):
        made = make(algorithm, lstm=lstm)
        results += updated(made, batch)
        parameters.append(flat(made))
    assert results[1].loss == pytest.approx(results[0].loss, rel=1e-5)
    assert np.allclose(*parameters, atol=1e-6)


def test_the_order_of_environments_does_not_matter_to_impala():
    good, order = some(0), np.array([3, 1, 0, 5, 4, 2])
    mixed = dataclasses.replace(
        good,
        **{
            name: {k: a[:, order] for k, a in getattr(good, name).items()}
            for name in ("observations", "actions", "behaviour")
        },
        **{n: getattr(good, n)[:, order] for n in ("returns", "discounts", "valid")},
    )
    parameters = []
    for batch in (good, mixed):
        made = make("impala")
        updated(made, batch)
        parameters.append(flat(made))
    assert np.allclose(*parameters, atol=1e-6)


@each
def test_actor_tells_workers_how_to_act(algorithm):
    actor = make(algorithm, lstm=8).actor()
    assert (actor.head, actor.exploration) == ("categorical", "sample")
    assert [field.name for field in actor.states] == ["h", "c", "value_h", "value_c"]
    actor = make(algorithm, action=box((2,))).actor()
    assert (actor.head, actor.exploration_options) == ("gaussian", {"squashed": 0.0})
    assert actor.states == ()


@each
def test_step_size_falls_to_nothing(algorithm):
    made = make(algorithm, learningRateDecayUpdates=2)
    updated(made, some(0), some(1))
    before = flat(made)
    updated(made, some(2))
    assert np.array_equal(before, flat(made)) and made.updates == 3


@each
def test_experience_without_probabilities_is_refused(algorithm):
    unknown = dataclasses.replace(some(0), behaviour={"q_taken": some(0).returns})
    with pytest.raises(NoBehaviour, match="expected log_prob, found q_taken"):
        make(algorithm).update(unknown)


@each
def test_two_action_fields_are_refused(algorithm):
    action = (discrete(2, name="a"), discrete(2, name="b"))
    env = EnvDescription("Test-v0", (box(),), action, None, "sync", {})
    made = spec({"nStep": 1}, algorithm=algorithm)
    with pytest.raises(UnsupportedSpace, match="one discrete action or one box"):
        build(env, made)
