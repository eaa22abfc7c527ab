"""What a learner does until it learns: consume, decode, de-duplicate, grant credit.

``python -m benchmarks.learner_side EXPERIMENT SECONDS``: publishes a policy, says
READY, measures once batches of that policy arrive, prints a JSON line.
"""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass, field

import numpy as np

from infra.clock import now_ms
from infra.control.members import register
from infra.control.role import EXIT_OK, RoleContext, StopRequest, load_context
from infra.kafka.clients import make_admin, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from learner.actor_graph import export_actor
from learner.algorithms import build
from learner.assembly import make_limiter, make_windows
from learner.counters import Counters
from learner.dedup import Identity, Ledger, Verdict
from learner.feed import Delivered, Feed
from learner.flow import Flow
from learner.opening import open_log
from learner.publisher import Publisher
from learner.roster import Roster
from producers.validation import try_environment
from schemas.records import NO_POLICY

READY = "ready"
WITHOUT_POLICY = "without-policy"
"""A third argument: workers act at random, and their batches are measured."""
_GRANT_S = 0.02
_WARM_UP_S = 2.0


@dataclass
class Measured:
    """What arrived within the measured time.

    Attributes:
        began_s: when batches of the policy had come from all workers, by the monotonic
            clock.
        ended_s: when measuring ended.
        steps: valid rows.
        latencies_ms: of each batch, from the unroll's end until it was ready here.
    """

    began_s: float = 0.0
    ended_s: float = 0.0
    steps: int = 0
    latencies_ms: list[float] = field(default_factory=list)

    def percentiles(self) -> dict[str, float]:
        """Return p50, p95 and p99 from an unroll's end until it was ready here."""
        found = np.percentile(self.latencies_ms or [0.0], [50, 95, 99])
        return dict(zip(("p50", "p95", "p99"), found.tolist(), strict=True))


class LearnerSide:
    """A learner without its buffer and updates."""

    def __init__(
        self, context: RoleContext, stop: StopRequest, *, has_policy: bool = True
    ) -> None:
        self._context = context
        self._has_policy = has_policy
        self._stop = stop
        self._sender = Sender(
            make_producer(context.settings, client_id=context.client_id)
        )
        self._epoch = register(self._sender, context, stop)
        self._reporter = Reporter(self._sender, context, self._epoch)
        self._roster = Roster(context, self._reporter, self._epoch)
        self._ledger = Ledger(context.run_id)
        self._windows = make_windows(context.spec, self._ledger)
        self._flow = Flow(
            context,
            self._epoch,
            self._sender,
            self._roster,
            self._windows,
            make_limiter(context.spec),
            self._ledger,
        )
        self._measured = Measured()
        self._acting = set[str]()

    def run(self, seconds: float) -> int:
        """Publish a policy, then measure; return the exit code."""
        born_at_ms = self._roster.wait_for_own()
        admin = make_admin(self._context.settings)
        starts = open_log(self._context, admin, None, born_at_ms).starts
        feed = Feed(self._context, self._sender, self._reporter, Counters(), starts)
        if self._has_policy:
            self._publish_policy()
        print(READY, flush=True)
        self._measure(feed, seconds)
        self._print(seconds)
        feed.close()
        self._roster.close()
        return EXIT_OK

    def _publish_policy(self) -> None:
        # Before there is a worker: in free flow one would flood the log meanwhile.
        env = try_environment(self._context.spec.env, self._context.settings)
        algorithm = build(env, self._context.spec)
        publisher = Publisher(self._sender, self._context, self._epoch)
        publisher.publish_graph(export_actor(algorithm.actor()))
        publisher.publish(algorithm.policy_tensors(), 0, time.monotonic())
        publisher.finish(5.0)
        self._sender.flush(5.0)

    def _measure(self, feed: Feed, seconds: float) -> None:
        measured, granted_s = self._measured, 0.0
        while not self._stop.is_set():
            now_s = time.monotonic()
            if measured.began_s and now_s - measured.began_s - _WARM_UP_S > seconds:
                measured.ended_s = now_s
                return
            if now_s - granted_s > _GRANT_S:
                granted_s = now_s
                self._flow.follow_members()
                self._flow.grant(now_s, room=math.inf, min_policy=NO_POLICY)
                self._sender.poll()
            feed.fill(_GRANT_S)
            while (delivered := feed.take()) is not None:
                self._take(delivered)
                feed.handled(delivered)

    def _take(self, delivered: Delivered) -> None:
        batch, measured = delivered.batch, self._measured
        verdict = self._ledger.judge(Identity.of(batch)).verdict
        now_s = time.monotonic()
        self._windows.arrived(
            batch.worker,
            batch.incarnation,
            batch.first_step + batch.num_steps,
            batch.num_steps,
            now_s,
        )
        if verdict is not Verdict.NEW:
            return
        # Everything a learner would read is opened, as the buffer does.
        observations = [tensor.array() for tensor in batch.observations.values()]
        valid = int(np.count_nonzero(batch.valid.array())) if observations else 0
        counts = batch.policy.version >= 0 or not self._has_policy
        if counts and not measured.began_s:
            # Who still starts would count as the cost of the others' steps.
            self._acting.add(batch.worker)
            if len(self._acting) >= self._context.spec.workers.replicas:
                measured.began_s = now_s
        if measured.began_s and now_s - measured.began_s > _WARM_UP_S:
            measured.steps += valid
            measured.latencies_ms.append(now_ms() - batch.produced_at_ms)

    def _print(self, seconds: float) -> None:
        measured = self._measured
        print(
            json.dumps(
                {
                    "steps_per_s": measured.steps / seconds,
                    "measured_s": [measured.began_s + _WARM_UP_S, measured.ended_s],
                    "latency_ms": measured.percentiles(),
                    "lost_steps": self._ledger.lost_steps,
                }
            ),
            flush=True,
        )


def main() -> None:
    """Measure the experiment that the command line names."""
    name, seconds, *more = sys.argv[1:]
    context, stop = load_context(name, "learner", 0), StopRequest().listen()
    side = LearnerSide(context, stop, has_policy=WITHOUT_POLICY not in more)
    sys.exit(side.run(float(seconds)))


if __name__ == "__main__":
    main()
