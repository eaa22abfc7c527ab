"""What roles publish -> where they stand, and how many steps a record has."""

from __future__ import annotations

from infra.kafka.reading import Message
from infra.monitoring.lag.model import Place, Standing
from infra.monitoring.lag.standings import Standings
from schemas.codec import encode
from schemas.records import MetricsPoint, Position

TRAJECTORIES, REPLAY = "rollstream.e.trajectories", "rollstream.e.replay"
PROCESSOR, LEARNER = "rollstream.e.processor", "rollstream.e.learner"


def told(
    role,
    *positions,
    at_s=10,
    run="20260101T000000-a",
    index=0,
    experiment="e",
    **values,
):
    point = MetricsPoint(
        experiment, run, role, index, 0, 0, values,
        tuple(Position(topic, p, at, -1, held) for topic, p, at, held in positions),
    )  # fmt: skip
    return Message("m", 0, 0, at_s * 1000, f"{role}/{index}", encode(point))


def hear(*messages):
    found = Standings("e")
    for message in messages:
        found.hear(message)
    return found


def test_each_role_stands_in_what_it_reads():
    found = hear(
        told("processor", (TRAJECTORIES, 0, 7, 3), at_s=20),
        told("learner", (REPLAY, 1, 4, 0), ("rollstream.other.replay", 1, 9, 0)),
        told("replayer", (TRAJECTORIES, 0, 99, 0)),
        told("worker", env_steps=5.0),
    )
    assert found.by_place == {
        Place(PROCESSOR, TRAJECTORIES, 0): Standing(7, 3, 20.0),
        Place(LEARNER, REPLAY, 1): Standing(4, 0, 10.0),
    }


def test_who_told_of_a_partition_last_has_it():
    found = hear(
        told("processor", (TRAJECTORIES, 0, 9, 1), at_s=10, index=0),
        told("processor", (TRAJECTORIES, 0, 5, 0), at_s=11, index=1),
        told("processor", at_s=12, index=0),  # it lives
    )
    assert found.by_place[Place(PROCESSOR, TRAJECTORIES, 0)] == Standing(5, 0, 11.0)


def test_a_learner_that_learns_first_waits():
    place = Place(LEARNER, REPLAY, 0)
    busy, idle = (told("learner", (REPLAY, 0, 1, 0), can_learn=v) for v in (1.0, 0.0))
    assert hear(busy).by_place[place].waits
    assert not hear(idle).by_place[place].waits


def test_only_the_newest_run_counts():
    old = told("processor", (TRAJECTORIES, 0, 900, 0), (TRAJECTORIES, 1, 900, 0))
    new = told("processor", (TRAJECTORIES, 0, 3, 0), run="20260202T000000-a")
    found = hear(old, new, old)
    assert found.by_place == {Place(PROCESSOR, TRAJECTORIES, 0): Standing(3, 0, 10.0)}


def test_what_is_no_metrics_of_the_experiment_is_passed_over():
    garbage = Message("m", 0, 0, 1000, "processor/0", b"garbage")
    other = told("processor", (TRAJECTORIES, 0, 7, 3), experiment="other")
    assert hear(garbage, other).by_place == {}


def test_steps_of_a_record_are_those_of_what_was_read():
    found = hear(
        told("processor", index=0, env_steps=640.0, batches=10.0),
        told("processor", index=1, env_steps=320.0, batches=10.0),
        told("learner", env_steps=0.0, batches=0.0),
        told("archiver", env_steps=128.0, records=2.0),
    )
    assert found.rows_per_record == {PROCESSOR: 48.0, "rollstream.e.archiver": 64.0}
