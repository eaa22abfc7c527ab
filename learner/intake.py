"""Delivered batches -> rows in the buffers: each judged, counted, inserted once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from infra.clock import now_ms
from infra.monitoring.event_kinds import Severity
from infra.monitoring.reporter import Reporter
from learner.chunks import TooLarge
from learner.counters import Counters
from learner.credits import CreditWindows
from learner.dedup import Identity, Judgement, Verdict
from learner.experience import Pool
from learner.feed import Delivered
from learner.gauges import Gauges
from learner.lineage import TrainingData
from learner.origins import Origins
from learner.pace import Pace
from learner.policy_clock import PolicyClock
from learner.rate_limiter import RateLimiter
from learner.replay_buffer import BatchMismatch
from learner.sample import Sample, Sequences
from learner.sources import Source
from schemas.errors import SchemaError
from schemas.records import NO_POLICY, TransitionBatch

BUDGET_S = 0.010
NOTE_S = 0.1


@dataclass
class Intake:
    """Takes batches from the sources while limiter and pace let them in.

    What they do not let in stays in the log.

    Attributes:
        sources: the experiment's own first, if it is one.
        replay: what they hold, as one.
        clock: how many versions the parameters have been through.
        lag_limit: how many versions behind what is learnt from may be; None: any.
        comes_once: each row is learnt from once, and only if a policy acted.
    """

    sources: Sequence[Source]
    replay: Pool
    limiter: RateLimiter
    pace: Pace
    windows: CreditWindows
    counters: Counters
    data: TrainingData
    gauges: Gauges
    reporter: Reporter
    clock: PolicyClock
    lag_limit: int | None = None
    comes_once: bool = False
    _origins: Origins | None = None
    _note_at_s: float = 0.0

    def __post_init__(self) -> None:
        if (own := self.own) is not None and own.run.is_live:
            self._origins = own.buffer.origins
            self._origins.watch()

    @property
    def own(self) -> Source | None:
        """The experiment's own source; None: only others are learnt from."""
        first = self.sources[0]
        return first if first.run.is_own else None

    @property
    def open_sources(self) -> list[Source]:
        """The sources whose next batch is let in."""
        return [source for source in self.sources if self._lets_in(source)]

    @property
    def room(self) -> float:
        """How many more batches of the experiment's own would be let in."""
        if self.own is None:
            return 0.0
        room = self.limiter.room / self.own.batch_rows
        return max(room, 1.0) if self.replay.samplable_rows == 0 else room

    def take_in(self, until: Callable[[], bool] = lambda: False) -> bool:
        """Take batches for at most 10 ms; return whether there were any.

        Args:
            until: no further one is taken once this holds.

        Raises:
            RollstreamError: as ``Feed.fill`` and ``Feed.take``.
        """
        deadline = time.monotonic() + BUDGET_S
        took = False
        while not until() and (source := self._next()) is not None:
            delivered = source.feed.take()
            if delivered is None:
                break
            self._take(source, delivered)
            took = True
            if time.monotonic() > deadline:
                break
        return took

    def wait(self, timeout_s: float) -> bool:
        """Wait for records of what is let in; return whether anything is."""
        sources = self.open_sources
        for source in sources:
            if source.feed.fill(timeout_s / len(sources)):
                break
        return bool(sources)

    def sampled(self, sample: Sample | Sequences) -> None:
        """Count what was drawn."""
        count = sample.num_rows
        self.limiter.sample(count)
        self.pace.sampled(sample.counts)
        self.counters.samples += count
        if self.comes_once:
            self.resize()

    def drop_stale(self) -> None:
        """Drop the live rows that are too many versions behind, and count them."""
        own = self.own
        if own is None or not own.run.is_live or self.lag_limit is None:
            return
        dropped = own.buffer.drop_older(max(self.clock.now - self.lag_limit, 0))
        if dropped:
            self.counters.stale_steps += dropped
            self.resize()

    def streams_are_over(self, before: Mapping[str, int]) -> None:
        """Note, by worker, the incarnation before which its streams go on no more.

        A past has workers of the same names, but not these.
        """
        own = self.own
        if own is not None and own.run.is_live:
            for worker, incarnation in before.items():
                own.buffer.over_before(worker, incarnation)

    def give_up(self, sample: Sample | Sequences) -> int:
        """Count what was drawn and not learnt from, and does not come again."""
        given_up = sample.num_rows if self.comes_once else 0
        self.counters.given_up_rows += given_up
        return given_up

    def resize(self) -> None:
        """Tell the limiter how many rows there are to learn from."""
        size = self.replay.learnable_rows
        if self.replay.is_full:  # rows that are not valid take room: wait for no more
            size = max(size, self.limiter.min_size)
        self.limiter.resize(size)

    def note_learnt(self, *, at_once: bool = False) -> None:
        """Note how old was what was drawn since the last time: at most every 0.1 s.

        ``at_once``: before a version is published, for they are behind the one before.
        Others' policies are not ours to be behind of, and a past is as old as it is: of
        rows that are not live nothing is noted.
        """
        now_s = time.monotonic()
        if self._origins is None or not (at_once or now_s >= self._note_at_s):
            return
        self._note_at_s = now_s + NOTE_S
        if (acted := self._origins.take()) is not None:
            self.gauges.freshness.add(
                acted, self._origins.workers, self.clock.now, now_ms() / 1000
            )

    def _lets_in(self, source: Source) -> bool:
        """Whether a source's next batch is let in.

        By limiter and pace; and in any case where nothing can be sampled, or it would
        wait for samples that wait for rows.
        """
        if self.replay.samplable_rows == 0:
            return True
        may_come = self.limiter.can_insert_batch(source.batch_rows)
        return may_come and self.pace.lets_in(source)

    def _next(self) -> Source | None:
        """Return the source whose batch goes next; None: there is none that may."""
        for source in self.pace.order():
            if self._lets_in(source) and source.feed.fill(0.0):
                return source
        return None

    def _take(self, source: Source, delivered: Delivered) -> None:
        batch = delivered.batch
        judgement = source.ledger.judge(
            Identity.of(batch), log_was_cut=source.log_was_cut[delivered.partition]
        )
        self._tell(source, judgement)
        if judgement.verdict is Verdict.FOREIGN:
            self.counters.foreign_batches += 1
        elif judgement.verdict is Verdict.DUPLICATE:
            self.counters.duplicate_steps += int(batch.valid.array().sum())
            self._arrived(source, batch)
        else:
            try:
                self._insert(source, delivered)
            except (BatchMismatch, TooLarge, SchemaError) as exc:
                # Its worker waits for credit, whatever became of its rows.
                self._arrived(source, batch)
                source.feed.refuse(delivered.message, exc)
                return
            self._arrived(source, batch)
        source.feed.handled(delivered)

    def _insert(self, source: Source, delivered: Delivered) -> None:
        batch, buffer = delivered.batch, source.buffer
        if not batch.valid.array().any():
            buffer.pass_over(batch)
            self.counters.blank_batches += 1
            return
        refused_before = buffer.refused_rows
        if source.run.is_live:
            batch = self.clock.placed(batch)
        rows = buffer.insert(batch, delivered.partition, delivered.offset)
        refused = buffer.refused_rows - refused_before
        stale = self._drop_if_stale(source, batch)
        self._tell_refused(source, batch, refused, rows)
        self._count(source, batch, rows, rows - refused - stale)
        if not stale:
            self.data.add(batch, rows)

    def _drop_if_stale(self, source: Source, batch: TransitionBatch) -> int:
        """Drop what has come too late; return how many rows could be learnt from.

        Versions of a past are not ours to be behind of: all of it is learnt from, but
        what on-policy nothing can be said of, since no policy acted in it.
        """
        oldest = 0
        if source.run.is_live and self.lag_limit is not None:
            oldest = max(self.clock.now - self.lag_limit, 0)
        if batch.policy == NO_POLICY:
            is_stale = self.comes_once
        else:
            is_stale = batch.policy.version < oldest
        stale = source.buffer.drop_older(oldest) if is_stale else 0
        self.counters.stale_steps += stale
        return stale

    def _count(
        self, source: Source, batch: TransitionBatch, rows: int, learnable: int
    ) -> None:
        batch_rows = batch.num_steps * batch.num_envs
        # What is dealt out are whole unrolls, though this one was cut.
        least = source.batch_rows if self.comes_once else 0
        source.batch_rows = max(batch_rows, least)
        self.limiter.insert(learnable)
        self.pace.inserted(source, learnable)
        self.resize()
        self.counters.env_steps += rows
        self.counters.batches += 1
        if not source.run.is_live:
            return
        if batch.policy != NO_POLICY:
            lag = max(self.clock.now - batch.policy.version, 0)
            self.gauges.policy_lag(lag, rows)
        self.gauges.latency_ms(now_ms() - batch.produced_at_ms)

    def _arrived(self, source: Source, batch: TransitionBatch) -> None:
        if source.run.is_own:
            self.windows.arrived(
                batch.worker,
                batch.incarnation,
                batch.first_step + batch.num_steps,
                batch.num_steps,
                time.monotonic(),
            )

    def _tell_refused(
        self, source: Source, batch: TransitionBatch, refused: int, rows: int
    ) -> None:
        if refused:
            reason = (
                f"{source.prefix}{batch.worker} sequence {batch.sequence}: {refused} "
                f"of {rows} rows cannot be learnt from: an observation or return that "
                "is not finite, no bootstrap step, or frames that are missing"
            )
            severity: Severity = "alert" if refused == rows else "warning"
            self.gauges.note(self.reporter, "rows-refused", severity, reason)

    def _tell(self, source: Source, judgement: Judgement) -> None:
        if not judgement.note:
            return
        reason = source.prefix + judgement.note
        if judgement.lost_steps:
            self.gauges.note(self.reporter, "lost-steps", "alert", reason)
        else:
            self.gauges.note(self.reporter, "odd-batch", "warning", reason)
