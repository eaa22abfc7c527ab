"""What workers compute from an exported actor is what the learner's module computes."""

import hashlib
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from learner.actor_graph import export_actor
from learner.algorithms.base import Actor, actor_tensors
from learner.networks import PolicyValueNetwork, QNetwork, SquashedGaussianPolicy
from producers.policy import Policy, open_graph
from schemas.records import PolicyGraph, PolicyVersion, SpaceField
from schemas.sizes import stacked
from schemas.tensors import pack
from tests.unit.learner_specs import box, discrete, environment
from tests.unit.networks.specs import network_spec

DISCRETE = discrete(5, start=2)
BOX = SpaceField(
    "",
    "box",
    "<f4",
    (2, 3),
    pack(np.full((2, 3), -2, "<f4")),
    pack(np.full((2, 3), 2, "<f4")),
)

OBSERVATIONS = {
    "box": (box((4,), "<f8"),),
    "discrete": (discrete(7, start=-1),),
    "image": (box((40, 36, 3), "|u1"),),
    "grey": (box((36, 44), "|u1"),),
    "dict": (
        box((36, 36, 1), "|u1", "camera/left"),
        box((3,), "<f4", "joints"),
        discrete(4, start=1, name="mode"),
    ),
    "tuple": (
        discrete(3, name="0"),
        SpaceField("1", "multi_discrete", "<i8", (2,), n=(2, 3), start=(0, 1)),
        SpaceField("2", "multi_binary", "|i1", (3,)),
    ),
}


def together(*kinds):
    """All of them at once: one graph takes less time than one for each."""
    return tuple(
        replace(field, name=f"{kind}/{field.name}")
        for kind in kinds
        for field in OBSERVATIONS[kind]
    )


# By name: how it is made, its action, its head, and what the spec says of it.
NETWORKS = {
    "q": (partial(QNetwork, num_actions=5), DISCRETE, "q", {}),
    "dueling": (partial(QNetwork, num_actions=5), DISCRETE, "q", {"dueling": True}),
    "categorical": (
        partial(QNetwork, num_actions=5, atoms=11, support=(-5.0, 7.0)),
        DISCRETE,
        "q",
        {"dueling": True},
    ),
    "quantile": (partial(QNetwork, num_actions=5, atoms=9), DISCRETE, "q", {}),
    "recurrent-q": (partial(QNetwork, num_actions=5), DISCRETE, "q", {"lstm": 6}),
    "policy": (
        partial(PolicyValueNetwork, action=DISCRETE),
        DISCRETE,
        "categorical",
        {"separate_value": False},
    ),
    "policy-apart": (
        partial(PolicyValueNetwork, action=DISCRETE),
        DISCRETE,
        "categorical",
        {"activation": "tanh"},
    ),
    "gaussian": (partial(PolicyValueNetwork, action=BOX), BOX, "gaussian", {}),
    "recurrent-gaussian": (
        partial(PolicyValueNetwork, action=BOX),
        BOX,
        "gaussian",
        {"lstm": 5},
    ),
    "squashed": (partial(SquashedGaussianPolicy, action=BOX), BOX, "gaussian", {}),
}
OUTPUTS = {
    "q": {"q"},
    "categorical": {"logits", "value"},
    "gaussian": {"mean", "log_std", "value"},
}


def make_actor(name, observation, **spec):
    make, action, head, wanted = NETWORKS[name]
    torch.manual_seed(0)
    module = make(observation, spec=network_spec(**wanted, **spec))
    return Actor(module, head, "none", {}, observation, (action,), states=module.states)


def open_as_a_worker(actor, env, frame_stack):
    """What arrives from the topics, opened; parameters as they are now."""
    exported = export_actor(actor)
    graph = PolicyGraph(
        "exp", "run", 0, exported.sha256, exported.onnx, actor.head, actor.exploration,
        actor.exploration_options, actor.observation, actor.action, actor.states, 0,
    )  # fmt: skip
    session = open_graph(graph, env, frame_stack)
    with torch.no_grad():  # as training would
        for parameter in actor.module.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    tensors = {
        name: tensor.detach().numpy()
        for name, tensor in actor_tensors(actor.module).items()
    }
    data = save(tensors)
    digest = hashlib.sha256(data).hexdigest()
    version = PolicyVersion(
        "exp", "run", 0, 1, 1, graph.sha256, 0, data, digest, 0, 0, 0
    )
    assert session.params.keys() == tensors.keys(), "each is an input"
    return Policy(session, version, data, session.load(version, data))


def observe(field, count, rng):
    shape = (count, *field.shape)
    if field.kind == "discrete":
        return rng.integers(field.start[0], field.start[0] + field.n[0], shape)
    if field.dtype == "|u1":
        return rng.integers(0, 256, shape).astype("|u1")
    if field.kind == "box":
        return rng.standard_normal(shape).astype(field.dtype)
    return rng.integers(0, 2, shape).astype(field.dtype)


def tensors_of(arrays):
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def check(name, observation, frame_stack=1, **spec):
    _, action, head, _ = NETWORKS[name]
    seen = tuple(stacked(field, frame_stack) for field in observation)
    actor = make_actor(name, seen, **spec)
    env = environment(*observation, action=action)
    policy = open_as_a_worker(actor, env, frame_stack)
    rng = np.random.default_rng(1)
    for count in (1, 2, 9):
        observations = {f.name: observe(f, count, rng) for f in seen}
        states = {
            f.name: rng.standard_normal((count, *f.shape)).astype(f.dtype)
            for f in actor.states
        }
        found = policy.run(observations, states)
        with torch.no_grad():
            expected = actor.module(tensors_of(observations), tensors_of(states))
        heads = OUTPUTS[head] - ({"value"} if name == "squashed" else set())
        after = {f"next_state/{f.name}" for f in actor.states}
        assert found.keys() == expected.keys() == heads | after
        for output, values in expected.items():
            assert found[output].shape == tuple(values.shape)
            assert found[output] == pytest.approx(values.numpy(), rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
def test_a_worker_gets_what_the_learner_computes(name):
    check(name, OBSERVATIONS["box"])


# One for each way to be encoded: alone, before a memory, shared with the value, apart
# from it, squashed. What else the networks differ in comes after that.
@pytest.mark.parametrize(
    "name", ["q", "recurrent-q", "policy", "policy-apart", "squashed"]
)
def test_and_so_of_stacked_frames_of_all_kinds(name):
    check(name, OBSERVATIONS["dict"], frame_stack=3)


def test_and_so_of_each_kind_of_observation():
    kinds = OBSERVATIONS.keys() - {"box"}
    check("recurrent-q", together(*sorted(kinds)))


def test_and_so_of_their_stacks():
    check("recurrent-q", together("grey", "tuple"), frame_stack=2)


@pytest.mark.parametrize(
    ("encoder", "frame_stack"), [("impala", 4), ("flat", 1), ("flat", 4)]
)
def test_and_so_of_other_encoders_of_images(encoder, frame_stack):
    check("q", OBSERVATIONS["dict"], frame_stack, image_encoder=encoder)


@pytest.mark.parametrize("shape", [(), (1,), (3,)])
@pytest.mark.parametrize("make", [PolicyValueNetwork, SquashedGaussianPolicy])
def test_a_gaussian_has_the_shape_of_its_action(make, shape):
    action = SpaceField("arm", "box", "<f4", shape)
    module = make((box(),), action, network_spec())
    outputs = module({"": torch.zeros(7, 4)})
    assert outputs["mean"].shape == outputs["log_std"].shape == (7, *shape)
