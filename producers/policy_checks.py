"""Whether a policy from a topic is whole, and of this environment."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from schemas.records import EnvDescription, PolicyGraph
from schemas.sizes import stacked

_DTYPES = {
    "tensor(float)": "<f4",
    "tensor(double)": "<f8",
    "tensor(float16)": "<f2",
    "tensor(bool)": "|b1",
    "tensor(uint8)": "|u1",
    "tensor(int8)": "|i1",
    **{f"tensor(int{8 * n})": f"<i{n}" for n in (2, 4, 8)},
    **{f"tensor(uint{8 * n})": f"<u{n}" for n in (2, 4, 8)},
}


class PolicyRefused(ValueError):
    """A graph or version that cannot act here; the policy before it stays."""


def check_digest(what: str, data: bytes, sha256: str, limit: int) -> None:
    """Raise PolicyRefused unless ``data`` is small enough and has this hash."""
    if len(data) > limit:
        raise PolicyRefused(
            f"{what}: expected at most {limit} bytes, found {len(data)}"
        )
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise PolicyRefused(
            f"{what}: expected the sha256 {sha256[:12]}, found {found[:12]}"
        )


def dtype_of(node: Any) -> str:
    """Return the dtype of a graph's input or output, as NumPy writes it."""
    return _DTYPES.get(node.type, str(node.type))


def check_environment(
    graph: PolicyGraph, env: EnvDescription, frame_stack: int
) -> None:
    """Raise PolicyRefused unless a graph was made for this environment."""
    seen = {field.name: field for field in env.observation}
    for field in graph.observation:
        known = seen.get(field.name)
        expected = known and (known.dtype, stacked(known, frame_stack).shape)
        if expected != (field.dtype, field.shape):
            raise PolicyRefused(
                f"obs/{field.name}: expected {expected}, found "
                f"{(field.dtype, field.shape)}"
            )
    ours = {(f.name, f.kind, f.dtype, f.shape, f.n, f.start) for f in env.action}
    theirs = {(f.name, f.kind, f.dtype, f.shape, f.n, f.start) for f in graph.action}
    if ours != theirs:
        raise PolicyRefused(f"actions: expected {sorted(ours)}, found {sorted(theirs)}")


def check_inputs(
    graph: PolicyGraph, inputs: Mapping[str, Any], frame_stack: int
) -> None:
    """Raise PolicyRefused unless a graph takes what its record says."""
    expected = {"obs/" + f.name: f for f in graph.observation}
    states = {"state/" + f.name for f in graph.states}
    expected |= {"state/" + f.name: f for f in graph.states}
    found = {name for name in inputs if not name.startswith("param/")}
    if not found <= expected.keys() or len(found & states) < len(states):
        raise PolicyRefused(
            f"graph inputs: expected {sorted(expected)}, found {sorted(found)}"
        )
    for name in found:
        field, node = expected[name], inputs[name]
        shape = tuple(node.shape[1:])
        if dtype_of(node) != field.dtype or shape != field.shape:
            raise PolicyRefused(
                f"{name}: expected {field.dtype}{list(field.shape)}, found "
                f"{dtype_of(node)}{list(shape)}"
            )
