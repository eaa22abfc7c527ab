"""Which runs are followed when there are more than can be, and what they share."""

from contextlib import closing

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.statuses import make_status
from infra.kafka.reading import Message
from infra.monitoring import runs_followed
from infra.monitoring.runs_followed import RunsFollowed
from infra.settings import Settings
from schemas.codec import encode
from schemas.experiment import from_values
from schemas.records import MetricsPoint, Position
from tests.unit.test_experiment import values


class Control:
    """What the shared topics say, as the test sets it."""

    def __init__(self, settings):
        self.experiments = {}
        self.statuses = {}
        Control.newest = self

    def poll(self):
        pass

    def status(self, name):
        return self.statuses.get(name)

    def close(self):
        pass


@pytest.fixture
def runs(monkeypatch):
    monkeypatch.setattr(runs_followed, "ControlTopics", Control)
    nowhere = Settings().at("127.0.0.1:1", "127.0.0.1:1")
    with closing(RunsFollowed(nowhere)) as found:
        yield found


def publish(*names, run_id="20261130T120000-abcdef"):
    Control.newest.experiments |= {
        name: PublishedExperiment(
            from_values(values(metadata__name=name)), run_id, 0, "agents"
        )
        for name in names
    }


def shown(runs):
    runs.look()
    return [view.experiment for view in runs.views(0.0)]


def test_they_come_and_go_with_their_specs(runs):
    assert shown(runs) == []
    publish("b", "a")
    assert shown(runs) == ["a", "b"]
    del Control.newest.experiments["a"]
    assert [view.experiment for view in runs.views(0.0)] == ["b"], "gone at once"
    assert shown(runs) == ["b"]


def test_of_too_many_the_newest_are_followed(runs, monkeypatch):
    monkeypatch.setattr(runs_followed, "MAX_RUNS", 2)
    for day in (3, 1, 2):
        publish(f"day-{day}", run_id=f"2026113{day}T000000-abcdef")
    assert shown(runs) == ["day-2", "day-3"]


def test_a_run_that_goes_on_is_followed_before_newer_ones_that_are_over(
    runs, monkeypatch
):
    monkeypatch.setattr(runs_followed, "MAX_RUNS", 2)
    for day in (1, 2, 3, 4):
        run_id = f"2026113{day}T000000-abcdef"
        publish(f"day-{day}", run_id=run_id)
        if day in (2, 4):
            status = make_status(f"day-{day}", run_id, "experiment", 0, "stopped", "")
            Control.newest.statuses[f"day-{day}"] = status
    assert shown(runs) == ["day-1", "day-3"]
    of_before = make_status("day-3", "another", "experiment", 0, "failed", "")
    Control.newest.statuses["day-3"] = of_before
    assert shown(runs) == ["day-1", "day-3"], "it says nothing of this run"
    over = make_status("day-1", "20261131T000000-abcdef", "experiment", 0, "failed", "")
    Control.newest.statuses["day-1"] = over
    assert shown(runs) == ["day-3", "day-4"]


def test_groups_of_runs_that_are_over_are_named(runs):
    publish("e", "f")
    runs.look()
    run_id = Control.newest.experiments["e"].run_id
    for state, run, over in (
        ("running", run_id, False),
        ("finished", "another", False),
        ("finished", run_id, True),
        ("degraded", run_id, False),
    ):
        status = make_status("e", run, "experiment", 0, state, "")
        Control.newest.statuses["e"] = status
        groups = {f"rollstream.e.{r}" for r in ("processor", "learner", "archiver")}
        assert runs.over_groups() == (groups if over else set()), state


class Records:
    """What is read of the topics, as the test sets it."""

    def __init__(self, settings, client_id):
        self.come, self.anew, self.again_of = [], set(), []
        self.answered_s = 0.0

    def follow(self, wanted):
        pass

    def again(self, topic, count):
        self.again_of.append(topic)

    def poll(self, timeout_s):
        come, self.come = self.come, []
        return come

    def begun_anew(self):
        anew, self.anew = self.anew, set()
        return anew

    def close(self):
        pass


def test_a_run_begins_afresh_with_a_topic_that_is_made_anew(runs, monkeypatch):
    with closing(Records(None, "")) as records:
        monkeypatch.setattr(runs, "_records", records)
        publish("a", "b")
        runs.look()
        run_id = Control.newest.experiments["a"].run_id

        def tell(*names_and_steps):
            for name, steps in names_and_steps:
                told = MetricsPoint(
                    name, run_id, "learner", 0, 0, 0, {"env_steps": steps},
                    (Position(f"rollstream.{name}.replay", 0, int(steps), 0, 0),),
                )  # fmt: skip
                topic = f"rollstream.{name}.metrics"
                records.come.append(
                    Message(topic, 0, 0, 1_000, "learner/0", encode(told))
                )
            runs.hear(0.0)

        def seen():
            steps = {view.experiment: view.env_steps for view in runs.views(1.0)}
            stand = {place.topic: s.position for place, s in runs.standings().items()}
            return steps, stand

        tell(("a", 900.0), ("b", 50.0))
        records.anew = {"rollstream.a.metrics", "rollstream.gone.metrics"}
        tell(("b", 60.0))
        assert seen() == ({"a": 0, "b": 60}, {"rollstream.b.replay": 60})
        assert records.again_of == ["rollstream.a.events"]
        records.anew = {"rollstream.b.events"}
        tell(("a", 3.0), ("b", 70.0))
        assert records.again_of[1:] == ["rollstream.b.metrics"]
        assert seen()[0] == {"a": 3, "b": 0}, "b's is read again from its beginning"


def test_who_follows_nothing_is_up_to_date_and_else_when_a_broker_answered(
    runs, monkeypatch
):
    monkeypatch.setattr(runs_followed.time, "time", lambda: 77.0)
    assert runs.answered_s == 77.0
    publish("a")
    runs.look()
    assert runs.answered_s == 0.0, "nobody has answered"
