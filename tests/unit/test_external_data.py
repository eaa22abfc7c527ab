"""A graph from a topic makes nobody read files, however it is written."""

import hashlib
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from gymnasium import spaces
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper

from learner import standalone_graph as standalone_module
from learner.standalone_graph import ExportFailed, standalone_graph
from producers.policy import PolicyRefused, open_graph
from producers.spaces import describe
from schemas.external_data import names_external_data
from schemas.records import EnvDescription
from tests.unit.envs.external_graphs import LENGTHS, PLACES, SIZE, reading
from tests.unit.envs.graphs import graph_record, linear_q, mlp_q, version_record

ENV = EnvDescription(
    env_id="Any-v0",
    observation=describe(spaces.Box(-9, 9, (SIZE,), np.float32)),
    action=describe(spaces.Discrete(SIZE)),
    max_episode_steps=None,
    vectorization="sync",
    versions={},
)
SECRET = np.arange(SIZE, dtype=np.float32)
ZEROS = {"obs/": np.zeros((1, SIZE), np.float32), "param/p": np.zeros(SIZE, "<f4")}


@pytest.fixture
def secret(tmp_path, monkeypatch):
    """The name of a file in the working directory, from where onnxruntime looks."""
    monkeypatch.chdir(tmp_path)
    SECRET.tofile("secret.bin")
    return "secret.bin"


def refused(data):
    """Expect that workers and ``export-policy`` refuse a graph; return the reasons."""
    graph = replace(
        graph_record(linear_q(SIZE, SIZE), ENV),
        onnx=data,
        sha256=hashlib.sha256(data).hexdigest(),
    )
    version = version_record(graph, 1, {"p": ZEROS["param/p"]})
    with pytest.raises(PolicyRefused) as of_workers:
        open_graph(graph, ENV)
    with pytest.raises(ExportFailed) as of_export:
        standalone_graph(graph, version, {})
    return str(of_workers.value), str(of_export.value)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("place", PLACES)
def test_a_tensor_in_a_file_is_refused_wherever_it_is(secret, place, length):
    data = reading(place, secret, length)
    (found,) = ort.InferenceSession(data).run(None, ZEROS)
    assert np.array_equal(found[0], SECRET), "else this test would prove nothing"
    for reason in refused(data):
        assert "found external data" in reason


@pytest.mark.parametrize("place", PLACES)
def test_an_export_refuses_it_by_what_is_parsed_too(secret, place, monkeypatch):
    monkeypatch.setattr(standalone_module, "names_external_data", lambda data: False)
    graph = replace(
        graph_record(linear_q(SIZE, SIZE), ENV), onnx=reading(place, secret)
    )
    version = version_record(graph, 1, {"p": ZEROS["param/p"]})
    with pytest.raises(ExportFailed, match="found external data of 'w'"):
        standalone_graph(graph, version, {})


def test_a_model_in_the_format_of_onnxruntime_is_refused(tmp_path):
    """Strings are written otherwise in it, and onnxruntime takes it unless told."""
    path = tmp_path / "model.ort"
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    ort.InferenceSession(linear_q(SIZE, SIZE), options)
    data = path.read_bytes()
    assert ort.InferenceSession(data).get_inputs()[0].name == "obs/"
    of_workers, of_export = refused(data)
    assert "cannot be opened" in of_workers and "expected an ONNX model" in of_export


def test_what_another_provider_has_compiled_is_refused(secret):
    value = helper.make_tensor_value_info
    node = helper.make_node(
        "EPContext", ["obs/"], ["q"], domain="com.microsoft", embed_mode=0,
        ep_cache_context=secret, main_context=1, source="QNN",
    )  # fmt: skip
    shape = ["batch", SIZE]
    graph = helper.make_graph(
        [node], "g", [value("obs/", 1, shape)], [value("q", 1, shape)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    of_workers, of_export = refused(model.SerializeToString())
    assert "EPContext" in of_workers and "found an EPContext" in of_export


def test_a_name_with_location_in_it_is_no_file():
    model = onnx.load_model_from_string(mlp_q([2, 3]))
    model.graph.node[0].name = "my location"
    model.graph.node[0].doc_string = "location of"
    model.metadata_props.add(key="param/location", value="a location")
    assert not names_external_data(model.SerializeToString())
    model.metadata_props.add(key="location", value="x")
    assert names_external_data(model.SerializeToString())


@given(st.binary(), st.integers(0, 3), st.binary())
def test_any_length_of_a_key_is_seen_within_anything(before, digits, after):
    length = b"\x88" + b"\x80" * digits + b"\x00"
    assert names_external_data(before + length + b"location" + after)
    assert not names_external_data(before.replace(b"l", b"") + after.replace(b"l", b""))
