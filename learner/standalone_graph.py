"""A policy's graph and tensors -> one ONNX file that acts with onnxruntime alone."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper
from safetensors import SafetensorError
from safetensors.numpy import load

from infra.durable import sync_directory, write_durably
from infra.errors import RollstreamError
from infra.policies.precision import widened
from learner.random_inputs import random_values
from schemas.external_data import names_external_data
from schemas.records import PolicyGraph, PolicyVersion
from schemas.tensors import Array

TOLERANCE = 1e-6
_CHECK_SIZES = (1, 7)
_PARAM = "param/"
# A part that some other provider has compiled, maybe kept in a file.
_CONTEXT = "EPContext"

Inputs = dict[str, Array]


class ExportFailed(RollstreamError):
    """The policy cannot be made into a file, or not into one that acts the same."""


def standalone_graph(
    graph: PolicyGraph, version: PolicyVersion, facts: Mapping[str, str]
) -> bytes:
    """Return the graph with a version's parameters inside.

    Inputs are ``obs/<name>`` and ``state/<name>``, with a free first size; outputs are
    the head's and ``next_state/<name>``.

    Args:
        graph: the policy's.
        version: with its tensors inside.
        facts: what the file says of itself.

    Raises:
        ExportFailed: a parameter is missing, or is not as the graph takes it.
    """
    model = _parse(graph)
    tensors = _tensors(version)
    kept = []
    for each in model.graph.input:
        if each.name.startswith(_PARAM):
            tensor = _initializer(each, tensors)
            model.graph.initializer.append(tensor)
        else:
            kept.append(each)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    onnx.helper.set_model_props(model, dict(facts))
    data: bytes = model.SerializeToString()
    return data


def write_checked(
    path: Path, data: bytes, graph: PolicyGraph, version: PolicyVersion
) -> float:
    """Write a file, and make it appear once it has been read again and found right.

    Returns:
        the largest difference between its outputs and those of the graph with
        parameters, relative to outputs above 1.

    Raises:
        ExportFailed: ONNX's checker refuses it, or it computes something else.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        write_durably(part, data)
        try:
            onnx.checker.check_model(str(part), full_check=True)
            largest = _difference(part.read_bytes(), graph, version)
        except ExportFailed:
            raise
        except Exception as exc:  # of the checker and of onnxruntime, without a base
            raise ExportFailed(f"{path}: expected a model that runs: {exc}") from exc
        if not largest <= TOLERANCE:
            raise ExportFailed(
                f"{path}: expected the outputs of the published graph within "
                f"{TOLERANCE:g}, found a difference of {largest:g}"
            )
        os.replace(part, path)
        sync_directory(path.parent)
    finally:
        part.unlink(missing_ok=True)
    return largest


def _parse(graph: PolicyGraph) -> onnx.ModelProto:
    external = "graph: expected all data inside it, found external data"
    if names_external_data(graph.onnx):
        raise ExportFailed(external)
    try:
        model = onnx.load_model_from_string(graph.onnx)
    except Exception as exc:  # protobuf's error
        raise ExportFailed(f"graph: expected an ONNX model, found {exc}") from exc
    for part in _parts(model):
        if isinstance(part, onnx.TensorProto) and (
            part.external_data or part.data_location == onnx.TensorProto.EXTERNAL
        ):
            raise ExportFailed(f"{external} of {part.name!r}")
        if isinstance(part, onnx.NodeProto) and part.op_type == _CONTEXT:
            raise ExportFailed(
                f"graph: expected all of it inside it, found an {_CONTEXT}, which may "
                "be of a file"
            )
    return model


def _parts(message: Any) -> Iterator[Any]:
    """Yield all messages in one: also of subgraphs, functions and attributes."""
    found = [message]
    while found:
        part = found.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is not None:
                found.extend([value] if hasattr(value, "ListFields") else value)


def _tensors(version: PolicyVersion) -> Inputs:
    """Return a version's parameters and buffers by name of the graph's input."""
    try:
        arrays = load(version.tensors)
    except (SafetensorError, ValueError, KeyError, TypeError) as exc:
        raise ExportFailed(f"tensors: expected safetensors, found {exc}") from exc
    return {_PARAM + name.removeprefix(_PARAM): each for name, each in arrays.items()}


def _initializer(
    taken: onnx.ValueInfoProto, tensors: Mapping[str, Array]
) -> onnx.TensorProto:
    if taken.name not in tensors:
        raise ExportFailed(f"tensors: expected also {taken.name}, found none such")
    kind = taken.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    tensor = widened(tensors[taken.name], dtype.str)
    found = numpy_helper.from_array(tensor, taken.name)
    shape = [each.dim_value for each in kind.shape.dim]
    if found.data_type != kind.elem_type or list(found.dims) != shape:
        expected, actual = (
            onnx.TensorProto.DataType.Name(each)
            for each in (kind.elem_type, found.data_type)
        )
        raise ExportFailed(
            f"{taken.name}: expected {expected}{shape}, found "
            f"{actual}{list(found.dims)}"
        )
    return found


def _difference(data: bytes, graph: PolicyGraph, version: PolicyVersion) -> float:
    alone, published = _session(data), _session(graph.onnx)
    names = [each.name for each in published.get_outputs()]
    taken = {each.name for each in published.get_inputs()}
    tensors = _tensors(version)
    params = {
        each.name: numpy_helper.to_array(_initializer(each, tensors))
        for each in _parse(graph).graph.input
        if each.name.startswith(_PARAM)
    }
    rng = np.random.default_rng(0)
    largest = 0.0
    for size in _CHECK_SIZES:
        inputs = {n: v for n, v in _inputs(graph, size, rng).items() if n in taken}
        found = alone.run(names, inputs)
        expected = published.run(names, {**inputs, **params})
        largest = max(largest, *map(_distance, found, expected))
    return largest


def _distance(found: Array, expected: Array) -> float:
    if found.shape != expected.shape:
        return float("inf")
    if np.array_equal(found, expected, equal_nan=True):
        return 0.0
    scale = max(1.0, float(np.abs(expected).max()))
    return float(np.abs(found - expected).max()) / scale


def _inputs(graph: PolicyGraph, size: int, rng: np.random.Generator) -> Inputs:
    fields = {f"obs/{f.name}": f for f in graph.observation}
    fields |= {f"state/{f.name}": f for f in graph.states}
    return {name: random_values(field, size, rng) for name, field in fields.items()}


def _session(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
