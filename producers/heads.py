"""The heads that a policy may have: what each answers, and which actions that makes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from producers.policy_checks import PolicyRefused, dtype_of
from schemas.records import PolicyGraph, SpaceField

Answers = Mapping[str, tuple[str, tuple[int, ...]]]
"""Dtype and shape, for one environment, of each output by name."""


@dataclass(frozen=True, slots=True)
class Head:
    """What is asked of a graph.

    Attributes:
        outputs: that it has.
        optional: that it may have.
        explorations: ways to act that it allows.
        kind: of the one action field that it fills.
    """

    outputs: tuple[str, ...]
    explorations: tuple[str, ...]
    kind: str
    optional: tuple[str, ...] = ()


HEADS: Mapping[str, Head] = {
    "q": Head(("q",), ("epsilon_ladder", "none"), "discrete"),
    "categorical": Head(("logits", "value"), ("sample", "none"), "discrete"),
    "gaussian": Head(("log_std", "mean"), ("sample", "none"), "box", ("value",)),
}


def is_squashed(graph: PolicyGraph) -> bool:
    """Whether a gaussian head's samples go through tanh to the action's bounds."""
    return bool(graph.exploration_options.get("squashed", 0.0))


def check_head(graph: PolicyGraph) -> None:
    """Raise PolicyRefused unless a head can fill the action, in the way it says."""
    head = HEADS.get(graph.head)
    if head is None:
        raise PolicyRefused(f"head: expected {sorted(HEADS)}, found {graph.head!r}")
    if graph.exploration not in head.explorations:
        raise PolicyRefused(
            f"exploration: expected {head.explorations} with the head {graph.head}, "
            f"found {graph.exploration!r}"
        )
    kinds = [field.kind for field in graph.action]
    if kinds != [head.kind]:
        raise PolicyRefused(
            f"actions: expected one {head.kind} with the head {graph.head}, found "
            f"{kinds}"
        )
    if graph.head == "gaussian":
        _check_box(graph.action[0], is_squashed(graph))


def _check_box(field: SpaceField, squashed: bool) -> None:
    if np.dtype(field.dtype).kind != "f" or field.low is None or field.high is None:
        raise PolicyRefused(
            f"actions: expected a box of floats with the head gaussian, found "
            f"{field.dtype}"
        )
    low, high = (b.array().astype(np.float64) for b in (field.low, field.high))
    if squashed and not np.isfinite(high - low).all():
        raise PolicyRefused(
            "actions: expected finite bounds to squash samples to, found "
            f"{low.min():g} to {high.max():g}"
        )


def check_outputs(graph: PolicyGraph, outputs: Mapping[str, Any]) -> Answers:
    """Return what a graph answers with of what its head and states are.

    Raises:
        PolicyRefused: an output is missing, or of another shape or dtype.
    """
    head, (field,) = HEADS[graph.head], graph.action
    states = {"next_state/" + state.name: state for state in graph.states}
    missing = sorted({*head.outputs, *states} - outputs.keys())
    if missing:
        raise PolicyRefused(f"graph: expected the outputs {missing}, found none")
    for name, state in states.items():
        _check_shape(name, outputs[name], state.shape)
        if dtype_of(outputs[name]) != state.dtype:
            raise PolicyRefused(
                f"{name}: expected {state.dtype}, found {dtype_of(outputs[name])}"
            )
    answers = {}
    for name in (*head.outputs, *(n for n in head.optional if n in outputs)):
        shape = _shape_of(name, field)
        _check_shape(name, outputs[name], shape)
        dtype = dtype_of(outputs[name])
        if dtype not in ("<f2", "<f4", "<f8"):
            raise PolicyRefused(f"{name}: expected floats, found {dtype}")
        answers[name] = (dtype, shape)
    return answers


def _shape_of(name: str, field: SpaceField) -> tuple[int, ...]:
    if name == "value":
        return ()
    return field.shape if field.kind == "box" else (field.n[0],)


def _check_shape(name: str, node: Any, expected: tuple[int, ...]) -> None:
    """Compare what is known of an output's shape; a name stands for any size."""
    found = tuple(node.shape[1:])
    same = len(node.shape) == 1 + len(expected) and all(
        theirs == ours or not isinstance(theirs, int)
        for theirs, ours in zip(found, expected, strict=True)
    )
    if not same:
        raise PolicyRefused(
            f"{name}: expected [batch, *{list(expected)}], found {list(node.shape)}"
        )
