"""A real processor and a real learner, as the lag shows them."""

from __future__ import annotations

from contextlib import closing

import pytest

from infra.monitoring.lag.model import Place
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag.standings import StandingsFollower, read_told
from schemas.topics import REPLAY, TRAJECTORIES, group_name
from tests.integration import pipeline_rig
from tests.integration.lag_rig import wait_until
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

            def wait_for(group, topic, is_so, what):
                """Return a group and a partition of it, as one report has them."""
                where = Place(group, rig.topic(topic), 0)

                def look():
                    found = monitor.report.group(group)
                    for each in found.partitions if found else ():
                        if each.place == where and is_so(found, each):
                            return found, each

                return wait_until(look, what)

            _, seen = wait_for(
                *(processors, TRAJECTORIES),
                lambda _, seen: (seen.end, seen.committed) == (6, None),
                "nobody has read it",
            )
            assert seen.verdict.state == "NO_COMMIT"
            learner = rig.start_thread()
            with processor(rig):
                pipeline_rig.wait(rig, learner, env_steps=5 * ROWS)
                group, seen = wait_for(
                    *(processors, TRAJECTORIES),
                    lambda _, seen: seen.current == 6 and seen.owner,
                    "all is handled, by a member",
                )
                # The last unroll waits for what comes after it: held, and no lag.
                assert (seen.lag, seen.held >= 1) == (0, True)
                assert seen.unsaved == seen.current - (seen.committed or 0) >= 1
                assert seen.verdict.state == "OK", seen.verdict
                assert group.members == 1

                group, seen = wait_for(
                    *(learners, REPLAY),
                    lambda _, seen: seen.committed and seen.lag == 0,
                    "the learner has saved",
                )
                # It chooses its partitions itself: that it is no member means nothing.
                assert group.members is None
                assert seen.verdict.state == "OK", seen.verdict

                def all_is_told():
                    standings, rows = read_told(rig.settings, [rig.name])
                    told = standings.get(Place(learners, rig.topic(REPLAY), 0))
                    return rows if told and told.position == 5 else None

                rows = wait_until(all_is_told, "the learner tells of it")
    assert rows[learners] == pytest.approx(ROWS, rel=0.2)
