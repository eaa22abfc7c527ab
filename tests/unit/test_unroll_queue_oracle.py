"""Any order of inserts, samples, checkpoints and kills, against a slow queue.

The slow one keeps rows one by one, in lists, and looks frames up by walking back.
"""

import copy
from dataclasses import dataclass, field, replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from learner.unroll_queue import UnrollQueue
from schemas.tensors import pack
from tests.unit.unroll_batches import COLUMNS, ENV, STATELESS, policy_stream, unroll

STEPS = 60
STREAMS = [
    policy_stream("w0", STEPS, 2, (4, 7)),
    policy_stream("w1", STEPS, 1, (9, 3)),
    policy_stream("w1", STEPS, 1, (5,), incarnation=2),
]


@dataclass
class Seen:
    """What the slow queue knows of a worker's newest unroll."""

    stream: int
    end: int
    run_start: int
    begins: bool


@dataclass
class SlowQueue:
    stack: int
    has_states: bool
    queue: list = field(default_factory=list)
    at_random: int = 0
    seen: dict = field(default_factory=dict)
    blank: dict = field(default_factory=dict)

    def insert(self, number, batch, version):
        stream, worker = STREAMS[number], batch.worker
        first, last = batch.first_step, batch.first_step + batch.num_steps
        if not batch.valid.array().any():
            if self.stack > 1:
                self.blank[worker] = number, last
                if self._is_newest(worker, number, last):
                    self.seen.pop(worker, None)
            return
        after_blank = self.blank.get(worker) == (number, first)
        if after_blank:
            del self.blank[worker]
        before = self.seen.get(worker)
        if before and (before.stream, before.end) == (number, first):
            run = replace(before, end=last)
        else:
            run = Seen(number, last, first, after_blank or first == 0)
        if self._is_newest(worker, number, last):
            self.seen[worker] = run
        columns = [
            self._column(stream, run, batch, env, version) for env in range(stream.envs)
        ]
        usable = sum(row["valid"] for rows in columns for row in rows)
        if version is None:
            self.at_random += usable
        elif usable:
            self.queue.append((version, usable, columns))

    def _is_newest(self, worker, number, end):
        seen = self.seen.get(worker)
        return seen is None or (seen.stream, seen.end) <= (number, end)

    def _column(self, stream, run, batch, env, version):
        observations = batch.observations[""].array()
        first, rows, state_is_known = batch.first_step, [], True
        for step in range(first, first + batch.num_steps):
            frames = self._frames(stream, run, env, step)
            seen_finite = np.isfinite(observations[step - first, env]).all()
            next_finite = np.isfinite(observations[step + 1 - first, env]).all()
            valid = bool(stream.valid[step, env] and seen_finite and frames)
            valid = valid and state_is_known
            if self.has_states and version is not None:
                state_is_known = valid or not stream.valid[step, env]
            reward, discount, _ = stream.target(step, env)
            rows.append(
                {
                    "valid": valid,
                    "row": (stream.worker, stream.incarnation, env, step),
                    "frames": frames,
                    "return": reward if valid else 0.0,
                    "discount": discount if valid and next_finite else 0.0,
                }
            )
        return rows

    def _frames(self, stream, run, env, step):
        """Steps of the newest frames, oldest first; None: not all are known."""
        steps = [step]
        while len(steps) < self.stack:
            at = steps[0]
            if at > 0 and at > run.run_start and stream.valid[at - 1, env]:
                steps.insert(0, at - 1)
            elif at > run.run_start or run.begins:
                steps.insert(0, at)  # an episode's first stands in
            else:
                return None
        return steps

    def sample(self, batch_size):
        taken, rows = [], 0
        while self.queue and rows < batch_size:
            _, usable, columns = self.queue.pop(0)
            taken += columns
            rows += usable
        return taken

    def drop_older(self, version):
        dropped = sum(usable for v, usable, _ in self.queue if v < version)
        self.queue = [one for one in self.queue if one[0] >= version]
        dropped, self.at_random = dropped + self.at_random, 0
        return dropped


def agree(sample, columns):
    length = max(len(rows) for rows in columns)
    assert sample.valid.shape == (length, len(columns))
    for at, rows in enumerate(columns):
        for t in range(length):
            row = rows[t] if t < len(rows) else {"valid": False}
            assert sample.valid[t, at] == row["valid"]
            assert sample.returns[t, at] == np.float32(row.get("return", 0))
            assert sample.discounts[t, at] == np.float32(row.get("discount", 0))
            if row["valid"]:
                seen = sample.observations[""][t, at, ..., 2]
                assert np.atleast_1d(seen).tolist() == row["frames"]
    for arrays in (sample.observations, sample.behaviour, sample.states):
        assert all(np.isfinite(array).all() for array in arrays.values())


def same(one, other):
    for name in ("valid", "returns", "discounts", "bootstrap_steps"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("observations", "actions", "behaviour", "states"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.keys() == theirs.keys()
        for key in mine:
            np.testing.assert_array_equal(mine[key], theirs[key])


class Learner:
    """A queue and a slow one, that read a log from a position on."""

    def __init__(self, stack, columns):
        self.stack, self.columns, self.log, self.position = stack, columns, [], 0
        self.queue = UnrollQueue(ENV, columns, frame_stack=stack)
        self.slow, self.learnt = SlowQueue(stack, bool(columns.states)), []
        self.saved = None
        self.save()

    def read(self):
        number, batch, version = self.log[self.position]
        if batch.valid.array().any():
            self.queue.insert(batch, 0, self.position)
        else:
            self.queue.pass_over(batch)
        self.slow.insert(number, batch, version)
        self.position += 1
        if version is None:  # no checkpoint comes between the two
            assert self.queue.drop_older(0) == self.slow.drop_older(0)

    def learn(self, batch_size):
        columns = self.slow.sample(batch_size)
        if not columns:
            return
        twin = self.restored(self.queue.references())
        sample = self.queue.sample(batch_size, 0.4, None)
        same(sample, twin.sample(batch_size, 0.4, None))
        agree(sample, columns)
        self.learnt.append(columns)

    def save(self):
        slow = copy.deepcopy(self.slow)
        self.saved = self.queue.references(), self.position, slow, len(self.learnt)

    def kill(self):
        references, self.position, slow, learnt = self.saved
        self.queue, self.slow = self.restored(references), copy.deepcopy(slow)
        del self.learnt[learnt:]

    def restored(self, references):
        queue = UnrollQueue(ENV, self.columns, frame_stack=self.stack)
        oldest = min((ref.offset for ref in references.chunks), default=10**9)
        batches = [(0, at, one) for at, (_, one, _) in enumerate(self.log)]
        assert queue.restore(references, batches[min(oldest, len(batches)) :]) == 0
        return queue

    def check(self):
        assert self.queue.samplable_rows == sum(u for _, u, _ in self.slow.queue)


class Producer:
    """Streams, unroll by unroll; some are lost, blank, or hold what is not finite."""

    def __init__(self):
        self.steps, self.version = [0] * len(STREAMS), 0

    def make(self, number, length, kind):
        stream, first = STREAMS[number], self.steps[number]
        last = min(first + length, STEPS)
        self.steps[number] = last
        if first == last or kind == "lost":
            return None
        if kind == "blank":
            nothing = pack(np.zeros((last - first, stream.envs), bool))
            return number, unroll(stream, first, last, valid=nothing), 0
        version = None if kind == "random" else self.version
        self.version += kind == "newer"
        batch = unroll(stream, first, last, version=version)
        if kind == "nan":
            seen = batch.observations[""].array().copy()
            seen[len(seen) // 3, 0, 0] = np.nan
            batch = replace(batch, observations={"": pack(seen)})
        return number, batch, version


KINDS = ["plain"] * 6 + ["lost", "blank", "random", "newer", "nan"]
ACTS = st.one_of(
    st.tuples(
        st.just("make"),
        st.integers(0, len(STREAMS) - 1),
        st.integers(1, 5),
        st.sampled_from(KINDS),
    ),
    st.tuples(st.just("learn"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["read", "read", "read", "save", "kill", "drop"])),
)


@settings(max_examples=60, deadline=None)
@given(
    stack=st.sampled_from([1, 2, 4]),
    columns=st.sampled_from([COLUMNS, STATELESS]),
    acts=st.lists(ACTS, max_size=60),
)
def test_nothing_is_lost_or_learnt_twice_relative_to_a_checkpoint(stack, columns, acts):
    learner, producer = Learner(stack, columns), Producer()
    for act, *arguments in acts:
        if act == "make":
            made = producer.make(*arguments)
            learner.log += [made] if made else []
        elif act == "read" and learner.position < len(learner.log):
            learner.read()
        elif act == "learn":
            learner.learn(*arguments)
        elif act == "drop":
            version = producer.version
            assert learner.queue.drop_older(version) == learner.slow.drop_older(version)
        elif act in ("save", "kill"):
            getattr(learner, act)()
        learner.check()
    learner.kill()
    while learner.position < len(learner.log):
        learner.read()
    while learner.queue.samplable_rows:
        learner.learn(7)
    rows = [
        row["row"] for columns in learner.learnt for column in columns for row in column
    ]
    assert len(rows) == len(set(rows))
    assert not learner.slow.queue
