"""A policy's records -> what a file of it says of itself, as plain text and JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from schemas.experiment import EnvSpec
from schemas.records import PolicyGraph, PolicyVersion, SpaceField
from schemas.tensors import Tensor

FORMAT = "1"


def graph_facts(
    graph: PolicyGraph, version: PolicyVersion, env: EnvSpec
) -> dict[str, str]:
    """Return the metadata of an exported policy; README.md names each key."""
    return {
        "rollstream_policy": FORMAT,
        "experiment": version.experiment,
        "run": version.run_id,
        "epoch": str(version.epoch),
        "version": str(version.version),
        "train_step": str(version.train_step),
        "created_at_ms": str(version.created_at_ms),
        "graph_sha256": version.graph_sha256,
        "tensors_sha256": version.tensors_sha256,
        "environment": _json(env.model_dump(mode="json", by_alias=True)),
        "head": graph.head,
        "greedy_action": greedy_action(graph),
        "exploration": graph.exploration,
        "exploration_options": _json(dict(graph.exploration_options)),
        "observation": _json(_fields(graph.observation)),
        "action": _json(_fields(graph.action)),
        "states": _json(_fields(graph.states)),
    }


def greedy_action(graph: PolicyGraph) -> str:
    """Return what the best action is, in terms of the graph's outputs."""
    if graph.head == "q":
        return "start + argmax(q)"
    if graph.head == "categorical":
        return "start + argmax(logits)"
    if graph.exploration_options.get("squashed"):
        return "low + (tanh(mean) + 1) / 2 * (high - low)"
    return "clip(mean, low, high)"


def _fields(fields: Iterable[SpaceField]) -> list[dict[str, Any]]:
    return [describe_field(field) for field in fields]


def describe_field(field: SpaceField) -> dict[str, Any]:
    """Return a field as JSON; bounds that are the same everywhere as one number.

    A bound that is infinite is null.
    """
    found: dict[str, Any] = {
        "name": field.name,
        "kind": field.kind,
        "dtype": field.dtype,
        "shape": list(field.shape),
    }
    bounds = {"low": field.low, "high": field.high}
    found |= {name: _bound(b) for name, b in bounds.items() if b is not None}
    if field.n:
        found |= {"n": list(field.n), "start": list(field.start or (0,) * len(field.n))}
    return found


def _bound(tensor: Tensor) -> Any:
    values = tensor.array()
    if values.size and (values == values.flat[0]).all():
        values = values.flat[0]
    return _finite(np.asarray(values).tolist())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(each) for each in value]
    return value if np.isfinite(value) else None


def _json(value: Mapping[str, Any] | list[Any]) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)
