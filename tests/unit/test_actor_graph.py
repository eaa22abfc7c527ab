from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from learner.actor_graph import GraphMismatch, export_actor
from learner.algorithms import build
from learner.algorithms.base import Actor
from schemas.records import SpaceField
from tests.unit.learner_specs import DICT_OBSERVATION, box, discrete, environment, spec

PLAIN = {"hidden": [16, 16], "observationScale": [0.5, 1.0, 2.0, 4.0]}


def open_session(graph):
    return onnxruntime.InferenceSession(graph.onnx, providers=["CPUExecutionProvider"])


@pytest.mark.parametrize(
    ("env", "network"),
    [
        (environment(), PLAIN),
        (environment(), PLAIN | {"dueling": True, "activation": "tanh"}),
        (environment(box((3, 8, 8), "|u1"), action=discrete(4, start=1)), {}),
        (environment(discrete(16)), {"hidden": []}),
        (environment(*DICT_OBSERVATION), {"dueling": True}),
    ],
    ids=["mlp", "dueling", "images", "discrete", "dict"],
)
def test_graph_agrees_with_the_network_after_an_update_of_its_tensors(env, network):
    algorithm = build(env, spec(network=network))
    graph = export_actor(algorithm.actor())
    assert graph.largest_difference < 1e-5
    session = open_session(graph)
    inputs = {i.name: i for i in session.get_inputs()}
    assert {n for n in inputs if n.startswith("obs/")} == {
        f"obs/{field.name}" for field in env.observation
    }
    with torch.no_grad():  # as training would
        noise = torch.Generator().manual_seed(0)
        for parameter in algorithm.actor().module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=noise))
    feed = {f"param/{n}": t for n, t in algorithm.policy_tensors().items()}
    rng = np.random.default_rng(1)
    for count in (1, 5):
        observations = {
            f.name: rng.integers(2, 4, (count, *f.shape)).astype(f.dtype)
            for f in env.observation
        }
        feed |= {f"obs/{name}": values for name, values in observations.items()}
        (found,) = session.run(["q"], feed)
        with torch.no_grad():
            torch_inputs = {n: torch.from_numpy(v) for n, v in observations.items()}
            expected = algorithm.actor().module(torch_inputs)["q"].numpy()
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_names_of_fields_may_be_odd():
    names = [" ", ".", "A", "CON", "[0]", "a", "x:y (1)", "\u00e9", "\U0001f916"]
    env = environment(*(box((1,), name=name) for name in names))
    algorithm = build(env, spec(network={"hidden": []}))
    session = open_session(export_actor(algorithm.actor()))
    feed = {f"param/{n}": t for n, t in algorithm.policy_tensors().items()}
    weights = feed["param/head.weight"]
    for i, name in enumerate(names):
        at = {n: np.full((1, 1), n == name, np.float32) for n in names}
        (found,) = session.run(["q"], feed | {f"obs/{n}": x for n, x in at.items()})
        expected = weights[:, i] + feed["param/head.bias"]
        assert found[0] == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def test_large_integers_do_not_make_the_check_fail_by_rounding():
    env = environment(box((64,), "<i4"))
    graph = export_actor(build(env, spec(network={"hidden": [256, 256]})).actor())
    assert 0 <= graph.largest_difference < 1e-5


def test_same_architecture_gives_the_same_bytes_without_our_paths():
    env = environment()
    first = export_actor(build(env, spec(network=PLAIN)).actor())
    other_seed = spec(network=PLAIN).model_copy(update={"seed": 9})
    second = export_actor(build(env, other_seed).actor())
    assert first.sha256 == second.sha256
    assert b".py" not in first.onnx


def test_stacked_frames_are_one_input():
    algorithm = build(
        environment(), spec(env={"frameStack": 3}, network={"hidden": [4]})
    )
    graph = export_actor(algorithm.actor())
    shapes = {i.name: i.shape[1:] for i in open_session(graph).get_inputs()}
    assert shapes["obs/"] == [3, 4]


class Normalised(torch.nn.Module):
    """A module with a buffer, and optionally a number that is hidden from the graph."""

    def __init__(self, hides=False):
        super().__init__()
        self.head = torch.nn.Linear(2, 2)
        self.register_buffer("mean", torch.tensor([1.0, 2.0]))
        self.hides = hides
        self.calls = 0

    def forward(self, observations, states):
        self.calls += self.hides
        hidden = states["memory"] + self.head(observations[""] - self.mean)
        return {"q": hidden + self.calls, "next_state/memory": hidden}


def normalised(hides=False):
    return Actor(
        module=Normalised(hides),
        head="q",
        exploration="epsilon_ladder",
        exploration_options={},
        observation=(box((2,)),),
        action=(discrete(2),),
        states=(SpaceField("memory", "box", "<f4", (2,)),),
    )


def test_buffers_and_recurrent_states_are_inputs():
    graph = export_actor(normalised())
    model = onnx.load_from_string(graph.onnx)
    assert [i.name for i in model.graph.input] == [
        "obs/", "state/memory", "param/head.weight", "param/head.bias", "param/mean"
    ]  # fmt: skip
    assert [o.name for o in model.graph.output] == ["q", "next_state/memory"]
    feed = {
        "obs/": np.array([[3, 5]], np.float32),
        "state/memory": np.array([[10, 20]], np.float32),
        "param/head.weight": np.eye(2, dtype=np.float32),
        "param/head.bias": np.zeros(2, np.float32),
        "param/mean": np.array([1, 1], np.float32),
    }
    q, memory = open_session(graph).run(None, feed)
    assert q.tolist() == memory.tolist() == [[12, 24]]


def test_number_that_changes_outside_the_graph_is_found():
    with pytest.raises(GraphMismatch, match="within 1e-05 of torch's"):
        export_actor(normalised(hides=True))


def test_actor_names_what_workers_have_to_know():
    actor = build(environment(action=discrete(3, start=1)), spec()).actor()
    assert (actor.head, actor.exploration) == ("q", "epsilon_ladder")
    assert actor.exploration_options == {"epsilon": 0.4, "alpha": 7.0}
    assert replace(actor).action == (discrete(3, start=1),)
