"""A real processor and a real learner, as the lag shows them."""

from __future__ import annotations

from contextlib import closing

import pytest

from infra.monitoring.lag.model import Place
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag.standings import StandingsFollower, read_told
from schemas.topics import REPLAY, TRAJECTORIES, group_name
from tests.integration import pipeline_rig
from tests.integration.lag_rig import of_group, wait_until
from tests.integration.learner_rig import (  # noqa: F401
    cached_export,
    experiment,
)
from tests.integration.pipeline_rig import (
    ROWS,
    PipelineRig,
    processor,
    put_unrolls,
)

pytestmark = pytest.mark.kafka


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    found = PipelineRig(settings, experiment())
    yield found
    found.close()


def test_processor_and_learner_are_seen_as_they_are(rig):
    processors, learners = (group_name(rig.name, r) for r in ("processor", "learner"))
    incarnation = rig.start_worker(0)
    with closing(StandingsFollower(rig.settings)) as told:
        told.follow([rig.name])
        monitor = LagMonitor(
            rig.settings,
            wanted=[processors, learners],
            every_s=0.2,
            standings=told.hear,
            rows_per_record=lambda: told.rows_per_record,
        )
        monitor.start()
        with closing(monitor):
            put_unrolls(rig, "w0", incarnation, *range(6))

            def place(group, topic):
                where = Place(group, rig.topic(topic), 0)
                found = of_group(monitor.report, group).partitions
                return next(each for each in found if each.place == where)

            def unread():
                group = monitor.report.group(processors)
                places = group.partitions if group else ()
                return {(each.end, each.committed) for each in places}

            wait_until(lambda: (6, None) in unread(), "nobody has read it")
            assert place(processors, TRAJECTORIES).verdict.state == "NO_COMMIT"
            learner = rig.start_thread()
            with processor(rig):
                pipeline_rig.wait(rig, learner, env_steps=5 * ROWS)
                wait_until(
                    lambda: (
                        place(processors, TRAJECTORIES).current == 6
                        and place(processors, TRAJECTORIES).owner
                    ),
                    "all is handled, by a member",
                )
                seen = place(processors, TRAJECTORIES)
                # The last unroll waits for what comes after it: held, and no lag.
                assert (seen.lag, seen.held >= 1) == (0, True)
                assert seen.unsaved == seen.current - (seen.committed or 0) >= 1
                assert seen.verdict.state == "OK", seen.verdict
                assert of_group(monitor.report, processors).members == 1

                wait_until(
                    lambda: (
                        place(learners, REPLAY).committed
                        and place(learners, REPLAY).lag == 0
                    ),
                    "the learner has saved",
                )
                seen = place(learners, REPLAY)
                # It chooses its partitions itself: that it is no member means nothing.
                assert of_group(monitor.report, learners).members is None
                assert seen.verdict.state == "OK", seen.verdict
                assert monitor.report.problem == ""
    standings, rows = read_told(rig.settings, [rig.name])
    assert standings[Place(learners, rig.topic(REPLAY), 0)].position == 5
    assert rows[learners] == pytest.approx(ROWS, rel=0.2)
