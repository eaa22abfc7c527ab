"""What a look at a topic means: tables of looks, the times passed in."""

import pytest

from infra.kafka.identity import TopicIdentity
from infra.kafka.open_transactions import WAIT_S, OpenTransactions
from infra.printable import printable
from rollstream.ages import age
from schemas.errors import SchemaError
from stream_processors.log_watch import LogJudge, check_partition

OLD, NEW = TopicIdentity("old", 6), TopicIdentity("new", 6)


@pytest.mark.parametrize(
    ("looks", "says", "reason"),
    [
        ([(OLD, 0), (OLD, 99)], "", "the same one"),
        ([(OLD, 0), (NEW, 1)], "expected the topic id old, found new", "made anew"),
        ([(OLD, 0), (None, 1), (None, 5)], "", "a broker that has just started"),
        ([(OLD, 0), (None, 0), (None, 6)], "the topic is gone", "for 6 s"),
        ([(OLD, 0), (None, 1), (OLD, 5), (None, 8)], "", "it was there in between"),
        ([(OLD, 0), (None, 1), (NEW, 2)], "made anew", "seen while it was gone"),
    ],
)
def test_when_a_log_is_another_one(looks, says, reason):
    judge = LogJudge("t", 6)
    found = [judge.end(identity, float(now)) for identity, now in looks]
    assert found[:-1] == [""] * (len(looks) - 1)
    assert says in found[-1] and bool(says) is bool(found[-1]), reason


def test_added_partitions_are_told_once():
    judge = LogJudge("t", 6)
    assert judge.added(OLD) == ""
    twelve = TopicIdentity("old", 12)
    assert "expected 6 partitions, found 12" in judge.added(twelve)
    assert judge.added(twelve) == ""


def test_only_partitions_of_the_spec_are_read():
    check_partition(5, 6)
    with pytest.raises(SchemaError, match="one of the experiment's 6, found 6"):
        check_partition(6, 6)


def test_an_open_transaction_is_told_once_when_it_lasts():
    watch = OpenTransactions("t")
    assert watch.judge({1: (40, 50)}, 0.0) == []
    assert watch.judge({1: (40, 55)}, WAIT_S - 0.1) == []
    (news,) = watch.judge({1: (40, 60)}, WAIT_S)
    assert "t[1]: nothing from offset 40 on is read, up to 60" in news
    assert watch.judge({1: (40, 70)}, 99.0) == []
    # That one ended; many short ones, one after the other, are no reason to worry.
    for second in range(20):
        assert watch.judge({1: (60 + second, 90)}, 100.0 + second) == []
    assert watch.judge({}, 120.0) == []
    assert watch.judge({1: (80, 90)}, 121.0) == []


def test_ages_are_said_in_units_that_say_something():
    said = [age(ms) for ms in (-5, 900, 119_000, 120_000, 7_200_000, 172_800_000)]
    assert said == ["0 s", "0 s", "119 s", "2 min", "2 h", "2 d"]


def test_what_topics_say_cannot_steer_a_terminal():
    assert (
        printable("\x1b[2Jrewards: \u00e9 [0]\n")
        == "\ufffd[2Jrewards: \u00e9 [0]\ufffd"
    )
