"""What each algorithm exports acts here, and its module agrees with the record."""

import hashlib
import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from learner.actor_graph import export_actor
from learner.algorithms import build
from producers.policy import Policy, open_graph
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from tests.unit.acting.policies import env_of, seen
from tests.unit.acting.scripted import ScriptedEnvironments, write_script
from tests.unit.acting.test_heads import actors
from tests.unit.envs.graphs import graph_record, version_record
from tests.unit.learner_specs import spec

DISCRETE, BOX = spaces.Discrete(3), spaces.Box(-2, 5, (2,), np.float32)
LSTM = {"lstm": 5}


def exported(name, action, network) -> tuple[Policy, torch.nn.Module]:
    env = env_of(seen(2), action)
    network = {"hidden": [16], "activation": "tanh"} | network
    wanted = spec({"nStep": 1}, algorithm=name, network=network)
    actor = build(env, wanted).actor()
    onnx = export_actor(actor).onnx
    record = graph_record(
        onnx,
        env,
        sha256=hashlib.sha256(onnx).hexdigest(),
        head=actor.head,
        exploration=actor.exploration,
        exploration_options=dict(actor.exploration_options),
        states=actor.states,
    )
    session = open_graph(record, env)
    tensors = dict(actor.module.named_parameters()) | dict(actor.module.named_buffers())
    arrays = {n: t.detach().numpy() for n, t in tensors.items()}
    version = version_record(record, 1, arrays)
    params = session.load(version, version.tensors)
    return Policy(session, version, version.tensors, params), actor.module


@pytest.mark.parametrize(
    ("name", "action", "network"),
    [
        ("dqn", DISCRETE, {}),
        ("r2d2", DISCRETE, LSTM),
        ("ppo", DISCRETE, {}),
        ("ppo", BOX, {}),
        ("ppo", DISCRETE, LSTM),
        ("impala", BOX, LSTM),
        ("sac", BOX, {}),
    ],
)
def test_the_network_agrees_with_what_is_recorded(name, action, network):
    policy, module = exported(name, action, network)
    script = write_script(9, 20, 4)
    environments = ScriptedEnvironments(script, action)
    actor = actors(policy, greedy=False, num_envs=4).make(policy)
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    rollout.collect(actor, 7)
    found = rollout.collect(actor, 13)
    states = {n: torch.from_numpy(s[0].copy()) for n, s in found.states.items()}
    behaviour = found.behaviour
    for t in range(14):
        observations = {"": torch.from_numpy(found.observations[""][t])}
        with torch.no_grad():
            outputs = module(observations, states)
        if "value" in outputs:
            value = outputs["value"].numpy()
            np.testing.assert_allclose(
                behaviour["value"][t], value, rtol=1e-4, atol=1e-5
            )
        if "q" in outputs:
            best = outputs["q"].numpy().max(1)
            np.testing.assert_allclose(
                behaviour["q_max"][t], best, rtol=1e-4, atol=1e-5
            )
        if t == 13:
            break
        if "logits" in outputs:
            logs = torch.log_softmax(outputs["logits"], 1).numpy()
            expected = logs[np.arange(4), found.actions[""][t]]
        elif "mean" in outputs:
            sample = torch.from_numpy(behaviour["sample"][t])
            z = (sample - outputs["mean"]) / outputs["log_std"].exp()
            each = -0.5 * z**2 - outputs["log_std"] - 0.5 * math.log(2 * math.pi)
            expected = each.sum(1).detach().numpy()
        else:
            expected = behaviour["log_prob"][t]
        np.testing.assert_allclose(
            behaviour["log_prob"][t], expected, rtol=1e-3, atol=1e-4
        )
        kept = torch.from_numpy(found.rows.valid[t].astype(np.float32))[:, None]
        states = {n: outputs["next_state/" + n] * kept for n in states}
    of_value = {"value_h", "value_c"} if "value" in outputs else set()
    assert set(found.states) == ({"h", "c"} | of_value if network else set())
