"""The role ``learner``: replay -> policies.

``python -m learner.train EXPERIMENT --index 0``
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import threading
import time
from collections.abc import Sequence
from types import ModuleType

from infra.control.members import register
from infra.control.role import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_UNDELIVERED,
    RoleContext,
    StopRequest,
    role_main,
)
from infra.errors import DeliveryError, RollstreamError
from infra.kafka.clients import make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.heartbeat import Heartbeat
from infra.monitoring.reporter import Reporter
from learner.checkpoint import CheckpointStore, checkpoint_directory
from learner.roster import Roster
from learner.source_runs import SourceRun, find_env, find_runs
from schemas.errors import SchemaError
from schemas.records import EnvDescription

LAST_SAVE_S = 4.0
LAST_FLUSH_S = 3.0
LAST_POLICY_S = 1.0
IMPORTED = ("learner.assembly", "learner.loop")
"""All that needs torch."""

_POLL_S = 0.05
_LOOK_S = 1.0
_log = logging.getLogger("rollstream")


def run(context: RoleContext, stop: StopRequest) -> int:
    """Learn until told to stop; return the exit code.

    1. Begin to import torch, which takes seconds.
    2. Register: the offset of the Member is this learner's epoch.
    3. Wait for the description of the environment that the first worker sends, here
       or where else it learns from.
    4. Build the parts, from the newest checkpoint where there is one.
    5. Loop.
    6. Save a last checkpoint, commit, publish last metrics.

    Raises:
        RollstreamError: why it cannot go on.
    """
    # Step 1.
    imported = _Import(*IMPORTED)
    # Step 2.
    sender = Sender(make_producer(context.settings, client_id=context.client_id))
    epoch = register(sender, context, stop)
    reporter = Reporter(sender, context, epoch)
    # The first worker may be long in coming, and so may be a large buffer's rows.
    heartbeat = Heartbeat()
    heartbeat.begin(reporter)
    roster = Roster(context, reporter, epoch)
    try:
        roster.wait_for_own()
        # Step 3.
        runs = find_runs(context)
        env = wait_for_env(context, roster, runs, stop)
        if env is None:
            return _flush(sender)
        return _learn(
            context, stop, epoch, sender, reporter, roster, env, runs, imported
        )
    except (RollstreamError, SchemaError) as exc:
        with contextlib.suppress(DeliveryError):
            reporter.event("learner-stopped", "alert", str(exc))
            sender.flush(LAST_FLUSH_S)
        raise
    finally:
        heartbeat.end()
        roster.close()


def wait_for_env(
    context: RoleContext,
    roster: Roster,
    runs: Sequence[SourceRun],
    stop: StopRequest,
) -> EnvDescription | None:
    """Return what the first worker says of its environment; None when told to stop.

    Or what is known where else it learns from: its own workers may be none.
    """
    # A checkpoint may be of a run before the one that is in force there by now.
    is_resumed = bool(CheckpointStore(checkpoint_directory(context)).names())
    looked_at_s = float("-inf")
    others = [run for run in runs if not run.is_own]
    while roster.env is None:
        if stop.is_set():
            return None
        roster.poll(_POLL_S)
        if roster.env is None and time.monotonic() - looked_at_s > _LOOK_S:
            found = (
                find_env(context.settings, run, of_any_run=is_resumed) for run in others
            )
            roster.env = next(filter(None, found), None)
            looked_at_s = time.monotonic()
    return roster.env


def _learn(
    context: RoleContext,
    stop: StopRequest,
    epoch: int,
    sender: Sender,
    reporter: Reporter,
    roster: Roster,
    env: EnvDescription,
    runs: Sequence[SourceRun],
    imported: _Import,
) -> int:
    # Step 4.
    modules = imported.wait(stop)
    if modules is None:
        return _flush(sender)
    assembly, loop = modules
    parts = assembly.assemble(context, epoch, sender, reporter, roster, env, runs)
    learner = loop.Learner(parts)
    how = f"resumed at checkpoint {parts.number}" if parts.resumed else "a fresh start"
    reporter.event("learner-started", "info", f"epoch {epoch}, {how}")
    try:
        # Step 5.
        learner.run(stop)
        # Step 6.
        _log.info("stopping: %s", stop.reason)
        problem = learner.save_last(LAST_SAVE_S)
        if problem:
            reason = f"no last checkpoint: {problem}"
            reporter.event("checkpoint-failed", "alert", reason)
        learner.report()
        parts.publisher.finish(LAST_POLICY_S)
        flushed = _flush(sender)
        return EXIT_ERROR if problem else flushed
    finally:
        learner.close()


def _flush(sender: Sender) -> int:
    left = sender.flush(LAST_FLUSH_S)
    if left:
        _log.error("%d records could not be delivered", left)
    return EXIT_UNDELIVERED if left else EXIT_OK


class _Import:
    """Imports modules in a thread, while brokers and workers are waited for."""

    def __init__(self, *names: str) -> None:
        self._names = names
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._import, name="import", daemon=True)
        self._thread.start()

    def _import(self) -> None:
        # Modules are not garbage: to look for some among them, now and at each full
        # collection later, takes tenths of a second.
        gc.disable()
        try:
            for name in self._names:
                importlib.import_module(name)
        except BaseException as exc:
            self._error = exc
        finally:
            gc.freeze()
            gc.enable()

    def wait(self, stop: StopRequest) -> list[ModuleType] | None:
        """Return the modules; None when told to stop meanwhile.

        Raises:
            Exception: what importing them raised.
        """
        while self._thread.is_alive():
            if stop.is_set():
                return None
            self._thread.join(_POLL_S)
        if self._error is not None:
            raise self._error
        return [importlib.import_module(name) for name in self._names]


if __name__ == "__main__":
    role_main("learner", run)
