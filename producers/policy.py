"""PolicyGraph and PolicyVersion records -> a policy that answers observations.

Nothing from a topic is unpickled: graphs are ONNX, parameters safetensors, and both
are checked against their hashes, the environment and each other before they act.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from infra.policies.precision import widened
from producers.heads import Answers, check_head, check_outputs
from producers.policy_checks import PolicyRefused as PolicyRefused
from producers.policy_checks import (
    check_digest,
    check_environment,
    check_inputs,
    dtype_of,
)
from producers.spaces import Fields
from schemas.external_data import names_external_data
from schemas.records import (
    EnvDescription,
    PolicyGraph,
    PolicyRef,
    PolicyVersion,
)
from schemas.sizes import MAX_POLICY_BYTES
from schemas.tensors import Array

if TYPE_CHECKING:
    import onnxruntime

Places = Mapping[str, "onnxruntime.OrtValue"]
"""Memory by name of the output that is to be written there."""

MAX_GRAPH_BYTES = 15 << 20


@dataclass(frozen=True)
class PolicySession:
    """A graph ready to run.

    Attributes:
        graph: its record.
        observed: the fields whose input the graph has kept; an exporter drops those
            that nothing depends on.
        params: dtype and shape of each parameter and buffer it has kept, by name.
        answers: what its head gives, by name.
    """

    graph: PolicyGraph
    observed: tuple[str, ...]
    params: Mapping[str, tuple[str, tuple[int, ...]]]
    answers: Answers
    _session: onnxruntime.InferenceSession

    def bind(self, params: Fields) -> BoundSession:
        """Return a session that has taken parameters, as ``load`` returned them."""
        return BoundSession(self, self._session, params)

    @property
    def output_names(self) -> list[str]:
        """The outputs that acting needs, in the order they are run."""
        states = ["next_state/" + field.name for field in self.graph.states]
        return [*self.answers, *states]

    def load(
        self, version: PolicyVersion, tensors: bytes, *, is_verified: bool = False
    ) -> Fields:
        """Return a version's parameters as inputs of the graph.

        Args:
            version: its record.
            tensors: its safetensors bytes; half-precision numbers are widened to what
                the graph takes.
            is_verified: their digest has been found right already.

        Raises:
            PolicyRefused: bytes, names, dtypes or shapes are not those expected, or a
                number is not finite.
        """
        if version.graph_sha256 != self.graph.sha256:
            raise PolicyRefused(
                f"expected the graph {self.graph.sha256[:12]}, found "
                f"{version.graph_sha256[:12]}"
            )
        if not is_verified:
            check_digest("tensors", tensors, version.tensors_sha256, MAX_POLICY_BYTES)
        arrays = _read_safetensors(tensors)
        missing = sorted(self.params.keys() - arrays.keys())[:5]
        if missing:
            raise PolicyRefused(f"tensors: expected also {missing}, found none such")
        for name, (dtype, shape) in self.params.items():
            found = arrays[name] = widened(arrays[name], dtype)
            if found.dtype != np.dtype(dtype) or found.shape != shape:
                raise PolicyRefused(
                    f"{name}: expected {dtype}{list(shape)}, found "
                    f"{found.dtype.str}{list(found.shape)}"
                )
            if found.dtype.kind == "f" and not np.isfinite(found).all():
                odd = found[~np.isfinite(found)]
                raise PolicyRefused(
                    f"{name}: expected finite numbers, found {odd[0]} in {odd.size} of "
                    f"{found.size} places"
                )
        return {"param/" + name: arrays[name] for name in self.params}


class BoundSession:
    """A graph with parameters: handed over once, not at every step."""

    def __init__(
        self,
        session: PolicySession,
        onnx: onnxruntime.InferenceSession,
        params: Fields,
    ) -> None:
        self._onnx = onnx
        self._observed = [(name, "obs/" + name) for name in session.observed]
        self._outputs = session.output_names
        self._binding = onnx.io_binding()
        for name, array in params.items():
            self._bind(name, array)
        for name in self._outputs:
            self._binding.bind_output(name)  # they stay in the order of their first

    def run(
        self, observations: Fields, states: Fields, into: Places | None = None
    ) -> dict[str, Array]:
        """Return the graph's outputs by name: the head's, and ``next_state/<name>``.

        Args:
            observations: [B, ...] by field name, more fields than the graph takes.
            states: [B, ...] by name.
            into: where outputs are to be written, by name; those are not returned.
        """
        binding, into = self._binding, into or {}
        for name, graph_input in self._observed:
            self._bind(graph_input, observations[name])
        for name, state in states.items():
            self._bind("state/" + name, state)
        for name, place in into.items():
            binding.bind_ortvalue_output(name, place)
        if len(into) == len(self._outputs):
            self._onnx.run_with_iobinding(binding)
            return {}
        others = [name for name in self._outputs if name not in into]
        for name in others:
            # Anew each time: else the last run's memory, which others hold, is used.
            binding.bind_output(name)
        self._onnx.run_with_iobinding(binding)
        values = dict(zip(self._outputs, binding.get_outputs(), strict=True))
        return {name: values[name].numpy() for name in others}

    def _bind(self, name: str, values: Array) -> None:
        # Its own memory is read. (ascontiguousarray would make [1] of a scalar.)
        self._binding.bind_cpu_input(name, np.asarray(values, order="C"))


@dataclass(frozen=True)
class Policy:
    """One version, ready to act.

    Attributes:
        ref: its epoch and version.
        version: its record.
        tensors: its safetensors bytes.
    """

    session: PolicySession
    version: PolicyVersion
    tensors: bytes
    params: Fields

    @cached_property
    def _bound(self) -> BoundSession:
        return self.session.bind(self.params)

    @property
    def ref(self) -> PolicyRef:
        """Its place in the order of all."""
        return PolicyRef(self.version.epoch, self.version.version)

    def run(
        self, observations: Fields, states: Fields, into: Places | None = None
    ) -> dict[str, Array]:
        """Return the outputs for a batch; see BoundSession.run."""
        return self._bound.run(observations, states, into)


def places(array: Array) -> list[onnxruntime.OrtValue]:
    """Return the rows of an array as memory that outputs can be written to."""
    from onnxruntime import OrtValue

    return [OrtValue.ortvalue_from_numpy(row) for row in array]


def open_graph(
    graph: PolicyGraph, env: EnvDescription, frame_stack: int = 1
) -> PolicySession:
    """Open a graph for an environment.

    Raises:
        PolicyRefused: it is damaged, or is not of this environment.
    """
    check_digest("graph", graph.onnx, graph.sha256, MAX_GRAPH_BYTES)
    if names_external_data(graph.onnx):
        raise PolicyRefused("graph: expected all data inside it, found external data")
    check_environment(graph, env, frame_stack)
    check_head(graph)
    session = _make_session(graph.onnx)
    inputs = {each.name: each for each in session.get_inputs()}
    params = {}
    for name, each in inputs.items():
        if name.startswith("param/"):
            params[name.removeprefix("param/")] = (dtype_of(each), tuple(each.shape))
    check_inputs(graph, inputs, frame_stack)
    outputs = {each.name: each for each in session.get_outputs()}
    answers = check_outputs(graph, outputs)
    observed = tuple(f.name for f in graph.observation if "obs/" + f.name in inputs)
    return PolicySession(graph, observed, params, answers, session)


def _make_session(onnx: bytes) -> onnxruntime.InferenceSession:
    # Imported when the first graph comes: 20 MB that the start can do without.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One core for one worker; more only fight over it.
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Else it guesses, and what is looked for above is written otherwise in its own.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    try:
        return onnxruntime.InferenceSession(
            onnx, options, providers=["CPUExecutionProvider"]
        )
    except Exception as exc:  # its errors share no base class but this
        raise PolicyRefused(f"graph: cannot be opened: {exc}") from exc


def _read_safetensors(data: bytes) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        arrays = load(data)
    except (SafetensorError, ValueError, KeyError, TypeError) as exc:
        raise PolicyRefused(f"tensors: expected safetensors, found {exc}") from exc
    return {name.removeprefix("param/"): array for name, array in arrays.items()}
