"""A learner that was stopped, killed or starved goes on where its checkpoint is."""

import contextlib
import os
import signal
import threading
import time

import numpy as np
import pytest

from infra.control.members import ensure_experiment_topics
from infra.kafka.clients import make_admin
from infra.kafka.offsets import delete_before
from infra.kafka.topic_admin import delete_topics, describe_topics
from learner import loop, saver, trim
from learner.algorithms.base import UpdateResult
from learner.algorithms.dqn import Dqn
from learner.log_start import LogMismatch, RecordsExpired
from schemas.topics import REPLAY
from tests.integration.bundled_export import PRELUDE
from tests.integration.learner_host import learner_host  # noqa: F401
from tests.integration.learner_rig import (  # noqa: F401
    Rig,
    cached_export,
    experiment,
)

pytestmark = [pytest.mark.kafka, pytest.mark.chaos, pytest.mark.timeout(600)]

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid
SMALL = {"capacity": 1024, "minSize": 128}

_KILL = """
import os, signal
def kill_at_call(owner, name, number, wraps=None):
    whole, calls = getattr(owner, name), []
    def counted(*args, **kwargs):
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return whole(*args, **kwargs)
    setattr(owner, name, counted)
"""
KILLS = [
    # After the second checkpoint is durable, before its offsets are committed.
    "from learner.feed import Feed\nkill_at_call(Feed, 'commit', 2)",
    # Between an update and the next.
    "from learner.loop import Learner\nkill_at_call(Learner, '_update', 20)",
]


def test_kills_between_update_checkpoint_and_commit_count_nothing_twice(
    rig,
    learner_host,  # noqa: F811
):
    incarnation = rig.start_worker()
    sequence = 0
    for kill in KILLS:
        rig.send("w0", incarnation, *range(sequence, sequence + 12))
        sequence += 12
        learner_host.start(rig, PRELUDE + _KILL + kill)
        while (code := learner_host.poll()) is None:
            # Something has to be new for every checkpoint and update.
            rig.send("w0", incarnation, sequence)
            sequence += 1
            time.sleep(0.1)
        assert code == -signal.SIGKILL
        held = rig.checkpoint_state()["positions"]
        for partition, offset in rig.committed().items():
            assert offset <= held[str(partition)]
    rig.run_until(lambda: rig.metrics().get("env_steps") == rig.unique_rows)
    values = rig.metrics()
    assert values["resumed"] == 1
    assert (values["lost_steps"], values["duplicate_steps"]) == (0, 0)
    assert values["samples"] == 32 * values["updates"]
    # Never more samples than the rows have earned: none was made up for twice.
    assert values["samples"] <= values["env_steps"] + 2 * 2 * 64
    assert rig.committed()[0] == sequence


def test_a_resumed_learner_continues_counters_buffer_and_versions(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(40))
    rig.run_until(lambda: _is_done(rig))
    before, state = rig.metrics(), rig.checkpoint_state()
    rig.send("w0", incarnation, *range(40, 80))
    rig.run_until(lambda: rig.metrics()["resumed"] and _is_done(rig))
    resumed = [p.values for p in rig.points() if p.values["resumed"]]
    assert resumed[0]["updates"] >= before["updates"]
    assert resumed[0]["buffer_rows"] >= before["buffer_rows"] == 40 * ROWS
    after = resumed[-1]
    assert after["unrestorable_rows"] == 0
    assert after["env_steps"] == 80 * ROWS == after["buffer_rows"]
    # One sample an insert, before and after: no burst, no block.
    first = before["samples"] / before["env_steps"]
    second = (after["samples"] - before["samples"]) / (40 * ROWS)
    assert second <= 1.05 * max(first, 1.0)
    assert second >= 0.9
    versions = [(policy.epoch, policy.version) for policy in rig.policies()]
    assert versions == sorted(set(versions))
    assert len({version for _, version in versions}) == len(versions)
    assert state["limiter"]["samples"] == before["samples"]


_NOTE_FIRST_UPDATE = """
import os, sys, threading
from learner import loop
from learner.algorithms.dqn import Dqn
loop.EXPORT_AFTER_S = 600.0  # slow machines too
update = Dqn.update
def noted(self, sample):
    result = update(self, sample)
    if not os.path.exists({path!r}):
        names = {{m.partition(".")[0] for m in sys.modules}} | set(sys.modules)
        exporting = [t.name for t in threading.enumerate() if t.name == "export"]
        found = sorted(names & {{"onnx", "onnxruntime", "torch._dynamo", "torch.onnx"}})
        with open({path!r}, "w") as file:
            file.write(repr((self.updates, found, exporting)))
    return result
Dqn.update = noted
"""


def test_a_resumed_learner_learns_first_and_exports_then(rig, tmp_path):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(20))
    rig.run_until(lambda: _is_done(rig))
    updates, epoch = rig.metrics()["updates"], rig.policies()[-1].epoch
    note = tmp_path / "first-update"
    learner = rig.start_learner(_NOTE_FIRST_UPDATE.format(path=str(note)))
    rig.send("w0", incarnation, *range(20, 40))
    rig.wait_for(
        lambda: rig.policies()[-1].epoch > epoch, learner=learner, timeout_s=300.0
    )
    assert note.read_text() == repr((int(updates) + 1, [], []))
    assert rig.stop(learner) == 0


def test_a_resumed_learner_with_nothing_to_learn_publishes_all_the_same(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(20))
    rig.run_until(lambda: _is_done(rig))
    updates, epoch = rig.metrics()["updates"], rig.policies()[-1].epoch
    rig.run_until(lambda: rig.policies()[-1].epoch > epoch)
    assert rig.metrics()["updates"] == updates


def test_a_garbled_newest_checkpoint_is_said_and_the_one_before_is_used(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(10))
    rig.run_until(lambda: rig.metrics().get("checkpoints", 0) >= 1)
    rig.send("w0", incarnation, *range(10, 20))
    rig.run_until(lambda: rig.metrics().get("env_steps") == 20 * ROWS)
    newest = rig.checkpoints.root / rig.checkpoints.names()[-1]
    data = (newest / "state.json").read_bytes()
    (newest / "state.json").write_bytes(data[: len(data) // 2])
    rig.send("w0", incarnation, 20)
    rig.run_until(lambda: rig.metrics()["env_steps"] == 21 * ROWS)
    (reason,) = rig.events("checkpoint-garbled")
    assert newest.name in reason and "is used" in reason
    assert rig.metrics()["lost_steps"] == 0


def test_records_that_expired_while_it_was_down_are_counted_exactly(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(10))
    rig.run_until(lambda: rig.committed().get(0) == 10)
    rig.send("w0", incarnation, *range(10, 20))
    _delete_before(rig, 14)
    rig.run_until(lambda: rig.metrics().get("env_steps") == 16 * ROWS)
    values = rig.metrics()
    assert values["expired_records"] == 4
    assert values["lost_steps"] == 4 * 64
    # Its buffer's records are gone as well.
    assert values["unrestorable_rows"] == 10 * ROWS
    assert "4 records before offset 14" in rig.events("expired-records")[0]


@pytest.mark.parametrize("rig", [{"onExpired": "fail"}], indirect=True, ids=["fail"])
def test_a_spec_that_says_so_fails_on_expiry(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(4))
    rig.run_until(lambda: rig.committed().get(0) == 4)
    rig.send("w0", incarnation, *range(4, 8))
    _delete_before(rig, 6)
    with pytest.raises(RecordsExpired, match="2 records from offset 4"):
        rig.start_thread().result()


def test_a_topic_made_anew_is_another_log(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(4))
    rig.run_until(lambda: rig.committed().get(0) == 4)
    delete_topics(rig.settings, [rig.topic(REPLAY)])
    ensure_experiment_topics(rig.settings, rig.experiment)
    rig.send("w0", incarnation, *range(9))
    with pytest.raises(LogMismatch, match="expected the topic id"):
        rig.start_thread().result()


def test_a_disk_that_refuses_is_said_and_nothing_is_committed(rig, monkeypatch):
    monkeypatch.setattr(saver, "FIRST_RETRY_S", 0.5)
    is_open, waits = threading.Event(), threading.Event()
    save = saver.Saver.save

    def gated(self, snapshot):
        waits.set()
        is_open.wait()
        save(self, snapshot)

    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(4))
    learner = rig.start_thread()
    rig.wait_for(lambda: rig.committed().get(0) == 4, learner=learner)
    root = rig.checkpoints.root
    # Between two checkpoints: one that is begun would make its directory anew.
    monkeypatch.setattr(saver.Saver, "save", gated)
    try:
        rig.wait_for(waits.is_set, learner=learner)
        os.rename(root, root.with_name("away"))
        root.write_text("no directory")
    finally:
        is_open.set()
    rig.send("w0", incarnation, *range(4, 8))
    rig.wait_for(lambda: rig.metrics()["env_steps"] == 8 * ROWS, learner=learner)
    rig.wait_for(lambda: rig.events("checkpoint-failed"), learner=learner)
    assert rig.committed()[0] == 4
    root.unlink()
    os.rename(root.with_name("away"), root)
    rig.wait_for(lambda: rig.committed()[0] == 8, learner=learner)
    assert learner.stop() == 0


@pytest.mark.parametrize("rig", [{"replay": SMALL}], indirect=True, ids=["small"])
def test_trimming_keeps_what_two_checkpoints_need(rig, monkeypatch):
    monkeypatch.setattr(trim.Trimmer.__init__, "__defaults__", (0.0,))
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(40))
    rig.run_until(lambda: _first_offset(rig) > 0)
    # 1,024 rows are the last 16 batches of 64.
    assert 0 < _first_offset(rig) <= 40 - 16
    rig.run_until(lambda: rig.metrics().get("resumed"))
    assert rig.metrics()["unrestorable_rows"] == 0
    assert rig.metrics()["buffer_rows"] == 16 * ROWS


def test_losses_that_are_not_finite_change_nothing_and_stop_in_the_end(
    rig, monkeypatch
):
    nan = np.full(32, np.nan, np.float32)
    monkeypatch.setattr(
        Dqn, "update", lambda self, sample: UpdateResult(nan, np.nan, np.nan, False)
    )
    rig.send("w0", rig.start_worker(), *range(60))
    with pytest.raises(loop.Diverged, match="100 times in a row"):
        rig.start_thread().result()
    assert len(rig.events("nonfinite-loss")) == 1
    assert {policy.train_step for policy in rig.policies()} == {0}


def _is_done(rig):
    """Whether all was inserted and the samples it earned were drawn."""
    values = rig.metrics()
    return (
        values.get("env_steps") == rig.unique_rows
        and values["samples_owed"] < 32
        and rig.committed().get(0)
    )


def _delete_before(rig, offset):
    admin = make_admin(rig.settings)
    request = {(rig.topic(REPLAY), 0): offset}
    for future in delete_before(admin, request, 60.0).values():
        future.result(60.0)


def _first_offset(rig):
    (found,) = describe_topics(rig.settings, [rig.topic(REPLAY)])
    return found.beginning_offsets[0]


@pytest.fixture
def rig(settings, cached_export, request):  # noqa: F811
    """The learner's rig; a test may say what else stands in its spec."""
    learner = getattr(request, "param", {})
    with contextlib.closing(Rig(settings, experiment(**learner))) as rig:
        yield rig
