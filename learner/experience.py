"""What a learner keeps of one source, whatever its algorithm learns from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np

from learner.algorithms.base import Algorithm
from learner.chunks import References
from learner.origins import Origins
from learner.replay_buffer import ReplayBuffer
from learner.rereading import FetchedBatch
from learner.sample import Sample, Sequences
from learner.sequence_buffer import SequenceBuffer
from learner.sum_tree import Indices
from learner.unroll_columns import Columns
from learner.unroll_queue import UnrollQueue
from schemas.experiment import ReplaySpec, Spec
from schemas.records import EnvDescription, TransitionBatch
from schemas.tensors import Array


class Pool(Protocol):
    """Rows that are drawn from: those of one source, or of several as one."""

    @property
    def rows(self) -> int:
        """Valid rows held."""

    @property
    def samplable_rows(self) -> int:
        """Rows that can be drawn now."""

    @property
    def learnable_rows(self) -> int:
        """Those, and rows that wait for others to come."""

    @property
    def dropped_rows(self) -> int:
        """Cumulative: rows that never were drawn, and never will be."""

    @property
    def is_full(self) -> bool:
        """Whether rows were evicted for others: it never holds many more than now."""

    def sample(
        self, batch_size: int, beta: float, rng: np.random.Generator
    ) -> Sample | Sequences:
        """Draw about ``batch_size`` rows.

        Raises:
            ValueError: nothing can be drawn.
        """

    def update_priorities(self, indices: Indices, td_errors: Array) -> None:
        """Set the priorities of what was drawn, where it is still there."""

    def drop_older(self, version: int) -> int:
        """Drop rows of policies before a version; return how many could be learnt from.

        Exact, wherever they are, and cheap enough for each version that is published.
        Rows in which no policy acted are older than any where the algorithm is
        on-policy, and otherwise stay.
        """


class Experience(Pool, Protocol):
    """The rows of one source: a ring of whole batches, each by reference to the log.

    Attributes:
        refused_rows: cumulative, valid rows that never can be learnt from.
        origins: which policy acted in a row, when, and for which worker.
    """

    refused_rows: int
    origins: Origins

    def insert(self, batch: TransitionBatch, partition: int, offset: int) -> int:
        """Take in a batch that was read at an address; return its valid rows.

        Raises:
            BatchMismatch, SchemaError, ValueError: as ``ReplayBuffer.insert``.
        """

    def pass_over(self, batch: TransitionBatch) -> None:
        """Note a batch without a valid row: it gets no room."""

    def over_before(self, worker: str, incarnation: int) -> None:
        """Note that no stream of a worker before an incarnation goes on.

        Batches of it may still be under way.
        """

    def references(self) -> References:
        """Return the content by reference; a copy, quick whatever the size."""

    def restore(self, references: References, batches: Iterable[FetchedBatch]) -> int:
        """Rebuild the content of an empty one; return the rows that are gone."""

    def oldest_offsets(self) -> dict[int, int]:
        """Return, by partition, the first offset that is still referred to."""


def make_experience(
    algorithm: Algorithm, env: EnvDescription, spec: Spec, replay: ReplaySpec, *,
    unroll_length: int,
) -> Experience:  # fmt: skip
    """Return an empty one of the kind that an algorithm learns from.

    Args:
        algorithm: whose.
        env: what the batches' fields must be; single frames.
        spec: the experiment's.
        replay: of this source, whose share it may be.
        unroll_length: the source's usual T.
    """
    if algorithm.learns_from == "unrolls":
        columns = Columns.of(algorithm.actor(), env.action)
        return UnrollQueue(env, columns, frame_stack=spec.env.frame_stack)
    if algorithm.learns_from == "sequences":
        return SequenceBuffer(
            env,
            replay,
            unroll_length=unroll_length,
            sequence_length=algorithm.sequence_length,
            burn_in=spec.learner.r2d2.burn_in,
            states=algorithm.actor().states,
            frame_stack=spec.env.frame_stack,
        )
    return ReplayBuffer(
        env, replay, unroll_length=unroll_length, frame_stack=spec.env.frame_stack
    )
