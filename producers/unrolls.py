"""Unroll arrays -> records of at most 8 MiB; observations packed where it pays."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

import numpy as np

from producers.rollout import Arrays, UnrollArrays
from producers.spaces import Fields
from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.records import SpaceField, Unroll
from schemas.shapes import VALUE_COLUMNS
from schemas.tensors import (
    MAX_TENSOR_BYTES,
    Array,
    Encoding,
    Tensor,
    pack,
    pack_map,
)

MAX_UNROLL_BYTES = 8 << 20
_HEADER_BYTES = 64 << 10
_MEASURED_UNROLLS = 4
# Opening costs the learner time too: a tenth saved is not worth it, half is.
_PAYS_BELOW = 0.5


class Packing:
    """Finds out, on the first unrolls, which observations are worth compressing.

    Attributes:
        ratios: compressed size / size, by field, the worst seen.
    """

    def __init__(self) -> None:
        self.ratios: dict[str, float] = {}
        self._left = _MEASURED_UNROLLS

    def pack(self, observations: Fields) -> dict[str, Tensor]:
        """Pack each field: ZSTD where that at least halved the first unrolls."""
        if self._left > 0:
            self._measure(observations)
        return {
            name: pack(array, self._encoding(name, array))
            for name, array in observations.items()
        }

    def _encoding(self, name: str, array: Array) -> Encoding:
        if self.ratios.get(name, 1.0) > _PAYS_BELOW:
            return "RAW"
        # Who computes discounts must see such a value, and opens only what is RAW.
        if array.dtype.kind in "fc" and not np.isfinite(array).all():
            return "RAW"
        return "ZSTD"

    def _measure(self, observations: Fields) -> None:
        self._left -= 1
        for name, array in observations.items():
            if array.nbytes:
                found = len(pack(array, "ZSTD").data) / array.nbytes
                self.ratios[name] = max(found, self.ratios.get(name, 0.0))


def longest_unroll(
    observation: tuple[SpaceField, ...], action: tuple[SpaceField, ...], num_envs: int
) -> int:
    """Return how many steps surely fit one record, whatever the observations are.

    Raises:
        SchemaError: not even one does; says the sum.
    """
    seen = [num_envs * _bytes(field) for field in observation]
    row = sum(seen) + num_envs * (sum(map(_bytes, action)) + 8 + 3 + 3 * 4)
    budget = MAX_UNROLL_BYTES - _HEADER_BYTES - sum(seen) - num_envs * 8
    if budget < row:
        raise SchemaError(
            f"a step of {num_envs} environments: expected two of them within "
            f"{MAX_UNROLL_BYTES} bytes, found {row} bytes each: fewer envsPerWorker"
        )
    return budget // row


def most_steps(observation: tuple[SpaceField, ...], num_envs: int) -> int:
    """Return how many steps fit one record's tensors if compression helps enough."""
    largest = max(num_envs * _bytes(field) for field in observation)
    return max(MAX_TENSOR_BYTES // max(largest, 1) - 1, 1)


def _bytes(field: SpaceField) -> int:
    return math.prod(field.shape) * np.dtype(field.dtype).itemsize


@dataclass(frozen=True)
class Encoded:
    """One record, ready to send.

    Attributes:
        value: its bytes.
        num_steps: T.
        all_steps: T·B.
        valid_steps: how many of those rows are transitions.
    """

    value: bytes
    num_steps: int
    all_steps: int
    valid_steps: int


def encode_unrolls(
    arrays: UnrollArrays, template: Unroll, packing: Packing
) -> Iterator[Encoded]:
    """Encode an unroll, as several records where one would exceed MAX_UNROLL_BYTES.

    Args:
        arrays: what was done.
        template: names, incarnation, time and first sequence; its arrays are ignored.
            With ``end_of_stream`` only the last record has it.
        packing: how observations are packed.

    Raises:
        SchemaError: a single step is too large.
    """
    record = to_record(arrays, template, packing)
    value = encode(record)
    if len(value) <= MAX_UNROLL_BYTES:
        valid = arrays.rows.valid
        yield Encoded(value, arrays.num_steps, valid.size, int(valid.sum()))
        return
    if arrays.num_steps == 1 or arrays.states:
        raise SchemaError(
            f"unroll: expected at most {MAX_UNROLL_BYTES} bytes, found {len(value)} in "
            f"{arrays.num_steps} steps"
        )
    first, second = _halves(arrays)
    sequence = template.sequence
    for part in encode_unrolls(first, replace(template, end_of_stream=False), packing):
        sequence += 1
        yield part
    yield from encode_unrolls(second, replace(template, sequence=sequence), packing)


def to_record(arrays: UnrollArrays, template: Unroll, packing: Packing) -> Unroll:
    """Return the record of an unroll."""
    rows = arrays.rows
    return replace(
        template,
        first_step=arrays.first_step,
        num_steps=arrays.num_steps,
        num_envs=rows.rewards.shape[1],
        policy=arrays.policy,
        observations=packing.pack(arrays.observations),
        actions=pack_map(arrays.actions),
        rewards=pack(rows.rewards),
        terminated=pack(rows.terminated),
        truncated=pack(rows.truncated),
        valid=pack(rows.valid),
        episodes=pack(arrays.episodes),
        states=pack_map(arrays.states),
        behaviour=pack_map(arrays.behaviour),
    )


def _halves(arrays: UnrollArrays) -> tuple[UnrollArrays, UnrollArrays]:
    middle = arrays.num_steps // 2
    return _part(arrays, 0, middle), _part(arrays, middle, arrays.num_steps)


def _part(arrays: UnrollArrays, start: int, stop: int) -> UnrollArrays:
    """Return rows ``start`` to ``stop``; row ``stop``'s observation is in both parts.

    Its value was computed by the same policy, so it is the last row's of either.
    """
    rows = arrays.rows

    def cut(columns: Arrays, longer: Container[str]) -> Arrays:
        return {n: c[start : stop + (n in longer)] for n, c in columns.items()}

    return replace(
        arrays,
        first_step=arrays.first_step + start,
        observations=cut(arrays.observations, arrays.observations),
        actions=cut(arrays.actions, ()),
        rows=replace(
            rows,
            rewards=rows.rewards[start:stop],
            terminated=rows.terminated[start:stop],
            truncated=rows.truncated[start:stop],
            valid=rows.valid[start:stop],
            failed=rows.failed[start:stop],
        ),
        episodes=arrays.episodes + rows.ended[:start].sum(0),
        behaviour=cut(arrays.behaviour, VALUE_COLUMNS),
    )
