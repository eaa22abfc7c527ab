"""Environments -> trajectories: ``python -m producers.worker EXPERIMENT --index N``."""

from __future__ import annotations

import time
from typing import NoReturn

from infra.control.members import register
from infra.control.role import (
    EXIT_OK,
    EXIT_UNDELIVERED,
    RoleContext,
    StopRequest,
    ToldToStop,
    role_main,
)
from infra.errors import DeliveryError, Hopeless, RollstreamError
from infra.monitoring.event_kinds import EventKind
from infra.monitoring.heartbeat import Heartbeat
from producers.actors import Actors
from producers.credit import CreditGate, Superseded
from producers.deliveries import FLUSH_S, Deliveries
from producers.environments import describe_environments
from producers.follow import Followed
from producers.guarded_env import Environments
from producers.pace import Pace
from producers.packing import Packing
from producers.pauses import Pause, Pauses
from producers.peers import check_peers
from producers.role_environments import role_environments
from producers.rollout import Rollout
from producers.seeding import StreamSeeds
from producers.warm import warm_up as warm_up
from producers.worker_report import WorkerReport
from producers.worker_stream import After, WorkerCounts, WorkerStream
from schemas.fit import first_unroll_length
from schemas.image_codecs import missing_codecs
from schemas.records import Credit
from schemas.topics import worker_name

IDLE_AFTER_S = 30.0
_POLL_S = 0.01
# A credit or a policy ends it at once; where many wait, each look costs.
_WAIT_S = 0.05
_SETTLE_S = 2.0
_MAX_REFUSALS = 3


class Worker:
    """One env worker process, through all its incarnations."""

    def __init__(
        self,
        context: RoleContext,
        stop: StopRequest,
        environments: Environments,
        *,
        idle_after_s: float = IDLE_AFTER_S,
    ) -> None:
        self._context = context
        self._spec = context.spec
        self._stop = stop
        self._environments = environments
        self._idle_after_s = idle_after_s
        self._env = describe_environments(
            context.spec.env, environments, context.settings
        )
        self._num_steps = first_unroll_length(context.spec, self._env)
        self._deliveries = Deliveries(context, stop)
        self._sender = self._deliveries.sender
        self._report = WorkerReport(self._sender, context)
        self._heartbeat = Heartbeat()
        self._packing = Packing(context.spec.workers.encoding)
        self._actors = Actors(context, self._env, environments.num_envs, greedy=False)
        self._policies = self._actors.feed
        self._actor = self._actors.first()
        self._gate = CreditGate.open(
            self._spec, worker_name(context.index), context.run_id, -1
        )
        self._followed = Followed(
            context, self._policies, self._on_credit, self._on_problem
        )
        self._pace = Pace(self._spec.workers.max_env_steps_per_s)
        self._pauses = Pauses(context.settings, self._followed)
        self._rollout: Rollout | None = None
        self._refusals = 0
        self._heard_at_s = 0.0

    def run(self) -> int:
        """Work until told to stop; return the exit code.

        Raises:
            Superseded: a newer incarnation of this worker exists.
            DeliveryError: a record was refused for good.
            EnvFailed, EnvRefused: the environment cannot go on.
        """
        try:
            check_peers(self._context, self._env, self._report)
            after = After.AGAIN
            while after is not After.STOP:
                after = self._run_incarnation(self._begin())
                if after is After.IDLE and not self._wait_idle():
                    after = After.STOP
            return self._finish()
        except ToldToStop:
            if self._gate.incarnation < 0:
                raise
            return self._finish()
        except RollstreamError as exc:
            if isinstance(exc, DeliveryError):
                self._sender.abandon()
                restarts = self._environments.restarts
                lost = self._deliveries.undelivered_steps
                self._report.give_up(exc, lost, self._policies.ref, restarts)
            else:
                self._report.event("worker-failed", "alert", str(exc))
                self._sender.flush(FLUSH_S)
            raise
        finally:
            self._heartbeat.end()
            self._followed.close()
            self._actors.remote.close()

    def _begin(self) -> WorkerStream:
        """Become a new incarnation; what the one before counted is published first."""
        incarnation = register(self._sender, self._context, self._stop, self._env)
        if self._gate.incarnation < 0:
            self._followed.start(incarnation)
        else:
            # Not before: however slow the brokers are, who has answered to the last
            # record has, as a rule, to those before it.
            self._deliveries.settle(_SETTLE_S)
            self._publish_counts()
        self._gate = self._gate.renew(self._spec, incarnation)
        self._rollout = None
        counts = WorkerCounts()
        stream = WorkerStream(
            self._context, self._sender, incarnation, counts, self._packing
        )
        self._deliveries.begin(stream)
        self._report.begin(incarnation, counts, self._environments.restarts)
        self._heartbeat.begin(self._report.reporter)
        self._actor = self._actors.first()
        return stream

    def _run_incarnation(self, stream: WorkerStream) -> After:
        """Roll out until stopped, idle or refused; nothing of the stream follows."""
        seeds = StreamSeeds(self._spec.seed, self._context.index, stream.incarnation)
        rollout = self._rollout = Rollout(self._environments, seeds)
        blocked_since_s: float | None = None
        while True:
            self._listen()
            if stream.refused:
                return self._after_refusal(stream)
            if self._stop.is_set():
                stream.end(self._stop.reason)
                return After.STOP
            if self._may_step(rollout):
                blocked_since_s = None
                if self._must_slow_down():
                    continue
                if self._step(rollout, stream):
                    return After.STOP
                continue
            now_s = time.monotonic()
            blocked_since_s = blocked_since_s or now_s
            silent_since_s = max(blocked_since_s, self._heard_at_s)
            pause = self._pauses.current()
            if pause is None and now_s - silent_since_s > self._idle_after_s:
                lacking = "no policy" if self._lacks_policy() else "no credit"
                pause = Pause(f"{lacking} for {self._idle_after_s:g} s")
            if pause is not None:
                stream.end(pause.reason)
                self._report.idle(pause)
                return After.IDLE
            self._wait()

    def _may_step(self, rollout: Rollout) -> bool:
        return self._pauses.current() is None and self._gate.may_step(
            rollout.next_step, self._num_steps, self._policies.ref
        )

    def _lacks_policy(self) -> bool:
        return not self._gate.may_act(self._policies.ref)

    def _must_slow_down(self) -> bool:
        """Wait a moment where the spec's rate says so; return whether it did."""
        wait_s = self._pace.wait_s(time.monotonic())
        return wait_s > 0 and not self._stop.wait(min(wait_s, _POLL_S))

    def _step(self, rollout: Rollout, stream: WorkerStream) -> bool:
        """Make an unroll and send it; return whether it ended the stream."""
        rows = self._num_steps * self._environments.num_envs
        self._pace.took(rows, time.monotonic())
        self._actor = self._actors.newest(self._actor)
        self._report.acts(self._policies.current)
        arrays = rollout.collect(self._actor, self._num_steps, self._must_stop)
        is_last = self._stop.is_set()
        longest = stream.send(arrays, end=is_last)
        if self._refusals:
            # The client sends together what waits together, and the broker takes a
            # whole batch for one record: alone, halves of what was too large fit.
            self._deliveries.settle(_SETTLE_S)
        if longest < arrays.num_steps:
            self._num_steps = longest
        self._report.add(arrays)
        self._report.packs(self._packing)
        return is_last

    def _must_stop(self) -> bool:
        """Between two steps: say how far we are, for an unroll may take long."""
        self._deliveries.counts.vector_steps += 1
        if self._report.is_due():
            self._publish_counts()
        return self._stop.is_set()

    def _after_refusal(self, stream: WorkerStream) -> After:
        """Go on under a new incarnation, with half the steps: this one has a hole."""
        self._deliveries.settle(_SETTLE_S)
        self._refusals += 1
        self._report.event("unroll-refused", "alert", stream.refused)
        if self._refusals > _MAX_REFUSALS:
            raise RollstreamError(
                f"unrolls of {self._num_steps} steps are refused: {stream.refused}",
                "raise max.message.bytes of the topic, or use fewer envsPerWorker",
            )
        self._num_steps = max(self._num_steps // 2, 1)
        return After.STOP if self._stop.is_set() else After.AGAIN

    def _wait(self) -> None:
        started_s = time.monotonic()
        self._followed.poll(_WAIT_S)
        self._sender.poll()
        waited_s = time.monotonic() - started_s
        self._deliveries.counts.wait(waited_s, for_policy=self._lacks_policy())

    def _wait_idle(self) -> bool:
        """Wait for new credit, or the end of a pause; False when told to stop.

        Whatever has come, nothing begins before there is a policy where one must act:
        an incarnation after the other would only wait for it.
        """
        grants, had_policy = self._gate.grants, not self._lacks_policy()
        while not self._stop.is_set():
            self._wait()
            self._listen()
            if self._pauses.current() is not None:
                grants = -1  # after a pause nothing else is waited for
                continue
            if self._lacks_policy():
                had_policy = False
            elif self._gate.grants > grants or not had_policy:
                return True
        return False

    def _listen(self) -> None:
        """Take in what the topics say; once a second say how we are."""
        self._followed.poll()
        newest = self._followed.newest_member
        if newest > self._gate.incarnation:
            raise Superseded(self._gate.worker, self._gate.incarnation, newest)
        if self._report.is_due():
            self._pauses.look()
            self._publish_counts()

    def _publish_counts(self) -> None:
        if self._rollout is not None:
            self._report.look(self._rollout.look())
        self._report.fetched_bytes = self._actors.remote.fetched_bytes
        self._report.publish(self._policies.ref, self._environments.restarts)

    def _on_credit(self, credit: Credit) -> None:
        """Take credit; any that names this incarnation shows that its learner lives."""
        gate = self._gate
        gate.take(credit)
        ours = credit.allowed.get(gate.worker)
        is_current = (credit.run_id, credit.epoch) == (gate.run_id, gate.epoch)
        if is_current and ours and ours.incarnation == gate.incarnation:
            self._heard_at_s = time.monotonic()

    def _on_problem(self, kind: EventKind, reason: str) -> None:
        self._report.event(kind, "warning", reason)

    def _finish(self) -> int:
        """Deliver what is under way, and say what could not be."""
        reason = self._deliveries.finish(self._publish_counts)
        if not reason:
            return EXIT_OK
        self._report.event("undelivered-steps", "alert", reason)
        self._sender.abandon()
        return EXIT_UNDELIVERED


def run(context: RoleContext, stop: StopRequest) -> int:
    """Run a worker until told to stop; return its exit code."""
    num_envs = context.spec.workers.envs_per_worker
    if problem := missing_codecs(context.spec.workers.encoding.lossy):
        raise Hopeless(problem)
    with role_environments(context, num_envs) as environments:
        return Worker(context, stop, environments).run()


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the process; ``argv``: its arguments, those of the command line when None."""
    role_main("worker", run, argv)


if __name__ == "__main__":
    main()
