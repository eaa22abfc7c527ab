"""What the watch says of experiments is what their topics say."""

import secrets
import time
from contextlib import closing

import numpy as np
import pytest

from infra.clock import now_ms
from infra.control.deletion import delete_experiment
from infra.control.experiments import new_run_id
from infra.control.statuses import publish_status
from infra.kafka.topic_admin import TopicConfig, ensure_topics
from infra.monitoring import watch as watch_module
from infra.monitoring.dashboard.past import TopicPast
from infra.monitoring.experiment_events import make_event
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.lag.model import NO_REPORT, LagReport, Place
from infra.monitoring.overview import read_overview
from infra.monitoring.watch import Watch
from infra.settings import Settings
from schemas.codec import encode
from schemas.records import Evaluation, MetricsPoint, PolicyRef, Position
from schemas.tensors import Tensor, pack
from schemas.topics import EVENTS, METRICS, topic_name
from tests.integration.control_rig import rig  # noqa: F401

pytestmark = pytest.mark.kafka
PATIENCE_S = 100.0


class NoLag:
    """Who is not asked of lag: that has tests of its own."""

    def __init__(self, settings, *, wanted, every_s, standings, rows_per_record):
        self.standings = standings
        self.report = NO_REPORT
        NoLag.newest = self

    def start(self):
        self.report = LagReport(1.0, ())

    def close(self):
        pass


@pytest.fixture
def no_lag(monkeypatch):
    monkeypatch.setattr(watch_module, "LagMonitor", NoLag)
    # The first snapshot is whole, however long that takes.
    monkeypatch.setattr(watch_module, "_FIRST_S", PATIENCE_S)


@pytest.fixture
def watch(settings):
    with Watch(settings, every_s=0.2) as found:
        yield found


def view(snapshot, name):
    return next((e for e in snapshot.experiments if e.experiment == name), None)


def until(watch, condition, what):
    """Wait for a snapshot of which something holds; return what that is."""
    deadline_s, at_s = time.monotonic() + PATIENCE_S, 0.0
    while True:
        snapshot = watch.wait_for_newer(at_s, PATIENCE_S)
        assert snapshot is not None, "no newer snapshot"
        at_s = snapshot.at_s
        if found := condition(snapshot):
            return found
        assert time.monotonic() < deadline_s, f"{what}: {snapshot}"


def tell(of, published, role="learner", index=0, incarnation=1, positions=(), **values):
    name = published.experiment.name
    record = MetricsPoint(
        name, published.run_id, role, index, incarnation, now_ms(), values, positions
    )
    topic = topic_name(METRICS, name)
    of.sender.send_and_wait(topic, encode(record), f"{role}/{index}")


def is_at(name, **expected):
    def found(snapshot):
        seen = view(snapshot, name)
        if seen is not None:
            same = all(getattr(seen, key) == each for key, each in expected.items())
            return seen if same else None
        return None

    return found


def test_values_are_the_topics_and_follow_them(rig, settings, no_lag):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    tell(rig, published, env_steps=100.0, updates=5.0)
    with Watch(settings, every_s=0.2) as watch:
        first = watch.wait_for_newer(0.0, PATIENCE_S)
        assert view(first, name).env_steps == 100, "the first is whole already"
        assert (view(first, name).state, first.problem) == ("pending", "")
        position = Position(topic_name(METRICS, name), 0, 7, 3, 1)
        tell(rig, published, env_steps=250.0, updates=9.0, positions=(position,))
        until(watch, is_at(name, env_steps=250, updates=9), "steps")
        publish_status(rig.sender, published, "running", "of two roles")
        until(watch, is_at(name, state="running", reason="of two roles"), "state")
        greedy = Evaluation(
            name, published.run_id, PolicyRef(0, 1), 9, pack(np.full(3, 42.0)),
            pack(np.ones(3, np.int32)), False, now_ms(),
        )  # fmt: skip
        rig.sender.send_and_wait(topic_name(METRICS, name), encode(greedy), "e/0")
        until(watch, is_at(name, mean_return=42.0, is_greedy=True), "return")
    assert watch.wait_for_newer(watch.snapshot.at_s, PATIENCE_S) is None


def test_a_record_that_cannot_be_used_stops_nothing(rig, settings, no_lag, watch):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    tell(rig, published, env_steps=100.0)
    until(watch, is_at(name, env_steps=100), "it has come")
    broken = Evaluation(
        name, published.run_id, PolicyRef(0, 1), 9, Tensor("<f8", (3,), "ZSTD", b"?"),
        pack(np.ones(3, np.int32)), False, now_ms(),
    )  # fmt: skip
    rig.sender.send_and_wait(topic_name(METRICS, name), encode(broken), "evaluator/0")
    tell(rig, published, env_steps=200.0, dead_letters=1.7e308)
    found = until(watch, is_at(name, env_steps=200), "what comes behind it")
    assert (found.dead_letters, watch.snapshot.problem) == (0, "")
    with closing(MetricsFollower(settings, name, published.run_id)) as follower:
        follower.read_to_end()
        assert follower.progress.env_steps == 200
        assert follower.heard_at_ms.keys() == {("learner", 0)}
    (row,) = (r for r in read_overview(settings).experiments if r.experiment == name)
    assert (row.env_steps, row.mean_return) == (200, None)
    with closing(TopicPast(settings)) as past:
        steps = past.history(name, points=600)["series"]["env_steps"]
        assert [each for each in steps if each is not None][-1] == 200


def test_where_roles_stand_is_told_to_who_measures_lag(rig, settings, no_lag):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    topic = topic_name(METRICS, name).replace("metrics", "replay")
    with Watch(settings, every_s=0.2) as watch:
        tell(rig, published, positions=(Position(topic, 0, 7, 3, 1),), updates=1.0)
        until(watch, is_at(name, updates=1), "updates")
        place = Place(f"rollstream.{name}.learner", topic, 0)
        until(watch, lambda s: place in NoLag.newest.standings(), "where it stands")
        standing = NoLag.newest.standings()[place]
        assert (standing.position, standing.held) == (7, 1)
        assert abs(standing.at_s - time.time()) < PATIENCE_S
        rig.finish(published)
        until(watch, is_at(name, state="finished"), "the end")
        until(watch, lambda s: place not in NoLag.newest.standings(), "no standing")


def test_experiments_come_end_begin_afresh_and_go(rig, settings, no_lag, watch):  # noqa: F811
    until(watch, lambda s: not s.problem, "a look")
    published = rig.launch(rig.spec()).published
    experiment, name = published.experiment, published.experiment.name
    tell(rig, published, env_steps=100.0)
    assert until(watch, is_at(name, env_steps=100), "it has come").processes
    rig.finish(published)
    ended = until(watch, is_at(name, state="finished"), "its end")
    assert (ended.env_steps, ended.processes) == (7_000, ())
    afresh = rig.launch(experiment, fresh=True).published
    begun = until(watch, is_at(name, run_id=afresh.run_id), "another run")
    assert (begun.env_steps, begun.state) == (0, "pending")
    tell(rig, published, env_steps=101.0)
    tell(rig, afresh, env_steps=3.0)
    until(watch, is_at(name, env_steps=3), "only what is of the newest run")
    delete_experiment(settings, rig.coordination, name)
    until(watch, lambda s: view(s, name) is None, "it is gone")
    again = rig.launch(experiment).published
    tell(rig, again, env_steps=4.0)
    until(watch, is_at(name, env_steps=4), "topics made anew are followed")


def test_alerts_are_on_from_their_event_to_the_next(rig, settings, no_lag, watch):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name, topic = (
        published.experiment.name,
        topic_name(EVENTS, published.experiment.name),
    )

    def happens(kind, reason):
        event = make_event(
            name, published.run_id, "processor", 0, kind, "alert", reason
        )
        rig.sender.send_and_wait(topic, encode(event), "processor/0")

    happens("alert-on", "stalled: for 12 s")
    happens("alert-on", "late: by 90 s")
    happens("worker-failed", "stalled: that is another matter")

    def reasons(snapshot):
        seen = view(snapshot, name)
        return [told.reason for told in seen.alerts] if seen else []

    both = ["late: by 90 s", "stalled: for 12 s"]
    until(watch, lambda s: reasons(s) == both, "both are on")
    happens("alert-off", "stalled: it goes on")
    until(watch, lambda s: reasons(s) == both[:1], "one is over")


def test_a_hundred_experiments_are_followed_at_once(rig, settings, no_lag):  # noqa: F811
    run_id = new_run_id()
    token = secrets.token_hex(3)
    names = [f"watched-{token}-{number}" for number in range(100)]
    topics = [topic_name(METRICS, name) for name in names]
    rig.launch(rig.spec())
    ensure_topics(settings, [TopicConfig(topic, 1) for topic in topics])
    for name, topic in zip(names, topics, strict=True):
        rig.publish(rig.spec(name), -1, run_id)
        record = MetricsPoint(name, run_id, "learner", 0, 1, 0, {"env_steps": 7.0})
        rig.sender.send(topic, encode(record), "learner/0")
    rig.sender.flush(60)
    with Watch(settings) as watch:
        snapshot = watch.wait_for_newer(0.0, PATIENCE_S)
        assert all(view(snapshot, name).env_steps == 7 for name in names)


def test_brokers_that_do_not_answer_are_told_of_and_nobody_waits(no_lag):
    nowhere = Settings().at("127.0.0.1:1", "127.0.0.1:1")
    with closing(Watch(nowhere, every_s=0.2)) as watch:
        watch.start()
        found = until(watch, lambda s: s if s.problem else None, "a problem")
        newer = watch.wait_for_newer(found.at_s, PATIENCE_S)
        assert newer.problem and newer.experiments == ()


def test_one_that_was_never_started_closes():
    Watch(Settings()).close()


def test_an_outage_is_told_of_and_survived(rig, settings, local_cluster):  # noqa: F811
    published = rig.launch(rig.spec()).published
    name = published.experiment.name
    tell(rig, published, env_steps=100.0)
    with Watch(settings, every_s=0.2) as watch:
        before = until(watch, is_at(name, env_steps=100), "steps")
        local_cluster.kill_broker()
        try:
            troubled = until(watch, lambda s: s if s.problem else None, "a problem")
            assert view(troubled, name).env_steps == before.env_steps, "as it was"
            # Also by each later snapshot, which says since when.
            old_s = 3.0
            until(watch, lambda s: s.at_s - s.experiments_at_s > old_s, "it gets old")
        finally:
            local_cluster.restart_broker()
        tell(rig, published, env_steps=130.0)
        until(watch, is_at(name, env_steps=130), "it is followed again")
        healthy = until(watch, lambda s: s if not s.problem else None, "no problem")
        assert healthy.lag.at_s > troubled.lag.at_s
        until(watch, lambda s: s.at_s - s.experiments_at_s < old_s, "of now again")
