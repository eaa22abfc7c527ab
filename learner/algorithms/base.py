"""What the learner's loop needs of an algorithm."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from schemas.algorithms import LearnsFrom
from schemas.records import SpaceField
from schemas.tensors import Array


@dataclass(frozen=True, slots=True)
class UpdateResult:
    """What one update did.

    Attributes:
        td_errors: [N] float32, unweighted, of each that was drawn: the new priorities
            are their magnitudes; None: there are none.
        loss: of the batch, weighted.
        grad_norm: before clipping; the largest of several steps.
        finite: False: the loss or a gradient was not finite and nothing was changed.
        figures: what else metrics are to say, by name, as ``entropy``.
    """

    td_errors: Array | None
    loss: float
    grad_norm: float
    finite: bool
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlgorithmState:
    """All that a checkpoint keeps of an algorithm.

    Attributes:
        tensors: weights, optimiser, target; copies, safe to write from another thread.
        values: counters and RNG state, plain JSON.
    """

    tensors: Mapping[str, torch.Tensor]
    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Actor:
    """The module that workers run, and what its outputs mean.

    Attributes:
        module: ``module(observations, states) -> outputs``, mappings by name; outputs
            are the head's (``q``), and the recurrent states as ``next_state/<name>``.
        head: ``q``, ``categorical`` or ``gaussian``.
        exploration: ``epsilon_ladder``, or ``sample``: from the head's distribution.
        exploration_options: its numbers: epsilon and alpha of the ladder; of a gaussian
            ``squashed``, 1: tanh of the sample, scaled to the action's bounds; 0: the
            sample itself, clipped to them.
        observation: the fields that the module takes, stacked.
        action: the fields that the head's action fills.
        states: recurrent inputs, shapes of one environment.
    """

    module: torch.nn.Module
    head: str
    exploration: str
    exploration_options: Mapping[str, float]
    observation: tuple[SpaceField, ...]
    action: tuple[SpaceField, ...]
    states: tuple[SpaceField, ...] = field(default=())


class Algorithm(Protocol):
    """An algorithm: samples -> better parameters.

    Attributes:
        learns_from: what ``update`` is given: a Sample of transitions, or Sequences.
        sequence_length: L of sequences, those rows included that only warm up; not
            read where it learns from something else.
        updates: how many updates changed the parameters.
        rng: what the loop draws samples with; part of the state.
    """

    learns_from: LearnsFrom
    sequence_length: int
    updates: int
    rng: np.random.Generator

    def update(self, sample: Any) -> UpdateResult:
        """Learn from one sample; leaves everything as it was when not finite."""
        ...

    def actor(self) -> Actor:
        """Return the module that acts: the live one, not a copy."""
        ...

    def policy_tensors(self) -> dict[str, Array]:
        """Return copies of the actor's parameters and buffers by name."""
        ...

    def state_dict(self) -> AlgorithmState:
        """Return copies of everything that must survive."""
        ...

    def load_state_dict(self, state: AlgorithmState) -> None:
        """Go on from a state; raises ValueError when it is of another shape."""
        ...


def actor_tensors(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return a module's parameters and buffers by name, in the graph's order."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def prefixed(prefix: str, tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """Return copies on the CPU under longer names."""
    return {prefix + name: t.detach().cpu().clone() for name, t in tensors.items()}


def without_prefix(
    prefix: str, tensors: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    """Return those tensors whose names begin with ``prefix``, without it."""
    return {
        name.removeprefix(prefix): t
        for name, t in tensors.items()
        if name.startswith(prefix)
    }


def restore_tensors(
    module: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Copy tensors into a module's own, in place.

    Raises:
        ValueError: names or shapes are not the module's; nothing is copied.
    """
    own = module.state_dict()
    expected = {name: list(t.shape) for name, t in own.items()}
    found = {name: list(t.shape) for name, t in tensors.items()}
    if expected != found:
        raise ValueError(f"network tensors: expected {expected}, found {found}")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)
