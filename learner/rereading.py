"""What a checkpoint refers to, read again from the log -> what is as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from learner.batch_arrays import BatchArrays, BatchMismatch
from learner.chunks import ChunkRef, reference
from learner.sum_tree import Floats
from schemas.errors import SchemaError
from schemas.records import TransitionBatch

FetchedBatch = tuple[int, int, TransitionBatch]
"""(partition, offset, batch)."""


class Referred(Protocol):
    """What is to be filled again."""

    @property
    def ref(self) -> ChunkRef:
        """The batch that it was filled from."""


Held = TypeVar("Held", bound=Referred)


def read_again(
    wanted: dict[tuple[int, int], tuple[Held, Floats]],
    batches: Iterable[FetchedBatch],
    open_arrays: Callable[[TransitionBatch], BatchArrays],
    is_held: Callable[[Held], bool] = lambda held: True,
) -> Iterator[tuple[Held, Floats, BatchArrays, TransitionBatch]]:
    """Yield what is wanted with its priorities and batch, and take it out of there.

    What is not the batch that it was, or cannot be opened any more, stays in
    ``wanted``: it is lost.

    Args:
        wanted: by address.
        batches: in any order; others than those are ignored.
        open_arrays: raises BatchMismatch or SchemaError where that cannot be done.
        is_held: whether there still is room for it.
    """
    for partition, offset, batch in batches:
        held, priorities = wanted.get((partition, offset), (None, None))
        if held is None or priorities is None or not is_held(held):
            continue
        if reference(batch, partition, offset) != held.ref:
            continue
        try:
            arrays = open_arrays(batch)
        except (BatchMismatch, SchemaError):
            continue
        del wanted[partition, offset]
        yield held, priorities, arrays, batch
