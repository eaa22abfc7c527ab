"""Which graphs may act, by what they answer; and which versions of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from gymnasium import spaces

from producers.actors import Actors
from producers.categorical_actor import CategoricalActor
from producers.gaussian_actor import GaussianActor
from producers.policy import PolicyRefused, open_graph
from producers.policy_feed import PolicyFeed
from producers.q_actor import QActor
from schemas.records import PolicyRef, SpaceField
from tests.unit.acting.policies import echoing, env_of, seen
from tests.unit.envs.graphs import (
    RUN_ID,
    graph_record,
    linear_q,
    recurrent,
    version_record,
)
from tests.unit.learner_specs import spec

DISCRETE = spaces.Discrete(2)
BOX = spaces.Box(-1, 1, (2,))
Q = ("q", "epsilon_ladder", {"q": [0, 1]})
CATEGORICAL = ("categorical", "sample", {"logits": [0, 1], "value": 2})
GAUSSIAN = ("gaussian", "sample", {"mean": [0, 1], "log_std": [2, 3]})


def refusal(action, head, exploration, outputs, **options):
    with pytest.raises(PolicyRefused) as caught:
        echoing(head, outputs, action, exploration=exploration, options=options)
    return str(caught.value)


@pytest.mark.parametrize(
    ("action", "head", "message"),
    [
        (BOX, Q, "expected one discrete with the head q, found ['box']"),
        (BOX, CATEGORICAL, "expected one discrete with the head categorical"),
        (DISCRETE, GAUSSIAN, "expected one box with the head gaussian"),
        (
            spaces.Dict({"a": DISCRETE, "b": DISCRETE}),
            Q,
            "found ['discrete', 'discrete']",
        ),
        (spaces.Box(0, 9, (2,), np.int64), GAUSSIAN, "a box of floats"),
        (DISCRETE, ("q", "sample", {"q": [0, 1]}), "exploration: expected"),
        (BOX, ("gaussian", "epsilon_ladder", GAUSSIAN[2]), "exploration: expected"),
        (DISCRETE, ("q", "none", {"q": [0, 1, 2]}), "q: expected [batch, *[2]]"),
        (DISCRETE, ("q", "none", {"q": 0}), "q: expected [batch, *[2]]"),
        (
            DISCRETE,
            ("categorical", "none", {"logits": [0, 1]}),
            "expected the outputs ['value']",
        ),
        (
            DISCRETE,
            ("categorical", "none", {"logits": [0, 1], "value": [2]}),
            "value: expected [batch, *[]], found ['batch', 1]",
        ),
        (
            BOX,
            ("gaussian", "none", {"mean": [0, 1], "log_std": [1]}),
            "log_std: expected [batch, *[2]]",
        ),
    ],
)
def test_a_head_that_cannot_fill_the_action_is_refused(action, head, message):
    assert message in refusal(action, *head)


@pytest.mark.parametrize("high", [np.inf, [1, np.inf]])
def test_samples_are_squashed_only_to_finite_bounds(high):
    box = spaces.Box(-1, np.broadcast_to(np.float32(high), 2))
    assert "finite bounds" in refusal(box, *GAUSSIAN, squashed=1.0)
    echoing("gaussian", GAUSSIAN[2], box)


def test_a_value_is_read_where_a_gaussian_graph_has_one():
    more = {"value": 4}
    without = echoing("gaussian", GAUSSIAN[2], BOX).session
    with_one = echoing("gaussian", GAUSSIAN[2] | more, BOX).session
    assert without.answers.keys() == {"mean", "log_std"}
    assert with_one.answers["value"] == ("<f4", ())


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"h": (3,), "c": (3,), "d": (3,)}, "state/d"),
        ({"h": (4,), "c": (3,)}, r"next_state/h|state/h"),
    ],
)
def test_states_that_a_graph_has_not_are_refused(states, message):
    env = env_of(seen(2), DISCRETE)
    fields = tuple(SpaceField(n, "box", "<f4", shape) for n, shape in states.items())
    graph = graph_record(recurrent(2, 3, {"q": 2}), env, states=fields)
    with pytest.raises(PolicyRefused, match=message):
        open_graph(graph, env)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_version_that_is_no_numbers_leaves_the_policy_before_it(bad):
    env = env_of(seen(2), DISCRETE)
    graph = graph_record(linear_q(2, 2), env)
    feed = PolicyFeed(RUN_ID, lambda graph: open_graph(graph, env))
    feed.take_graph(graph)
    good = {"w": np.ones((2, 2), np.float32), "b": np.zeros(2, np.float32)}
    feed.take_version(version_record(graph, 1, good))
    assert feed.load() is None
    w = good["w"].copy()
    w[1, 0] = bad
    feed.take_version(version_record(graph, 2, good | {"w": w}))
    refused = feed.load()
    assert refused.ref == PolicyRef(0, 2)
    assert f"w: expected finite numbers, found {bad} in 1 of 4 places" in refused.reason
    assert feed.ref == PolicyRef(0, 1)


@pytest.mark.parametrize(
    ("action", "head", "kind"),
    [(DISCRETE, Q, QActor), (DISCRETE, CATEGORICAL, CategoricalActor)]
    + [(BOX, GAUSSIAN, GaussianActor)],
)
def test_each_head_has_its_actor(action, head, kind):
    name, exploration, outputs = head
    policy = echoing(name, outputs, action, exploration=exploration)
    made = actors(policy, greedy=False).make(policy)
    assert isinstance(made, kind) and made.ref == policy.ref


def actors(policy, *, greedy, num_envs=8):
    context = SimpleNamespace(spec=spec(), index=0, run_id=RUN_ID)
    graph = policy.session.graph
    env = SimpleNamespace(observation=graph.observation, action=graph.action)
    return Actors(context, env, num_envs, greedy=greedy)


@pytest.mark.parametrize(
    ("action", "head"), [(DISCRETE, Q), (DISCRETE, CATEGORICAL), (BOX, GAUSSIAN)]
)
@pytest.mark.parametrize("by", ["evaluator", "graph"])
def test_evaluators_and_graphs_that_explore_nothing_are_greedy(action, head, by):
    name, exploration, outputs = head
    exploration = "none" if by == "graph" else exploration
    policy = echoing(name, outputs, action, exploration=exploration)
    wide = policy.session.graph.observation[0].shape[0]
    actor = actors(policy, greedy=by == "evaluator").make(policy)
    actor.begin(64, np.random.default_rng(0))
    row = np.zeros((8, wide), np.float32)
    row[:, 1] = 0.5
    taken = np.stack([actor.act(t, {"": row})[""] for t in range(64)])
    assert (taken == (1 if name != "gaussian" else [0, 0.5])).all()
