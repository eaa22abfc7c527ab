"""How large fields, unrolls, and the batches made of them become; pure.

Whoever judges an experiment before it runs and whoever runs it go by the same sums.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from schemas.errors import SchemaError
from schemas.records import SpaceField
from schemas.tensors import MAX_TENSOR_BYTES
from schemas.topics import REPLAY

MAX_UNROLL_BYTES = 8 << 20
MAX_BATCH_BYTES = int(REPLAY.config["max.message.bytes"])
POLICY_INLINE_BYTES = 256_000
"""A policy version with more bytes of tensors travels in parts, by its address."""

POLICY_CHUNK_BYTES = 8_000_000
"""The size of such a part; the history holds what is no larger."""

MAX_POLICY_BYTES = 512 << 20
"""What claims to be larger is no policy."""

# Names, shapes and numbers of one record; and what a batch has of those beyond its
# unroll.
_HEADER_BYTES = 64 << 10
# Of a row: the reward, three flags, and what a head of q values says of its action.
_ROW_BYTES = 8 + 3 + 3 * 4
# Of an environment: its episode's number, and the value of its last observation.
_ENV_BYTES = 8 + 4
RETURN_BYTES = 4 * 4
"""What a batch adds to a row: return, discount, steps to bootstrap from, priority."""


def field_bytes(field: SpaceField) -> int:
    """Return the size of one element."""
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


def stacked(field: SpaceField, frame_stack: int) -> SpaceField:
    """Return what a policy sees of a field: k frames, oldest first, when stacked.

    A stack has no bounds: no network needs them.
    """
    if frame_stack == 1:
        return field
    return replace(field, shape=(frame_stack, *field.shape), low=None, high=None)


def flat_size(field: SpaceField) -> int:
    """Return how many inputs of a network a field makes: one-hot where discrete.

    Raises:
        SchemaError: the field's kind has no place in a network.
    """
    count = math.prod(field.shape)
    if field.kind in ("box", "multi_binary"):
        return count
    if field.kind in ("discrete", "multi_discrete"):
        # A stack repeats the whole row of values.
        return sum(field.n) * (count // len(field.n))
    raise SchemaError(
        f"observation {field.name!r}: expected box, discrete, multi_discrete or "
        f"multi_binary, found {field.kind}"
    )


def fits_record(unroll_bytes: int, rows: int) -> bool:
    """Whether an encoded unroll fits its topic, and the batch made of it fits replay.

    Args:
        unroll_bytes: of the record.
        rows: T·B.
    """
    batch_bytes = unroll_bytes + rows * RETURN_BYTES + _HEADER_BYTES
    return unroll_bytes <= MAX_UNROLL_BYTES and batch_bytes <= MAX_BATCH_BYTES


def longest_unroll(
    observation: Iterable[SpaceField], action: Iterable[SpaceField], num_envs: int
) -> int:
    """Return how many steps surely fit one record, whatever the observations are.

    Raises:
        SchemaError: not even one does; says the sum.
    """
    seen = sum(map(field_bytes, observation))
    acted = sum(map(_acted_bytes, action))
    steps = _steps_within(seen, acted, num_envs)
    if steps < 1:
        found = num_envs * (2 * seen + acted + _ROW_BYTES + _ENV_BYTES)
        raise SchemaError(
            f"expected a step of {num_envs} environments, with the observations "
            f"before and after it, within {MAX_UNROLL_BYTES - _HEADER_BYTES} bytes, "
            f"found {found}: fewer envsPerWorker"
        )
    return steps


def most_steps(
    observation: Iterable[SpaceField], action: Iterable[SpaceField], num_envs: int
) -> int:
    """Return how many steps fit one record if its observations compress to nothing."""
    largest = num_envs * max(map(field_bytes, observation), default=0)
    opened = MAX_TENSOR_BYTES // max(largest, 1) - 1
    acted = sum(map(_acted_bytes, action))
    return max(min(opened, _steps_within(0, acted, num_envs)), 1)


def _acted_bytes(field: SpaceField) -> int:
    """Return the size of an action, with the sample that a gaussian made it from."""
    is_drawn = field.kind == "box" and np.dtype(field.dtype).kind == "f"
    return field_bytes(field) + (4 * math.prod(field.shape) if is_drawn else 0)


def _steps_within(seen: int, acted: int, num_envs: int) -> int:
    """Return the steps that fit, of so many bytes an observation and an action."""
    once = num_envs * (seen + _ENV_BYTES) + _HEADER_BYTES
    row = num_envs * (seen + acted + _ROW_BYTES)
    in_unroll = (MAX_UNROLL_BYTES - once) // row
    in_batch = (MAX_BATCH_BYTES - _HEADER_BYTES - once) // (
        row + num_envs * RETURN_BYTES
    )
    return min(in_unroll, in_batch)
