"""Policies whose answers tests choose, and actors of them played by hand."""

from collections.abc import Mapping, Sequence

import numpy as np
from gymnasium import spaces

from producers.acting import Actor
from producers.policy import Policy, open_graph
from producers.spaces import describe
from schemas.records import EnvDescription, PolicyGraph
from schemas.tensors import Array
from tests.unit.envs.graphs import echo, graph_record, version_record


def env_of(observation: spaces.Space, action: spaces.Space) -> EnvDescription:
    return EnvDescription(
        env_id="Any-v0",
        observation=describe(observation),
        action=describe(action),
        max_episode_steps=None,
        vectorization="sync",
        versions={},
    )


def seen(num_inputs: int) -> spaces.Box:
    return spaces.Box(-np.inf, np.inf, (num_inputs,), np.float32)


def policy_of(
    graph: PolicyGraph,
    env: EnvDescription,
    arrays: Mapping[str, Array] | None = None,
    version: int = 1,
) -> Policy:
    session = open_graph(graph, env)
    record = version_record(graph, version, arrays or {})
    return Policy(session, record, record.tensors, session.load(record, record.tensors))


def echoing(
    head: str, outputs: Mapping[str, int | Sequence], action: spaces.Space, **more
) -> Policy:
    """A policy that answers with the observation's own numbers."""
    num_inputs = 1 + max(int(np.max(at)) for at in outputs.values())
    env = env_of(seen(num_inputs), action)
    more.setdefault("exploration", "sample")
    options = more.pop("options", {})
    onnx = echo(num_inputs, outputs)
    record = graph_record(onnx, env, head=head, exploration_options=options, **more)
    return policy_of(record, env)


def play(actor: Actor, rows: Array, seed: int = 0) -> tuple[Array, dict[str, Array]]:
    """Act on rows [T + 1, B, ...]; return the actions [T, B, ...] and the columns."""
    steps = len(rows) - 1
    actor.begin(steps, np.random.default_rng(seed))
    actions = np.stack([actor.act(t, {"": rows[t]})[""] for t in range(steps)])
    return actions, actor.finish(steps, {"": rows[steps]})
