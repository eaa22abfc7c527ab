"""A record of which nothing, or not all, is wanted -> one that keeps its place.

Streams have no holes: what is not wanted is sent without what is in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from schemas.records import Tensors, Unroll
from schemas.tensors import Array, Tensor, pack


def blanked(unroll: Unroll) -> Unroll:
    """Return the record with no valid row, and next to nothing in it.

    The first row's observation stays: the row before may bootstrap from it. Actions are
    repeated, for there may be no action 0.
    """
    return replace(
        unroll,
        observations=_each(unroll.observations, _first_only),
        actions=_each(unroll.actions, _first_repeated),
        rewards=_zeros(unroll.rewards),
        terminated=_zeros(unroll.terminated),
        truncated=_zeros(unroll.truncated),
        valid=_zeros(unroll.valid),
        states=_each(unroll.states, _zeros),
        behaviour=_each(unroll.behaviour, _zeros),
        infos=_each(unroll.infos, _zeros),
    )


def masked(unroll: Unroll, chosen: Array) -> Unroll:
    """Return the record with only ``chosen`` rows [T, B] valid."""
    valid = unroll.valid.array() & chosen
    return replace(unroll, valid=pack(valid, unroll.valid.encoding))


def _each(tensors: Tensors, make: Callable[[Tensor], Tensor]) -> Mapping[str, Tensor]:
    return {name: make(tensor) for name, tensor in tensors.items()}


def _zeros(tensor: Tensor) -> Tensor:
    return pack(np.zeros(tensor.shape, tensor.dtype), "ZSTD")


def _first_only(tensor: Tensor) -> Tensor:
    array = np.zeros(tensor.shape, tensor.dtype)
    array[0] = tensor.array()[0]
    return pack(array, "ZSTD")


def _first_repeated(tensor: Tensor) -> Tensor:
    first = tensor.array()[:1]
    return pack(np.broadcast_to(first, tensor.shape), "ZSTD")
