"""A past on the real broker -> another experiment, whatever is killed when."""

from __future__ import annotations

import json
import random
import re
import signal
import threading
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import pytest

from archive import sending
from archive.pacing import Pace
from archive.past_source import prepare, records_of
from archive.recorded import Gap
from archive.replay import replay
from archive.selection import Selection
from archive.topic_source import TopicSource
from infra.control.experiments import UnknownExperiment, read_experiment
from infra.errors import OffsetError
from schemas.codec import decode, encode
from schemas.records import Member, TransitionBatch, Unroll
from schemas.topics import MEMBERS
from tests.integration.processor_rig import wait_until
from tests.integration.replay_rig import ENV, PARTITIONS, ReplayRig, is_added

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]
ALL = Selection()


@pytest.fixture
def rig(settings, tmp_path):
    with closing(ReplayRig(settings, tmp_path)) as found:
        yield found


def replayed(rig, name, *, selection=ALL, watch=lambda *_: None, rate="max"):
    """Replay in this process; return how far it is."""
    target = read_experiment(rig.settings, name)
    with closing(TopicSource(rig.settings, rig.source)) as source:
        found = prepare(rig.settings, source, selection, target)
        return replay(
            rig.settings,
            target,
            found.past,
            records_of(source, found.plan),
            pace=Pace.parse(rate),
            watch=watch,
        )[0]


def test_same_settings_give_the_same_batches_and_others_what_they_are_worth(rig):
    valid = rig.fill(left_open=False)
    same = rig.publish("same")
    other = rig.publish("other", processor={"nStep": 5, "gamma": 0.5, "rewardScale": 2})
    for name in (same, other):
        standing = replayed(rig, name)
        assert standing.done and standing.env_steps == valid
        rig.check_is_whole(name)
    with ExitStack() as processors:
        for name in (rig.source, same, other):
            processors.enter_context(rig.processor(name))
        for name in (rig.source, same, other):
            rig.wait_until_processed(name)
    originals, copies = rig.batches(rig.source), rig.batches(same)
    assert copies.keys() == originals.keys() and len(originals) > 350
    for key, value in originals.items():
        batch, copy = (decode(v, TransitionBatch) for v in (value, copies[key]))
        assert copy.run_id == "same1" and copy.experiment == same
        back = replace(
            copy, experiment=batch.experiment, run_id=batch.run_id, source=batch.source
        )
        assert encode(back) == value
    rig.check_returns(other, 5, 0.5, 2.0)


def test_killed_again_and_again_it_leaves_no_gap_and_no_repeat(rig):
    valid = rig.fill(records=120)
    name = rig.name("killed")
    for _ in range(4):
        # A minute and more for all of it: no kill comes too late.
        child = rig.replay("--into", name, "--rate", f"{valid // 80}/s")
        rig.wait_for_more(child, name)
        time.sleep(random.random())
        assert child.poll() is None, rig.log()
        child.kill()
        child.wait()
    assert not rig.standing(name).done
    child = rig.replay("--into", name)
    assert child.wait(120) == 0, rig.log()
    rig.check_is_whole(name)
    assert rig.standing(name).done and rig.steps_in(name) == valid
    ends = {p: len(log) for p, log in rig.trajectories(name).items()}
    again = rig.replay("--into", name, "--resume")
    assert again.wait(120) == 0, rig.log()
    assert "has all of" in rig.log()
    assert {p: len(log) for p, log in rig.trajectories(name).items()} == ends


def test_a_role_that_is_killed_goes_on_and_says_when_it_is_done(rig):
    valid = rig.fill(records=120)
    past = {"experiment": rig.source, "rate": str(valid // 5)}
    name = rig.publish("role", past=past)
    for _ in range(3):
        child = rig.start("archive.replayer", name)
        before = len(list(rig.messages(MEMBERS, name)))
        wait_until(
            lambda before=before: len(list(rig.messages(MEMBERS, name))) > before,
            120.0, "it has registered",
        )  # fmt: skip
        time.sleep(0.7)
        child.kill()
        child.wait()
    child = rig.start("archive.replayer", name)
    wait_until(lambda: rig.metrics(name, "replayer").get("done") == 1, 120.0, "done")
    child.send_signal(signal.SIGTERM)
    assert child.wait(60) == 0, rig.log()
    rig.check_is_whole(name)
    members = [decode(m.value, Member) for m in rig.messages(MEMBERS, name)]
    assert {m.role for m in members} == {"replayer"}
    assert all(m.env == ENV for m in members)


def test_two_at_once_write_each_record_once(rig):
    valid = rig.fill(records=120)
    name = rig.publish("fenced")
    slow = rig.replay("--into", name, "--rate", f"{valid // 200}/s")
    wait_until(
        lambda: any(rig.trajectories(name).values()), 120.0, "the first has begun"
    )
    standing = replayed(rig, name)
    assert standing.done and standing.env_steps == valid
    assert slow.wait(120) == 1 and "another process has begun" in rig.log()
    rig.check_is_whole(name)


def test_ctrl_c_ends_it_at_once_and_the_same_command_goes_on(rig, command):
    rig.fill(records=120)
    name = rig.name("interrupted")
    arguments = ("replay", rig.source, "--into", name, "--json")
    process, out, error = command(*arguments, "--rate", "200/s")
    some = re.compile(r"\b[1-9][\d,]* env steps \(")
    wait_until(lambda: some.search(error.read_text()), 120.0, "some are committed")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130, error.read_text()
    found = json.loads(out.read_text())
    assert not found["done"] and found["env_steps"] > 0
    process, out, error = command(*arguments, "--resume")
    assert process.wait(120) == 0, error.read_text()
    rest = json.loads(out.read_text())
    assert rest["done"] and rest["resumed"] and rest["gaps"] == []
    assert rest["env_steps"] + found["env_steps"] == rest["total_env_steps"]
    rig.check_is_whole(name)


def test_what_would_mix_or_is_not_there_is_refused_and_nothing_written(rig, rollstream):
    rig.fill(records=4)
    new = rig.name("new")
    for arguments, code, says in [
        (("--policy-version", "77.."), 1, "nothing chosen"),
        (("--from", "2026-11-30T10:00:00"), 2, "a time with its zone"),
        (("--rate", "fast"), 2, "expected max"),
        (("--resume",), 1, "expected a replay of"),
        (("--set", "spec.workers.replicas=2"), 2, "expected 0, found 2"),
    ]:
        found, _, error = rollstream("replay", rig.source, "--into", new, *arguments)
        assert found == code and says in error, (arguments, error)
        with pytest.raises(UnknownExperiment):
            read_experiment(rig.settings, new)
    found, _, error = rollstream("replay", "not/there", "--into", new)
    assert found == 1 and "the folder of an archive" in error
    name = rig.publish("mixed")
    code, _, error = rollstream("replay", rig.source, "--into", name, "--worker", "0-2")
    assert code == 0, error
    for arguments, says in [
        (("--worker", "0-3"), "expected the selection that it was begun with"),
        (("--set", "spec.processor.nStep=9"), "expected no --set"),
    ]:
        code, _, error = rollstream("replay", rig.source, "--into", name, *arguments)
        assert code > 0 and says in error, error
    lived = rig.publish("lived")
    rig.put_member(lived)
    code, _, error = rollstream("replay", rig.source, "--into", lived)
    assert code == 1 and "expected no worker" in error
    assert not any(rig.trajectories(lived).values())


def test_chosen_episodes_arrive_in_streams_without_holes(rig):
    rig.fill()
    name = rig.publish("chosen")
    selection = Selection.parse(episodes="return>=12", workers="0-3")
    standing = replayed(rig, name, selection=selection)
    with rig.processor(name):
        rig.wait_until_processed(name)
    assert standing.blank_steps > 0
    records = [r for log in rig.trajectories(name).values() for r in log]
    unrolls = [each for each in records if isinstance(each, Unroll)]
    assert {each.worker for each in unrolls} == {"w0", "w1", "w2", "w3"}
    assert sum(int(e.valid.array().sum()) for e in unrolls) == standing.env_steps
    sequences: dict[tuple[str, int], list[int]] = {}
    for each in unrolls:
        stream = sequences.setdefault((each.worker, each.incarnation), [])
        stream.append(each.sequence)
    assert all(sorted(s) == list(range(len(s))) for s in sequences.values())
    batches = [decode(value, TransitionBatch) for value in rig.batches(name).values()]
    assert len(batches) == len(unrolls), "of blank records too"
    rig.check_returns(name, 3, 0.9, 0.5)


def test_it_waits_for_readers_rather_than_let_records_be_deleted_unread(
    rig, monkeypatch
):
    rig.fill(records=120)
    name = rig.publish("full")
    size = sum(len(m.value) for m in rig.messages(sending.TRAJECTORIES, rig.source))
    limit = size // 8
    limits = {"processor": limit, "learner": None}
    monkeypatch.setattr("archive.room._limits", lambda *_: limits)
    waited, done, over = (threading.Event() for _ in range(3))

    def watch(standing, counts):
        if over.is_set():
            raise Enough
        if counts.waiting == f"the processors of {name}":
            waited.set()

    def run():
        with suppress(Enough):
            replayed(rig, name, watch=watch)
            done.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert waited.wait(120) and not done.wait(1.0)
        sizes = {p: 0 for p in range(PARTITIONS)}
        for message in rig.messages(sending.TRAJECTORIES, name):
            sizes[message.partition] += len(message.value)
        assert 0 < max(sizes.values()) <= limit
        with rig.processor(name):
            assert done.wait(120)
            rig.wait_until_processed(name)
    finally:
        over.set()
        thread.join(60)
    rig.check_is_whole(name)


def test_what_has_expired_is_said_and_never_left_out_in_silence(rig, rollstream):
    rig.fill()
    name = rig.publish("expired")
    topic = f"rollstream.{rig.source}.trajectories"
    rig.delete_before(topic, 20)
    with closing(TopicSource(rig.settings, rig.source)) as source:
        assert source.gaps() == [Gap(0, 0, 20)]
        assert source.bounds()[0][0] == 20
        with pytest.raises(OffsetError, match="has expired"):
            list(source.read(0, 5, 30))
    code, out, _ = rollstream("replay", rig.source, "--into", name)
    assert code == 0
    assert f"{topic}[0]: offsets 0 to 19 of {rig.source}/old1" in out


class Enough(Exception):
    """Ends a replay that has begun."""


def begin(rig, name):
    def watch(standing, counts):
        if counts.records:
            raise Enough

    with pytest.raises(Enough):
        replayed(rig, name, watch=watch, rate="200/s")


def test_what_is_open_is_closed_though_it_was_killed_just_before(rig, monkeypatch):
    rig.fill()
    name = rig.publish("closed")

    def killed(sending):
        sending.commit()
        raise Enough

    with monkeypatch.context() as patch, pytest.raises(Enough):
        patch.setattr(sending.Sending, "finish", killed)
        replayed(rig, name)
    assert not any(map(is_added, rig.trajectories(name)[1]))
    assert replayed(rig, name).done
    assert [r.worker for r in rig.trajectories(name)[1] if is_added(r)] == ["w1"]
    rig.check_is_whole(name)


def test_what_expires_while_it_waits_is_not_passed_over(rig, rollstream):
    rig.fill(records=120)
    name = rig.publish("late")
    begin(rig, name)
    rig.delete_before(f"rollstream.{rig.source}.trajectories", 300)
    code, _, error = rollstream("replay", rig.source, "--into", name)
    assert code == 1 and "are not there" in error


def test_what_was_begun_from_a_topic_goes_on_from_its_archive(
    rig, rollstream, tmp_path
):
    pytest.importorskip("pyarrow")
    rig.fill(records=120)
    name = rig.publish("moved")
    source = rig.trajectories(rig.source)
    begin(rig, name)
    folder = str(tmp_path / "kept")
    code, _, error = rollstream("archive", rig.source, "--out", folder)
    assert code == 0, error
    rig.delete_before(f"rollstream.{rig.source}.trajectories", 300)
    code, out, error = rollstream("replay", folder, "--into", name, "--resume")
    assert code == 0, error
    rig.check_is_whole(name, source)
    code, out, _ = rollstream("replay", rig.source, "--into", name)
    assert code == 0 and "already" in out


@pytest.mark.chaos
def test_it_outlives_its_broker(rig, local_cluster):
    valid = rig.fill(records=120)
    name = rig.publish("outlives")
    killed = threading.Event()

    def watch(standing, counts):
        if counts.records > 100 and not killed.is_set():
            killed.set()
            local_cluster.kill_broker()
            local_cluster.start()

    standing = replayed(rig, name, watch=watch, rate=f"{valid // 4}/s")
    assert killed.is_set() and standing.env_steps == valid
    rig.check_is_whole(name)
