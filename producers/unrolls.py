"""Unroll arrays -> records that fit their topics."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace

from producers.packing import Packing
from producers.rollout import Arrays, UnrollArrays
from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.records import Unroll
from schemas.shapes import VALUE_COLUMNS
from schemas.sizes import MAX_BATCH_BYTES, MAX_UNROLL_BYTES, fits_record
from schemas.tensors import pack, pack_map


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
