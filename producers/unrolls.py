"""Unroll arrays -> records that fit their topics; observations packed where it pays."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

import numpy as np

from producers.rollout import Arrays, UnrollArrays
from producers.spaces import Fields
from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.shapes import VALUE_COLUMNS
from schemas.sizes import MAX_BATCH_BYTES, MAX_UNROLL_BYTES, fits_record
from schemas.tensors import Array, Encoding, Tensor, pack, pack_map

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
    """Encode an unroll, as several records where one, or its batch, would be too large.

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
    valid = arrays.rows.valid
    if fits_record(len(value), valid.size):
        yield Encoded(value, arrays.num_steps, valid.size, int(valid.sum()))
        return
    if arrays.num_steps == 1:
        raise SchemaError(
            f"unroll: expected at most {MAX_UNROLL_BYTES} bytes, and {MAX_BATCH_BYTES} "
            f"for the batch made of it, found {len(value)} in {valid.size} rows of "
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
        states=pack_map({name: past[0] for name, past in arrays.states.items()}),
        behaviour=pack_map(arrays.behaviour),
    )


def _halves(arrays: UnrollArrays) -> tuple[UnrollArrays, UnrollArrays]:
    middle = arrays.num_steps // 2
    return _part(arrays, 0, middle), _part(arrays, middle, arrays.num_steps)


def _part(arrays: UnrollArrays, start: int, stop: int) -> UnrollArrays:
    """Return rows ``start`` to ``stop``; row ``stop``'s observation is in both parts.

    Its value was computed by the same policy, so it is the last row's of either; the
    state before row ``start`` was the policy's own, too.
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
        states=cut(arrays.states, arrays.states),
        behaviour=cut(arrays.behaviour, VALUE_COLUMNS),
    )
