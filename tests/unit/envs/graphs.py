"""Actors as ONNX graphs made by hand, and their records."""

import hashlib
from collections.abc import Mapping, Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper
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


def echo(num_inputs: int, outputs: Mapping[str, int | Sequence]) -> bytes:
    """Each output is the observation's numbers at these places: tests choose them."""
    nodes, constants = [], []
    for name, at in outputs.items():
        places = np.asarray(at, np.int64)
        constants.append(numpy_helper.from_array(places, "at/" + name))
        nodes.append(helper.make_node("Gather", ["obs/", "at/" + name], [name], axis=1))
    shapes = {name: ["batch", *np.shape(at)] for name, at in outputs.items()}
    return _model(
        nodes,
        [_value("obs/", ["batch", num_inputs])],
        [_value(name, shape) for name, shape in shapes.items()],
        constants,
    )


def recurrent(num_inputs: int, width: int, heads: Mapping[str, int]) -> bytes:
    """c' = c/2 + x @ wc, h' = tanh(h @ wh + c'), and of each head h' @ w_<head>.

    A head of size 0 gives one number without a dimension of its own.
    """
    half = numpy_helper.from_array(np.array(0.5, np.float32), "half")
    nodes = [
        helper.make_node("MatMul", ["obs/", "param/wc"], ["xc"]),
        helper.make_node("Mul", ["state/c", "half"], ["kept"]),
        helper.make_node("Add", ["kept", "xc"], ["next_state/c"]),
        helper.make_node("MatMul", ["state/h", "param/wh"], ["hh"]),
        helper.make_node("Add", ["hh", "next_state/c"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next_state/h"]),
    ]
    inputs = [
        _value("obs/", ["batch", num_inputs]),
        *(_value(f"state/{name}", ["batch", width]) for name in "hc"),
        _value("param/wc", [num_inputs, width]),
        _value("param/wh", [width, width]),
    ]
    outputs = [_value(f"next_state/{name}", ["batch", width]) for name in "ch"]
    for name, size in heads.items():
        own = [size] if size else []
        nodes.append(
            helper.make_node("MatMul", ["next_state/h", f"param/w_{name}"], [name])
        )
        inputs.append(_value(f"param/w_{name}", [width, *own]))
        outputs.append(_value(name, ["batch", *own]))
    return _model(nodes, inputs, outputs, [half])


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


def _model(nodes, inputs, outputs, constants=()) -> bytes:
    graph = helper.make_graph(nodes, "actor", inputs, outputs, constants)
    opset = [helper.make_opsetid("", 18)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=9)
    return model.SerializeToString()
