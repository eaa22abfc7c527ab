"""What happens again and again is told at once, then ever more seldom."""

import pytest

from infra.monitoring.repeats import Repeats


@pytest.mark.parametrize(
    ("because", "times", "told"),
    [
        ("the first is told at once", [0], [0]),
        # Held back for 2 s, 4 s, 8 s, 16 s, and then for no more than 20 s.
        ("it goes on", range(91), [0, 2, 6, 14, 30, 50, 70, 90]),
        ("two at once are one", [5, 5, 5, 7], [5, 7]),
        ("it stopped for less than the longest", [0, 2, 6, 25], [0, 2, 6, 25]),
        ("it had ended", [0, 2, 6, 26, 27, 28], [0, 2, 6, 26, 28]),
        ("it is seldom", [0, 100, 200], [0, 100, 200]),
    ],
)
def test_what_is_told(because, times, told):
    repeats = Repeats(2.0, 20.0)
    assert [at for at in times if repeats.happens(float(at))] == told, because


def test_those_that_were_held_back_are_counted():
    repeats = Repeats(2.0, 20.0)
    assert repeats.happens(0.0) and repeats.others() == ""
    assert not repeats.happens(0.5) and not repeats.happens(1.0)
    assert repeats.happens(2.0)
    assert repeats.others() == " (and 2 more since the last)"
    assert repeats.others() == ""
