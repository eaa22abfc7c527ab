"""A foreground run, for who watches it from Python: it is over when it has ended."""

from contextlib import closing

import pytest

from infra.control import watching
from infra.control.coordination import Coordination
from infra.control.desired import PublishedExperiment
from infra.control.experiments import new_run_id
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.control.statuses import publish_status
from rollstream import Client
from tests.integration.control_rig import PATIENCE_S, SESSION_S, rig  # noqa: F401

pytestmark = pytest.mark.kafka


@pytest.fixture
def foreground(rig):  # noqa: F811
    """What is there of a `rollstream run` while it goes on: claim, spec and state."""
    experiment, run_id = rig.spec(), new_run_id()
    ensure_shared_topics(rig.settings)
    ensure_experiment_topics(rig.settings, experiment)
    with closing(Coordination(rig.settings, SESSION_S)) as coordination:
        coordination.start(PATIENCE_S)
        coordination.claim_experiment(experiment.name)
        offset = rig.publish(experiment, -1, run_id, by="run")
        published = PublishedExperiment(experiment, run_id, offset, "run")
        publish_status(rig.sender, published, "running", "launched")
        yield published, coordination


@pytest.mark.parametrize("state", ["stopped", "failed"])
def test_it_is_over_when_it_says_so_and_has_let_go(rig, foreground, state):  # noqa: F811
    published, coordination = foreground
    with Client(rig.settings) as client:
        moments = client.watch(published.experiment.name)
        first = next(moments)
        assert (first.state, first.is_over) == ("running", False)
        publish_status(rig.sender, published, state, "interrupted")
        assert not next(m for m in moments if m.state == state).is_over
        assert not next(moments).is_over  # it stops its roles, or was run again
        coordination.close()
        *_, last = moments
        assert (last.state, last.reason, last.is_over) == (state, "interrupted", True)
        # And for who comes later at once.
        (again,) = client.watch(published.experiment.name)
        assert (again.state, again.is_over) == (state, True)


def test_one_that_was_killed_is_over_after_a_silence(
    rig,  # noqa: F811
    foreground,
    monkeypatch,
):
    monkeypatch.setattr(watching, "_SILENT_S", 1.0)
    published, coordination = foreground
    with Client(rig.settings) as client:
        moments = client.watch(published.experiment.name)
        assert next(moments).state == "running"
        coordination.close()
        *_, last = moments
    assert (last.state, last.is_over) == ("failed", True)
    assert last.reason == "its `rollstream run` ended without a word"
