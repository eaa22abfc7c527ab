"""The recurrent state in consecutive records chains exactly, whatever happens."""

import math

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from producers import unrolls
from producers.categorical_actor import CategoricalActor
from producers.gaussian_actor import GaussianActor
from producers.packing import Packing
from producers.policy import Policy
from producers.q_actor import QActor
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.unrolls import encode_unrolls
from schemas.codec import decode
from schemas.records import PolicyRef, SpaceField, Unroll
from tests.unit.acting.policies import env_of, policy_of, seen
from tests.unit.acting.scripted import ScriptedEnvironments, write_script
from tests.unit.envs.graphs import graph_record, recurrent
from tests.unit.test_rollout import TEMPLATE

HEADS = {
    "q": (spaces.Discrete(2), {"q": 2}, "epsilon_ladder"),
    "categorical": (spaces.Discrete(2), {"logits": 2, "value": 0}, "sample"),
    "gaussian": (
        spaces.Box(-1, 1, (1,)),
        {"mean": 1, "log_std": 1, "value": 0},
        "sample",
    ),
}
VALUE = {"q": "q_max", "categorical": "value", "gaussian": "value"}


def lstm_like(head: str, version: int, width: int = 3) -> Policy:
    """Versions have weights of their own."""
    action, outputs, exploration = HEADS[head]
    env = env_of(seen(2), action)
    states = tuple(SpaceField(name, "box", "<f4", (width,)) for name in "hc")
    onnx = recurrent(2, width, outputs)
    graph = graph_record(
        onnx, env, head=head, exploration=exploration, states=states,
        exploration_options={"epsilon": 0.5} if head == "q" else {},
    )  # fmt: skip
    rng = np.random.default_rng(version)
    arrays = {"wc": rng.normal(size=(2, width)), "wh": rng.normal(size=(width, width))}
    for name, size in outputs.items():
        arrays[f"w_{name}"] = rng.normal(size=(width, size) if size else width)
    arrays = {name: array.astype(np.float32) for name, array in arrays.items()}
    return policy_of(graph, env, arrays, version)


def actor_of(policy: Policy, num_envs: int):
    head = policy.session.graph.head
    if head == "q":
        return QActor(policy, num_envs, np.full(num_envs, 0.5))
    make = CategoricalActor if head == "categorical" else GaussianActor
    return make(policy, num_envs)


def collect(script, head, plan):
    """Return the records of unrolls of (version, steps) each, and the policies."""
    environments = ScriptedEnvironments(script, HEADS[head][0])
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    policies = {version: lstm_like(head, version) for version, _ in plan}
    records, actor = [], None
    for version, steps in plan:
        if actor is None or actor.ref.version != version:
            before, actor = actor, actor_of(policies[version], environments.num_envs)
            if before is not None:
                actor.memory.take_over(before.memory)
        arrays = rollout.collect(actor, steps)
        for part in encode_unrolls(arrays, TEMPLATE, Packing()):
            records.append(decode(part.value, Unroll))
    return records, policies


def opened(tensors):
    return {name: tensor.array() for name, tensor in tensors.items()}


def by_hand(policy, obs, h, c):
    """One step of one environment in plain floats: h', c' and the value."""
    p = {name.removeprefix("param/"): a.tolist() for name, a in policy.params.items()}
    wide = range(len(h))
    c = [c[j] / 2 + sum(x * p["wc"][i][j] for i, x in enumerate(obs)) for j in wide]
    h = [math.tanh(c[j] + sum(h[i] * p["wh"][i][j] for i in wide)) for j in wide]
    if "w_q" in p:
        value = max(sum(h[i] * p["w_q"][i][a] for i in wide) for a in range(2))
    else:
        value = sum(h[i] * p["w_value"][i] for i in wide)
    return h, c, value


PLANS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 6)), min_size=1, max_size=6
)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), PLANS, st.sampled_from(sorted(HEADS)))
def test_states_and_values_are_those_of_a_slow_walk_over_the_log(seed, plan, head):
    """It knows only observations, validity and who acted: nothing of unrolls."""
    num_envs, total = 3, sum(steps for _, steps in plan)
    script = write_script(seed, total, num_envs)
    records, policies = collect(script, head, plan)
    assert sum(record.num_steps for record in records) == total
    for env in range(num_envs):
        h = c = [0.0] * 3
        t = 0
        for record in records:
            states = opened(record.states)
            np.testing.assert_allclose(states["h"][env], h, atol=1e-5)
            np.testing.assert_allclose(states["c"][env], c, atol=1e-5)
            values = record.behaviour[VALUE[head]].array()[:, env]
            policy = policies[record.policy.version]
            for k in range(record.num_steps):
                obs = script.observations[t, env].tolist()
                h, c, value = by_hand(policy, obs, h, c)
                assert values[k] == pytest.approx(value, abs=1e-4)
                if not script.valid[t, env]:
                    h = c = [0.0] * 3
                t += 1
            # What is seen last is judged by the same policy, and seen again.
            obs = script.observations[t, env].tolist()
            last = by_hand(policy, obs, h, c)[2]
            assert values[record.num_steps] == pytest.approx(last, abs=1e-4)


@pytest.mark.parametrize("head", sorted(HEADS))
@pytest.mark.parametrize("is_cut", [False, True])
def test_states_chain_bit_for_bit_from_record_to_record(head, is_cut, monkeypatch):
    """Who runs the graph again from a record's states comes to those of the next."""
    if is_cut:
        monkeypatch.setattr(unrolls, "fits_record", lambda size, rows: rows <= 4 * 3)
    plan = [(1, 8), (1, 5), (2, 8), (2, 1), (1, 8), (3, 7)]
    script = write_script(7, 37, 4)
    records, policies = collect(script, head, plan)
    assert len(records) == (len(plan) if not is_cut else 18)
    expected = {name: np.zeros((4, 3), np.float32) for name in "hc"}
    for record in records:
        states = opened(record.states)
        for name, state in expected.items():
            assert states[name].tobytes() == state.tobytes()
        observations, valid = record.observations[""].array(), record.valid.array()
        for t in range(record.num_steps):
            policy = policies[record.policy.version]
            found = policy.run({"": observations[t]}, states, None)
            zeros = np.zeros((4, 3), np.float32)
            states = {
                name: np.where(valid[t][:, None], found["next_state/" + name], zeros)
                for name in "hc"
            }
        expected = states
    assert any(state.any() for state in expected.values())


def test_what_is_recorded_is_all_that_happened():
    """The script holds every kind of end, and records have them where it says."""
    script = write_script(7, 37, 4)
    records, _ = collect(script, "q", [(1, 37)])
    np.testing.assert_array_equal(records[0].valid.array(), script.valid)
    kinds = (script.terminated, script.truncated, script.failed, ~script.valid)
    assert all(kind.sum() >= 3 for kind in kinds)


def test_a_policy_of_other_states_begins_with_none():
    script = write_script(1, 8, 2, luck=1.0)
    environments = ScriptedEnvironments(script, HEADS["q"][0])
    rollout = Rollout(environments, StreamSeeds(0, 0, 0))
    narrow, wide = actor_of(lstm_like("q", 1), 2), actor_of(lstm_like("q", 2, 5), 2)
    rollout.collect(narrow, 4)
    wide.memory.take_over(narrow.memory)
    states = rollout.collect(wide, 4).states
    assert states["h"].shape == (5, 2, 5) and not states["h"][0].any()
    assert states["h"][1].any()


def test_a_new_incarnation_begins_with_no_states():
    script = write_script(1, 8, 2, luck=1.0)
    policy = lstm_like("categorical", 1)
    for _ in range(2):
        environments = ScriptedEnvironments(script, HEADS["categorical"][0])
        rollout = Rollout(environments, StreamSeeds(0, 0, 0))
        arrays = rollout.collect(actor_of(policy, 2), 4)
        assert not arrays.states["h"][0].any() and arrays.states["h"][4].any()


def test_a_record_has_the_states_of_its_first_row_alone():
    records, _ = collect(write_script(1, 8, 2), "q", [(4, 8)])
    assert {n: t.shape for n, t in records[0].states.items()} == {
        "h": (2, 3),
        "c": (2, 3),
    }
    assert records[0].policy == PolicyRef(0, 4)
