"""Live rows and a past together: each let in at its pace, and nobody waits for ever."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.replay_batches import Stream
from tests.unit.test_intake import ENDLESS, make_intake, make_source, make_spec


class Learner:
    """A learner that samples when it may, its workers, and pasts that are there."""

    def __init__(self, spec, shares, pasts, *, steps=0, with_own=True):
        """``pasts`` are numbers of unrolls; ``steps`` are those of one worker."""
        self.spec, self.length = spec, spec.workers.unroll_length
        shares = np.array(shares) / sum(shares)
        names = [f"past{i}" for i in range(len(pasts))]
        sources = [
            make_source(spec, name=name, share=share, is_own=False)
            for name, share in zip(names, shares[with_own:], strict=True)
        ]
        if with_own:
            sources.insert(0, make_source(spec, share=shares[0]))
        self.intake = make_intake(spec, sources)
        for source, unrolls in zip(sources[with_own:], pasts, strict=True):
            self._append(source, Stream("w9", unrolls * self.length, 2, ENDLESS, 1))
        self.own = sources[0] if with_own else None
        self.worker = Stream("w0", max(steps, 1), 2, ENDLESS, 1)
        self.made, self.now_s, self.rng = 0, 0.0, np.random.default_rng(0)
        self.drawn, self.taken = Counter(), Counter()

    def _append(self, source, stream):
        source.feed.log.extend(
            replace(batch, sequence=number)
            for number, batch in enumerate(stream.batches(self.length))
        )

    def turn(self, unrolls=10**9, samples=4):
        """The worker makes up to so many unrolls, the learner so many samples."""
        before = self.made, self.intake.counters.batches, self.intake.counters.samples
        self.now_s += 0.1
        self.intake.windows.grant(self.now_s, room=self.intake.room)
        while self.own and unrolls > 0 and self._may_step():
            batch = self.worker.batch(self.made, self.made + self.length)
            number = self.made // self.length
            self.own.feed.log.append(replace(batch, sequence=number))
            self.made, unrolls = self.made + self.length, unrolls - 1
        self.intake.take_in()
        for _ in range(samples):
            self._sample()
        after = self.made, self.intake.counters.batches, self.intake.counters.samples
        return after != before

    def _may_step(self):
        end = self.made + self.length
        return end <= min(self.worker.steps, self.intake.windows.allowed_step("w0"))

    def _sample(self):
        intake, size = self.intake, self.spec.learner.batch_size
        if intake.limiter.can_sample(size) and intake.replay.samplable_rows:
            sample = intake.replay.sample(size, 0.4, self.rng)
            intake.sampled(sample)
            workers = sample.observations[""][:, 0].astype(int).tolist()
            self.drawn.update(workers)

    def run(self, turns=10**6, **turn):
        """Turn until nothing happens any more: credit is sent each second at least."""
        idle = 0
        for _ in range(turns):
            idle = 0 if self.turn(**turn) else idle + 1
            if idle == 15:
                return
        assert turns < 10**6, "no end"


def rows_of(source):
    return source.ledger.next_step("w9" if not source.run.is_own else "w0", 1) * 2


@settings(max_examples=40, deadline=None)
@given(
    share=st.sampled_from([0.02, 0.25, 0.5, 0.9]),
    length=st.integers(1, 8),
    past=st.integers(0, 30),
    ratio=st.sampled_from([0.5, 1.0, 4.0]),
    min_size=st.integers(1, 40),
    workers_turn=st.sampled_from([2, 10**9]),
)
def test_live_and_past_never_wait_for_each_other(
    share, length, past, ratio, min_size, workers_turn
):
    spec = make_spec(n=1, length=length, min_size=min_size, samplesPerInsert=ratio)
    steps = length * (40 + past + min_size)
    learner = Learner(spec, [1 - share, share], [past], steps=steps)
    learner.run(unrolls=workers_turn, samples=50)
    assert learner.made == steps, "the worker could go on to its end"
    limiter = learner.intake.limiter
    assert not limiter.can_sample(4), "all that was earned was drawn"
    # All together are learnt from as often as the spec says, within the buffer.
    assert abs(limiter.diff - ratio * min_size) <= limiter.max_diff
    assert learner.intake.counters.samples == limiter.samples


def test_a_past_does_not_make_live_rows_be_learnt_from_more_often():
    """A worker makes one unroll of 8 rows each turn; the past is there at once."""
    spec = make_spec(n=1, length=4, capacity=60_000, min_size=64, samplesPerInsert=2)
    learner = Learner(spec, [3, 1], [5000], steps=4 * 400)
    learner.run(turns=400, unrolls=1, samples=200)
    live, past = rows_of(learner.own), rows_of(learner.intake.sources[1])
    assert live == 400 * 8
    # Each row of either is learnt from twice. Without a pace of its own all 40,000 rows
    # of the past would be in, and most live ones learnt from twenty times.
    assert learner.drawn[0] / live == pytest.approx(2, rel=0.1)
    assert learner.drawn[9] / past == pytest.approx(2, rel=0.2)
    assert learner.drawn[0] == pytest.approx(3 * learner.drawn[9], rel=0.1)


def test_when_a_past_has_ended_live_rows_earn_what_is_drawn_from_both():
    spec = make_spec(n=1, length=4, min_size=16)
    learner = Learner(spec, [1, 1], [10], steps=4 * 500)
    learner.run()
    assert rows_of(learner.intake.sources[1]) == 80
    assert rows_of(learner.own) == 4000
    total = sum(learner.drawn.values())
    assert total == pytest.approx(4080, rel=0.02)
    assert learner.drawn[9] == pytest.approx(total / 2, rel=0.1)


def test_a_past_is_learnt_from_before_a_worker_has_sent_anything():
    spec = make_spec(n=1, length=4, min_size=200)
    learner = Learner(spec, [1, 1], [100], steps=0)
    learner.run()
    assert rows_of(learner.intake.sources[1]) == 800
    limiter = learner.intake.limiter
    assert abs(learner.drawn[9] - 800) <= limiter.max_diff < 250


@pytest.mark.parametrize("shares", [[1, 1], [9, 1], [1, 3, 2]])
def test_pasts_alone_are_read_to_their_ends_and_together_by_their_shares(shares):
    spec = make_spec(n=1, length=4, capacity=60_000, min_size=800)
    learner = Learner(spec, shares, [200] * len(shares), with_own=False)
    # So many that all of them together let learning begin.
    for _ in range(40):
        learner.turn(samples=0)
    taken = np.array([rows_of(source) for source in learner.intake.sources])
    assert 0 < taken.max() < 1600, "all of them have more"
    assert taken / taken.sum() == pytest.approx(
        np.array(shares) / sum(shares), abs=0.06
    )
    learner.run()
    assert [rows_of(s) for s in learner.intake.sources] == [1600] * len(shares)
    assert not learner.intake.limiter.can_sample(4)
    assert learner.intake.room == 0, "there is no worker of its own to let go"


def test_what_a_source_did_not_use_is_not_saved_up_for_ever():
    """A past that pauses for long may fill its buffer, and then goes on at its pace."""
    spec = make_spec(n=1, length=4, capacity=800, min_size=16)
    learner = Learner(spec, [1, 1], [20], steps=4 * 3000)
    learner.run(turns=800, unrolls=1)
    source = learner.intake.sources[1]
    assert rows_of(source) == 160 and learner.drawn[9] > 2000
    before = rows_of(learner.own)
    late = Stream("w9", 4000, 2, ENDLESS, 1).batches(4)[20:]
    source.feed.log.extend(replace(b, sequence=i + 20) for i, b in enumerate(late))
    learner.run(turns=50, unrolls=1, samples=400)
    more = rows_of(learner.own) - before
    assert more == 50 * 8
    # Half of all rows fill its buffer, and earn samples of which half are its own. It
    # may be ahead by 2 batches, a sample, and half of min_size.
    assert 600 < rows_of(source) - 160 <= 2 * 400 + more + 2 * (8 + 16 + 4 + 8)
