"""A worker on the real broker: its streams have no holes, whatever happens to it."""

import contextlib
import os
import re
import signal
import threading
from dataclasses import replace

import numpy as np
import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException

from infra.control.members import register
from infra.control.role import (
    EXIT_ERROR,
    EXIT_OK,
    EXIT_UNDELIVERED,
    StopRequest,
    ToldToStop,
)
from infra.errors import RollstreamError
from infra.kafka.clients import make_admin, make_producer
from infra.monitoring.progress import Progress
from infra.monitoring.status import read_status
from producers import deliveries
from producers.credit import Superseded
from producers.environments import make_environments
from producers.watchdog import Watchdog
from producers.worker import Worker
from schemas.codec import encode
from schemas.records import (
    NO_POLICY,
    EnvDescription,
    EpisodesFinished,
    Member,
    MetricsPoint,
    PolicyRef,
)
from schemas.topics import (
    CREDITS,
    DEAD_LETTERS,
    EVENTS,
    MEMBERS,
    METRICS,
    POLICIES,
    TRAJECTORIES,
)
from tests.unit.envs.graphs import RUN_ID, graph_record, linear_q, version_record
from tests.unit.envs.tables import Sunset
from tests.unit.envs.trial import PATIENCE_S, Trial, check_streams, until

pytestmark = pytest.mark.kafka

WORKERS = {"replicas": 1, "envsPerWorker": 8, "unrollLength": 16}
FREE = {"mode": "free"}


@pytest.fixture
def trial(settings):
    made = []

    def make(**spec):
        made.append(Trial(settings, **({"workers": WORKERS} | spec)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_worker_stays_within_its_credit_and_goes_on_with_more(trial):
    t = trial(workers=WORKERS | {"envsPerWorker": 64})
    child = t.start()
    # One floor window: n = 3 and T = 16 make two unrolls.
    until(lambda: len(t.unrolls()) == 2, by=child)
    # It starts in 2 s where it is alone; others' work counts for no time of its own.
    assert sum(psutil.Process(child.pid).cpu_times()[:2]) < 8
    (message,) = t.messages(MEMBERS)
    incarnation = message.offset
    t.grant(incarnation, 16 * 5 + 7)
    until(lambda: len(t.unrolls()) == 5, by=child)
    t.grant(incarnation, 10**6, run_id="another")
    until_heard(t)
    unrolls = t.unrolls()
    assert check_streams(unrolls) == {incarnation: 80}
    assert {(u.worker, u.num_envs, u.policy) for u in unrolls} == {
        ("w0", 64, NO_POLICY)
    }
    (member,) = t.records(MEMBERS)
    assert isinstance(member, Member) and member.pid == child.pid
    assert member.env.env_id == "CartPole-v1" and member.env.action[0].n == (2,)
    assert member.env.vectorization == "vector_entry_point"
    assert rss_kb(child.pid) < 120_000
    assert child.stop() == EXIT_OK
    (end,) = t.ends()
    assert end.incarnation == incarnation and end.reason == "SIGTERM"


def until_heard(t):
    """Wait until the worker has read all credits so far, and gone round since.

    A credit that cannot be read is the marker: its event comes after those before it
    were taken. Of two reports after that the second is of another round.
    """

    def refusals():
        return sum(r.kind == "control-record-refused" for r in t.records(EVENTS))

    def is_marked():
        # Again and again: a worker that has just started reads from the end.
        t.send(CREDITS, t.credit, "learner/0")
        t.sender.send_and_wait(topic, b"\x00garbage", "learner/0")
        return refusals() > before

    before, topic = refusals(), t.context().topic(CREDITS)
    until(is_marked)
    seen = len(points(t))
    until(lambda: len(points(t)) >= seen + 2)


def points(t):
    found = [r for r in t.records(METRICS) if isinstance(r, MetricsPoint)]
    return [point for point in found if point.values]  # others only say: I live


def rss_kb(pid):
    with open(f"/proc/{pid}/status") as status:
        (found,) = [int(line.split()[1]) for line in status if "VmRSS" in line]
    return found


def test_sigterm_sends_the_unroll_under_way_as_the_last(trial):
    t = trial(flow=FREE, workers=WORKERS | {"unrollLength": 4_000})
    child = t.start()
    until(t.unrolls, by=child)
    assert child.stop() == EXIT_OK
    unrolls = t.unrolls()
    check_streams(unrolls)
    if not t.ends():  # between two unrolls there is none to cut
        assert [u.end_of_stream for u in unrolls][-1]
        assert unrolls[-1].num_steps < 4_000
    assert not any(u.end_of_stream for u in unrolls[:-1])
    check_counts(t, unrolls)


def check_counts(t, unrolls):
    """Assert that metrics say what is in the log: steps and finished episodes."""
    records = t.records(METRICS)
    delivered = sum(int(u.valid.array().sum()) for u in unrolls)
    assert points(t)[-1].values["env_steps"] == delivered
    assert points(t)[-1].values["undelivered_steps"] == 0
    episodes = [r for r in records if isinstance(r, EpisodesFinished)]
    returns = np.concatenate([r.returns.array() for r in episodes])
    lengths = np.concatenate([r.lengths.array() for r in episodes])
    ended = [u.terminated.array() | u.truncated.array() for u in unrolls]
    assert len(returns) == sum(int(e.sum()) for e in ended) > 50
    np.testing.assert_array_equal(returns, lengths)
    assert 15 < returns.mean() < 30, "CartPole at random lasts 22 steps"


def test_a_killed_worker_comes_back_as_another_stream_and_fences_the_older(trial):
    t = trial()
    killed = t.start()
    until(lambda: len(t.unrolls()) == 2, by=killed)
    killed.kill()
    killed.wait()
    older = t.start()
    until(lambda: len(t.unrolls()) == 4, by=older)
    newer = t.start()  # a second process with the same index
    assert older.wait(PATIENCE_S) == EXIT_ERROR
    assert "expected incarnation" in older.said
    until(lambda: len(t.unrolls()) == 6, by=newer)
    assert newer.poll() is None
    assert newer.stop() == EXIT_OK
    unrolls = t.unrolls()
    assert list(check_streams(unrolls).values()) == [32, 32, 32]
    incarnations = [u.incarnation for u in unrolls]
    assert incarnations == sorted(incarnations)
    first = [u for u in unrolls if u.sequence == 0]
    starts = {u.observations[""].array()[0].tobytes() for u in first}
    assert len(starts) == 3, "each with seeds of its own"
    assert "worker-failed" in [r.kind for r in t.records(EVENTS)]


def test_an_environment_that_never_works_ends_the_worker_with_the_cause(trial):
    t = trial(env={"id": "Misbehaving-v0", "kwargs": {"how": "raise-at-start"}})
    child = t.start()
    assert child.wait(PATIENCE_S) == EXIT_ERROR
    (event,) = [r for r in t.records(EVENTS) if r.kind == "worker-failed"]
    assert event.severity == "alert"
    assert "environment 0" in event.reason and "boom at start" in event.reason


def test_no_process_of_an_environment_outlives_a_killed_worker(trial):
    env = {"id": "E3-v0", "vectorization": "async"}
    t = trial(env=env, workers=WORKERS | {"envsPerWorker": 2})
    child = t.start()
    until(t.unrolls, by=child)
    children = [c.pid for c in psutil.Process(child.pid).children(recursive=True)]
    assert len(children) >= 3, "two environments and the server they come from"
    child.kill()
    child.wait()
    until(lambda: not any(psutil.pid_exists(pid) for pid in children))


def test_a_frozen_broker_loses_nothing_and_what_it_never_took_is_counted(
    trial, local_cluster
):
    t = trial(flow=FREE, workers=WORKERS | {"maxEnvStepsPerS": 4_000})
    child = t.start(flush_s=2.0)
    until(t.unrolls, by=child)
    broker = local_cluster.pids()["kafka"]
    with frozen(broker):
        until_silent(t, 3.0)
    seen = len(until(t.unrolls))
    until(lambda: len(t.messages(TRAJECTORIES)) > seen + 10, by=child)
    with frozen(broker):
        until_silent(t, 0.5)
        # The broker never answers, and all the same it ends.
        assert child.stop() == EXIT_UNDELIVERED
        assert "undelivered-steps: stopped with" in child.said
    assert deliveries.FLUSH_S <= 8, "a worker ends within ten seconds"
    assert len(check_streams(until(t.unrolls))) == 1


def until_silent(t, within_s):
    """Wait until a client has seen a request not answered within that time."""
    admin = make_admin(t.settings)

    def is_silent():
        try:
            admin.list_topics(timeout=within_s)
        except KafkaException:
            return True
        return False

    until(is_silent)


@contextlib.contextmanager
def frozen(pid):
    """The process is stopped as a debugger would stop it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


# --- in this process: the test plays the learner meanwhile ----------------------------


def run_beside(t, play, **options):
    """Run worker 0 here while ``play`` acts in a thread; return the exit code."""
    context, stopping, problems = t.context(), StopRequest(), []
    t.stopping = stopping

    def played():
        try:
            play()
        except BaseException as exc:
            problems.append(exc)
        finally:
            stopping.set("played")

    spec = context.spec
    with contextlib.ExitStack() as closing:
        patch = closing.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(deliveries, "FLUSH_S", PATIENCE_S)
        watchdog = Watchdog(60.0)
        closing.callback(watchdog.close)
        environments = make_environments(
            spec.env, spec.workers.envs_per_worker, t.settings, watchdog
        )
        closing.callback(environments.close)
        t.worker = Worker(context, stopping, environments, **options)
        thread = threading.Thread(target=played)
        thread.start()
        try:
            return t.worker.run()
        except ToldToStop:
            return EXIT_OK
        finally:
            stopping.set("over")
            thread.join()
            assert not problems, problems


class Clock:
    """In the place of `time`: it stands still until the test moves it."""

    now_s = 100.0

    def monotonic(self):
        return self.now_s


def test_an_idle_worker_ends_its_stream_and_goes_on_as_another(trial):
    t = trial()

    def play():
        (end,) = until(t.ends)
        assert "no credit for 1 s" in end.reason
        t.grant(end.incarnation, 1)  # a learner it has not seen
        # Two of each: told to stop in the middle of one, it would end with that.
        until(lambda: len(t.unrolls()) == 4)

    assert run_beside(t, play, idle_after_s=1.0) == EXIT_OK
    unrolls = t.unrolls()
    steps = check_streams(unrolls)
    assert [end.incarnation for end in t.ends()] == sorted(steps)
    last = {point.incarnation: point.values for point in points(t)}
    assert {i: values["unrolls"] for i, values in last.items()} == {
        i: sum(u.incarnation == i for u in unrolls) for i in steps
    }
    progress = Progress(RUN_ID)
    for point in points(t):
        progress.add(point)
    sizes = [len(m.value) for m in t.messages(TRAJECTORIES)]
    ends = [len(encode(end)) for end in t.ends()]
    assert progress.total("worker", "bytes") == sum(sizes) - sum(ends)
    assert progress.total("worker", "unrolls") == len(unrolls)


def test_a_slow_learner_that_lives_does_not_end_the_stream(trial, monkeypatch):
    """It repeats its credit: the worker waits on, and its episodes are not cut."""
    t, clock = trial(), Clock()
    monkeypatch.setattr("producers.worker.time", clock)

    def play():
        (member,) = until(lambda: t.messages(MEMBERS))
        until(lambda: len(t.unrolls()) == 2)
        t.grant(member.offset, 32)  # no more than a floor window, again and again
        for _ in range(4):
            until(lambda: t.worker._heard_at_s == clock.now_s)
            clock.now_s += 3
        t.grant(member.offset, 48)
        until(lambda: len(t.unrolls()) == 3)

    assert run_beside(t, play, idle_after_s=4.0) == EXIT_OK
    assert len(check_streams(t.unrolls())) == 1
    assert [end.reason for end in t.ends()] == ["played"]


@pytest.mark.parametrize("known", ["another run", "an older incarnation", "nobody"])
def test_credit_for_others_does_not_keep_a_worker_waiting(trial, known):
    """A learner that does not know this worker would never grant it any."""
    t = trial()

    def play():
        (member,) = until(lambda: t.messages(MEMBERS))
        if known == "another run":
            t.grant(member.offset, 32, run_id=known)
        elif known == "nobody":
            t.grant(member.offset, 32, worker="w1")
        else:
            t.grant(member.offset - 1, 32)
        (end,) = until(t.ends)
        assert "no credit for 1 s" in end.reason

    assert run_beside(t, play, idle_after_s=1.0) == EXIT_OK


def test_a_pause_ends_the_stream_until_it_is_over(trial):
    t = trial()

    def play():
        until(t.unrolls)
        t.publish("paused")
        (end,) = until(t.ends)
        assert end.reason == "the experiment is paused"
        seen = len(t.unrolls())
        t.grant(end.incarnation, 10**6)
        until_heard(t)
        assert len(t.unrolls()) == seen
        t.publish("running")
        until(lambda: len({u.incarnation for u in t.unrolls()}) == 2)

    assert run_beside(t, play) == EXIT_OK
    check_streams(t.unrolls())


def test_a_disk_nearly_full_ends_the_stream_and_says_so(trial, monkeypatch):
    t = trial()
    monkeypatch.setattr("producers.pauses.is_disk_low", lambda settings: True)

    def status():
        return read_status(t.settings, t.name)

    def play():
        (end,) = until(t.ends)
        assert end.reason == "the disk of the local cluster is nearly full"
        # Where a person looks: the process runs, and this is why nothing comes of it.
        told = until(lambda: [r.told for r in status().roles if r.told])
        assert [(each.kind, each.severity) for each in told] == [
            ("worker-idle", "warning")
        ]
        assert "make room, or lower spec.topics.diskBudget" in told[0].reason
        monkeypatch.setattr("producers.pauses.is_disk_low", lambda settings: False)
        until(lambda: len({u.incarnation for u in t.unrolls()}) == 1)

    assert run_beside(t, play) == EXIT_OK
    (event,) = [r for r in t.records(EVENTS) if r.kind == "worker-idle"]
    assert str(t.settings.data_dir) in event.reason


def test_an_environment_that_gives_no_numbers_is_told_of_and_counted(trial):
    """It goes on for ever: nothing fails, and nothing can be learnt from it."""
    kwargs = {"at": 1, "reward": "nan", "ever": True}
    env = {"id": "StepCount-v0", "vectorization": "sync", "kwargs": kwargs}
    t = trial(env=env, flow=FREE)
    child = t.start()

    def told():
        return [r for r in t.records(EVENTS) if r.kind == "env-nonfinite"]

    def delivered():
        counts = [point.values for point in points(t)]
        return [c for c in counts if c["unusable_steps"] > 1000 and c["invalid_steps"]]

    values = until(delivered, by=child)[-1]
    assert values["usable_steps"] == values["env_steps"] == 0
    event, *_ = until(told, by=child)
    assert event.severity == "warning"
    wanted = r"environment 0: the reward of step \d+ is nan; ([\d,]+) of \1 steps"
    assert re.match(wanted, event.reason), event.reason


@pytest.mark.parametrize("codec", ["jpegxl", "webp"])
def test_what_a_lossy_codec_takes_from_pictures_is_no_more_than_is_told(trial, codec):
    packed = {"encoding": {"fields": {"": codec}, "quality": 80}}
    t = trial(env={"id": "Sunset-v0"}, workers=WORKERS | packed, flow=FREE)
    child = t.start()

    def told():
        return [r for r in t.records(EVENTS) if r.kind == "lossy-encoding"]

    event, *_ = until(told, by=child)
    until(lambda: len(t.unrolls()) >= 4, by=child)
    found = re.search(
        r"largest error (\d+) of 255, ([\d.]+)% of the bytes", event.reason
    )
    assert found, event.reason
    errors, sizes = [], []
    for unroll in t.unrolls()[:4]:  # those that were looked at
        tensor = unroll.observations[""]
        assert tensor.encoding == codec.upper()
        steps = range(unroll.first_step, unroll.first_step + unroll.num_steps + 1)
        shown = np.array([Sunset.picture(step) for step in steps], np.int16)
        errors.append(np.abs(tensor.array() - shown[:, None]).max())
        sizes.append(len(tensor.data) / tensor.array().nbytes)
    assert 0 < max(errors) == int(found[1])
    assert 100 * max(sizes) == pytest.approx(float(found[2]), abs=0.05)
    assert event.severity == "warning" and max(sizes) < 0.5


def test_steps_are_counted_as_usable_while_their_unroll_is_under_way(trial):
    """It takes seconds; who looks for progress cannot wait for its end."""
    env = {"id": "E3-v0", "vectorization": "async"}
    t = trial(env=env, flow=FREE, workers=WORKERS | {"unrollLength": 10_000})
    child = t.start()
    until(lambda: [p for p in points(t) if p.values["usable_steps"]], by=child)
    first = next(p.values for p in points(t) if p.values["usable_steps"])
    # Three of four rows of 8 environments would be 60,000.
    assert first["unrolls"] == 0 and first["usable_steps"] < 50_000


def test_policies_act_in_order_and_never_go_back(trial):
    t = trial()

    def versions():
        t.pace()
        return [u.policy for u in t.unrolls()]

    def play():
        (first,) = until(t.unrolls)[:1]
        assert first.policy == NO_POLICY
        env = t.records(MEMBERS)[0].env
        graph = graph_record(linear_q(4, 2), env, experiment=t.name)
        arrays = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}
        t.send_policy(graph)
        # What an evaluator found best is for people: nobody acts by it.
        t.send(POLICIES, version_record(graph, 9, arrays), "best")
        for version in (1, 3, 2):
            t.send_policy(version_record(graph, version, arrays))
        until(lambda: PolicyRef(0, 3) in versions())
        t.send_policy(version_record(graph, 4, {"w": arrays["w"]}))  # refused
        until(lambda: [r for r in t.records(EVENTS) if r.kind == "policy-refused"])
        t.send_policy(version_record(graph, 5, arrays))
        until(lambda: PolicyRef(0, 5) in versions())

    assert run_beside(t, play) == EXIT_OK
    seen = versions()
    assert seen == sorted(seen)
    assert not {PolicyRef(0, 2), PolicyRef(0, 4), PolicyRef(0, 9)} & set(seen)
    events = [r for r in t.records(EVENTS) if r.kind == "policy-refused"]
    assert len(events) == 1 and "expected also ['b']" in events[0].reason
    acted = [u for u in t.unrolls() if u.policy != NO_POLICY][-1]
    assert set(acted.behaviour) == {"q_max", "q_taken", "log_prob"}
    rows = acted.observations[""].array().sum(2)  # all weights are one: q = the sum
    np.testing.assert_allclose(acted.behaviour["q_max"].array(), rows, rtol=1e-5)


def test_a_worker_waits_for_the_policy_that_the_learner_demands(trial):
    t = trial()

    def play():
        (member,) = until(lambda: t.messages(MEMBERS))
        until(lambda: len(t.unrolls()) == 2)
        t.grant(member.offset, 160, min_policy=PolicyRef(0, 1))
        until_heard(t)
        assert len(t.unrolls()) == 2
        env = t.records(MEMBERS)[0].env
        graph = graph_record(linear_q(4, 2), env, experiment=t.name)
        arrays = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}
        t.send_policy(graph)
        t.send_policy(version_record(graph, 1, arrays))
        until(lambda: len(t.unrolls()) == 10)

    assert run_beside(t, play) == EXIT_OK
    assert {u.policy for u in t.unrolls()[2:]} == {PolicyRef(0, 1)}


def test_a_control_record_that_cannot_be_read_is_reported_not_fatal(trial):
    t = trial()

    def play():
        until(lambda: len(t.unrolls()) == 2)
        t.pace()
        until(lambda: len(t.unrolls()) == 3)  # it listens
        topic = t.context().topic(MEMBERS).replace("members", "credits")
        t.sender.send_and_wait(topic, b"\x00garbage", "learner/0")
        kinds = until(lambda: [r.kind for r in t.records(EVENTS)])
        assert kinds == ["control-record-refused"]
        t.pace()
        until(lambda: len(t.unrolls()) == 4)

    assert run_beside(t, play) == EXIT_OK


def test_a_record_refused_for_its_size_is_kept_and_the_stream_begins_anew(trial):
    """The topic takes less than the worker thinks: 8 envs x 256 steps are 90 kB."""
    t = trial(workers=WORKERS | {"unrollLength": 256})
    _limit_records(t, 60_000)

    def play():
        until(t.unrolls)

    assert run_beside(t, play) == EXIT_UNDELIVERED, "what was refused is not delivered"
    (letter, *_) = t.records(DEAD_LETTERS)
    assert letter.source.topic == t.context().topic(TRAJECTORIES)
    assert letter.value_bytes > len(letter.value) == 64_000
    assert [r.kind for r in t.records(EVENTS)].count("unroll-refused") == 1
    refused, *_, last = points(t)
    assert last.incarnation > refused.incarnation
    of_refused = [p for p in points(t) if p.incarnation == refused.incarnation][-1]
    letters = of_refused.values["dead_letters"]
    assert letters == len(t.messages(DEAD_LETTERS)) > 0
    assert of_refused.values["undelivered_steps"] > 0
    assert last.values["dead_letters"] == last.values["undelivered_steps"] == 0
    unrolls = t.unrolls()
    # The last one is as long as there was time for.
    assert {u.num_steps for u in unrolls if not u.end_of_stream} <= {128}
    assert max(u.num_steps for u in unrolls) <= 128
    assert unrolls[0].incarnation > t.messages(MEMBERS)[0].offset
    check_streams(unrolls)


def _limit_records(t, limit):
    """Let the broker take none that are larger; it has heard of that at the end."""
    from confluent_kafka.admin import (
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entry = ConfigEntry(
        "max.message.bytes",
        str(limit),
        incremental_operation=AlterConfigOpType.SET,
    )
    topic = t.context().topic(TRAJECTORIES)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin = make_admin(t.settings)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result()
    producer, errors = make_producer(t.settings, client_id="limit"), []

    def is_refused():
        producer.produce(
            topic, bytes(limit), b"w1", 1, on_delivery=lambda e, _: errors.append(e)
        )
        assert producer.flush(PATIENCE_S) == 0
        return errors[-1] and errors[-1].code() == KafkaError.MSG_SIZE_TOO_LARGE

    until(is_refused)  # in the other partition: nobody reads it


def test_a_newer_incarnation_fences_this_one(trial):
    t = trial()

    def play():
        until(lambda: len(t.unrolls()) == 2)
        # As an agent that thinks it dead would.
        register(t.sender, t.context(), StopRequest())
        assert t.stopping.wait(PATIENCE_S), "the worker goes on"

    with pytest.raises(Superseded, match="found 1"):
        run_beside(t, play)
    assert len(t.unrolls()) == 2


def test_credit_for_a_newer_incarnation_fences_too(trial):
    t = trial()

    def play():
        until(lambda: len(t.unrolls()) == 2)
        t.grant(10_000, 64)
        assert t.stopping.wait(PATIENCE_S), "the worker goes on"

    with pytest.raises(Superseded, match="found 10000"):
        run_beside(t, play)


def test_workers_must_agree_on_their_spaces(trial):
    t = trial(env={"id": "E3-v0", "vectorization": "sync"})
    theirs = EnvDescription("CartPole-v1", (), (), None, "sync", {})
    register(t.sender, t.context(index=1), StopRequest(), theirs)
    with pytest.raises(RollstreamError, match="expected those of worker/1, CartPole"):
        run_beside(t, lambda: None)
    assert not t.unrolls()


def test_other_package_versions_are_only_a_warning(trial):
    t = trial()

    def play():
        (member,) = until(lambda: t.records(MEMBERS))
        theirs = replace(member.env, versions={"a": "1"})
        register(t.sender, t.context(index=1), StopRequest(), theirs)

    def members():
        return t.records(MEMBERS)

    def differ():
        found = t.records(EVENTS)
        return [r for r in found if r.kind == "package-versions-differ"]

    assert run_beside(t, play) == EXIT_OK
    # What it has to say is sent before it registers, and may arrive after that.
    again = run_beside(t, lambda: until(lambda: differ() and len(members()) == 3))
    assert again == EXIT_OK
    (event,) = differ()
    assert event.severity == "warning" and "worker/1 has" in event.reason
