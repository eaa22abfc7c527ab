"""Everything a learner must not forget <-> the named bytes of a checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import safetensors.torch
from safetensors import SafetensorError

from learner.algorithms.base import AlgorithmState
from learner.checkpoint import CheckpointError, StoredCheckpoint
from learner.chunks import Blanks, ChunkRef, References
from schemas.records import DataRange, PolicyRef
from schemas.tensors import Array

TENSORS = "tensors.safetensors"
STATE = "state.json"
CHUNKS = "chunks{}.npy"
PRIORITIES = "priorities{}.npy"
"""Named with the number of their source; that of the first is left out."""

_CHUNK_COLUMNS = 8


@dataclass(frozen=True)
class LogIdentity:
    """Which log the offsets count in; another one with this name is another log."""

    cluster_id: str
    topic_id: str


@dataclass(frozen=True, kw_only=True)
class SourceSnapshot:
    """What was taken in of one source: an experiment's replay topic.

    Attributes:
        experiment: whose; None: the learner's own.
        run_id: of that experiment.
        log: whose offsets these are.
        positions: next offset by partition.
        log_was_cut: by partition, whether its beginning was gone at the run's start.
        oldest_offsets: by partition, the oldest record that would be read again.
        ledger: see Ledger.
        references: its buffer, by reference.
        ahead: see ``sources.Source``.
    """

    experiment: str | None = None
    run_id: str
    log: LogIdentity
    positions: Mapping[int, int]
    log_was_cut: Mapping[int, bool]
    oldest_offsets: Mapping[int, int]
    ledger: dict[str, Any]
    references: References
    ahead: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Snapshot(SourceSnapshot):
    """A learner between two batches: its first source, and everything else.

    Attributes:
        epoch: of the learner.
        number: 1, 2, ... within the run.
        next_version: of the policy.
        counters: see Counters.
        limiter: see RateLimiter.
        clock: see PolicyClock.
        algorithm: weights, optimiser, target, RNG.
        others: further sources, and those that the spec has no more.
        trained_on: see TrainingData.
    """

    epoch: int
    number: int
    next_version: int
    counters: dict[str, Any]
    limiter: dict[str, Any]
    algorithm: AlgorithmState
    others: tuple[SourceSnapshot, ...] = ()
    trained_on: tuple[DataRange, ...] = ()
    clock: dict[str, Any] = field(default_factory=dict)

    @property
    def sources(self) -> tuple[SourceSnapshot, ...]:
        """All sources, the first one first."""
        return (self, *self.others)

    def of(self, experiment: str | None) -> SourceSnapshot | None:
        """Return the source of an experiment; None: there was none."""
        found = [one for one in self.sources if one.experiment == experiment]
        return found[0] if found else None


def to_files(snapshot: Snapshot) -> dict[str, bytes]:
    """Return a snapshot as named bytes; slow enough for a thread of its own."""
    files: dict[str, bytes] = {}
    first, *others = (
        _pack_source(source, _suffix(index), files)
        for index, source in enumerate(snapshot.sources)
    )
    values = first | {
        "next_version": snapshot.next_version,
        "counters": snapshot.counters,
        "limiter": snapshot.limiter,
        "clock": snapshot.clock,
        "algorithm": dict(snapshot.algorithm.values),
        "others": others,
        "trained_on": [asdict(item) for item in snapshot.trained_on],
    }
    files[TENSORS] = safetensors.torch.save(dict(snapshot.algorithm.tensors))
    files[STATE] = json.dumps(values).encode()
    return files


def from_files(stored: StoredCheckpoint) -> Snapshot:
    """Return the snapshot of a checkpoint, also of one from before there were sources.

    Raises:
        CheckpointError: a file is missing or holds something else.
    """
    try:
        values = json.loads(stored.files[STATE])
        others = tuple(
            SourceSnapshot(**_unpack_source(other, _suffix(index), stored.files))
            for index, other in enumerate(values.get("others", ()), start=1)
        )
        return Snapshot(
            **_unpack_source(values, _suffix(0), stored.files),
            epoch=stored.epoch,
            number=stored.number,
            next_version=values["next_version"],
            counters=values["counters"],
            limiter=values["limiter"],
            algorithm=AlgorithmState(
                tensors=safetensors.torch.load(stored.files[TENSORS]),
                values=values["algorithm"],
            ),
            others=others,
            trained_on=tuple(map(_range, values.get("trained_on", ()))),
            clock=values.get("clock", {}),
        )
    except (AttributeError, KeyError, TypeError, ValueError, SafetensorError) as exc:
        raise CheckpointError(
            f"checkpoint {stored.epoch}-{stored.number} is not one of this version: "
            f"{exc!r}",
            "start a new run with --fresh",
        ) from exc


def _suffix(index: int) -> str:
    return f"_{index}" if index else ""


def _pack_source(
    source: SourceSnapshot, suffix: str, files: dict[str, bytes]
) -> dict[str, Any]:
    """Return a source as JSON values, and add its arrays to ``files``."""
    references = source.references
    workers, chunks = _pack_chunks(references)
    files[CHUNKS.format(suffix)] = _npy(chunks)
    files[PRIORITIES.format(suffix)] = _npy(np.asarray(references.priorities))
    return {
        "experiment": source.experiment,
        "run_id": source.run_id,
        "log": vars(source.log),
        "positions": _with_text_keys(source.positions),
        "log_was_cut": _with_text_keys(source.log_was_cut),
        "oldest_offsets": _with_text_keys(source.oldest_offsets),
        "ledger": source.ledger,
        "workers": workers,
        "first_position": references.first_position,
        "max_priority": float(references.max_priority),
        "dropped_rows": references.dropped_rows,
        "blanks_before": sorted(references.blanks.before),
        "blanks_newest": dict(references.blanks.newest),
        "is_full": references.is_full,
        "ahead": source.ahead,
    }


def _unpack_source(
    values: Mapping[str, Any], suffix: str, files: Mapping[str, bytes]
) -> dict[str, Any]:
    """Return the fields of a SourceSnapshot."""
    chunks = _array(files[CHUNKS.format(suffix)])
    newest = values.get("blanks_newest", {})
    references = References(
        first_position=values["first_position"],
        chunks=_unpack_chunks(chunks, values["workers"]),
        priorities=_array(files[PRIORITIES.format(suffix)]),
        max_priority=values["max_priority"],
        dropped_rows=values["dropped_rows"],
        blanks=Blanks(
            frozenset(values.get("blanks_before", ())),
            {worker: (first, second) for worker, (first, second) in newest.items()},
        ),
        is_full=values.get("is_full", values["first_position"] > 0),
    )
    return {
        "experiment": values.get("experiment"),
        "run_id": values["run_id"],
        "log": LogIdentity(**values["log"]),
        "positions": _with_int_keys(values["positions"]),
        "log_was_cut": _with_int_keys(values["log_was_cut"]),
        "oldest_offsets": _with_int_keys(values["oldest_offsets"]),
        "ledger": values["ledger"],
        "references": references,
        "ahead": float(values.get("ahead", 0.0)),
    }


def _range(values: dict[str, Any]) -> DataRange:
    policies = {
        name: PolicyRef(**values[name]) for name in ("first_policy", "last_policy")
    }
    return DataRange(**(values | policies))


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
