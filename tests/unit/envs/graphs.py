"""Actors as ONNX graphs made by hand, and their records."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper
from safetensors.numpy import save

from schemas.records import EnvDescription, PolicyGraph, PolicyVersion
from schemas.tensors import Array

RUN_ID = "run1"


def linear_q(
    num_inputs: int, num_actions: int, dtype: int = TensorProto.FLOAT
) -> bytes:
    """q = float(obs) @ w + b, with w and b as inputs."""
    nodes = [
        helper.make_node("Cast", ["obs/"], ["x"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["x", "param/w"], ["xw"]),
        helper.make_node("Add", ["xw", "param/b"], ["q"]),
    ]
    inputs = [
        helper.make_tensor_value_info("obs/", dtype, ["batch", num_inputs]),
        _value("param/w", [num_inputs, num_actions]),
        _value("param/b", [num_actions]),
    ]
    return _model(nodes, inputs, [_value("q", ["batch", num_actions])])


def mlp_q(sizes: Sequence[int]) -> bytes:
    """A ReLU MLP; parameters w0, b0, w1, ..."""
    nodes, inputs, name = [], [_value("obs/", ["batch", sizes[0]])], "obs/"
    last = len(sizes) - 2
    for i, (wide, narrow) in enumerate(zip(sizes, sizes[1:], strict=False)):
        inputs += [
            _value(f"param/w{i}", [wide, narrow]),
            _value(f"param/b{i}", [narrow]),
        ]
        out = "q" if i == last else f"h{i}"
        nodes.append(helper.make_node("MatMul", [name, f"param/w{i}"], [f"m{i}"]))
        added = "q" if i == last else f"a{i}"
        nodes.append(helper.make_node("Add", [f"m{i}", f"param/b{i}"], [added]))
        if i != last:
            nodes.append(helper.make_node("Relu", [added], [out]))
        name = out
    return _model(nodes, inputs, [_value("q", ["batch", sizes[-1]])])


def graph_record(
    onnx: bytes, env: EnvDescription, *, experiment: str = "exp", epoch: int = 0, **more
) -> PolicyGraph:
    """The graph's record for an environment."""
    values = {
        "experiment": experiment,
        "run_id": RUN_ID,
        "epoch": epoch,
        "sha256": hashlib.sha256(onnx).hexdigest(),
        "onnx": onnx,
        "head": "q",
        "exploration": "epsilon_ladder",
        "exploration_options": {"epsilon": 0.4, "alpha": 7.0},
        "observation": env.observation,
        "action": env.action,
        "states": (),
        "created_at_ms": 0,
    }
    return PolicyGraph(**(values | more))


def version_record(
    graph: PolicyGraph, version: int, arrays: Mapping[str, Array], **more
) -> PolicyVersion:
    """A version's record with its tensors inside."""
    tensors = save({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    values = {
        "experiment": graph.experiment,
        "run_id": graph.run_id,
        "epoch": graph.epoch,
        "version": version,
        "train_step": 10 * version,
        "graph_sha256": graph.sha256,
        "graph_offset": 0,
        "tensors": tensors,
        "tensors_sha256": hashlib.sha256(tensors).hexdigest(),
        "num_chunks": 0,
        "slot": 0,
        "created_at_ms": 0,
    }
    return PolicyVersion(**(values | more))


def _value(name: str, shape: Sequence[int | str]):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _model(nodes, inputs, outputs) -> bytes:
    graph = helper.make_graph(nodes, "actor", inputs, outputs)
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    return model.SerializeToString()
