"""Anybody may write to the topic of metrics: what cannot be is left out."""

import pytest

from infra.control.checkups import _sound
from schemas.records import MetricsPoint, Position

REPLAY = "rollstream.exp.replay"


def point(role, *places):
    positions = tuple(Position(*place, 0, 0) for place in places)
    return MetricsPoint("exp", "r", role, 0, 1, 0, {"updates": 1.0}, positions)


def test_positions_of_what_the_role_reads_stay():
    places = ((REPLAY, 0, 5), (REPLAY, 7, 0))
    assert _sound(point("learner", *places)) == point("learner", *places)


@pytest.mark.parametrize(
    ("role", "place"),
    [
        ("learner", ("", 0, 0)),
        ("learner", ("rollstream.exp.replay\0", 0, 0)),
        ("learner", ("rollstream.other.replay", 0, 0)),
        ("learner", (REPLAY, -1, 0)),
        ("learner", (REPLAY, 2**31 - 1, 0)),
        ("learner", (REPLAY, 0, -1001)),
        ("processor", (REPLAY, 0, 0)),
        ("worker", (REPLAY, 0, 0)),
        ("nobody", (REPLAY, 0, 0)),
    ],
)
def test_others_are_left_out(role, place):
    found = _sound(point(role, place))
    assert found.positions == ()
    assert found.values == {"updates": 1.0}
