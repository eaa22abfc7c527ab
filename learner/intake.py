"""Delivered batches -> rows in the buffer: each judged, counted, inserted once."""

from __future__ import annotations

import time
from dataclasses import dataclass

from infra.monitoring.reporter import Reporter, now_ms
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
        """Whether the limiter would let the next batch in."""
        return self.limiter.can_insert_batch(self.batch_rows)

    @property
    def room(self) -> float:
        """How many more batches the limiter would let in."""
        return self.limiter.room / self.batch_rows

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
                self.feed.refuse(delivered.message, exc)
                return
            self._arrived(batch)
        self.feed.handled(delivered)

    def _insert(self, delivered: Delivered) -> None:
        batch = delivered.batch
        rows = self.buffer.insert(batch, delivered.partition, delivered.offset)
        self.limiter.insert(rows)
        self.limiter.resize(self.buffer.rows)
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

    def _tell(self, judgement: Judgement) -> None:
        if not judgement.note:
            return
        if judgement.lost_steps:
            kind, severity = "lost-steps", "alert"
        else:
            kind, severity = "odd-batch", "warning"
        self.gauges.note(self.reporter, kind, severity, judgement.note)  # type: ignore[arg-type]
