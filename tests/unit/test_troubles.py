"""What cannot be started here, and for how long another host is better."""

from __future__ import annotations

from infra.control.plans import MAX_TROUBLE_REASON, Trouble
from infra.control.troubles import LONGEST_S, SURE_AFTER, Troubles

FULL = "it cannot be started: No space left on device"


def test_a_start_that_fails_for_a_moment_is_nobodys_trouble():
    troubles = Troubles()
    for in_a_row in range(1, SURE_AFTER):
        troubles.not_started("a", in_a_row, FULL, 0.0)
        assert troubles.told({"a": ["worker/0"]}, 0.0) == {}
    troubles.not_started("a", SURE_AFTER, FULL, 1.5)
    assert troubles.told({"a": ["worker/0"]}, 1.5) == {
        "a": Trouble(reason="No space left on device", roles=("worker/0",))
    }


def test_who_has_left_is_kept_away_twice_as_long_each_time():
    troubles, now_s, away = Troubles(), 0.0, []
    for _ in range(7):
        troubles.not_started("a", SURE_AFTER, FULL, now_s)
        left_s = now_s
        while troubles.told({}, now_s):
            assert troubles.told({}, now_s)["a"].roles == ()
            now_s += 1.0
        away.append(now_s - left_s)
    assert away == [60, 120, 240, 480, 900, 900, 900]


def test_what_stays_is_told_of_until_it_starts():
    troubles = Troubles()
    for second in range(0, 600, 30):
        troubles.not_started("a", SURE_AFTER + second, FULL, float(second))
        for later in range(30):
            assert troubles.told({"a": {"learner/0"}}, second + later + 0.0)
    troubles.started("a")
    assert troubles.told({}, 600.0) == {}
    troubles.not_started("a", SURE_AFTER, FULL, 601.0)
    assert troubles.told({}, 660.0) and not troubles.told({}, 662.0), "from the first"


def test_each_experiment_has_troubles_of_its_own_and_they_are_forgotten():
    troubles = Troubles()
    for number in range(1_000):
        troubles.not_started(f"e-{number}", SURE_AFTER, "x" * 900, 0.0)
    troubles.started("e-7")
    told = troubles.told({}, 1.0)
    assert len(told) == 999 and "e-7" not in told
    assert {len(each.reason) for each in told.values()} == {MAX_TROUBLE_REASON}
    assert troubles.told({}, 61.0 + LONGEST_S) == {} == troubles._cases
