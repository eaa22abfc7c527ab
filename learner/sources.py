"""The runs that are learnt from -> their logs opened, their buffers as they were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from confluent_kafka.admin import AdminClient

from infra.control.role import RoleContext
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from learner.algorithms.base import Algorithm
from learner.counters import Counters
from learner.dedup import Ledger
from learner.experience import Experience, make_experience
from learner.feed import Feed
from learner.mixture import divided_replay
from learner.opening import open_log
from learner.policy_clock import PolicyClock
from learner.restore import oldest_needed, read_referenced
from learner.snapshot import LogIdentity, Snapshot, SourceSnapshot
from learner.source_runs import SourceMismatch, SourceRun, check_returns, check_spaces
from schemas.records import EnvDescription


@dataclass
class Source:
    """One run's transitions, as far as they were taken in.

    Attributes:
        run: which.
        log: whose offsets the feed counts in.
        feed: what comes next.
        ledger: what has come.
        buffer: what is held of it.
        log_was_cut: by partition, see ``Ledger.judge``.
        batch_rows: of the last batch; what the next one is expected to hold.
        ahead: how many samples its rows have earned that were not drawn from it; only
            kept up where there are several sources.
        samples: how many rows were drawn from it; likewise.
    """

    run: SourceRun
    log: LogIdentity
    feed: Feed
    ledger: Ledger
    buffer: Experience
    log_was_cut: dict[int, bool]
    batch_rows: int
    ahead: float = 0.0
    samples: int = 0

    @property
    def prefix(self) -> str:
        """What is put before a worker's name: others have workers of that name too."""
        return "" if self.run.is_own else f"{self.run.name}: "

    def snapshot(self) -> SourceSnapshot:
        """Return all that must not be forgotten, as it is between two batches."""
        positions = dict(self.feed.positions)
        return SourceSnapshot(
            experiment=self.run.key,
            run_id=self.run.run_id,
            log=self.log,
            positions=positions,
            log_was_cut=dict(self.log_was_cut),
            oldest_offsets=oldest_needed(positions, self.buffer.oldest_offsets()),
            ledger=self.ledger.state(),
            references=self.buffer.references(),
            ahead=self.ahead,
        )


@dataclass(frozen=True)
class Opener:
    """What all sources are opened with; see ``assembly``."""

    context: RoleContext
    admin: AdminClient
    sender: Sender
    reporter: Reporter
    counters: Counters
    env: EnvDescription
    algorithm: Algorithm
    clock: PolicyClock

    def open(
        self,
        runs: Sequence[SourceRun],
        snapshot: Snapshot | None,
        own_born_at_ms: int | None,
    ) -> list[Source]:
        """Open all, in the state of a checkpoint where it has them.

        Args:
            runs: the learner's own first.
            snapshot: the checkpoint; None: there is none.
            own_born_at_ms: see ``open_log``. Of others all of the log is read.

        Raises:
            LogMismatch, RecordsExpired: as ``open_log``.
            SourceMismatch: as ``check_returns`` and ``check_spaces``.
        """
        sources = []
        for run in runs:
            before = snapshot.of(run.key) if snapshot else None
            sources.append(
                self._open(run, before, own_born_at_ms if run.is_own else None)
            )
        return sources

    def _open(
        self, run: SourceRun, before: SourceSnapshot | None, born_at_ms: int | None
    ) -> Source:
        """Open one.

        1. Find where to read the log from; stop if it is another log.
        2. Rebuild the buffer from the log.
        3. Start the feed, at the checkpoint's own offsets.
        """
        context, settings = self.context, self.context.settings
        if before is not None and before.run_id != run.run_id:
            run = replace(run, run_id=before.run_id)  # another is in force there by now
        elif not run.is_own:
            check_returns(context.spec, run)
            check_spaces(settings, run, self.env)
        # Step 1.
        opening = open_log(context, self.admin, before, born_at_ms, run.topic)
        # Step 2.
        buffer = self._make_buffer(run)
        if before is not None:
            self._rebuild(run, before, buffer)
        # Step 3.
        feed = Feed(
            context,
            self.sender,
            self.reporter,
            self.counters,
            opening.starts,
            run.topic,
        )
        was_cut = {p: start.was_cut for p, start in opening.starts.items()}
        return Source(
            run=run,
            log=opening.log,
            feed=feed,
            ledger=Ledger.from_state(before.ledger) if before else Ledger(run.run_id),
            buffer=buffer,
            log_was_cut=dict(before.log_was_cut) if before else was_cut,
            batch_rows=run.spec.workers.unroll_length
            * run.spec.workers.envs_per_worker,
            ahead=before.ahead if before else 0.0,
        )

    def _make_buffer(self, run: SourceRun) -> Experience:
        spec = self.context.spec
        replay = divided_replay(spec.learner.replay, run.share)
        rows = run.spec.workers.unroll_length * run.spec.workers.envs_per_worker
        if run.share < 1 and replay.capacity < rows:
            raise SourceMismatch(
                f"learner.sources: {run.name}: expected room for an unroll of {rows:,} "
                f"rows, found {replay.capacity:,} of learner.replay.capacity",
                "raise learner.replay.capacity, or its weight",
            )
        return make_experience(
            self.algorithm,
            self.env,
            spec,
            replay,
            unroll_length=run.spec.workers.unroll_length,
        )

    def _rebuild(
        self, run: SourceRun, before: SourceSnapshot, buffer: Experience
    ) -> None:
        references = before.references
        batches = read_referenced(
            self.context.settings, run.topic, run.run_id, references.chunks
        )
        if run.is_live:
            batches = ((p, at, self.clock.placed(batch)) for p, at, batch in batches)
        lost = int(buffer.restore(references, batches))
        self.counters.unrestorable_rows += lost
        if lost:
            self.reporter.event(
                "unrestorable-rows",
                "warning",
                f"{run.topic}: {lost} rows of the buffer are no longer in the log, "
                f"which keeps {buffer.rows}; see topics.diskBudget",
            )
