"""Policies -> evaluations: ``python -m producers.evaluator EXPERIMENT --index 0``."""

from __future__ import annotations

import time
from typing import NoReturn

from infra.clock import now_ms
from infra.control.members import register
from infra.control.role import EXIT_OK, RoleContext, StopRequest, role_main
from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.event_kinds import EventKind
from infra.monitoring.heartbeat import Heartbeat
from infra.monitoring.reporter import Reporter
from producers.actors import Actors
from producers.best_policy import BestPolicy, Score
from producers.credit import Superseded
from producers.env_troubles import EnvTroubles
from producers.environments import describe_environments
from producers.evaluation import EvaluationResult, evaluate
from producers.follow import Followed
from producers.guarded_env import Environments
from producers.policy import Policy
from producers.policy_feed import PATIENCE_S
from producers.role_environments import role_environments
from producers.rollout import Rollout
from producers.seeding import evaluation_seeds
from schemas.records import NO_POLICY, Evaluation
from schemas.tensors import pack

_POLL_S = 0.05
_REPORT_S = 1.0
FLUSH_S = 5.0


class Evaluator:
    """Evaluates the newest version, one at a time; publishes the best.

    With ``evaluator.everyVersions`` n it is the newest whose number n divides. Skipped
    are the versions in between, and those that a newer one of these has overtaken while
    an evaluation went on, or the rest after it: nobody waits for an evaluator. But the
    last one is not skipped: when no newer has come for a while, it may be that.
    """

    def __init__(
        self, context: RoleContext, stop: StopRequest, environments: Environments
    ) -> None:
        self._context = context
        self._spec = context.spec
        self._stop = stop
        self._environments = environments
        producer = make_producer(
            context.settings, client_id=context.client_id, traffic=Traffic.CONTROL
        )
        self._sender = Sender(producer)
        env = describe_environments(context.spec.env, environments, context.settings)
        self._actors = Actors(context, env, environments.num_envs, greedy=True)
        feed = self._actors.feed
        feed.every = context.spec.evaluator.every_versions
        interval_s = context.spec.learner.policy_interval_ms / 1000
        feed.patience_s = max(PATIENCE_S, 2 * interval_s)
        self._followed = Followed(context, feed, lambda credit: None, self._on_problem)
        self._best = BestPolicy(context, self._sender, self._on_problem)
        self._heartbeat = Heartbeat()
        self._evaluated = NO_POLICY
        counted = ("episodes", "vector_steps", "usable_steps", "env_restarts")
        self._values = dict.fromkeys((*counted, "evaluating"), 0.0)
        self._rollout: Rollout | None = None
        self._usable_before = 0.0
        self._reported_at_s = 0.0

    def run(self) -> int:
        """Work until told to stop; return the exit code.

        Raises:
            Superseded: a newer evaluator of this run exists.
        """
        incarnation = register(self._sender, self._context, self._stop)
        self._reporter = Reporter(self._sender, self._context, incarnation)
        self._troubles = EnvTroubles(self._reporter.event)
        self._heartbeat.begin(self._reporter)
        self._best.recall()
        self._followed.start(incarnation)
        try:
            while not self._stop.is_set():
                is_more = self._followed.poll(_POLL_S)
                self._report_when_due()
                if self._followed.newest_member > incarnation:
                    newest = self._followed.newest_member
                    raise Superseded("evaluator", incarnation, newest)
                policy = self._actors.feed.current
                # Of what came meanwhile only the newest: all of it is read before.
                if not is_more and policy and policy.ref > self._evaluated:
                    self._evaluate(policy)
            self._report()
        except RollstreamError as exc:
            self._reporter.event("evaluator-failed", "alert", str(exc))
            raise
        finally:
            self._heartbeat.end()
            self._followed.close()
            self._actors.remote.close()
            self._sender.flush(FLUSH_S)
        return EXIT_OK

    def _evaluate(self, policy: Policy) -> None:
        """Evaluate one version; once more on other seeds when it reaches the goal."""
        started_s = time.monotonic()
        self._evaluated = policy.ref
        first = self._run_episodes(policy, round_=0)
        if first is None:
            return
        mean = float(first.returns.mean())
        self._publish(policy, first, confirmation=False)
        self._best.offer(policy, Score(False, mean))
        goal = self._spec.stop.mean_return
        if goal is not None and mean >= goal:
            self._confirm(policy, goal)
        # Leave half of the time to the processes whose work this is about.
        rest_until_s = 2 * time.monotonic() - started_s
        while (left_s := rest_until_s - time.monotonic()) > 0:
            if self._stop.wait(min(left_s, _REPORT_S)):
                return
            self._report_when_due()

    def _confirm(self, policy: Policy, goal: float) -> None:
        second = self._run_episodes(policy, round_=1)
        if second is None:
            return
        mean = float(second.returns.mean())
        # Before the evaluation: whoever stops at it finds the best in place.
        self._best.offer(policy, Score(mean >= goal, mean))
        self._publish(policy, second, confirmation=True)

    def _run_episodes(self, policy: Policy, round_: int) -> EvaluationResult | None:
        ref = policy.ref
        self._values["evaluating"] = 1.0
        try:
            return evaluate(
                self._environments,
                self._actors.make(policy),
                evaluation_seeds(self._spec.seed, ref.epoch, ref.version, round_),
                self._spec.evaluator.episodes,
                self._must_stop,
                self._begin_rollout,
            )
        finally:
            self._values["evaluating"] = 0.0

    def _begin_rollout(self, rollout: Rollout) -> None:
        self._rollout = rollout
        self._usable_before = self._values["usable_steps"]

    def _must_stop(self) -> bool:
        self._values["vector_steps"] += 1
        self._report_when_due()
        return self._stop.is_set()

    def _report_when_due(self) -> None:
        """Say how far we are: an evaluation takes long, and so may the next policy."""
        if time.monotonic() - self._reported_at_s >= _REPORT_S:
            self._report()

    def _report(self) -> None:
        self._reported_at_s = time.monotonic()
        self._look()
        self._reporter.metrics(self._values)

    def _look(self) -> None:
        """Count what came of the steps, and tell of numbers that are not finite."""
        if self._rollout is None:
            return
        found = self._rollout.look()
        self._values["env_restarts"] = self._environments.restarts
        self._values["usable_steps"] = self._usable_before + found.usable
        self._troubles.tell(found)

    def _publish(
        self, policy: Policy, result: EvaluationResult, *, confirmation: bool
    ) -> None:
        self._values["episodes"] += len(result.returns)
        self._values["policy_version"] = policy.ref.version
        self._values["return_mean"] = float(result.returns.mean())
        self._reporter.send(
            Evaluation(
                experiment=self._context.experiment.name,
                run_id=self._context.run_id,
                policy=policy.ref,
                train_step=policy.version.train_step,
                returns=pack(result.returns),
                lengths=pack(result.lengths),
                confirmation=confirmation,
                produced_at_ms=now_ms(),
            )
        )
        self._report()

    def _on_problem(self, kind: EventKind, reason: str) -> None:
        self._reporter.event(kind, "warning", reason)


def run(context: RoleContext, stop: StopRequest) -> int:
    """Run an evaluator until told to stop; return its exit code."""
    spec = context.spec
    num_envs = min(spec.evaluator.envs, spec.evaluator.episodes)
    with role_environments(context, num_envs) as environments:
        return Evaluator(context, stop, environments).run()


def main(argv: list[str] | None = None) -> NoReturn:
    """Run the process; ``argv``: its arguments, those of the command line when None."""
    role_main("evaluator", run, argv)


if __name__ == "__main__":
    main()
