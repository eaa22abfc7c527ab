"""The proof of the lag's judge: windows of samples, and what each of them shows."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from infra.monitoring.lag.judge import Rules, judge
from infra.monitoring.lag.model import Sample, State
from infra.monitoring.lag.window import Window
from tests.unit.lag_windows import look, steady, window


@dataclass(frozen=True)
class Case:
    shows: str
    looks: list[Sample]
    state: State
    rule: int


def stops(after_s: int, for_s: int, **more: object) -> list[Sample]:
    """Reads 10/s of 10/s, then nothing more while records still come."""
    t = after_s + 1
    going = steady(after_s, 0, 100, reads=10, comes=10, **more)
    if "position" in more:
        more["position"] = 10 * after_s
        return going + steady(for_s, 0, 10 * t + 100, comes=10, from_s=t, **more)
    at = 10 * after_s
    return going + steady(for_s, at, 10 * t + 100, comes=10, from_s=t, **more)


NOBODY = {"members": 0}

CASES = [
    # 1: beyond the log's end, or of another topic.
    Case("one look: committed beyond the end", [look(0, 900, 5)], "LOST", 1),
    Case("committed at the end is not beyond it", [look(0, 5, 5)], "OK", 12),
    Case("position beyond the end", [look(0, 3, 5, position=9)], "LOST", 1),
    Case(
        "beyond the stable end alone: it reads what is not committed",
        [look(0, 8, 10, stable_end=5)],
        "OK",
        12,
    ),
    Case(
        "the topic was made anew, and is longer by now than what was committed",
        [look(0, 100, 120, topic_id="a"), look(1, 100, 500, topic_id="b")],
        "LOST",
        1,
    ),
    Case(
        "the topic was made anew, and the group has begun with it",
        [look(0, 100, 120, topic_id="a"), look(1, 3, 5, topic_id="b")],
        "OK",
        13,
    ),
    Case(
        "a look that does not know the id changes nothing",
        [look(0, 9, 20, topic_id="a"), look(1, 9, 20), look(2, 9, 20, topic_id="a")],
        "OK",
        13,
    ),
    Case(
        "an id that was unknown in between is compared with the last known",
        [look(0, 9, 9, topic_id="a"), look(1, 9, 9), look(2, 9, 50, topic_id="b")],
        "LOST",
        1,
    ),
    Case(
        "the log was cut while the group read",
        [look(0, 90, 100), look(1, 100, 100), look(2, 100, 60)],
        "LOST",
        1,
    ),
    # 2: expired before it was read.
    Case("one look: committed expired", [look(0, 10, 90, begin=50)], "LOST", 2),
    Case("the log begins where it goes on", [look(0, 50, 90, begin=50)], "WARN", 9),
    Case(
        "it expired in the window, and it still stands there",
        [look(t, 10, 90, begin=50 if t else 5) for t in range(3)],
        "LOST",
        2,
    ),
    Case(
        "it was lost, and reads again since: what is lost does not come back",
        [look(t, 10, 90, begin=50) for t in range(3)]
        + steady(30, 60, 90, reads=1, comes=1, begin=50, from_s=3),
        "LOST",
        2,
    ),
    Case(
        "two minutes after a loss nobody has to hear of it any more",
        [look(t, 10, 90, begin=50) for t in range(3)]
        + steady(130, 60, 90, reads=1, comes=1, begin=50, from_s=3),
        "OK",
        13,
    ),
    Case(
        "committed was read before the begin, which moved on in between",
        [look(0, 40, 90, begin=30), look(1, 48, 90, begin=50)],
        "WARN",
        9,
    ),
    Case(
        "only what its position has passed expired",
        [look(0, 30, 90, begin=40, position=80)],
        "WARN",
        8,
    ),
    Case(
        "what expired was the mark of a transaction",
        [
            look(0, 11, 12, markers=1),
            look(1, 11, 12, markers=1),
            look(2, 11, 14, begin=12),
            look(3, 11, 14, begin=12),
        ],
        "OK",
        13,
    ),
    Case(
        "one offset short of an empty log: likely the mark of a transaction",
        [look(0, 11, 12, begin=12)],
        "EMPTY",
        3,
    ),
    Case("two offsets of an empty log", [look(0, 10, 12, begin=12)], "LOST", 2),
    Case(
        "nobody is there, and it expired",
        [look(0, 1, 9, begin=5, members=0)],
        "LOST",
        2,
    ),
    Case(
        "a role that has handled nothing begins where the log does",
        [look(t, None, 90, begin=50, position=0) for t in range(2)],
        "WARN",
        9,
    ),
    # 3: nothing there.
    Case("a new topic", [look(0, None, 0)], "EMPTY", 3),
    Case("all has expired, and was read", [look(0, 50, 50, begin=50)], "EMPTY", 3),
    Case(
        "all there is lies in an open transaction",
        [look(0, None, 7, stable_end=0)],
        "EMPTY",
        3,
    ),
    Case("one record", [look(0, None, 1)], "NO_COMMIT", 4),
    # 4: no commit.
    Case("a group that never committed", steady(60, None), "NO_COMMIT", 4),
    Case("likewise, without members", [look(0, None, 9, members=0)], "NO_COMMIT", 4),
    Case("a position is as good", [look(0, None, 9, position=4)], "OK", 13),
    Case("its commits expired", [look(0, 5, 9), look(1, None, 9)], "NO_COMMIT", 4),
    # 5: nobody there.
    Case("one look: nobody, and lag", [look(0, 5, 9, **NOBODY)], "STOPPED", 5),
    Case("one look: nobody, and no lag", [look(0, 9, 9, **NOBODY)], "OK", 12),
    Case("nobody, for a minute", steady(60, 5, **NOBODY), "STOPPED", 5),
    Case("nobody, and records come", steady(9, 5, comes=3, **NOBODY), "STOPPED", 5),
    Case(
        "nobody is a member, and yet it commits: a reader without a group",
        steady(60, 0, reads=5, comes=5, **NOBODY),
        "OK",
        13,
    ),
    Case(
        "likewise, a moment after it committed",
        steady(60, 0, reads=5, comes=5, **NOBODY) + [look(65, 300, 440, **NOBODY)],
        "OK",
        13,
    ),
    Case("likewise, half a minute later", stops(60, 31, **NOBODY), "STOPPED", 5),
    Case(
        "a learner is in no group, and tells where it stands",
        steady(60, 0, position=0, reads=5, comes=5, **NOBODY),
        "OK",
        13,
    ),
    Case(
        "a learner that tells, and does not move, is there",
        steady(9, 0, position=7, **NOBODY),
        "STALLED",
        6,
    ),
    Case(
        "a learner that tells nothing any more",
        [look(t, 0, 100, position=7, told_s=0, **NOBODY) for t in range(12)],
        "STOPPED",
        5,
    ),
    Case("members are not known", [look(0, 5, 9, members=None)], "OK", 13),
    Case(
        "a role that is in no group tells nothing any more",
        [look(t, 0, 100, position=7, told_s=0, members=None) for t in range(12)],
        "STOPPED",
        5,
    ),
    Case(
        "likewise, after a minute",
        [look(t, 0, 100, position=7, told_s=0, members=None) for t in range(90)],
        "STOPPED",
        5,
    ),
    Case(
        "one look, an hour after it told its last word",
        [look(3_600, 0, 100, position=7, told_s=0, members=None)],
        "STOPPED",
        5,
    ),
    # 6: does not move.
    Case("by commits, for 30 s", steady(30, 5), "STALLED", 6),
    Case("by commits, not yet for 30 s", steady(29, 5), "OK", 13),
    Case("it was going, and stopped", stops(60, 31), "STALLED", 6),
    Case("it was going, and pauses", stops(60, 20), "OK", 13),
    Case("by position, for 5 s", steady(5, 0, position=7), "STALLED", 6),
    Case("by position, not yet for 5 s", steady(4, 0, position=7), "OK", 13),
    Case("by position, stopped", stops(60, 5, position=0), "STALLED", 6),
    Case("by position, pauses", stops(60, 3, position=0), "OK", 13),
    Case(
        "frozen: its last word grows old",
        [look(t, 0, 100, position=7, told_s=0) for t in range(7)],
        "STALLED",
        6,
    ),
    Case(
        "likewise, after a minute: nothing gets better by that",
        [look(t, 0, 100, position=7, told_s=0) for t in range(70)],
        "STALLED",
        6,
    ),
    Case("no lag, and no commits: there is nothing to do", steady(90, 100), "OK", 12),
    Case(
        "all that comes is held back, which is no lag",
        [look(t, 0, 9 * t, position=9 * t, held=9 * t) for t in range(60)],
        "OK",
        12,
    ),
    Case(
        "a second ago all was read",
        steady(60, 100) + steady(3, 100, 120, from_s=61),
        "OK",
        13,
    ),
    Case(
        "records come one at a time, and each is read",
        [look(t, 100 + t // 10, 101 + t // 10) for t in range(100)],
        "OK",
        13,
    ),
    Case(
        "the lag is the mark of a transaction",
        [look(t, 11, 12, markers=1) for t in range(60)],
        "OK",
        12,
    ),
    Case(
        "marks that were counted before",
        [look(t, 11, 12, markers=1 if t == 2 else None) for t in range(60)],
        "OK",
        12,
    ),
    Case(
        "what waits is in an open transaction",
        [look(t, 11, 50, stable_end=11) for t in range(60)],
        "OK",
        12,
    ),
    Case(
        "it commits once in 40 s, and has 120 s",
        [look(t, 400 * (t // 40), 400 * (t // 40) + 500) for t in range(120 + 100)],
        "OK",
        13,
    ),
    Case(
        "it committed once in 40 s, and has not for 120 s",
        [
            look(t, 400 * (min(t, 120) // 40), 400 * (t // 40) + 500)
            for t in range(120 + 121)
        ],
        "STALLED",
        6,
    ),
    Case(
        "it did not commit for an hour when there was nothing to commit",
        [look(t, 100, 100) for t in range(0, 3_600, 10)]
        + [look(3_600, 100, 150), look(3_601, 120, 150)]
        + [look(3_601 + t, 120, 150) for t in range(1, 31)],
        "STALLED",
        6,
    ),
    Case(
        "the brokers did not answer for a minute: nobody could read",
        steady(3, 0, position=7) + [look(64, 0, 100, position=7)],
        "OK",
        13,
    ),
    Case(
        "looks that are seldom are no outage",
        steady(60, 5, every_s=20),
        "STALLED",
        6,
    ),
    Case(
        "it was down for a minute, and has just come back",
        steady(60, 5, **NOBODY) + [look(61, 5, 100, members=2)],
        "OK",
        13,
    ),
    Case(
        "it came back, and does nothing",
        steady(60, 5, **NOBODY) + steady(31, 5, 100, from_s=61),
        "STALLED",
        6,
    ),
    Case(
        "a learner goes on: it has just told for the first time",
        steady(60, 5, **NOBODY) + [look(61, 5, 100, position=5, members=0)],
        "OK",
        13,
    ),
    Case(
        "the learner learns first from what it has",
        steady(40, 0, position=7, waits=True),
        "OK",
        13,
    ),
    Case(
        "it said so, and says nothing any more",
        [look(t, 0, 100, position=7, waits=True, told_s=0) for t in range(7)],
        "STALLED",
        6,
    ),
    Case("moves by one record a second", steady(60, 0, reads=1), "OK", 13),
    # 7: went back.
    Case(
        "the offsets were set back",
        [look(0, 90, 100), look(1, 40, 100), look(2, 45, 100)],
        "REWIND",
        7,
    ),
    Case(
        "set back, and as far again",
        [look(0, 90, 100), look(1, 40, 100), look(2, 95, 100)],
        "OK",
        13,
    ),
    Case(
        "set back, and all is read",
        [look(0, 90, 100), look(1, 40, 100), look(2, 100, 100)],
        "OK",
        12,
    ),
    Case(
        "a learner goes on at its checkpoint: what is committed did not go back",
        [look(0, 50, 100, position=90), look(1, 50, 100, position=51)],
        "OK",
        13,
    ),
    Case(
        "who had the partition before commits late, and nobody reads anew",
        [look(0, 90, 100, position=95), look(1, 80, 100, position=96)],
        "OK",
        13,
    ),
    Case(
        "committed and position went back, one after the other",
        [
            look(0, 90, 100, position=95),
            look(1, 40, 100, position=95),
            look(2, 40, 100, position=42),
        ],
        "REWIND",
        7,
    ),
    Case(
        "set back two minutes ago, and it is still on its way",
        [look(0, 9_000, 10_000), *steady(125, 100, 10_000, reads=10, from_s=1)],
        "OK",
        13,
    ),
    Case(
        "set back, and it does not move: that is worse",
        [look(0, 90, 100), *steady(31, 40, 100, from_s=1)],
        "STALLED",
        6,
    ),
    # 8: would be lost by a crash.
    Case(
        "the learner's checkpoint is older than the log",
        [look(t, 10, 100, begin=20, position=100) for t in range(9)],
        "WARN",
        8,
    ),
    Case(
        "the checkpoint is as old as the log",
        [look(t, 20, 100, begin=20, position=100) for t in range(9)],
        "OK",
        12,
    ),
    # 9: near to expire.
    Case("one look: 90 % is unread", [look(0, 110, 200, begin=100)], "WARN", 9),
    Case("one look: 70 % is unread", [look(0, 130, 200, begin=100)], "OK", 13),
    Case("nothing has ever expired", [look(0, 10, 100)], "OK", 13),
    Case(
        "90 % is unread, and has come just now",
        [look(t, 100 + 10 * t, 199 + 10 * t, begin=95 + 10 * t) for t in range(30)],
        "OK",
        13,
    ),
    Case(
        "90 % has been unread for a while",
        [look(t, 100 + t, 199 + t, begin=95 + t, next_at_s=960.0) for t in range(30)],
        "WARN",
        9,
    ),
    # 10: late.
    Case("one look: waits for 61 s", [look(61, 5, 9, next_at_s=1_000.0)], "WARN", 10),
    Case("one look: waits for 60 s", [look(60, 5, 9, next_at_s=1_000.0)], "OK", 13),
    Case(
        "interpolated: 700 records behind 10 a second",
        steady(100, 300, 1_000, reads=10, comes=10),
        "WARN",
        10,
    ),
    Case(
        "interpolated: 500 records behind 10 a second",
        steady(100, 500, 1_000, reads=10, comes=10),
        "OK",
        13,
    ),
    # 11: grows.
    Case("reads half of what comes", steady(60, 90, reads=5, comes=10), "WARN", 11),
    Case("not yet for a minute", steady(59, 90, reads=5, comes=10), "OK", 13),
    Case("keeps up, with lag", steady(119, 0, 400, reads=9, comes=9), "OK", 13),
    Case("the lag shrinks", steady(119, 0, 600, reads=9, comes=5), "OK", 13),
    Case(
        "commits make it go up and down",
        [look(t, 100 * (t // 10), 10 * t + 50) for t in range(120)],
        "OK",
        13,
    ),
    Case(
        "it went up, and does not any more",
        steady(40, 90, reads=5, comes=10)
        + steady(80, 290, 500, reads=10, comes=10, from_s=41),
        "OK",
        13,
    ),
    Case("grows by less than 10 %", steady(60, 0, 590, reads=10, comes=10.5), "OK", 13),
    Case(
        "grows, by a few milliseconds of work",
        steady(60, 0, 100, reads=1_000, comes=1_001),
        "OK",
        13,
    ),
    Case(
        "a learner that waits, and cannot keep up",
        steady(60, 0, position=90, waits=True, comes=5, reads=1),
        "WARN",
        11,
    ),
    # 12 and 13 have the other side of each case above.
    Case("all is read", steady(9, 100), "OK", 12),
    Case("one look: lag, and members", [look(0, 5, 9)], "OK", 13),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.shows)
def test_shows(case: Case) -> None:
    verdict = judge(Window(*case.looks), Rules())

    assert (verdict.state, verdict.rule) == (case.state, case.rule), verdict.reason
    assert verdict.reason


def test_each_rule_is_shown_to_hold_and_not_to_hold() -> None:
    assert {case.rule for case in CASES} == set(range(1, 14))
    assert len({case.shows for case in CASES}) == len(CASES) >= 40


@pytest.mark.parametrize(
    ("looks", "reason"),
    [
        (
            steady(12, 0, position=7, owner="p0@host"),
            "nothing was handled by p0@host for 12 s: 93 records wait",
        ),
        (steady(30, 99), "nothing was committed for 30 s: 1 record waits"),
        (
            [look(0, 10, 90, begin=50)],
            "40 records expired unread",
        ),
        ([look(0, 5, 9)], "4 records wait; one look cannot tell whether it moves"),
        (
            [look(61, 5, 9, next_at_s=1_000.0)],
            "the first of 4 records has waited for 61 s",
        ),
        (
            [look(t, 10, 90, begin=50) for t in range(3)] + [look(7, 60, 90, begin=50)],
            "40 records from offset 10 on expired unread, 5 s ago",
        ),
        (
            [look(0, 90, 100), look(1, 40, 100), look(5, 45, 100)],
            "the committed offset went back from 90, 4 s ago; it is at 45",
        ),
        ([look(0, None, 9)], "nothing is committed"),
        (
            [look(0, None, 9, members=0)],
            "nothing is committed, and the group has no members",
        ),
        (
            [look(0, None, 7, stable_end=0)],
            "nothing to read yet: 7 records in open transactions",
        ),
        (
            [look(0, 10, 100, begin=20, position=100)],
            "10 records that are handled and not committed have expired",
        ),
        (
            [look(0, 110, 200, begin=100)],
            "90% of the log was not handled, and it expires: 90 records wait",
        ),
        (
            steady(60, 90, reads=5, comes=10),
            "the lag grows for 60 s: from 10 records to 210",
        ),
        (
            [look(t, 0, 100, position=7, told_s=0, members=0) for t in range(12)],
            "the group has no members, and its role told nothing for 11 s: "
            "93 records wait",
        ),
        (
            [look(0, 900, 5)],
            "offset 900 is beyond the log's end 5: the topic was made "
            "anew, or the log was cut",
        ),
        (
            steady(3, 0, position=7),
            "93 records wait, for 3 s so far",
        ),
        (
            steady(3, 0, position=7, reads=1),
            "90 records wait, and it moves",
        ),
        ([look(0, 2, 9, position=9, held=7)], "all is handled, and 7 held back"),
        ([look(0, 5, 9, members=0)], "the group has no members: 4 records wait"),
    ],
)
def test_reasons_give_the_figures_that_decided(
    looks: list[Sample], reason: str
) -> None:
    assert judge(window(*looks), Rules()).reason == reason


def test_a_window_without_samples_is_judged_too() -> None:
    assert judge(Window(), Rules()).state == "NO_COMMIT"


def test_limits_can_be_chosen() -> None:
    looks = steady(8, 0, position=7)

    assert judge(window(*looks), Rules(stalled_after_s=10)).state == "OK"
    assert judge(window(*looks), Rules(stalled_after_s=8)).state == "STALLED"


@pytest.mark.parametrize(
    ("rules", "looks", "before", "after"),
    [
        # 30 s after a commit that took 40 s, of which only 5 s count, twice.
        (
            Rules(longest_commit_wait_s=5.0, commit_waits=2, uncommitted_after_s=1.0),
            [look(0, 0, 99), look(40, 9, 99), look(49.5, 9, 99), look(50, 9, 99)],
            "OK",
            "STALLED",
        ),
        (
            Rules(near_expiry_late_s=10.0),
            [
                look(9.5, 110, 200, begin=100, next_at_s=1_000.0),
                look(10, 110, 200, begin=100, next_at_s=1_000.0),
            ],
            "OK",
            "WARN",
        ),
        (
            Rules(growing_records=20, growing_over_s=9, growing_late_s=0),
            [look(t, 10 + t, 10 + 4 * t) for t in range(10)],
            "OK",
            "OK",
        ),
        (
            Rules(growing_records=17, growing_over_s=9, growing_late_s=0),
            [look(t, 10 + t, 10 + 4 * t) for t in range(10)],
            "OK",
            "WARN",
        ),
        (
            Rules(silent_after_s=4.0, stalled_after_s=0.5),
            [look(t, 0, 9, position=7, told_s=0, members=0) for t in (0, 4, 4.5)],
            "STALLED",
            "STOPPED",
        ),
        (
            Rules(stalled_after_s=2.0),
            [look(t, 0, 9, position=7, told_s=0, waits=True) for t in (0, 1, 2, 2.5)],
            "OK",
            "STALLED",
        ),
    ],
)
def test_a_limit_is_where_it_says(
    rules: Rules, looks: list[Sample], before: State, after: State
) -> None:
    assert judge(window(*looks[:-1]), rules).state == before
    assert judge(window(*looks), rules).state == after


def test_a_stalled_processor_is_seen_and_cleared_within_ten_seconds() -> None:
    seen = Window(*steady(60, 0, position=0, reads=10, comes=10))
    states = []
    for t in range(61, 90):
        frozen = t < 80
        position, told_s = (600, 60) if frozen else (600 + 10 * (t - 79), t)
        seen.add(look(t, 0, 10 * t + 100, position=position, told_s=told_s))
        states.append((t, judge(seen, Rules()).state))

    first = next(t for t, state in states if state == "STALLED")
    cleared = next(t for t, state in states if t > first and state == "OK")
    assert first - 60 <= 6
    assert cleared - 80 <= 1
