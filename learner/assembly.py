"""A newest checkpoint, or none, and an environment's description -> a learner's parts.

Importing this imports torch: ``train`` does so while it waits for brokers and workers.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient

from infra.control.role import RoleContext
from infra.errors import RollstreamError
from infra.kafka.clients import make_admin
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from learner.algorithms import build
from learner.algorithms.base import Algorithm
from learner.background_export import BackgroundExport
from learner.checkpoint import CheckpointStore, checkpoint_directory
from learner.counters import Counters
from learner.credits import CreditWindows
from learner.dedup import Ledger
from learner.experience import Pool
from learner.flow import Flow
from learner.gauges import Gauges
from learner.intake import Intake
from learner.lineage import Lineage, TrainingData
from learner.loop import Parts
from learner.mixture import Mixture
from learner.pace import Pace
from learner.policy_clock import PolicyClock
from learner.publisher import Publisher
from learner.rate_limiter import QueueLimiter, RateLimiter
from learner.replay_buffer import ReplayBuffer
from learner.roster import Roster
from learner.saved_networks import as_saved
from learner.saver import OtherLog, Saver
from learner.snapshot import Snapshot, from_files
from learner.source_runs import SourceRun
from learner.sources import Opener, Source
from learner.trim import Trimmer
from schemas.experiment import Spec
from schemas.flow import is_counted, least_window
from schemas.records import EnvDescription


class CannotResume(RollstreamError):
    """The checkpoint does not fit what the spec asks for now."""


def assemble(
    context: RoleContext,
    epoch: int,
    sender: Sender,
    reporter: Reporter,
    roster: Roster,
    env: EnvDescription,
    runs: Sequence[SourceRun],
) -> Parts:
    """Build the parts, in the state of the newest whole checkpoint.

    1. Read the newest checkpoint that is whole; say so if a newer one is not.
    2. Build the algorithm and load its state.
    3. Open what is learnt from: logs, buffers, feeds at the checkpoint's own offsets;
       stop if one is another log.

    Raises:
        LogMismatch, RecordsExpired, CannotResume, NewerLearner, SourceMismatch: say
            why.
    """
    for module in context.settings.learner_modules:
        importlib.import_module(module)
    spec = context.spec
    # Step 1.
    store = CheckpointStore(checkpoint_directory(context))
    store.remove_unfinished()
    snapshot = load_newest(store, reporter)
    # Step 2.
    algorithm = _build_algorithm(env, spec, snapshot)
    next_version = snapshot.next_version if snapshot else 0
    publisher = Publisher(sender, context, epoch, next_version)
    # Step 3.
    admin = make_admin(context.settings, f"{context.client_id}-admin")
    counters = Counters.from_state(snapshot.counters if snapshot else {})
    clock = PolicyClock.of(spec.learner)
    if snapshot is not None:
        clock.restore(snapshot.clock, snapshot.next_version - 1)
    opener = Opener(context, admin, sender, reporter, counters, env, algorithm, clock)
    # Members may have been compacted away since a past began to be replayed.
    born_at_ms = None if roster.is_replayed else roster.born_at_ms
    sources = opener.open(runs, snapshot, born_at_ms)
    own = sources[0] if sources[0].run.is_own else None
    ledger = own.ledger if own else Ledger(context.run_id)
    intake = _make_intake(opener, sources, ledger, snapshot)
    keys = {source.run.key for source in sources}
    return Parts(
        context=context,
        epoch=epoch,
        sender=sender,
        reporter=reporter,
        intake=intake,
        flow=Flow(
            context, epoch, sender, roster, intake.windows, intake.limiter, ledger
        ),
        algorithm=algorithm,
        publisher=publisher,
        saver=_make_saver(store, admin, sources, reporter),
        lineage=Lineage(sender, context, epoch),
        number=snapshot.number if snapshot else 0,
        resumed=snapshot is not None,
        graph=BackgroundExport(algorithm.actor()),
        dormant=tuple(
            source
            for source in (snapshot.sources if snapshot else ())
            if source.experiment not in keys
        ),
    )


def _make_intake(
    opener: Opener,
    sources: Sequence[Source],
    ledger: Ledger,
    snapshot: Snapshot | None,
) -> Intake:
    spec = opener.context.spec
    comes_once = opener.algorithm.learns_from == "unrolls"
    limiter = make_limiter(spec, comes_once=comes_once)
    if snapshot is not None:
        limiter.restore(snapshot.limiter)
    intake = Intake(
        sources=sources,
        replay=_as_one(sources),
        limiter=limiter,
        pace=Pace(sources, limiter, spec.learner),
        windows=make_windows(spec, ledger),
        counters=opener.counters,
        data=TrainingData(snapshot.trained_on if snapshot else ()),
        gauges=Gauges(),
        reporter=opener.reporter,
        clock=opener.clock,
        lag_limit=spec.learner.policy_lag_limit,
        comes_once=comes_once,
    )
    if snapshot is not None:
        intake.resize()
    return intake


def _as_one(sources: Sequence[Source]) -> Pool:
    if len(sources) == 1:
        return sources[0].buffer
    buffers = [s.buffer for s in sources if isinstance(s.buffer, ReplayBuffer)]
    return Mixture(buffers, [source.run.share for source in sources])


def _make_saver(
    store: CheckpointStore,
    admin: AdminClient,
    sources: Sequence[Source],
    reporter: Reporter,
) -> Saver:
    first, *others = sources
    topic = first.feed.topic
    trimmer = Trimmer(admin, topic) if first.run.is_own else None
    logs = [
        OtherLog(source.run.key, source.feed.topic, source.feed.commit)
        for source in others
    ]
    return Saver(store, admin, topic, first.feed.commit, trimmer, reporter, logs)


def load_newest(store: CheckpointStore, reporter: Reporter) -> Snapshot | None:
    """Return the newest whole checkpoint; report newer ones that are not."""
    stored, errors = store.newest()
    for error in errors:
        used = f"{stored.epoch}-{stored.number} is used" if stored else "none is left"
        reporter.event("checkpoint-garbled", "alert", f"{error}; {used}")
    return from_files(stored) if stored else None


def make_limiter(spec: Spec, *, comes_once: bool = False) -> RateLimiter:
    """Return the limiter that a spec asks for, nothing counted.

    ``comes_once``: each row is learnt from once.
    """
    limiter = (QueueLimiter if comes_once else RateLimiter)(
        samples_per_insert=spec.learner.samples_per_insert,
        min_size=spec.learner.least_rows,
        error_buffer=math.inf,
    )
    limiter.widen(spec, spec.workers.replicas)
    return limiter


def make_windows(spec: Spec, ledger: Ledger) -> CreditWindows:
    """Return the windows of a spec, at the ledger's steps."""
    windows = CreditWindows(
        fixed_window=spec.flow.window,
        n_step=spec.processor.n_step,
        unroll_length=spec.workers.unroll_length,
        least=least_window(spec.learner),
        counted=is_counted(spec.learner),
    )
    for worker, incarnation, next_step in ledger.newest():
        windows.started(worker, incarnation, next_step)
    return windows


def _build_algorithm(
    env: EnvDescription, spec: Spec, snapshot: Snapshot | None
) -> Algorithm:
    if snapshot is None:
        return build(env, spec)
    algorithm = build(env, as_saved(spec, snapshot.algorithm.tensors.values()))
    try:
        algorithm.load_state_dict(snapshot.algorithm)
    except ValueError as exc:
        raise CannotResume(
            f"the newest checkpoint does not fit the spec: {exc}",
            "its network was another: start a new run with --fresh",
        ) from exc
    return algorithm
