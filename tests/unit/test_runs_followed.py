"""Which runs are followed when there are more than can be, and what they share."""

from contextlib import closing

import pytest

from infra.control.desired import PublishedExperiment
from infra.control.statuses import make_status
from infra.monitoring import runs_followed
from infra.monitoring.runs_followed import RunsFollowed
from infra.settings import Settings
from schemas.experiment import from_values
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
