"""An actor -> an ONNX graph whose parameters and buffers are inputs.

Exported once for an architecture; every version after that is tensors alone. Buffers
are inputs too: left inside they would be constants, and normalisation would drift.
"""

import copy
import hashlib
import io
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import torch
from torch import Tensor, nn
from torch.func import functional_call

from infra.errors import RollstreamError
from learner.algorithms.base import Actor, actor_tensors
from learner.random_inputs import random_values

TOLERANCE = 1e-5
_CHECK_SIZES = (1, 7)
_EXAMPLE_SIZE = 3  # not 1: an exporter takes a size of 1 for a constant


class GraphMismatch(RollstreamError):
    """The exported graph does not compute what the module computes."""


@dataclass(frozen=True, slots=True)
class ExportedGraph:
    """A graph, and the actor that it was made from.

    Attributes:
        onnx: the graph's bytes; the same module gives the same bytes.
        sha256: their hex digest.
        actor: what its inputs and outputs mean.
        largest_difference: between onnxruntime and torch, in the self-test.
    """

    onnx: bytes
    sha256: str
    actor: Actor
    largest_difference: float


class _Positional(nn.Module):
    """The actor with every tensor, also its own, as an argument."""

    def __init__(self, actor: Actor) -> None:
        super().__init__()
        # Not registered: its parameters must not become part of the graph.
        self._run = partial(functional_call, actor.module)
        self._observations = [field.name for field in actor.observation]
        self._states = [field.name for field in actor.states]
        self._tensors = list(actor_tensors(actor.module))

    def forward(self, *arguments: Tensor) -> tuple[Tensor, ...]:
        names = (*self._observations, *self._states)
        inputs, tensors = arguments[: len(names)], arguments[len(names) :]
        observations = dict(zip(self._observations, inputs, strict=False))
        states = dict(zip(self._states, inputs[len(observations) :], strict=True))
        own = dict(zip(self._tensors, tensors, strict=True))
        outputs = self._run(own, (observations, states))
        return tuple(outputs.values())


def export_actor(actor: Actor, seed: int = 0) -> ExportedGraph:
    """Export an actor, and check the graph against the module.

    Inputs: ``obs/<name>`` in the space's dtype, ``state/<name>``, ``param/<name>``;
    outputs by the names that the module gives them (a recurrent state's is
    ``next_state/<name>``: ONNX allows no output the name of an input). The first size
    of all but the parameters is free.

    Raises:
        GraphMismatch: onnxruntime and torch differ by more than TOLERANCE with every
            tensor perturbed.
    """
    given = actor
    # A copy: while it is traced, a module's tensors are exchanged for others, and the
    # learner may be training this one in another thread.
    actor = replace(actor, module=copy.deepcopy(actor.module).cpu())
    rng = np.random.default_rng(seed)
    own = {name: t.detach() for name, t in actor_tensors(actor.module).items()}
    inputs = _random_inputs(actor, _EXAMPLE_SIZE, rng)
    outputs = list(_run_torch(actor, own, inputs))
    data = _export(actor, inputs, own, outputs)
    largest = 0.0
    perturbed = {name: _perturb(tensor, rng) for name, tensor in own.items()}
    session = _session(data)
    for size in _CHECK_SIZES:
        inputs = _random_inputs(actor, size, rng)
        expected = _run_torch(actor, perturbed, inputs)
        largest = max(largest, _difference(session, perturbed, inputs, expected))
    if not largest <= TOLERANCE:
        raise GraphMismatch(
            f"exported actor: expected outputs within {TOLERANCE:g} of torch's, found "
            f"a difference of {largest:g}",
            "keep every number that changes in a parameter or buffer of the module",
        )
    return ExportedGraph(data, hashlib.sha256(data).hexdigest(), given, largest)


def _export(
    actor: Actor,
    inputs: Mapping[str, Tensor],
    own: Mapping[str, Tensor],
    outputs: list[str],
) -> bytes:
    batch = torch.export.Dim("batch", min=1)
    shapes = tuple({0: batch} for _ in inputs) + tuple({} for _ in own)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the exporter about itself
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        program = torch.onnx.export(
            _Positional(actor),
            (*inputs.values(), *own.values()),
            dynamo=True,
            dynamic_shapes={"arguments": shapes},
            input_names=[*inputs, *(f"param/{name}" for name in own)],
            output_names=outputs,
            verbose=False,
        )
    assert program is not None
    return _without_provenance(program.model_proto)


def _without_provenance(model: onnx.ModelProto) -> bytes:
    """Leave out where in which file a node came from: bytes depend on it."""
    graph = model.graph
    for item in (model, graph, *graph.node, *graph.value_info):
        del item.metadata_props[:]
        item.doc_string = ""
    onnx.checker.check_model(model)
    buffer = io.BytesIO()
    onnx.save_model(model, buffer)
    return buffer.getvalue()


def _random_inputs(
    actor: Actor, size: int, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Return observations and states of ``size`` environments by graph input name."""
    observations = {
        f"obs/{f.name}": torch.from_numpy(random_values(f, size, rng))
        for f in actor.observation
    }
    return observations | {
        f"state/{f.name}": torch.from_numpy(random_values(f, size, rng))
        for f in actor.states
    }


def _perturb(tensor: Tensor, rng: np.random.Generator) -> Tensor:
    if not tensor.is_floating_point():
        return tensor
    noise = torch.from_numpy(rng.normal(0, 0.1, tuple(tensor.shape))).to(tensor.dtype)
    return tensor * (1 + noise) + 0.1 * noise


def _run_torch(
    actor: Actor, own: Mapping[str, Tensor], inputs: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    given = {
        kind: {
            name.removeprefix(kind): value
            for name, value in inputs.items()
            if name.startswith(kind)
        }
        for kind in ("obs/", "state/")
    }
    with torch.no_grad():
        outputs: dict[str, Tensor] = functional_call(
            actor.module, dict(own), (given["obs/"], given["state/"])
        )
    return outputs


def _session(data: bytes) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def _difference(
    session: ort.InferenceSession,
    own: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    expected: Mapping[str, Tensor],
) -> float:
    """Return the largest difference, relative to outputs that are above 1.

    To the largest of an output, not to each value: a small one may be what is left of
    large ones, with their rounding.
    """
    feed = {f"param/{name}": value for name, value in own.items()} | dict(inputs)
    # What no output depends on is no input of the graph.
    taken = [item.name for item in session.get_inputs()]
    found = session.run(list(expected), {name: feed[name].numpy() for name in taken})
    return max(
        float(np.abs(f - e.numpy()).max() / max(1.0, np.abs(e.numpy()).max()))
        for f, e in zip(found, expected.values(), strict=True)
    )
