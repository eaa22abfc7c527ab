"""What roles publish -> where they stand, and how many steps a record has."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from infra.kafka.reading import Message
from infra.monitoring.lag import standings
from infra.monitoring.lag.clock_gap import ClockGap
from infra.monitoring.lag.figures import assess
from infra.monitoring.lag.model import Place, Sample, Standing
from infra.monitoring.lag.standings import Standings
from infra.monitoring.lag.window import Window
from schemas.codec import decode, encode
from schemas.records import MetricsPoint, Position
from schemas.topics import METRICS, topic_name

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


@pytest.mark.parametrize(
    "steps, batches",
    [
        (math.inf, 1.0),
        (math.inf, math.inf),
        (math.nan, 1.0),
        (1e308, 1.0),
        (1.0, 5e-324),
        (2e9, 1.0),
        (1.0, math.inf),
        (-5.0, 1.0),
        (5.0, -1.0),
    ],
)
def test_numbers_that_make_no_sense_are_no_steps_of_a_record(steps, batches):
    found = hear(
        told("processor", env_steps=steps, batches=batches),
        told("archiver", env_steps=128.0, records=2.0),
    )
    assert found.rows_per_record == {"rollstream.e.archiver": 64.0}


def test_sums_that_overflow_are_no_steps_of_a_record():
    found = hear(
        told("processor", index=0, env_steps=1.7e308, batches=1.0),
        told("processor", index=1, env_steps=1.7e308, batches=1.0),
    )
    assert found.rows_per_record == {}


def test_positions_that_there_cannot_be_are_passed_over():
    odd = [(-1, 5, 0), (1, -5, 0), (2, 5, -1)]
    found = hear(
        told("processor", *((TRAJECTORIES, *each) for each in odd)),
        told("processor", (TRAJECTORIES, 0, 5, 0)),
    )
    assert list(found.by_place) == [Place(PROCESSOR, TRAJECTORIES, 0)]


def test_what_is_kept_is_bounded_and_what_is_told_now_stays(monkeypatch):
    monkeypatch.setattr(standings, "MOST_PLACES", 8)
    monkeypatch.setattr(standings, "MOST_PROCESSES", 4)
    found = Standings("e")
    for number in range(100):
        found.hear(told("processor", (TRAJECTORIES, 0, number, 0), index=0))
        odd = [(TRAJECTORIES, 1_000 + 5 * number + n, 7, 0) for n in range(5)]
        found.hear(told("processor", *odd, index=1_000 + number))
    assert len(found.by_place) == 8
    assert found.by_place[Place(PROCESSOR, TRAJECTORIES, 0)].position == 99
    assert len(found._points) == 4 and ("processor", 0) in found._points


NOW_S = 1_700_000_000.0


def live(ahead_s, seconds=5, clock=None):
    """Standings of a learner that told each second, up to now by the broker's clock."""
    found = Standings("e", clock)
    for second in range(seconds):
        at_s = NOW_S - seconds + 1 + second
        message = told("learner", (REPLAY, 0, 10 + second, 0), can_learn=1.0)
        point = decode(message.value, MetricsPoint)
        found.add(point, at_s, heard_s=at_s + 0.02 + ahead_s)
    return found


@pytest.mark.parametrize("ahead_s", [-60.0, 0.0, 8.0, 20.0, 120.0])
def test_a_clock_that_differs_makes_nobody_silent_and_no_record_old(ahead_s):
    place = Place(LEARNER, REPLAY, 0)
    standing = live(ahead_s).by_place[place]
    ours_s = NOW_S + ahead_s
    assert standing.at_s == pytest.approx(ours_s, abs=0.1)
    assert standing.ahead_s == pytest.approx(ahead_s, abs=0.1)
    sample = Sample(
        ours_s + 0.5, committed=4, begin=0, end=50, stable_end=50, standing=standing,
        next_at_s=NOW_S - 3, ahead_s=standing.ahead_s,
    )  # fmt: skip
    found = assess(place, Window(sample), rows_per_record=None)
    assert found.verdict.state == "OK", found.verdict
    assert (found.current, found.lag_s) == (14, pytest.approx(3.5, abs=0.2))


def test_who_is_gone_is_silent_by_a_clock_that_is_ahead():
    place = Place(LEARNER, REPLAY, 0)
    standing = live(20.0).by_place[place]
    sample = Sample(NOW_S + 35, 4, 0, 50, 50, standing=standing)
    found = assess(place, Window(sample), rows_per_record=None)
    assert found.verdict.state == "STOPPED", "it told nothing for 15 s"


def test_another_experiment_shows_how_far_the_clocks_are_apart():
    clock = ClockGap()
    other = Standings("other", clock)
    other.hear(told("learner", (REPLAY, 0, 1, 0), experiment="other"))
    live(20.0, clock=clock)
    told_once = told("processor", ("rollstream.other.trajectories", 0, 1, 0),
                     experiment="other", at_s=int(NOW_S) - 30)  # fmt: skip
    other.hear(told_once)
    (standing,) = other.by_place.values()
    assert standing.at_s == pytest.approx(NOW_S - 10, abs=0.1)


def test_a_topic_that_is_made_anew_is_heard_afresh(monkeypatch):
    come, anew = [], set()

    class Records:
        def __init__(self, settings, client_id):
            pass

        def follow(self, wanted):
            pass

        def poll(self, timeout_s):
            return [come.pop()] if come else []

        def begun_anew(self):
            return {anew.pop()} if anew else set()

    monkeypatch.setattr(standings, "NewestRecords", Records)
    follower = standings.StandingsFollower(None)
    follower.follow(["e"])
    topic = topic_name(METRICS, "e")

    def positions():
        heard = follower.hear().items()
        return {place.partition: standing.position for place, standing in heard}

    old = told("processor", (TRAJECTORIES, 0, 900, 0), (TRAJECTORIES, 1, 900, 0))
    come.append(replace(old, topic=topic))
    assert positions() == {0: 900, 1: 900}
    anew |= {topic}
    come.append(replace(told("processor", (TRAJECTORIES, 0, 3, 0)), topic=topic))
    assert positions() == {0: 3}
    anew |= {topic}
    assert positions() == {}
