"""An exported policy acts by itself, and as the published one does."""

import json
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from learner import standalone_graph as module
from learner.graph_facts import describe_field, graph_facts, greedy_action
from learner.standalone_graph import ExportFailed, standalone_graph, write_checked
from schemas.experiment import EnvSpec
from schemas.records import SpaceField
from schemas.tensors import pack
from tests.unit.envs.graphs import (
    graph_record,
    linear_q,
    mlp_q,
    recurrent,
    version_record,
)
from tests.unit.policies.records import ENV

GRAPH = graph_record(linear_q(2, 3), ENV)
W = np.array([[1, 4, 0], [1.5, 0, 3]], np.float32)
B = np.array([0, 0, 0.5], np.float32)
VERSION = version_record(GRAPH, 7, {"w": W, "b": B})
ENV_SPEC = EnvSpec(id="Any-v0", kwargs={"goal": 3}, frame_stack=1)


def exported(tmp_path, graph, version):
    path = tmp_path / "policy.onnx"
    facts = graph_facts(graph, version, ENV_SPEC)
    data = standalone_graph(graph, version, facts)
    assert write_checked(path, data, graph, version) <= 1e-6
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_it_computes_what_was_worked_out_by_hand(tmp_path):
    session = exported(tmp_path, GRAPH, VERSION)
    assert [each.name for each in session.get_inputs()] == ["obs/"]
    (q,) = session.run(["q"], {"obs/": np.array([[1, 0], [0, 2]], np.float32)})
    assert q.tolist() == [[1, 4, 0.5], [3, 0, 6.5]]


def test_any_number_of_environments_may_be_asked_at_once(tmp_path):
    rng = np.random.default_rng(1)
    w0, w1 = rng.normal(size=(2, 5)), rng.normal(size=(5, 3))
    b0, b1 = rng.normal(size=5), rng.normal(size=3)
    arrays = {"w0": w0, "b0": b0, "w1": w1, "b1": b1}
    arrays = {name: a.astype(np.float32) for name, a in arrays.items()}
    graph = graph_record(mlp_q([2, 5, 3]), ENV)
    session = exported(tmp_path, graph, version_record(graph, 1, arrays))
    for size in (1, 2, 64):
        x = rng.normal(size=(size, 2)).astype(np.float32)
        (q,) = session.run(["q"], {"obs/": x})
        expected = np.maximum(x @ w0 + b0, 0) @ w1 + b1
        np.testing.assert_allclose(q, expected, rtol=1e-5, atol=1e-5)


def test_a_recurrent_policy_keeps_its_state_as_inputs_and_outputs(tmp_path):
    states = tuple(SpaceField(name, "box", "<f4", (4,)) for name in "hc")
    heads = {"logits": 3, "value": 0}
    graph = graph_record(
        recurrent(2, 4, heads), ENV, head="categorical", exploration="sample",
        exploration_options={}, states=states,
    )  # fmt: skip
    rng = np.random.default_rng(2)
    shapes = {"wc": (2, 4), "wh": (4, 4), "w_logits": (4, 3), "w_value": (4,)}
    arrays = {n: rng.normal(size=s).astype(np.float32) for n, s in shapes.items()}
    session = exported(tmp_path, graph, version_record(graph, 1, arrays))
    names = sorted(each.name for each in session.get_inputs())
    assert names == ["obs/", "state/c", "state/h"]
    h, c = np.zeros((3, 4), np.float32), np.zeros((3, 4), np.float32)
    own_h, own_c = h, c
    for _ in range(4):
        x = rng.normal(size=(3, 2)).astype(np.float32)
        logits, h, c = session.run(
            ["logits", "next_state/h", "next_state/c"],
            {"obs/": x, "state/h": h, "state/c": c},
        )
        own_c = own_c / 2 + x @ arrays["wc"]
        own_h = np.tanh(own_h @ arrays["wh"] + own_c)
        np.testing.assert_allclose(h, own_h, rtol=1e-4, atol=1e-5)
        expected = own_h @ arrays["w_logits"]
        np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-5)


def test_the_file_says_what_it_is(tmp_path):
    facts = exported(tmp_path, GRAPH, VERSION).get_modelmeta().custom_metadata_map
    assert (facts["experiment"], facts["run"], facts["version"]) == ("exp", "run1", "7")
    assert (facts["epoch"], facts["train_step"]) == ("0", "70")
    assert facts["head"] == "q" and facts["greedy_action"] == "start + argmax(q)"
    assert facts["exploration"] == "epsilon_ladder"
    assert json.loads(facts["exploration_options"]) == {"epsilon": 0.4, "alpha": 7.0}
    assert json.loads(facts["observation"]) == [
        {"name": "", "kind": "box", "dtype": "<f4", "shape": [2], "low": -9, "high": 9}
    ]
    assert json.loads(facts["action"]) == [
        {"name": "", "kind": "discrete", "dtype": "<i8", "shape": [], "n": [3],
         "start": [0]}
    ]  # fmt: skip
    assert json.loads(facts["environment"])["kwargs"] == {"goal": 3}
    assert facts["tensors_sha256"] == VERSION.tensors_sha256


def test_bounds_that_differ_are_listed_and_infinite_ones_are_null():
    low, high = np.array([-1, -np.inf], "<f4"), np.array([np.inf, np.inf], "<f4")
    field = SpaceField("a", "box", "<f4", (2,), pack(low), pack(high))
    found = describe_field(field)
    assert (found["low"], found["high"]) == ([-1.0, None], None)
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize(
    ("head", "options", "words"),
    [
        ("categorical", {}, "start + argmax(logits)"),
        ("gaussian", {"squashed": 0.0}, "clip(mean, low, high)"),
        ("gaussian", {"squashed": 1.0}, "low + (tanh(mean) + 1) / 2 * (high - low)"),
    ],
)
def test_the_best_action_is_told_in_terms_of_the_outputs(head, options, words):
    graph = replace(GRAPH, head=head, exploration_options=options)
    assert greedy_action(graph) == words


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"w": W}, "expected also param/b"),
        ({"w": W.T.copy(), "b": B}, r"param/w: expected FLOAT\[2, 3\], found FLOAT"),
        ({"w": W.astype("<f8"), "b": B}, r"found DOUBLE\[2, 3\]"),
    ],
)
def test_tensors_that_do_not_fit_the_graph_are_refused(arrays, message):
    version = version_record(GRAPH, 1, arrays)
    with pytest.raises(ExportFailed, match=message):
        standalone_graph(GRAPH, version, {})


def test_bytes_that_are_no_tensors_or_no_graph_are_refused():
    with pytest.raises(ExportFailed, match="expected safetensors"):
        standalone_graph(GRAPH, replace(VERSION, tensors=b"nothing"), {})
    with pytest.raises(ExportFailed, match="expected an ONNX model"):
        standalone_graph(replace(GRAPH, onnx=b"nothing"), VERSION, {})


def test_a_graph_that_would_read_files_is_refused():
    model = onnx.load_model_from_string(GRAPH.onnx)
    tensor = model.graph.initializer.add()
    tensor.name, tensor.data_location = "x", onnx.TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "/etc/passwd"
    graph = replace(GRAPH, onnx=model.SerializeToString())
    with pytest.raises(ExportFailed, match="found external data"):
        standalone_graph(graph, VERSION, {})


def test_a_file_that_computes_something_else_does_not_appear(tmp_path):
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"before")
    other = version_record(GRAPH, 8, {"w": W, "b": B + 1e-4})
    data = standalone_graph(GRAPH, other, {})
    with pytest.raises(ExportFailed, match="within 1e-06, found a difference"):
        write_checked(path, data, GRAPH, VERSION)
    with pytest.raises(ExportFailed, match="expected a model that runs"):
        write_checked(path, data[:-9], GRAPH, VERSION)
    assert path.read_bytes() == b"before"
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_an_interrupted_export_leaves_nothing(tmp_path, monkeypatch):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_difference", interrupt)
    data = standalone_graph(GRAPH, VERSION, {})
    with pytest.raises(KeyboardInterrupt):
        write_checked(tmp_path / "policy.onnx", data, GRAPH, VERSION)
    assert list(tmp_path.iterdir()) == []
