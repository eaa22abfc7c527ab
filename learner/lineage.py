"""Batches taken in -> which unrolls a policy was trained on: the topic of lineage."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infra.clock import now_ms
from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from schemas.codec import encode
from schemas.records import NO_POLICY, DataRange, PolicyRef, TrainedOn, TransitionBatch
from schemas.topics import LINEAGE


class TrainingData:
    """The unrolls that batches were made of, by topic and partition of the unrolls.

    Batches without a valid row do not count: nothing was learnt from them.
    """

    def __init__(self, ranges: Iterable[DataRange] = ()) -> None:
        self._ranges = {(each.topic, each.partition): each for each in ranges}

    def add(self, batch: TransitionBatch, env_steps: int) -> None:
        """Count a batch that was taken in, with so many valid rows."""
        source, policy = batch.source, batch.policy
        known = self._ranges.get((source.topic, source.partition))
        if known is None:
            known = DataRange(
                source.topic,
                source.partition,
                source.offset,
                source.offset + 1,
                0,
                policy,
                policy,
            )
        self._ranges[source.topic, source.partition] = replace(
            known,
            first_offset=min(known.first_offset, source.offset),
            next_offset=max(known.next_offset, source.offset + 1),
            env_steps=known.env_steps + env_steps,
            first_policy=min(known.first_policy, policy),
            last_policy=max(known.last_policy, policy),
        )

    def ranges(self) -> tuple[DataRange, ...]:
        """Return what was counted, by topic and partition."""
        return tuple(self._ranges[key] for key in sorted(self._ranges))


class Lineage:
    """Tells what a policy was trained on, once a checkpoint with that is durable.

    The record of a version has all that was taken in until the first checkpoint after
    it was published: what it was trained on is never more. A learner that is killed
    before it could tell leaves a version without one; the next one's has it all.
    """

    def __init__(self, sender: Sender, context: RoleContext, epoch: int) -> None:
        self._sender = sender
        self._context = context
        self._epoch = epoch
        self._waiting: TrainedOn | None = None
        self._saved_before = 0
        self._told = NO_POLICY

    def mark(
        self, data: tuple[DataRange, ...], version: int, train_step: int, saved: int
    ) -> None:
        """Note what a snapshot holds that is about to be saved.

        Args:
            data: of the snapshot.
            version: the newest that this learner has published; -1: none.
            train_step: updates made so far.
            saved: how many checkpoints are durable before it.
        """
        self.tell(saved)  # of the snapshot before
        policy = PolicyRef(self._epoch, version)
        if version < 0 or policy == self._told:
            self._waiting = None
            return
        self._saved_before = saved
        self._waiting = TrainedOn(
            experiment=self._context.experiment.name,
            run_id=self._context.run_id,
            policy=policy,
            train_step=train_step,
            data=data,
            created_at_ms=now_ms(),
        )

    def tell(self, saved: int) -> None:
        """Publish what was marked if it is durable: if more are saved than before.

        Nobody has to stop because it cannot be told: the next one tells the same.
        """
        record = self._waiting
        if record is None or saved <= self._saved_before:
            return
        topic = self._context.topic(LINEAGE)
        key = f"policy/{record.policy.epoch}/{record.policy.version}"
        if self._sender.try_send(topic, encode(record), key):
            self._waiting, self._told = None, record.policy
