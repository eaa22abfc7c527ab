"""Everything a learner must not forget <-> the named bytes of a checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from learner.algorithms.base import AlgorithmState
from learner.checkpoint import CheckpointError, StoredCheckpoint
from learner.chunks import ChunkRef, References
from schemas.tensors import Array

TENSORS = "tensors.safetensors"
STATE = "state.json"
CHUNKS = "chunks.npy"
PRIORITIES = "priorities.npy"

_CHUNK_COLUMNS = 8


@dataclass(frozen=True)
class LogIdentity:
    """Which log the offsets count in; another one with this name is another log."""

    cluster_id: str
    topic_id: str


@dataclass(frozen=True)
class Snapshot:
    """A learner between two batches.

    Attributes:
        epoch: of the learner.
        number: 1, 2, ... within the run.
        run_id: the run.
        log: whose offsets these are.
        positions: next offset by partition.
        log_was_cut: by partition, whether its beginning was gone at the run's start.
        oldest_offsets: by partition, the oldest record that would be read again.
        next_version: of the policy.
        counters: see Counters.
        ledger: see Ledger.
        limiter: see RateLimiter.
        algorithm: weights, optimiser, target, RNG.
        references: the buffer, by reference.
    """

    epoch: int
    number: int
    run_id: str
    log: LogIdentity
    positions: Mapping[int, int]
    log_was_cut: Mapping[int, bool]
    oldest_offsets: Mapping[int, int]
    next_version: int
    counters: dict[str, Any]
    ledger: dict[str, Any]
    limiter: dict[str, Any]
    algorithm: AlgorithmState
    references: References


def to_files(snapshot: Snapshot) -> dict[str, bytes]:
    """Return a snapshot as named bytes; slow enough for a thread of its own."""
    references = snapshot.references
    workers, chunks = _pack_chunks(references)
    values = {
        "run_id": snapshot.run_id,
        "log": vars(snapshot.log),
        "positions": _with_text_keys(snapshot.positions),
        "log_was_cut": _with_text_keys(snapshot.log_was_cut),
        "oldest_offsets": _with_text_keys(snapshot.oldest_offsets),
        "next_version": snapshot.next_version,
        "counters": snapshot.counters,
        "ledger": snapshot.ledger,
        "limiter": snapshot.limiter,
        "algorithm": dict(snapshot.algorithm.values),
        "workers": workers,
        "first_position": references.first_position,
        "max_priority": float(references.max_priority),
        "dropped_rows": references.dropped_rows,
    }
    return {
        TENSORS: safetensors.torch.save(dict(snapshot.algorithm.tensors)),
        STATE: json.dumps(values).encode(),
        CHUNKS: _npy(chunks),
        PRIORITIES: _npy(np.asarray(references.priorities)),
    }


def from_files(stored: StoredCheckpoint) -> Snapshot:
    """Return the snapshot of a checkpoint.

    Raises:
        CheckpointError: a file is missing or holds something else.
    """
    try:
        values = json.loads(stored.files[STATE])
        chunks = _unpack_chunks(_array(stored.files[CHUNKS]), values["workers"])
        references = References(
            first_position=values["first_position"],
            chunks=chunks,
            priorities=_array(stored.files[PRIORITIES]),
            max_priority=values["max_priority"],
            dropped_rows=values["dropped_rows"],
        )
        return Snapshot(
            epoch=stored.epoch,
            number=stored.number,
            run_id=values["run_id"],
            log=LogIdentity(**values["log"]),
            positions=_with_int_keys(values["positions"]),
            log_was_cut=_with_int_keys(values["log_was_cut"]),
            oldest_offsets=_with_int_keys(values["oldest_offsets"]),
            next_version=values["next_version"],
            counters=values["counters"],
            ledger=values["ledger"],
            limiter=values["limiter"],
            algorithm=AlgorithmState(
                tensors=safetensors.torch.load(stored.files[TENSORS]),
                values=values["algorithm"],
            ),
            references=references,
        )
    except (KeyError, TypeError, ValueError, SafetensorError) as exc:
        raise CheckpointError(
            f"checkpoint {stored.epoch}-{stored.number} is not one of this version: "
            f"{exc!r}",
            "start a new run with --fresh",
        ) from exc


def _pack_chunks(references: References) -> tuple[list[str], Array]:
    workers: dict[str, int] = {}
    rows = [
        (
            chunk.partition,
            chunk.offset,
            workers.setdefault(chunk.worker, len(workers)),
            chunk.incarnation,
            chunk.sequence,
            chunk.first_step,
            chunk.num_steps,
            chunk.num_envs,
        )
        for chunk in references.chunks
    ]
    return list(workers), np.array(rows, np.int64).reshape(-1, _CHUNK_COLUMNS)


def _unpack_chunks(chunks: Array, workers: list[str]) -> tuple[ChunkRef, ...]:
    return tuple(
        ChunkRef(partition, offset, workers[worker], *rest)
        for partition, offset, worker, *rest in chunks.tolist()
    )


def _npy(array: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def _array(data: bytes) -> Array:
    array: Array = np.load(io.BytesIO(data), allow_pickle=False)
    return array


def _with_text_keys(values: Mapping[int, Any]) -> dict[str, Any]:
    return {str(key): value for key, value in values.items()}


def _with_int_keys(values: Mapping[str, Any]) -> dict[int, Any]:
    return {int(key): value for key, value in values.items()}
