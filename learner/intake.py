"""Delivered batches -> rows in the buffer: each judged, counted, inserted once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from infra.clock import now_ms
from infra.monitoring.event_kinds import Severity
from infra.monitoring.reporter import Reporter
from learner.counters import Counters
from learner.credits import CreditWindows
from learner.dedup import Identity, Judgement, Ledger, Verdict
from learner.feed import Delivered, Feed
from learner.gauges import Gauges
from learner.rate_limiter import RateLimiter
from learner.replay_buffer import BatchMismatch, ReplayBuffer
from schemas.errors import SchemaError
from schemas.records import NO_POLICY, TransitionBatch

BUDGET_S = 0.010


@dataclass
class Intake:
    """Takes batches from the feed while the limiter lets them in.

    What it does not let in stays in the log.

    Attributes:
        log_was_cut: by partition, see ``Ledger.judge``.
        policy_version: the newest that was published; -1: none.
        batch_rows: of the last batch; what the next one is expected to hold.
    """

    feed: Feed
    ledger: Ledger
    buffer: ReplayBuffer
    limiter: RateLimiter
    windows: CreditWindows
    counters: Counters
    gauges: Gauges
    reporter: Reporter
    log_was_cut: dict[int, bool]
    batch_rows: int
    policy_version: int = -1

    @property
    def is_open(self) -> bool:
        """Whether the next batch is let in.

        By the limiter; and in any case where nothing can be sampled, or it would wait
        for samples that wait for rows.
        """
        if self.buffer.samplable_rows == 0:
            return True
        return self.limiter.can_insert_batch(self.batch_rows)

    @property
    def room(self) -> float:
        """How many more batches would be let in."""
        room = self.limiter.room / self.batch_rows
        return max(room, 1.0) if self.buffer.samplable_rows == 0 else room

    def take_in(self) -> bool:
        """Take batches for at most 10 ms; return whether there were any.

        Raises:
            RollstreamError: as ``Feed.fill`` and ``Feed.take``.
        """
        deadline = time.monotonic() + BUDGET_S
        took = False
        while self.is_open and self.feed.fill(0.0):
            delivered = self.feed.take()
            if delivered is None:
                break
            self._take(delivered)
            took = True
            if time.monotonic() > deadline:
                break
        return took

    def _take(self, delivered: Delivered) -> None:
        batch = delivered.batch
        judgement = self.ledger.judge(
            Identity.of(batch), log_was_cut=self.log_was_cut[delivered.partition]
        )
        self._tell(judgement)
        if judgement.verdict is Verdict.FOREIGN:
            self.counters.foreign_batches += 1
        elif judgement.verdict is Verdict.DUPLICATE:
            self.counters.duplicate_steps += int(batch.valid.array().sum())
            self._arrived(batch)
        else:
            try:
                self._insert(delivered)
            except (BatchMismatch, SchemaError) as exc:
                # Its worker waits for credit, whatever became of its rows.
                self._arrived(batch)
                self.feed.refuse(delivered.message, exc)
                return
            self._arrived(batch)
        self.feed.handled(delivered)

    def _insert(self, delivered: Delivered) -> None:
        batch, buffer = delivered.batch, self.buffer
        refused_before = buffer.refused_rows
        rows = buffer.insert(batch, delivered.partition, delivered.offset)
        refused = buffer.refused_rows - refused_before
        self._tell_refused(batch, refused, rows)
        self.limiter.insert(rows - refused)
        size = buffer.learnable_rows
        if buffer.is_full:  # rows that are not valid take room: wait for no more
            size = max(size, self.limiter.min_size)
        self.limiter.resize(size)
        self.counters.env_steps += rows
        self.counters.batches += 1
        self.batch_rows = batch.num_steps * batch.num_envs
        if batch.policy != NO_POLICY:
            lag = self.policy_version - batch.policy.version
            self.gauges.policy_lag(lag, rows)
        self.gauges.latency_ms(now_ms() - batch.produced_at_ms)

    def _arrived(self, batch: TransitionBatch) -> None:
        self.windows.arrived(
            batch.worker,
            batch.incarnation,
            batch.first_step + batch.num_steps,
            batch.num_steps,
            time.monotonic(),
        )

    def _tell_refused(self, batch: TransitionBatch, refused: int, rows: int) -> None:
        if refused:
            reason = (
                f"{batch.worker} sequence {batch.sequence}: {refused} of {rows} rows "
                "cannot be learnt from: an observation or return that is not finite, "
                "no bootstrap step, or frames that are missing"
            )
            severity: Severity = "alert" if refused == rows else "warning"
            self.gauges.note(self.reporter, "rows-refused", severity, reason)

    def _tell(self, judgement: Judgement) -> None:
        if not judgement.note:
            return
        if judgement.lost_steps:
            self.gauges.note(self.reporter, "lost-steps", "alert", judgement.note)
        else:
            self.gauges.note(self.reporter, "odd-batch", "warning", judgement.note)
