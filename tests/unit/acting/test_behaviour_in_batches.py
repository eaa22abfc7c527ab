"""Records of each head -> batches: what processors make of it, and what they leave."""

from dataclasses import replace

import numpy as np
import pytest
from gymnasium import spaces

from producers.gaussian_actor import GaussianActor
from producers.packing import Packing
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import encode_unrolls
from schemas.codec import decode, encode
from schemas.records import TransitionBatch, Unroll
from schemas.sizes import longest_unroll
from schemas.tensors import pack
from stream_processors.tails import ReturnOptions, Tails
from tests.unit.acting.policies import echoing
from tests.unit.acting.scripted import Script, ScriptedEnvironments, write_script
from tests.unit.acting.test_recurrent_acting import HEADS, VALUE, actor_of, lstm_like
from tests.unit.test_rollout import TEMPLATE

ONE_STEP = ReturnOptions(1, 0.9, 0.5, 0.25)


def unroll_of(head, steps=12):
    script = write_script(3, steps, 3)
    environments = ScriptedEnvironments(script, HEADS[head][0])
    actor = actor_of(lstm_like(head, 1), 3)
    arrays = Rollout(environments, StreamSeeds(0, 0, 0)).collect(actor, steps)
    (part,) = encode_unrolls(arrays, TEMPLATE, Packing())
    return decode(part.value, Unroll)


def batch_of(unroll):
    (emitted,) = Tails("trajectories", 0, ONE_STEP).feed(1, unroll)
    return decode(encode(emitted.batch), TransitionBatch)


@pytest.mark.parametrize("head", sorted(HEADS))
def test_states_and_behaviour_pass_byte_for_byte(head):
    unroll = unroll_of(head)
    batch = batch_of(unroll)
    assert batch.states == unroll.states and batch.states.keys() == {"h", "c"}
    assert batch.behaviour == unroll.behaviour
    assert ("sample" in batch.behaviour) == (head == "gaussian")


@pytest.mark.parametrize("head", sorted(HEADS))
def test_first_priorities_are_td_errors_of_what_the_behaviour_expected(head):
    """|r/2 + 0.9 V' - V| + 1/4, row by row; V is q_taken where there is one."""
    unroll = unroll_of(head)
    found = batch_of(unroll).priorities.array()
    values = unroll.behaviour[VALUE[head]].array()
    taken = unroll.behaviour.get("q_taken", unroll.behaviour[VALUE[head]]).array()
    valid, rewards = unroll.valid.array(), unroll.rewards.array()
    for t, env in np.ndindex(valid.shape):
        if not valid[t, env]:
            assert np.isnan(found[t, env])
            continue
        discount = 0 if unroll.terminated.array()[t, env] else 0.9
        error = rewards[t, env] / 2 + discount * values[t + 1, env] - taken[t, env]
        assert found[t, env] == pytest.approx(abs(error) + 0.25, rel=1e-4)


def test_without_a_value_there_are_no_priorities():
    action = spaces.Box(-1, 1, (1,))
    policy = echoing("gaussian", {"mean": [0], "log_std": [1]}, action)
    environments = ScriptedEnvironments(write_script(0, 4, 3), action)
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    arrays = rollout.collect(GaussianActor(policy, 3), 4)
    (part,) = encode_unrolls(arrays, TEMPLATE, Packing())
    batch = batch_of(decode(part.value, Unroll))
    assert np.isnan(batch.priorities.array()).all()
    assert batch.behaviour.keys() == {"log_prob", "sample"}


def test_rows_whose_value_is_no_number_have_no_priority():
    unroll = unroll_of("categorical")
    values = unroll.behaviour["value"].array().copy()
    values[5, 1] = np.nan
    before = batch_of(unroll).priorities.array()
    odd = replace(unroll, behaviour={**unroll.behaviour, "value": pack(values)})
    found = batch_of(odd).priorities.array()
    changed = {(5, 1)} | ({(4, 1)} if not unroll.terminated.array()[4, 1] else set())
    for place in np.ndindex(found.shape):
        same = np.array_equal(found[place], before[place], equal_nan=True)
        assert same or (place in changed and np.isnan(found[place]))
    assert np.isnan(found[5, 1])


def test_the_longest_unroll_of_samples_fits_its_topics():
    """16 coordinates are acted, and as many sampled, which nothing compresses."""
    wide, num_envs = 16, 4096
    action = spaces.Box(-1, 1, (wide,))
    outputs = {"mean": [0] * wide, "log_std": [0] * wide, "value": 0}
    policy = echoing("gaussian", outputs, action)
    graph = policy.session.graph
    steps = longest_unroll(graph.observation, graph.action, num_envs)
    script = write_script(0, 1, 1, width=1, luck=1.0)
    quiet = {
        name: np.zeros((steps, num_envs), column.dtype)
        for name, column in vars(script).items()
    }
    observations = np.zeros((steps + 1, num_envs, 1), np.float32)
    quiet["observations"], quiet["valid"] = observations, ~quiet["failed"]
    environments = ScriptedEnvironments(Script(**quiet), action)
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    arrays = rollout.collect(GaussianActor(policy, num_envs), steps)
    (part,) = encode_unrolls(arrays, TEMPLATE, Packing())
    assert part.num_steps == steps > 5
