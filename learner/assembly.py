"""A newest checkpoint, or none, and an environment's description -> a learner's parts.

Importing this imports torch: ``train`` does so while it waits for brokers and workers.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infra.control.experiments import run_directory
from infra.control.role import RoleContext
from infra.errors import RollstreamError
from infra.kafka.clients import make_admin
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.background_export import BackgroundExport
from learner.checkpoint import CheckpointStore
from learner.counters import Counters
from learner.credits import CreditWindows
from learner.dedup import Ledger
from learner.feed import Feed
from learner.flow import Flow
from learner.gauges import Gauges
from learner.intake import Intake
from learner.log_start import Start
from learner.loop import Parts
from learner.opening import open_log
from learner.publisher import Publisher
from learner.rate_limiter import RateLimiter, error_buffer_for
from learner.replay_buffer import ReplayBuffer
from learner.restore import read_referenced
from learner.roster import Roster
from learner.saver import Saver
from learner.snapshot import Snapshot, from_files
from learner.trim import Trimmer
from schemas.experiment import Spec
from schemas.records import EnvDescription
from schemas.topics import REPLAY


class CannotResume(RollstreamError):
    """The checkpoint does not fit what the spec asks for now."""


def checkpoint_directory(context: RoleContext) -> Path:
    """Return where a run's checkpoints are."""
    run = run_directory(context.settings, context.experiment.name, context.run_id)
    return run / "checkpoints"


def assemble(
    context: RoleContext,
    epoch: int,
    sender: Sender,
    reporter: Reporter,
    roster: Roster,
    env: EnvDescription,
) -> Parts:
    """Build the parts, in the state of the newest whole checkpoint.

    1. Read the newest checkpoint that is whole; say so if a newer one is not.
    2. Find where to read the log from; stop if it is another log.
    3. Build the algorithm and load its state.
    4. Rebuild the buffer from the log.
    5. Start the feed, at the checkpoint's own offsets.

    Raises:
        LogMismatch, RecordsExpired, CannotResume, NewerLearner: say why.
    """
    for module in context.settings.learner_modules:
        importlib.import_module(module)
    spec = context.spec
    # Step 1.
    store = CheckpointStore(checkpoint_directory(context))
    store.remove_unfinished()
    snapshot = load_newest(store, reporter)
    # Step 2.
    admin = make_admin(context.settings, f"{context.client_id}-admin")
    opening = open_log(context, admin, snapshot, roster.born_at_ms or 0)
    # Step 3.
    algorithm = build(env, spec)
    _load_algorithm(algorithm, snapshot)
    next_version = snapshot.next_version if snapshot else 0
    publisher = Publisher(sender, context, epoch, next_version)
    # Step 4.
    state = _restore(context, snapshot, env, opening.starts, reporter)
    # Step 5.
    feed = Feed(context, sender, reporter, state.counters, opening.starts)
    windows = make_windows(spec, state.ledger)
    intake = Intake(
        feed=feed,
        **vars(state),
        windows=windows,
        gauges=Gauges(),
        reporter=reporter,
        batch_rows=spec.workers.unroll_length * spec.workers.envs_per_worker,
        policy_version=publisher.version,
    )
    flow = Flow(context, epoch, sender, roster, windows, state.limiter, state.ledger)
    trimmer = Trimmer(admin, context.topic(REPLAY))
    return Parts(
        context=context,
        epoch=epoch,
        sender=sender,
        reporter=reporter,
        intake=intake,
        flow=flow,
        algorithm=algorithm,
        publisher=publisher,
        saver=Saver(store, admin, feed.topic, feed.commit, trimmer, reporter),
        log=opening.log,
        number=snapshot.number if snapshot else 0,
        resumed=snapshot is not None,
        graph=BackgroundExport(algorithm.actor()),
    )


@dataclass
class _State:
    """What a checkpoint brings back, beside the algorithm; see ``Intake``."""

    ledger: Ledger
    buffer: ReplayBuffer
    limiter: RateLimiter
    counters: Counters
    log_was_cut: dict[int, bool]


def _restore(
    context: RoleContext,
    snapshot: Snapshot | None,
    env: EnvDescription,
    starts: Mapping[int, Start],
    reporter: Reporter,
) -> _State:
    spec = context.spec
    state = _State(
        ledger=Ledger(context.run_id),
        buffer=ReplayBuffer(
            env,
            spec.learner.replay,
            unroll_length=spec.workers.unroll_length,
            frame_stack=spec.env.frame_stack,
        ),
        limiter=make_limiter(spec),
        counters=Counters(),
        log_was_cut={p: start.was_cut for p, start in starts.items()},
    )
    if snapshot is not None:
        state.ledger = Ledger.from_state(snapshot.ledger)
        state.counters = Counters.from_state(snapshot.counters)
        state.log_was_cut = dict(snapshot.log_was_cut)
        state.limiter.restore(snapshot.limiter)
        _rebuild(context, snapshot, state.buffer, state.counters, reporter)
        state.limiter.resize(state.buffer.learnable_rows)
    return state


def load_newest(store: CheckpointStore, reporter: Reporter) -> Snapshot | None:
    """Return the newest whole checkpoint; report newer ones that are not."""
    stored, errors = store.newest()
    for error in errors:
        used = f"{stored.epoch}-{stored.number} is used" if stored else "none is left"
        reporter.event("checkpoint-garbled", "alert", f"{error}; {used}")
    return from_files(stored) if stored else None


def make_limiter(spec: Spec) -> RateLimiter:
    """Return the limiter that a spec asks for, nothing counted."""
    return RateLimiter(
        samples_per_insert=spec.learner.samples_per_insert,
        min_size=spec.learner.replay.min_size,
        error_buffer=error_buffer_for(spec, spec.workers.replicas),
    )


def make_windows(spec: Spec, ledger: Ledger) -> CreditWindows:
    """Return the windows of a spec, at the ledger's steps."""
    windows = CreditWindows(
        fixed_window=spec.flow.window,
        n_step=spec.processor.n_step,
        unroll_length=spec.workers.unroll_length,
    )
    for worker, incarnation, next_step in ledger.newest():
        windows.started(worker, incarnation, next_step)
    return windows


def _load_algorithm(algorithm: Algorithm, snapshot: Snapshot | None) -> None:
    if snapshot is None:
        return
    try:
        algorithm.load_state_dict(snapshot.algorithm)
    except ValueError as exc:
        raise CannotResume(
            f"the newest checkpoint does not fit the spec: {exc}",
            "undo the change to learner.network, or start a new run with --fresh",
        ) from exc


def _rebuild(
    context: RoleContext,
    snapshot: Snapshot,
    buffer: ReplayBuffer,
    counters: Counters,
    reporter: Reporter,
) -> None:
    references = snapshot.references
    batches = read_referenced(
        context.settings, context.topic(REPLAY), context.run_id, references.chunks
    )
    lost = int(buffer.restore(references, batches))
    counters.unrestorable_rows += lost
    if lost:
        reporter.event(
            "unrestorable-rows",
            "warning",
            f"{lost} rows of the buffer are no longer in the log, which keeps "
            f"{buffer.rows}; see topics.diskBudget",
        )
