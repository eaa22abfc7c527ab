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
from learner.lineage import Lineage
from learner.publisher import Publisher
from learner.report import intake_values
from learner.saver import Saver
from learner.snapshot import Snapshot, SourceSnapshot

LEARN_BUDGET_S = 0.015
IDLE_S = 0.005
HOUSEKEEPING_S = 0.02
METRICS_S = 1.0
MAX_NONFINITE = 100
EXPORT_AFTER_S = 2.0
"""How long a resumed learner that has nothing to learn puts off the export."""


class Diverged(RollstreamError):
    """The loss stays not finite: going on would learn nothing."""


@dataclass
class Parts:
    """What a learner is made of; built in ``train``.

    Attributes:
        number: of the last checkpoint.
        resumed: whether a checkpoint was loaded.
        graph: the export of the actor's graph, not started.
        dormant: of a checkpoint, sources that the spec has no more; they are kept.
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
    lineage: Lineage
    number: int
    resumed: bool
    graph: BackgroundExport
    dormant: tuple[SourceSnapshot, ...] = ()


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
        self._began_with = parts.intake.clock.now

    @property
    def may_learn(self) -> bool:
        """Whether updates are made.

        The first updates of a run wait for the graph: until workers can have a policy,
        what they send is random, and the export needs the processor more. Not where
        time must not tell.
        """
        return self._has_graph or self._p.resumed or self._spec.deterministic

    def run(self, stop: StopRequest) -> None:
        """Go on until told to stop.

        Raises:
            NewerLearner: another learner of this run has started.
            RollstreamError: whatever else a person has to look at.
        """
        while not stop.is_set():
            took = self._take_in()
            learnt = self.learn()
            self.keep_house()
            if not took and not learnt:
                self._idle()

    def _take_in(self) -> bool:
        """Take in for at most 10 ms.

        Deterministic: batch by batch, each only when no update can be made any more, so
        that the order of batches and updates is that of the log, whatever comes when.
        """
        if self._spec.deterministic:
            return self._intake.take_in(until=self._can_learn)
        return self._intake.take_in()

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
        self._intake.note_learnt()
        return learnt

    def _can_learn(self) -> bool:
        limiter, replay = self._intake.limiter, self._intake.replay
        return (
            self.may_learn
            and limiter.can_sample(self._spec.batch_size)
            and replay.samplable_rows > 0
        )

    def keep_house(self) -> None:
        """Do what is due by time: members, graph, credits, metrics, checkpoint."""
        self._p.publisher.settle()
        now_s = time.monotonic()
        if now_s - self._kept_house_at < HOUSEKEEPING_S:
            return
        self._kept_house_at = now_s
        p = self._p
        p.sender.poll()
        over = p.flow.follow_members()
        if not self._spec.deterministic:  # when they are seen depends on time
            self._intake.streams_are_over(over)
        if (own := self._intake.own) and own.feed.expired_partitions:
            p.flow.forgive(own.feed.expired_partitions)
        self._take_graph(now_s)
        # Also when there is nothing to learn: the last updates of a burst.
        self._publish_when_due(now_s)
        p.flow.grant(
            now_s,
            room=self._room(),
            min_policy=p.flow.least_policy(p.publisher.version, p.publisher.published),
        )
        if now_s - self._reported_at >= METRICS_S:
            self.report()
        self._save_when_due(now_s)

    def _room(self) -> float:
        """Return how many unrolls are wanted of workers.

        None by policies of the learner before, once this one is too many versions
        beyond them and has not published: they would all be stale, one after the other.
        """
        intake = self._intake
        limit = intake.lag_limit
        if limit is None or self._has_graph:
            return intake.room
        return intake.room if intake.clock.now - self._began_with <= limit else 0.0

    def report(self) -> None:
        """Publish metrics and positions, and what a saved policy was trained on."""
        p = self._p
        self._reported_at = time.monotonic()
        p.lineage.tell(p.saver.saved)
        values = intake_values(self._intake) | {
            "updates": p.algorithm.updates,
            "policy_epoch": p.epoch if p.publisher.version >= 0 else -1,
            "policy_version": p.publisher.version,
            "published": p.publisher.published,
            "resumed": float(p.resumed),
            "checkpoints": p.saver.saved,
            "can_learn": float(self._can_learn()),
        }
        intake = self._intake
        gauges = self._gauges.take(intake.counters.samples, intake.limiter.inserts)
        positions = intake.own.feed.status() if intake.own else ()
        p.reporter.metrics(values | gauges, positions)

    def snapshot(self) -> Snapshot:
        """Return all that must not be forgotten, as it is between two batches."""
        p, intake = self._p, self._intake
        p.number += 1
        first, *others = [source.snapshot() for source in intake.sources]
        version = p.publisher.version if p.publisher.published else -1
        data, updates = intake.data.ranges(), p.algorithm.updates
        p.lineage.mark(data, version, updates, p.saver.saved)
        return Snapshot(
            **vars(first),
            epoch=p.epoch,
            number=p.number,
            next_version=p.publisher.version + 1,
            counters=intake.counters.state(),
            limiter=intake.limiter.state(),
            clock=intake.clock.state(),
            algorithm=p.algorithm.state_dict(),
            others=(*others, *p.dormant),
            trained_on=data,
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
        for source in self._intake.sources:
            source.feed.close()

    def _update(self, batch_size: int) -> None:
        p, intake = self._p, self._intake
        beta = self._spec.replay.beta
        sample = intake.replay.sample(batch_size, beta, p.algorithm.rng)
        result = p.algorithm.update(sample)
        intake.sampled(sample)
        if not result.finite:
            self._not_finite(result.loss, intake.give_up(sample))
            return
        self._nonfinite_in_a_row = 0
        if result.td_errors is not None:
            intake.replay.update_priorities(sample.indices, result.td_errors)
        self._gauges.loss(result.loss)
        self._gauges.figures(result.figures)
        if intake.clock.is_over(p.algorithm.updates):
            intake.note_learnt(at_once=True)
            intake.clock.updated(p.algorithm.updates)
            intake.drop_stale()
        self._publish_when_due(time.monotonic())

    def _publish_when_due(self, now_s: float) -> None:
        p = self._p
        if self._has_graph and p.publisher.due(p.algorithm.updates, now_s):
            self._publish(now_s)

    def _publish(self, now_s: float) -> None:
        p = self._p
        tensors = p.algorithm.policy_tensors()
        self._intake.note_learnt(at_once=True)
        version = p.publisher.publish(tensors, p.algorithm.updates, now_s)
        if self._intake.clock.published(p.epoch, version):
            self._intake.drop_stale()
        # Credit for the next rows goes with it: on-policy all workers wait for both.
        self._kept_house_at = 0.0

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

    def _not_finite(self, loss: float, given_up: int) -> None:
        self._intake.counters.nonfinite_losses += 1
        self._nonfinite_in_a_row += 1
        if self._nonfinite_in_a_row == 1:
            rows = f"; its {given_up:,} rows do not come again" if given_up else ""
            self._p.reporter.event(
                "nonfinite-loss",
                "alert",
                f"update {self._p.algorithm.updates}: the loss is {loss}; nothing was "
                f"changed, and the last good policy stays{rows}",
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
        due_at_s = saver.retry_at_s
        if due_at_s is None:
            due_at_s = self._saved_at + self._spec.checkpoint_interval_s
        if now_s < due_at_s or not saver.is_idle:
            return
        if not self._dead_letters_are_delivered():
            return
        self._saved_at = now_s
        saver.submit(self.snapshot())
        self._gauges.checkpoint_pause_s(time.monotonic() - now_s)

    def _dead_letters_are_delivered(self) -> bool:
        """A position past a dead letter that may get lost must not be saved."""
        feeds = [source.feed for source in self._intake.sources]
        under_way = any(feed.dead_letters_under_way for feed in feeds)
        if under_way and self._p.sender.flush(1.0) == 0:
            for feed in feeds:
                feed.dead_letters_under_way = under_way = False
        return not under_way

    def _idle(self) -> None:
        started_at = time.monotonic()
        waits_for_data = self._intake.wait(IDLE_S)
        if not waits_for_data:
            time.sleep(IDLE_S)
        idle_s = time.monotonic() - started_at
        self._gauges.idle_s += idle_s
        if waits_for_data and self.may_learn:
            self._gauges.waited_data_s += idle_s
