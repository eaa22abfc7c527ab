"""Worker, windows, limiter, buffer and learner together: nobody waits for ever."""

from collections import deque
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.assembly import make_limiter, make_windows
from learner.counters import Counters
from learner.dedup import Ledger
from learner.feed import Delivered
from learner.gauges import Gauges
from learner.intake import Intake
from learner.lineage import TrainingData
from learner.mixture import Mixture, divided_replay
from learner.pace import Pace
from learner.policy_clock import PolicyClock
from learner.replay_buffer import ReplayBuffer
from learner.source_runs import SourceRun
from learner.sources import Source
from schemas.experiment import from_values
from schemas.tensors import pack
from tests.unit.replay_batches import ENV, Stream

ENDLESS = (10**9,)


class FakeFeed:
    """Batches of partition 0, as they are in the log."""

    def __init__(self):
        self.log, self.refused, self.next_offset = deque(), [], 0
        self.handled_offsets = []

    def fill(self, timeout_s):
        return bool(self.log)

    def take(self):
        self.next_offset += 1
        return Delivered(0, self.next_offset - 1, self.log.popleft(), None)

    def handled(self, delivered):
        self.handled_offsets.append(delivered.offset)

    def refuse(self, message, error):
        self.refused.append(error)


@dataclass
class FakeReporter:
    events: list

    def event(self, kind, severity, reason):
        self.events.append((kind, severity, reason))


def make_spec(*, n, length, envs=2, workers=1, **learner):
    replay = {
        "capacity": learner.pop("capacity", 4096),
        "minSize": learner.pop("min_size", 4),
    }
    if learner.get("algorithm") in ("ppo", "impala"):
        replay = {}  # which on-policy nobody reads
    values = {
        "apiVersion": "rollstream/v1",
        "kind": "Experiment",
        "metadata": {"name": "test"},
        "spec": {
            "env": {"id": "CartPole-v1"},
            "workers": {
                "replicas": workers,
                "envsPerWorker": envs,
                "unrollLength": length,
            },
            "processor": {"nStep": n},
            "learner": {"replay": replay, "batchSize": 4} | learner,
        },
    }
    return from_values(values).spec


def make_source(spec, *, name="test", share=1.0, is_own=True):
    """A source whose log is a list."""
    workers = spec.workers
    return Source(
        run=SourceRun(name, "run", share, is_own, spec),
        log=None,
        feed=FakeFeed(),
        ledger=Ledger("run"),
        buffer=ReplayBuffer(
            ENV,
            divided_replay(spec.learner.replay, share),
            unroll_length=workers.unroll_length,
        ),
        log_was_cut={0: False},
        batch_rows=workers.unroll_length * workers.envs_per_worker,
    )


def make_intake(spec, sources=None):
    sources = sources or [make_source(spec)]
    windows = make_windows(spec, sources[0].ledger)
    for index in range(spec.workers.replicas):
        windows.started(f"w{index}", 1)
    limiter = make_limiter(spec)
    shares = [source.run.share for source in sources]
    return Intake(
        sources=sources,
        replay=Mixture([source.buffer for source in sources], shares),
        limiter=limiter,
        pace=Pace(sources, limiter, spec.learner),
        windows=windows,
        counters=Counters(),
        data=TrainingData(),
        gauges=Gauges(),
        reporter=FakeReporter([]),
        clock=PolicyClock.of(spec.learner),
    )


def feed_of(intake):
    return intake.sources[0].feed


class Flow:
    """Workers that obey credit, a processor, and a learner that samples when it may."""

    def __init__(self, spec, unrolls):
        self.spec, self.length = spec, spec.workers.unroll_length
        self.intake, self.now_s, self.samples = make_intake(spec), 0.0, 0
        steps, n = unrolls * self.length, spec.processor.n_step
        self.streams = [
            Stream(f"w{i}", steps, spec.workers.envs_per_worker, ENDLESS, n)
            for i in range(spec.workers.replicas)
        ]
        self.made = [0] * len(self.streams)
        self.emitted = [0] * len(self.streams)

    def turn(self):
        """One turn of everybody; returns whether any of them did anything."""
        before = (*self.made, *self.emitted, self.intake.counters.batches, self.samples)
        self.now_s += 0.1
        self.intake.windows.grant(self.now_s, room=self.intake.room)
        for index, stream in enumerate(self.streams):
            self._work(index, stream)
        self.intake.take_in()
        limiter, batch_size = self.intake.limiter, self.spec.learner.batch_size
        while limiter.can_sample(batch_size) and self.intake.replay.samplable_rows:
            limiter.sample(batch_size)
            self.samples += batch_size
        after = (*self.made, *self.emitted, self.intake.counters.batches, self.samples)
        return after != before

    def _make(self, index, stream):
        allowed = self.intake.windows.allowed_step(stream.worker)
        while self.made[index] + self.length <= min(allowed, stream.steps):
            self.made[index] += self.length

    def _work(self, index, stream):
        self._make(index, stream)
        end = self.emitted[index] + self.length
        while end - 1 + stream.n <= self.made[index]:  # its last row's horizon
            batch = stream.batch(self.emitted[index], end)
            feed_of(self.intake).log.append(
                replace(batch, sequence=end // self.length - 1)
            )
            self.emitted[index], end = end, end + self.length


@settings(max_examples=40, deadline=None)
@given(
    n=st.integers(1, 40),
    length=st.integers(1, 8),
    workers=st.integers(1, 3),
    ratio=st.sampled_from([0.5, 1.0, 4.0]),
    min_size=st.integers(1, 40),
)
def test_worker_and_learner_never_wait_for_each_other(
    n, length, workers, ratio, min_size
):
    spec = make_spec(
        n=n,
        length=length,
        workers=workers,
        min_size=min_size,
        samplesPerInsert=ratio,
    )
    flow = Flow(spec, unrolls=60 // length + 20)
    idle = 0
    while any(m < s.steps for m, s in zip(flow.made, flow.streams, strict=True)):
        # Credit is sent at most each 50 ms and repeated each second.
        idle = 0 if flow.turn() else idle + 1
        assert idle < 15, (flow.made, flow.intake.replay.rows, flow.samples)
    assert flow.samples > 0


def test_the_limiter_alone_leaves_room_for_the_n_step_horizon():
    """100 steps ahead, in episodes that never end: no row counts before they came."""
    spec = make_spec(n=100, length=8)
    intake, stream = make_intake(spec), Stream("w0", 320, 2, ENDLESS, 100)
    limiter = intake.limiter
    inserted = 0
    while limiter.can_insert_batch(16):
        intake.sources[0].buffer.insert(
            stream.batch(inserted, inserted + 8), 0, inserted
        )
        limiter.insert(16)
        limiter.resize(intake.replay.learnable_rows)
        inserted += 8
    assert intake.replay.samplable_rows > 0


def test_batches_are_let_in_while_nothing_can_be_sampled_whatever_the_limiter_says():
    intake = make_intake(make_spec(n=3, length=4))
    intake.limiter.insert(10_000)
    intake.limiter.resize(100)
    assert not intake.limiter.can_insert_batch(8)
    assert intake.open_sources and intake.room >= 1
    stream = Stream("w0", 12, 2, ENDLESS, 3)
    feed_of(intake).log.append(stream.batch(0, 12))
    assert intake.take_in() and intake.replay.samplable_rows > 0
    assert not intake.open_sources and intake.room < 1


def test_rows_that_are_not_finite_do_not_count_and_are_told_of():
    spec = make_spec(n=1, length=4, min_size=8)
    intake = make_intake(spec)
    stream = Stream("w0", 400, 2, ENDLESS, 1)
    nothing = {"": pack(np.full((5, 2, 4), np.nan, "<f4"))}
    batches = [replace(b, sequence=i) for i, b in enumerate(stream.batches(4))]
    feed_of(intake).log.extend(replace(b, observations=nothing) for b in batches[:60])
    while feed_of(intake).log:
        assert intake.take_in()
    assert (intake.replay.rows, intake.replay.samplable_rows) == (480, 0)
    assert intake.counters.env_steps == 480 == intake.replay.dropped_rows
    # They have earned nothing: no burst of samples on the first good row.
    assert intake.limiter.diff == 0 and not intake.limiter.can_sample()
    kind, severity, reason = intake.reporter.events[0]
    assert (kind, severity) == ("rows-refused", "alert")
    assert "w0 sequence 0: 8 of 8 rows cannot be learnt from" in reason
    feed_of(intake).log.extend(batches[60:])
    while intake.take_in():
        pass
    assert intake.limiter.can_sample(4) and intake.replay.samplable_rows > 0
    assert feed_of(intake).log and not intake.open_sources


def test_a_full_buffer_is_sampled_though_rows_that_are_not_valid_take_room():
    spec = make_spec(n=1, length=4, capacity=64, min_size=64)
    intake, stream = make_intake(spec), Stream("w0", 200, 2, (3,), 1)
    batches = [replace(b, sequence=i) for i, b in enumerate(stream.batches(4))]
    feed_of(intake).log.extend(batches)
    while intake.take_in():
        pass
    assert intake.limiter.can_sample(4)
    assert feed_of(intake).log  # and inserting waits for the samples


@pytest.mark.parametrize("bad", ["shape", "data", "action"])
def test_a_refused_batch_gives_its_credit_back(bad):
    intake = make_intake(make_spec(n=1, length=4))
    stream = Stream("w0", 40, 2, ENDLESS, 1)
    intake.windows.grant(0.0, room=99.0)
    found = stream.batch(0, 8).observations[""]
    wrong = pack(found.array()[..., :3])
    if bad == "data":
        wrong = replace(found, data=b"no zstd", encoding="ZSTD")
    changes = {"observations": {"": wrong}}
    if bad == "action":
        changes = {"actions": {"": pack(np.full((8, 2), 1000))}}
    feed_of(intake).log.append(stream.batch(0, 8, **changes))
    intake.take_in()
    assert len(feed_of(intake).refused) == 1
    intake.windows.grant(1.0, room=99.0)
    assert intake.windows.allowed_step("w0") == 8 + 2 * 8  # unrolls of 8 steps


class SlowSecond(Flow):
    """Its second worker makes one unroll while the first makes what it may."""

    PACE = 20
    turns = 0

    def _make(self, index, stream):
        if index == 0:
            super()._make(index, stream)
            return
        self.turns += 1
        allowed = self.intake.windows.allowed_step(stream.worker)
        if self.turns % self.PACE == 0 and self.made[1] + self.length <= allowed:
            self.made[1] += self.length


def test_a_slow_worker_is_not_starved_by_a_fast_one():
    spec = make_spec(
        n=3, length=4, workers=2, capacity=32_768, min_size=16, samplesPerInsert=1.0
    )
    flow = SlowSecond(spec, unrolls=3000)
    for _ in range(10 * SlowSecond.PACE + 19):
        flow.turn()
    fast, slow = flow.made
    assert slow == 10 * 4, "never held up, whatever the other does"
    assert 20 * slow < fast < flow.streams[0].steps, "which has more to do yet"
    chunks = flow.intake.sources[0].buffer.references().chunks
    taken = [chunk.first_step for chunk in chunks if chunk.worker == "w1"]
    assert taken == list(range(0, flow.emitted[1], 4))
    # The first of its last two unrolls waits for the second's rows.
    assert flow.emitted[1] == slow - 4
