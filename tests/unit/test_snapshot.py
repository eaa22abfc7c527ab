"""What a checkpoint holds: of all sources; and one from before there were any."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.algorithms import build
from learner.assembly import make_limiter
from learner.checkpoint import CheckpointError, CheckpointStore
from learner.chunks import Blanks
from learner.counters import Counters
from learner.dedup import Hole, Identity, Ledger, Verdict
from learner.lineage import Lineage, TrainingData
from learner.replay_buffer import ReplayBuffer
from learner.snapshot import LogIdentity, Snapshot, SourceSnapshot, from_files, to_files
from schemas.codec import decode
from schemas.records import NO_POLICY, DataRange, PolicyRef, SourceRef, TrainedOn
from tests.unit.learner_specs import environment, spec
from tests.unit.replay_batches import ENV, Stream, replay
from tests.unit.test_dqn import random_sample

BEFORE_SOURCES = Path(__file__).parent / "checkpoints"
"""Written by the version before `learner.sources`: 3 updates with the spec below;
batches of 4 steps of 2 environments, n = 5: six of w0 and, after them, of w1, whose
third never came; a buffer of 40 rows, which holds those of w1 only."""

SPEC = spec(network={"hidden": [4]}, replay={"capacity": 64, "minSize": 8}, batchSize=8)


def source(experiment, *, blanks=Blanks(), **changes):  # noqa: B008
    buffer = ReplayBuffer(ENV, replay(100), unroll_length=4)
    for offset, batch in enumerate(Stream("w3", 12, lengths=(99,), n=2).batches(4)):
        buffer.insert(batch, 1, offset)
    values = {
        "experiment": experiment,
        "run_id": f"run of {experiment}",
        "log": LogIdentity("cluster", f"topic of {experiment}"),
        "positions": {0: 4, 1: 3},
        "log_was_cut": {0: False, 1: True},
        "oldest_offsets": {0: 4, 1: 0},
        "ledger": {"run_id": "r"},
        "references": replace(buffer.references(), blanks=blanks, is_full=True),
        "ahead": 3.5,
    }
    return values | changes


def test_a_snapshot_of_several_sources_is_read_back(tmp_path):
    algorithm = build(environment(), SPEC)
    blanks = Blanks(frozenset({4}), {"w3": (1, 16)})
    others = (
        SourceSnapshot(**source("past-a", ahead=-1.0, blanks=blanks)),
        SourceSnapshot(**source("past-b", positions={0: 9})),
    )
    ranges = (DataRange("t", 1, 3, 9, 64, NO_POLICY, PolicyRef(7, 4)),)
    snapshot = Snapshot(
        **source(None),
        epoch=3,
        number=4,
        next_version=5,
        counters=Counters(env_steps=7).state(),
        limiter=make_limiter(SPEC).state(),
        algorithm=algorithm.state_dict(),
        others=others,
        trained_on=ranges,
        clock={"now": 2, "updates": 7, "ahead": {"3": 2}},
    )
    store = CheckpointStore(tmp_path)
    store.write(3, 4, to_files(snapshot))
    stored, errors = store.newest()
    found = from_files(stored)
    assert errors == []
    for name in ("epoch", "number", "next_version", "counters", "limiter", "clock"):
        assert getattr(found, name) == getattr(snapshot, name)
    assert found.trained_on == ranges
    for mine, theirs in zip(snapshot.sources, found.sources, strict=True):
        mine, theirs = dict(vars(mine)), dict(vars(theirs))
        for one in (mine, theirs):
            references = one.pop("references")
            one["references"] = [
                references.priorities.tolist(),
                replace(references, priorities=None),
            ]
        for name in source(None):
            assert theirs[name] == mine[name], name
    assert found.of("past-b").positions == {0: 9}
    assert found.of(None) is found and found.of("past-c") is None


def test_a_checkpoint_without_a_sources_arrays_is_refused(tmp_path):
    snapshot = Snapshot(
        **source(None),
        epoch=3,
        number=4,
        next_version=5,
        counters={},
        limiter={},
        algorithm=build(environment(), SPEC).state_dict(),
        others=(SourceSnapshot(**source("past")),),
    )
    files = to_files(snapshot)
    del files["chunks_1.npy"]
    store = CheckpointStore(tmp_path)
    store.write(3, 4, files)
    with pytest.raises(CheckpointError, match="not one of this version"):
        from_files(store.newest()[0])


def test_a_checkpoint_of_the_version_before_is_gone_on_from():
    stored, errors = CheckpointStore(BEFORE_SOURCES).newest()
    assert errors == []
    found = from_files(stored)
    assert (found.epoch, found.number, found.next_version) == (7, 3, 5)
    assert (found.experiment, found.run_id, found.others) == (None, "run", ())
    assert found.of(None) is found
    assert found.positions == {0: 6, 1: 6}
    assert found.log_was_cut == {0: False, 1: True}
    assert (found.ahead, found.trained_on) == (0.0, ())
    counters = Counters.from_state(found.counters)
    assert (counters.env_steps, counters.batches, counters.samples) == (79, 11, 16)
    assert counters.blank_batches == 0
    limiter = make_limiter(SPEC)
    limiter.restore(found.limiter)
    assert (limiter.inserts, limiter.samples, limiter.deletes) == (79, 16, 43)
    # The buffer as it was: the same rows, priorities and waiting ones.
    log = [
        (worker, offset, replace(batch, sequence=offset))
        for worker in range(2)
        for offset, batch in enumerate(
            Stream(f"w{worker}", 24, envs=2, lengths=(5, 9), n=5).batches(4)
        )
    ]
    buffer = ReplayBuffer(ENV, replay(40), unroll_length=4)
    assert buffer.restore(found.references, log) == 0
    assert (buffer.rows, buffer.samplable_rows, buffer.learnable_rows) == (36, 31, 36)
    drawn = buffer.sample(16, 0.4, np.random.default_rng(0))
    assert set(drawn.observations[""][:, 0].tolist()) == {1.0}
    # Nothing twice; and what is missing fills its hole.
    ledger = Ledger.from_state(found.ledger)
    (_, _, hole), *_ = ledger.holes()
    assert hole == Hole(2, 3, 8, 12, 2) and ledger.lost_steps == 8
    for worker, offset, batch in log:
        is_missing = (worker, offset) == (1, 2)
        expected = Verdict.RECOVERED if is_missing else Verdict.DUPLICATE
        assert ledger.judge(Identity.of(batch)).verdict is expected
    # The network goes on from its third update.
    algorithm = build(environment(), SPEC)
    algorithm.load_state_dict(found.algorithm)
    assert algorithm.updates == 3
    assert algorithm.update(random_sample(np.random.default_rng(1))).finite


BATCHES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.integers(0, 1),
        st.integers(0, 50),
        st.integers(1, 8),
        st.tuples(st.integers(-1, 3), st.integers(-1, 9)),
    )
)


@given(BATCHES, st.integers(0, 10))
def test_training_data_are_the_extremes_and_sums_of_what_came(batches, restart):
    data = TrainingData()
    stream = Stream("w0", 4, n=1)
    for number, (topic, partition, offset, rows, policy) in enumerate(batches):
        batch = stream.batch(
            0, 4, source=SourceRef(topic, partition, offset), policy=PolicyRef(*policy)
        )
        if number == restart:
            data = TrainingData(data.ranges())
        data.add(batch, rows)
    expected = []
    for where in sorted({batch[:2] for batch in batches}):
        mine = [batch for batch in batches if batch[:2] == where]
        offsets = [offset for _, _, offset, _, _ in mine]
        policies = sorted(PolicyRef(*policy) for *_, policy in mine)
        steps = sum(rows for _, _, _, rows, _ in mine)
        expected.append(
            DataRange(
                *where, min(offsets), max(offsets) + 1, steps, policies[0], policies[-1]
            )
        )
    assert list(data.ranges()) == expected


class FakeSender:
    def __init__(self):
        self.sent, self.is_full = [], False

    def try_send(self, topic, value, key):
        if not self.is_full:
            self.sent.append((topic, key, decode(value, TrainedOn)))
        return not self.is_full


class FakeContext:
    run_id = "run"

    class experiment:  # noqa: N801
        name = "e"

    def topic(self, topic):
        return topic.suffix


def test_lineage_is_told_once_a_version_is_durable_and_once():
    sender = FakeSender()
    lineage = Lineage(sender, FakeContext(), epoch=7)
    first = (DataRange("t", 0, 0, 3, 24, NO_POLICY, NO_POLICY),)
    more = (DataRange("t", 0, 0, 9, 72, NO_POLICY, PolicyRef(7, 0)),)
    lineage.mark(first, version=-1, train_step=0, saved=0)
    lineage.tell(saved=1)
    assert sender.sent == [], "there is no policy yet"
    lineage.mark(first, version=0, train_step=5, saved=1)
    lineage.tell(saved=1)
    assert sender.sent == [], "not durable yet"
    # It was not written; the next one is, and holds more.
    lineage.mark(more, version=0, train_step=6, saved=1)
    sender.is_full = True
    lineage.tell(saved=2)
    sender.is_full = False
    lineage.tell(saved=2)
    lineage.tell(saved=2)
    lineage.mark(more, version=0, train_step=9, saved=2)
    lineage.tell(saved=3)
    ((topic, key, record),) = sender.sent
    assert (topic, key) == ("lineage", "policy/7/0")
    assert (record.policy, record.train_step) == (PolicyRef(7, 0), 6)
    assert record.data == more and (record.experiment, record.run_id) == ("e", "run")
    lineage.mark(more, version=3, train_step=11, saved=3)
    lineage.mark(more, version=4, train_step=12, saved=4)  # 3 is durable by now
    lineage.tell(saved=4)
    assert [key for _, key, _ in sender.sent[1:]] == ["policy/7/3"]
