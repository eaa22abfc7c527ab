"""Workers, credit, queue and learner, on-policy: rounds go on, and rows are not old."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.assembly import make_limiter, make_windows
from learner.counters import Counters
from learner.credits import MIN_INTERVAL_S, SILENCE_S
from learner.dedup import Ledger
from learner.gauges import Gauges
from learner.intake import Intake
from learner.lineage import TrainingData
from learner.pace import Pace
from learner.policy_clock import PolicyClock
from learner.source_runs import SourceRun
from learner.sources import Source
from learner.unroll_queue import UnrollQueue
from tests.unit.test_intake import FakeFeed, FakeReporter, make_spec
from tests.unit.unroll_batches import COLUMNS, ENV, policy_stream, unroll

TURN_S = MIN_INTERVAL_S


def on_policy_spec(*, length, workers=1, envs=2, lag=0, batch=8, **learner):
    learner = {"algorithm": "ppo", "maxPolicyLag": lag, "batchSize": batch} | learner
    return make_spec(n=1, length=length, workers=workers, envs=envs, **learner)


def make_intake(spec, *, run_spec=None):
    workers = spec.workers
    source = Source(
        run=SourceRun("test", "run", 1.0, True, run_spec or spec),
        log=None,
        feed=FakeFeed(),
        ledger=Ledger("run"),
        buffer=UnrollQueue(ENV, COLUMNS),
        log_was_cut={0: False},
        batch_rows=workers.unroll_length * workers.envs_per_worker,
    )
    limiter = make_limiter(spec, comes_once=True)
    intake = Intake(
        sources=[source],
        replay=source.buffer,
        limiter=limiter,
        pace=Pace([source], limiter, spec.learner),
        windows=make_windows(spec, source.ledger),
        counters=Counters(),
        data=TrainingData(),
        gauges=Gauges(),
        reporter=FakeReporter([]),
        clock=PolicyClock.of(spec.learner),
        lag_limit=spec.learner.policy_lag_limit,
        comes_once=True,
    )
    for index in range(workers.replicas):
        intake.windows.started(f"w{index}", 1)
    return intake


class FakeWorker:
    """One that obeys credit; ``every``: it makes an unroll each so many turns."""

    def __init__(self, world, index, *, every=1, cut=0, lengths=(10**9,)):
        self.world, self.name = world, f"w{index}"
        self.every, self.cut, self.index = every, cut, index
        self.stream = policy_stream(self.name, 4096, world.envs, lengths)
        self.made = self.sequence = self.turns = 0
        self.is_dead = False

    def work(self):
        self.turns += 1
        world = self.world
        if self.is_dead or self.turns % self.every:
            return
        allowed = world.allowed.get(self.name, 0)
        end = self.made + world.length
        if end > allowed or end > self.stream.steps or world.policy < world.least:
            return
        cut = self.cut if 0 < self.cut < world.length else world.length
        for first in range(self.made, end, cut):
            self.send(first, min(first + cut, end))

    def send(self, first, last):
        batch = unroll(
            self.stream,
            first,
            last,
            version=self.world.policy,
            sequence=self.sequence,
        )
        self.made, self.sequence = last, self.sequence + 1
        self.world.feed.log.append(batch)


class World:
    """All roles, in turns; the worker's policy is that of the turn before."""

    def __init__(self, spec, workers=None, *, learn_every=1, **worker):
        self.spec, self.intake = spec, make_intake(spec)
        self.length, self.envs = (
            spec.workers.unroll_length,
            spec.workers.envs_per_worker,
        )
        self.feed = self.intake.sources[0].feed
        self.now_s, self.updates, self.trained = 0.0, 0, []
        self.policy = self.least = self.turns = 0
        self.allowed, self.learn_every = {}, learn_every
        self.workers = workers or [
            FakeWorker(self, index, **worker) for index in range(spec.workers.replicas)
        ]

    def turn(self):
        intake = self.intake
        self.now_s += TURN_S
        self.policy = intake.clock.now
        granted = intake.windows.grant(self.now_s, room=intake.room)
        if granted:  # one record brings both
            self.allowed |= {name: one.allowed_step for name, one in granted.items()}
            self.least = max(intake.clock.now - self.spec.learner.policy_lag_limit, 0)
        for worker in self.workers:
            worker.work()
        self.take_in()
        self.turns += 1
        if self.turns % self.learn_every == 0:
            self.learn()

    def take_in(self):
        while self.intake.take_in():  # for 10 ms each time: nothing here goes by time
            pass

    def learn(self):
        intake, size = self.intake, self.spec.learner.batch_size
        while intake.limiter.can_sample(size):
            sample = intake.replay.sample(size, 0.4, None)
            intake.sampled(sample)
            self.trained.append(self._rows(sample))
            self.updates += 1
            intake.clock.updated(self.updates)
            intake.drop_stale()
            if self.learn_every > 1:
                return
            self.take_in()

    def _rows(self, sample):
        seen = sample.observations[""][:-1][sample.valid].astype(int)
        return [tuple(row[:3]) for row in seen.tolist()]

    def run(self, updates, most_turns=2000):
        for _ in range(most_turns):
            if self.updates >= updates:
                return
            self.turn()
        raise AssertionError((self.updates, self.allowed, self.intake.counters))

    @property
    def rows(self):
        return [row for update in self.trained for row in update]


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 8),
    workers=st.integers(1, 4),
    lag=st.sampled_from([0, 1, 20]),
    batch=st.integers(1, 200),
    cut=st.integers(0, 5),
    lengths=st.sampled_from([(10**9,), (1,), (3, 1)]),
    slowest=st.integers(1, 4),
)
def test_rounds_go_on_and_each_row_is_learnt_from_once_or_told_as_stale(
    length, workers, lag, batch, cut, lengths, slowest
):
    spec = on_policy_spec(length=length, workers=workers, lag=lag, batch=batch)
    world = World(spec)
    world.workers = [
        FakeWorker(world, i, every=1 + i % slowest, cut=cut, lengths=lengths)
        for i in range(workers)
    ]
    world.run(updates=4)
    rows = world.rows
    assert len(rows) == len(set(rows))
    assert all(len(update) >= batch for update in world.trained)
    counters, intake = world.intake.counters, world.intake
    assert counters.samples == len(rows)
    held = intake.replay.rows
    assert counters.env_steps == len(rows) + counters.stale_steps + held
    # What waits, or may come, is bounded: by rows, and by whole unrolls of each worker.
    assert intake.replay.samplable_rows <= intake.limiter.max_diff + length * 2


def test_with_lag_0_no_row_is_stale_where_workers_fill_an_update_exactly():
    """4 workers, unrolls of 8 x 2 rows, 64 to an update: a round is one unroll each."""
    world = World(on_policy_spec(length=8, workers=4, lag=0, batch=64))
    world.run(updates=50)
    assert world.intake.counters.stale_steps == 0
    assert [len(update) for update in world.trained] == [64] * 50
    assert {worker.made for worker in world.workers} == {50 * 8}


def test_with_lag_0_several_unrolls_of_few_workers_make_one_update():
    """One worker with unrolls of 2 x 2 rows gathers 64: sixteen of one policy."""
    world = World(on_policy_spec(length=2, workers=1, lag=0, batch=64))
    world.run(updates=10)
    assert world.intake.counters.stale_steps == 0
    assert [len(update) for update in world.trained] == [64] * 10
    assert world.workers[0].made == 10 * 32


def test_with_lag_1_workers_go_on_while_the_learner_learns_and_no_row_is_stale():
    world = World(on_policy_spec(length=8, workers=4, lag=1, batch=64), learn_every=3)
    world.run(updates=50)
    world.turn()
    assert world.intake.counters.stale_steps == 0
    made = sum(worker.made for worker in world.workers) * 2
    assert made > 50 * 64, "they were ahead"
    assert made <= 52 * 64


@pytest.mark.parametrize("lag", [0, 1])
def test_a_slow_worker_has_its_turn(lag):
    """Three take 1 turn for an unroll, one takes 5; two unrolls make an update."""
    world = World(on_policy_spec(length=4, workers=4, lag=lag, batch=16))
    world.workers = [FakeWorker(world, i, every=5 if i == 3 else 1) for i in range(4)]
    world.run(updates=200)
    trained = Counter(worker for worker, _, _ in world.rows)
    total = sum(trained.values())
    assert trained[3] > 0.05 * total, trained


def test_a_dead_worker_holds_the_others_up_once_and_no_longer_than_patience():
    world = World(on_policy_spec(length=8, workers=4, lag=0, batch=64))
    world.run(updates=5)
    world.workers[3].is_dead = True
    began_s = world.now_s
    world.run(updates=6)
    assert world.now_s - began_s < SILENCE_S + 2
    began_s = world.now_s
    world.run(updates=26)
    # Three workers need two unrolls each, and then one of them is too many.
    assert world.now_s - began_s < 20 * 5 * TURN_S


def test_a_worker_that_starts_again_is_waited_for_no_longer():
    world = World(on_policy_spec(length=8, workers=2, lag=0, batch=32))
    world.run(updates=5)
    old = world.workers[1]
    old.is_dead = True
    world.turn()
    world.intake.windows.started("w1", 2)
    fresh = FakeWorker(world, 1)
    fresh.stream = policy_stream("w1", 4096, 2, (10**9,), incarnation=2)
    world.workers[1] = fresh
    began_s = world.now_s
    world.run(updates=15)
    assert world.now_s - began_s < 5


def test_what_has_come_too_late_is_counted_and_not_learnt_from():
    spec = on_policy_spec(length=4, lag=1, batch=8)
    intake = make_intake(spec)
    intake.clock.now = 5
    stream = policy_stream("w0", 100, 2, (10**9,))
    versions = [3, 4, None, 5]
    for number, version in enumerate(versions):
        at = 4 * number
        batch = unroll(stream, at, at + 4, version=version, sequence=number)
        intake.sources[0].feed.log.append(batch)
    while intake.take_in():
        pass
    assert intake.counters.env_steps == 32
    assert intake.counters.stale_steps == 16  # of version 3, and those at random
    assert intake.replay.samplable_rows == 16
    assert intake.limiter.size == 16 and intake.limiter.inserts == 16
    assert not intake.sources[0].feed.refused
    intake.clock.now = 6
    intake.drop_stale()
    assert intake.counters.stale_steps == 24 and intake.limiter.size == 8
    assert intake.windows.allowed_step("w0") == 0  # nobody has granted yet
    intake.windows.grant(1.0, room=intake.room)
    assert intake.windows.allowed_step("w0") >= 16 + 4, "credit was given back"


def test_a_past_is_learnt_from_whatever_its_versions_but_not_what_was_at_random():
    """Versions of another run's learner are not ours to be behind of."""
    spec = on_policy_spec(length=4, lag=0, batch=8)
    past = spec.model_copy(
        update={"workers": spec.workers.model_copy(update={"replicas": 0})}
    )
    intake = make_intake(spec, run_spec=past)
    assert not intake.sources[0].run.is_live
    intake.clock.now = 50
    stream = policy_stream("w0", 100, 2, (10**9,))
    for number, version in enumerate([3, None, 4]):
        at = 4 * number
        batch = unroll(stream, at, at + 4, version=version, sequence=number)
        intake.sources[0].feed.log.append(batch)
    while intake.take_in():
        pass
    intake.drop_stale()
    assert intake.replay.samplable_rows == 8  # 8 more would be one update too many
    intake.sampled(intake.replay.sample(8, 0.4, None))
    while intake.take_in():
        pass
    assert intake.counters.stale_steps == 8
    assert intake.replay.samplable_rows == 8 and not intake.sources[0].feed.log


def test_samples_per_insert_says_what_share_of_the_rows_was_learnt_from():
    world = World(on_policy_spec(length=8, workers=2, lag=0, batch=32))
    world.run(updates=20)
    intake = world.intake
    values = intake.gauges.take(intake.counters.samples, intake.limiter.inserts)
    assert values["samples_per_insert_run"] == 1.0
    assert intake.limiter.diff == intake.replay.samplable_rows == 0


def test_what_is_not_an_update_yet_waits_and_a_batch_is_let_in():
    limiter = make_limiter(on_policy_spec(length=4, lag=0, batch=20), comes_once=True)
    limiter.insert(16)
    assert limiter.can_insert_batch(8) and not limiter.can_sample(20)
    assert limiter.room == 4
    limiter.insert(8)
    assert limiter.can_sample(20) and not limiter.can_insert_batch(8)
    assert limiter.room == 0
    limiter.sample(24)
    limiter.resize(0)
    assert limiter.room == 20 and not limiter.can_sample(20)
    again = make_limiter(on_policy_spec(length=4, lag=0, batch=20), comes_once=True)
    again.restore(limiter.state())
    assert again == limiter


def test_room_is_for_what_is_learnt_from_before_it_is_too_old():
    def bound(**spec):
        return make_limiter(on_policy_spec(**spec), comes_once=True).max_diff

    assert bound(length=8, workers=4, lag=0, batch=64) == 64
    assert bound(length=8, workers=4, lag=1, batch=64) == 128
    # Two updates to a version: rows of it are good for four.
    assert bound(length=8, workers=9, lag=1, batch=64, publishEveryUpdates=2) == 256
    # 20 versions behind is far: no more waits than two unrolls of each worker.
    assert bound(length=8, workers=16, lag=20, batch=64) == 64 + 2 * 16 * 16
