"""Which records are read to tell marks from records, and how old the lag is."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from infra.kafka.peeking import Peeked, Span
from infra.monitoring.lag import unread
from infra.monitoring.lag.model import Place, Sample
from infra.monitoring.lag.unread import Limits, Unread, chosen, markers_of, span_of
from infra.monitoring.lag.window import Window

PLACE = Place("g", "t", 0)
SAMPLE = Sample(100.0, committed=8, begin=0, end=10, stable_end=10, topic_id="id")
SPAN = Span("t", 0, 8, 10)


class Log:
    """What is found by looking; counts the looks."""

    def __init__(self):
        self.found = Peeked(first=8, first_at_ms=60_000, records=2, is_whole=True)
        self.looks = []

    def peek(self, consumer, spans, records, until_s):
        self.looks.append(list(spans))
        assert len({(s.topic, s.partition) for s in spans}) == len(spans)
        return dict.fromkeys(spans, self.found)


@pytest.fixture
def log(monkeypatch):
    log = Log()
    monkeypatch.setattr(unread, "peek", log.peek)
    monkeypatch.setattr(unread, "make_peeker", lambda *_: None)
    return log


@pytest.fixture
def asks(log):
    return Unread(None, "test", Limits(4, 30.0))


def completed(asks, sample, *before):
    windows = {PLACE: Window(*before)} if before else {}
    return asks.complete({PLACE: sample}, windows)[PLACE]


def test_one_look_reads_at_once(asks, log):
    found = asks.complete({PLACE: SAMPLE}, None)[PLACE]
    assert (found.markers, found.next_at_s) == (0, 60.0)
    assert log.looks == [[SPAN]]


def test_where_no_record_is_left_all_are_marks(asks, log):
    log.found = Peeked(is_whole=True)
    found = asks.complete({PLACE: SAMPLE}, None)[PLACE]
    assert (found.markers, found.next_at_s) == (2, None)


def test_marks_are_counted_once_it_stands_still(asks, log):
    assert completed(asks, SAMPLE).markers is None, "the first sample"
    moved = replace(SAMPLE, at_s=99.0, committed=7)
    assert completed(asks, SAMPLE, moved).markers is None, "it moves"
    grown = replace(SAMPLE, at_s=99.0, end=9, stable_end=9)
    assert completed(asks, SAMPLE, grown).markers is None, "the log grows"
    same = replace(SAMPLE, at_s=99.0)
    assert completed(asks, SAMPLE, same).markers == 0
    other = replace(SAMPLE, at_s=99.0, topic_id="another")
    assert completed(asks, SAMPLE, other).markers is None


def test_what_was_found_is_remembered(asks, log):
    same = replace(SAMPLE, at_s=99.0, next_at_s=60.0)
    for _ in range(3):
        assert completed(asks, SAMPLE, same).markers == 0
    assert len(log.looks) == 1
    completed(asks, replace(SAMPLE, committed=10), same)  # nothing to ask
    completed(asks, SAMPLE, same)
    assert len(log.looks) == 2, "and forgotten when nobody asks"


def test_another_topic_of_the_name_is_read_anew(asks, log):
    asks.complete({PLACE: SAMPLE}, None)
    asks.complete({PLACE: replace(SAMPLE, topic_id="another")}, None)
    assert len(log.looks) == 2


def test_what_was_not_found_in_time_is_looked_for_later(asks, log, monkeypatch):
    log.found = Peeked()
    asks.complete({PLACE: SAMPLE}, None)
    asks.complete({PLACE: SAMPLE}, None)
    assert len(log.looks) == 1, "not each second"
    later = time.monotonic() + 11.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    asks.complete({PLACE: SAMPLE}, None)
    assert len(log.looks) == 2


def test_the_age_is_read_only_where_no_sample_tells(asks, log):
    assert completed(asks, SAMPLE).next_at_s == 60.0, "the first sample"
    told = [
        replace(SAMPLE, at_s=98.0, committed=5, end=6, stable_end=6),
        replace(SAMPLE, at_s=99.0, committed=6, end=10, stable_end=10),
    ]
    log.looks.clear()
    assert completed(asks, SAMPLE, *told).next_at_s is None
    assert log.looks == [], "8 was appended between the two"


@pytest.mark.parametrize(
    "changes, span",
    [
        ({}, SPAN),
        ({"committed": None}, None),
        ({"committed": 10}, None),
        ({"committed": 12}, None),
        ({"stable_end": 8}, None),
        ({"begin": 9}, Span("t", 0, 9, 10)),
        ({"begin": 10}, None),
    ],
)
def test_only_what_the_log_holds_is_looked_into(changes, span):
    assert span_of(replace(SAMPLE, **changes), PLACE) == span


def test_nothing_is_counted_where_records_expired(asks, log):
    found = asks.complete({PLACE: replace(SAMPLE, begin=9)}, None)[PLACE]
    assert (found.markers, found.next_at_s) == (None, 60.0)


def test_a_large_lag_is_not_counted(asks, log):
    large = replace(SAMPLE, end=8 + 1025, stable_end=8 + 1025)
    found = asks.complete({PLACE: large}, None)[PLACE]
    assert (found.markers, found.next_at_s) == (None, 60.0)


def test_what_was_seen_in_part_is_no_count():
    assert markers_of(SPAN, Peeked(8, 1, 1, is_whole=False)) is None
    assert markers_of(SPAN, Peeked(8, 1, 1, is_whole=True)) == 1


def test_short_ones_and_long_ones_come_by_turns():
    spans = [Span("t", n, 0, n + 1) for n in range(4)]
    assert chosen(spans, spans, 4) == [spans[0], spans[3], spans[1], spans[2]]
    assert chosen(spans[:1], [], 4) == spans[:1]


def test_two_groups_in_one_partition_are_looked_at_in_turn(asks, log):
    samples = {
        Place(group, "t", 0): replace(SAMPLE, committed=at)
        for group, at in [("a", 8), ("b", 8), ("c", 5)]
    }
    found = asks.complete(samples, None)
    assert [len(look) for look in log.looks] == [1, 1]
    assert all(each.next_at_s == 60.0 for each in found.values())


def test_no_more_is_looked_into_than_the_limit(asks, log):
    samples = {Place("g", "t", n): SAMPLE for n in range(9)}
    found = asks.complete(samples, None)
    assert sum(map(len, log.looks)) == 4
    assert sum(each.next_at_s is not None for each in found.values()) == 4
