"""The learner's loop: take in, learn, publish, grant, report, save, in short turns."""

from __future__ import annotations

import time
from dataclasses import dataclass

from infra.control.role import RoleContext, StopRequest
from infra.errors import RollstreamError
from infra.kafka.delivery import Sender
from infra.monitoring.reporter import Reporter
from learner.algorithms.base import Algorithm
from learner.background_export import BackgroundExport
from learner.flow import Flow
from learner.intake import Intake
from learner.publisher import Publisher
from learner.restore import oldest_needed
from learner.saver import Saver
from learner.snapshot import LogIdentity, Snapshot

LEARN_BUDGET_S = 0.015
IDLE_S = 0.005
HOUSEKEEPING_S = 0.02
METRICS_S = 1.0
RETRY_SAVE_S = 2.0
MAX_NONFINITE = 100
EXPORT_AFTER_S = 2.0
"""How long a resumed learner that has nothing to learn puts off the export."""


class Diverged(RollstreamError):
    """The loss stays not finite: going on would learn nothing."""


@dataclass
class Parts:
    """What a learner is made of; built in ``train``.

    Attributes:
        log: whose offsets the feed counts in.
        number: of the last checkpoint.
        resumed: whether a checkpoint was loaded.
        graph: the export of the actor's graph, not started.
    """

    context: RoleContext
    epoch: int
    sender: Sender
    reporter: Reporter
    intake: Intake
    flow: Flow
    algorithm: Algorithm
    publisher: Publisher
    saver: Saver
    log: LogIdentity
    number: int
    resumed: bool
    graph: BackgroundExport


class Learner:
    """Runs the parts in turns of some 30 ms, so that none waits long for another."""

    def __init__(self, parts: Parts) -> None:
        self._p = parts
        self._spec = parts.context.spec.learner
        self._intake = parts.intake
        self._gauges = parts.intake.gauges
        self._saved_at = self._began_at = time.monotonic()
        self._kept_house_at = self._reported_at = 0.0
        self._nonfinite_in_a_row = 0
        self._has_learnt = self._has_graph = False

    @property
    def may_learn(self) -> bool:
        """Whether updates are made.

        The first updates of a run wait for the graph: until workers can have a policy,
        what they send is random, and the export needs the processor more.
        """
        return self._has_graph or self._p.resumed

    def run(self, stop: StopRequest) -> None:
        """Go on until told to stop.

        Raises:
            NewerLearner: another learner of this run has started.
            RollstreamError: whatever else a person has to look at.
        """
        while not stop.is_set():
            took = self._intake.take_in()
            learnt = self.learn()
            self.keep_house()
            if not took and not learnt:
                self._idle()

    def learn(self) -> bool:
        """Update for at most 15 ms; return whether any update was made."""
        if not self.may_learn:
            return False
        deadline = time.monotonic() + LEARN_BUDGET_S
        learnt = False
        while self._can_learn():
            self._update(self._spec.batch_size)
            learnt = self._has_learnt = True
            if time.monotonic() > deadline:
                break
        return learnt

    def _can_learn(self) -> bool:
        limiter, buffer = self._intake.limiter, self._intake.buffer
        return (
            self.may_learn
            and limiter.can_sample(self._spec.batch_size)
            and buffer.samplable_rows > 0
        )

    def keep_house(self) -> None:
        """Do what is due by time: members, graph, credits, metrics, checkpoint."""
        now_s = time.monotonic()
        if now_s - self._kept_house_at < HOUSEKEEPING_S:
            return
        self._kept_house_at = now_s
        p = self._p
        p.sender.poll()
        p.flow.follow_members()
        if self._intake.feed.expired_partitions:
            p.flow.forgive(self._intake.feed.expired_partitions)
        self._take_graph(now_s)
        # Also when there is nothing to learn: the last updates of a burst.
        self._publish_when_due(now_s)
        p.flow.grant(now_s, room=self._intake.room)
        if now_s - self._reported_at >= METRICS_S:
            self.report()
        self._save_when_due(now_s)

    def report(self) -> None:
        """Publish metrics and positions."""
        p, intake = self._p, self._intake
        self._reported_at = time.monotonic()
        values = intake.counters.state() | {
            "updates": p.algorithm.updates,
            "policy_epoch": p.epoch if p.publisher.version >= 0 else -1,
            "policy_version": p.publisher.version,
            "published": p.publisher.published,
            "lost_steps": intake.ledger.lost_steps,
            "recovered_steps": intake.ledger.recovered_steps,
            "buffer_rows": intake.buffer.rows,
            "samplable_rows": intake.buffer.samplable_rows,
            "dropped_rows": intake.buffer.dropped_rows,
            "resumed": float(p.resumed),
            "checkpoints": p.saver.saved,
            "workers": len(intake.windows.workers()),
            "samples_owed": intake.limiter.diff - intake.limiter.min_diff,
            "can_learn": float(self._can_learn()),
        }
        p.reporter.metrics(values | self._gauges.take(), intake.feed.status())

    def snapshot(self) -> Snapshot:
        """Return all that must not be forgotten, as it is between two batches."""
        p, intake = self._p, self._intake
        p.number += 1
        positions = dict(intake.feed.positions)
        return Snapshot(
            epoch=p.epoch,
            number=p.number,
            run_id=p.context.run_id,
            log=p.log,
            positions=positions,
            log_was_cut=dict(intake.log_was_cut),
            oldest_offsets=oldest_needed(positions, intake.buffer.oldest_offsets()),
            next_version=p.publisher.version + 1,
            counters=intake.counters.state(),
            ledger=intake.ledger.state(),
            limiter=intake.limiter.state(),
            algorithm=p.algorithm.state_dict(),
            references=intake.buffer.references(),
        )

    def save_last(self, timeout_s: float) -> str:
        """Save a last checkpoint; return why there is none; "" when it is durable."""
        deadline = time.monotonic() + timeout_s
        saver = self._p.saver
        if not saver.wait(timeout_s):
            return f"the one before was not completed within {timeout_s:g} s"
        if not self._dead_letters_are_delivered():
            return "dead letters could not be delivered"
        saved = saver.saved
        saver.submit(self.snapshot())
        done = saver.wait(max(0.0, deadline - time.monotonic()))
        if saver.failure is not None:
            return str(saver.failure)
        if saver.saved > saved:
            return ""  # what is not committed yet, the next learner commits
        return "it could not be written" if done else f"not within {timeout_s:g} s"

    def close(self) -> None:
        """Leave the broker; what was not saved is forgotten."""
        self._p.saver.close()
        self._intake.feed.close()

    def _update(self, batch_size: int) -> None:
        p, intake = self._p, self._intake
        beta = self._spec.replay.beta
        sample = intake.buffer.sample(batch_size, beta, p.algorithm.rng)
        result = p.algorithm.update(sample)
        intake.limiter.sample(batch_size)
        intake.counters.samples += batch_size
        if not result.finite:
            self._not_finite(result.loss)
            return
        self._nonfinite_in_a_row = 0
        intake.buffer.update_priorities(sample.indices, result.td_errors)
        self._gauges.loss(result.loss)
        self._publish_when_due(time.monotonic())

    def _publish_when_due(self, now_s: float) -> None:
        p = self._p
        if self._has_graph and p.publisher.due(p.algorithm.updates, now_s):
            self._publish(now_s)

    def _publish(self, now_s: float) -> None:
        p = self._p
        tensors = p.algorithm.policy_tensors()
        self._intake.policy_version = p.publisher.publish(
            tensors, p.algorithm.updates, now_s
        )

    def _take_graph(self, now_s: float) -> None:
        """Have the graph exported; publish it and a first policy once it is.

        A resumed learner learns first: the export would slow down its first update.
        """
        p = self._p
        if self._has_graph:
            return
        if not p.graph.is_started:
            waited = now_s - self._began_at >= EXPORT_AFTER_S
            if self._has_learnt or waited or not self.may_learn:
                p.graph.start()
        elif (graph := p.graph.graph()) is not None:
            p.publisher.publish_graph(graph)
            self._publish(time.monotonic())
            self._has_graph = True

    def _not_finite(self, loss: float) -> None:
        self._intake.counters.nonfinite_losses += 1
        self._nonfinite_in_a_row += 1
        if self._nonfinite_in_a_row == 1:
            self._p.reporter.event(
                "nonfinite-loss",
                "alert",
                f"update {self._p.algorithm.updates}: the loss is {loss}; nothing was "
                "changed, and the last good policy stays",
            )
        if self._nonfinite_in_a_row >= MAX_NONFINITE:
            raise Diverged(
                f"the loss was not finite {MAX_NONFINITE} times in a row",
                "lower learner.learningRate or processor.rewardScale",
            )

    def _save_when_due(self, now_s: float) -> None:
        saver = self._p.saver
        if saver.failure is not None:
            raise saver.failure
        waited = now_s - self._saved_at
        retry = saver.failed_at_s >= self._saved_at and waited >= RETRY_SAVE_S
        due = waited >= self._spec.checkpoint_interval_s or retry
        if not due or not saver.is_idle or not self._dead_letters_are_delivered():
            return
        self._saved_at = now_s
        saver.submit(self.snapshot())
        self._gauges.checkpoint_pause_s(time.monotonic() - now_s)

    def _dead_letters_are_delivered(self) -> bool:
        """A position past a dead letter that may get lost must not be saved."""
        feed = self._intake.feed
        if feed.dead_letters_under_way and self._p.sender.flush(1.0) == 0:
            feed.dead_letters_under_way = False
        return not feed.dead_letters_under_way

    def _idle(self) -> None:
        started_at = time.monotonic()
        if not self._intake.is_open:
            time.sleep(IDLE_S)
            return
        self._intake.feed.fill(IDLE_S)
        if self.may_learn:
            self._gauges.waited_data_s += time.monotonic() - started_at
