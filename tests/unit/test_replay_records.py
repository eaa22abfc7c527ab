"""A source and a selection -> the records that are sent, before anything is sent."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from archive.choosing import NothingChosen, in_order, make_plan
from archive.pacing import BadRate, Pace
from archive.progress_log import OtherReplay, Past, Standing, _check_same
from archive.room import Room, Sizes
from archive.selection import Selection
from archive.streams import SentStreams
from schemas.codec import decode, encode
from schemas.records import PolicyRef, ReplayProgress, SourceRef, StreamEnd, Unroll
from schemas.tensors import pack
from stream_processors.tails import ReturnOptions, Tails
from tests.unit.pasts import TOPIC, Listed, stream
from tests.unit.test_processor_oracle import (
    assert_same,
    make_end,
    make_unroll,
    owed_by_log,
    rows_of,
)
from tests.unit.test_selection import SELECTIONS


def chosen_of(source: Listed, selection: Selection):
    ends = {number: end for number, (_, end) in source.bounds().items()}
    plan = make_plan(source, selection, ends)
    return [plan.choose(each) for each in in_order(source, {}, plan.ends)]


def make_source(seed: int) -> Listed:
    rng = np.random.default_rng(seed)
    first: list[Unroll | StreamEnd] = [
        *stream(rng, "w0", 1), *stream(rng, "w0", 5, end=False, at_ms=65),
        make_end("w0", 5),
    ]  # fmt: skip
    return Listed(first, [*stream(rng, "w1", 3, at_ms=7)])


def test_everything_is_sent_as_it_was_in_the_order_of_its_times():
    source = make_source(0)
    sent = chosen_of(source, Selection())
    assert all(
        each.record is source.partitions[each.address.partition][each.address.offset]
        for each in sent
    )
    assert len(sent) == sum(map(len, source.partitions))
    for partition in (0, 1):
        offsets = [e.address.offset for e in sent if e.address.partition == partition]
        assert offsets == list(range(len(source.partitions[partition])))
    times = [e.record.produced_at_ms for e in sent if isinstance(e.record, Unroll)]
    assert times == sorted(times)


@given(SELECTIONS.filter(lambda each: not each.is_all), st.integers(0, 2**32))
def test_streams_keep_their_places_and_only_wanted_rows_their_contents(selection, seed):
    source = make_source(seed)
    valid = {
        (p, offset): selection.choose(SourceRef(TOPIC, p, offset), record)
        for p, log in enumerate(source.partitions)
        for offset, record in enumerate(log)
        if isinstance(record, Unroll)
    }
    if not any(rows.any() for rows in valid.values()):
        with pytest.raises(NothingChosen, match="nothing chosen"):
            chosen_of(source, selection)
        return
    sent = chosen_of(source, selection)
    streams: dict[tuple[str, int], list[Unroll]] = {}
    for each in sent:
        if not isinstance(each.record, Unroll):
            continue
        place = each.address.partition, each.address.offset
        expected = valid[place]
        assert (each.record.valid.array() == expected).all()
        assert each.env_steps == expected.sum()
        assert each.blank_steps == (0 if expected.any() else expected.size)
        streams.setdefault((each.record.worker, each.record.incarnation), []).append(
            each.record
        )
    for unrolls in streams.values():
        assert [each.sequence for each in unrolls] == list(range(len(unrolls)))
        assert unrolls[-1].valid.array().any(), "up to the last that is wanted"
    total = sum(int(rows.sum()) for rows in valid.values())
    assert sum(each.env_steps for each in sent) == total


@given(SELECTIONS.filter(lambda each: not each.is_all), st.integers(0, 2**32))
def test_returns_of_what_is_chosen_are_those_of_a_log_without_the_rest(selection, seed):
    """What is blank is, for processors, where the other rows' horizons end."""
    source = make_source(seed)
    try:
        sent = [e.record for e in chosen_of(source, selection) if e.record]
    except NothingChosen:
        return
    for partition in (0, 1):
        log = [each for each in sent if int(each.worker[1:]) == partition]
        tails, found = Tails(TOPIC, partition, ReturnOptions(3, 0.9)), {}
        log.append(make_end(f"w{partition}", 99))
        for offset, record in enumerate(log):
            for action in tails.feed(offset, record):
                if batch := getattr(action, "batch", None):
                    found |= rows_of(batch)
        assert_same(found, owed_by_log(log, 3, 0.9))


def test_a_blank_record_keeps_its_header_its_first_observation_and_little_else():
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 255, (33, 4, 84, 84)).astype(np.uint8)
    unroll = make_unroll(
        np.ones((32, 4)).tolist(),
        sequence=7,
        first_step=224,
        observations=frames,
        encoding="ZSTD",
        behaviour={"q_max": rng.normal(size=(33, 4)).astype(np.float32)},
        terminated=[(3, 1)],
    )
    unroll = replace(unroll, actions={"": pack(np.full((32, 4), 5))})
    source = Listed([unroll, make_unroll([[1.0]], sequence=8, first_step=256)])
    (chosen, _) = chosen_of(source, Selection.parse(since="offset:1"))
    blank = chosen.record
    assert isinstance(blank, Unroll) and decode(encode(blank), Unroll) == blank
    same = {f.name for f in fields(Unroll)} - {
        "observations", "actions", "rewards", "terminated", "truncated", "valid",
        "behaviour",
    }  # fmt: skip
    assert all(getattr(blank, name) == getattr(unroll, name) for name in same)
    assert (blank.observations[""].array()[0] == frames[0]).all()
    assert not blank.observations[""].array()[1:].any()
    assert (blank.actions[""].array() == 5).all(), "there may be no action 0"
    assert not blank.terminated.array().any() and not blank.valid.array().any()
    assert len(encode(blank)) < len(encode(unroll)) / 30
    small_one = make_unroll(np.ones((32, 64)).tolist())
    source = Listed([small_one, make_unroll([[1.0] * 64], sequence=1, first_step=32)])
    (chosen, _) = chosen_of(source, Selection.parse(since="offset:1"))
    assert len(encode(chosen.record)) < 1_200


def test_an_end_of_a_stream_is_sent_where_something_of_its_worker_is():
    source = make_source(1)
    sent = chosen_of(source, Selection.parse(workers="1"))
    assert not any(e.record for e in sent if e.address.partition == 0)
    sent = chosen_of(source, Selection.parse(workers="0"))
    assert any(isinstance(e.record, StreamEnd) for e in sent)


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        # Time of a record, seconds passed, steps sent before -> seconds to wait.
        ("max", [(0, 0, 0, 0), (10**9, 0, 10**9, 0)]),
        ("1000/s", [(0, 5, 0, 0), (0, 5, 500, 0.5), (0, 6.2, 1000, 0)]),
        ("1000", [(0, 5, 0, 0), (0, 5, 500, 0.5)]),
        ("2x", [(7000, 5, 0, 0), (9000, 5, 9, 1.0), (9000, 6.5, 9, 0)]),
        ("0.5x", [(0, 0, 0, 0), (1000, 1, 0, 1.0)]),
    ],
)
def test_a_pace_says_how_long_to_wait(text, waits):
    pace, before = Pace.parse(text), 0
    for at_ms, now_s, sent, expected in waits:
        pace.sent(sent - before)
        before = sent
        assert pace.wait_s(at_ms, now_s) == pytest.approx(expected)


def test_what_could_not_be_sent_for_a_while_is_not_made_up_for():
    pace = Pace.parse("100/s")
    assert pace.wait_s(0, 0.0) == 0
    pace.sent(100)
    pace.put_off(30.0)
    assert pace.wait_s(0, 30.0) == pytest.approx(1.0)
    pace.is_paused = True
    assert pace.wait_s(0, 99.0) > 10**6


@pytest.mark.parametrize("text", ["", "fast", "0", "0x", "-1", "2 x", "1e3", "nan"])
def test_a_rate_that_says_nothing_is_refused(text):
    with pytest.raises(BadRate, match="expected max"):
        Pace.parse(text)


def test_repeated_and_late_records_are_told_apart():
    streams = SentStreams()
    made = [make_unroll([[1.0]], sequence=n) for n in range(6)]
    order = [0, 1, 4, 4, 2, 2, 5, 3, 0]
    found = [streams.take(made[n]) for n in order]
    assert found == [
        "next", "next", "next", "repeated", "late", "repeated", "next", "late",
        "repeated",
    ]  # fmt: skip
    after_a_kill = SentStreams()
    assert after_a_kill.take(made[4]) == "next"
    assert after_a_kill.take(made[1]) == "late", "it may be the first time"
    assert after_a_kill.take(made[1]) == "repeated"
    far = make_unroll([[1.0]], sequence=2**61)
    assert streams.take(far) == "next", "at no cost, however far"


def test_what_is_open_at_the_end_is_closed():
    streams = SentStreams()
    for record in (
        make_unroll([[1.0]], worker="w0", incarnation=1),
        make_unroll([[1.0]], worker="w0", incarnation=4, produced_at_ms=44),
        make_unroll([[1.0]], worker="w1", end=True),
        make_unroll([[1.0]], worker="w2", incarnation=2),
        make_end("w2", 2),
        make_unroll([[1.0]], worker="w3", incarnation=2),
        make_end("w3", 1),
    ):
        streams.take(record)
    ends = streams.ends("new", "r9", "why")
    assert [(e.worker, e.incarnation, e.run_id) for e in ends] == [
        ("w0", 4, "r9"), ("w3", 2, "r9"),
    ]  # fmt: skip
    assert ends[0].produced_at_ms == 44 and streams.num_open == 2


PAST = Past("old/r1@id1", "old", "r1", TOPIC, "{}", {0: (5, 20), 1: (0, 3), 2: (0, 0)})


def test_what_is_dealt_with_is_counted_and_read_back():
    standing = Standing.new(PAST)
    assert (standing.num_done, standing.total) == (0, 18)
    unrolls = stream(np.random.default_rng(0))
    for offset, (unroll, steps, blank) in enumerate(
        [(unrolls[0], 0, 4), (unrolls[4], 3, 0), (unrolls[2], 2, 0), (None, 0, 0)]
    ):
        standing.add(SourceRef(TOPIC, 0, 5 + 2 * offset), unroll, steps, blank)
    assert standing.positions == {0: 12, 1: 0, 2: 0}
    assert standing.passed(SourceRef(TOPIC, 0, 11))
    assert not standing.passed(SourceRef(TOPIC, 0, 12))
    (first, *_) = standing.to_record("new", "r2").data
    assert (first.first_offset, first.next_offset, first.env_steps) == (5, 12, 5)
    # The blank record's policy, none at all, acted in nothing of it.
    assert (first.first_policy, first.last_policy) == (PolicyRef(0, 0), PolicyRef(0, 1))
    assert (standing.num_done, standing.blank_steps, standing.env_steps) == (7, 4, 5)
    standing.finish()
    assert standing.positions == {0: 20, 1: 3, 2: 0} and standing.done


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"source": "old/r2@id1"}, "found old/r1@id1"),
        ({"selection": '{"a":1}'}, "begun"),
    ],
)
def test_another_past_or_selection_is_refused(changed, says):
    record = decode(encode(Standing.new(PAST).to_record("new", "r2")), ReplayProgress)
    _check_same(record, PAST)
    with pytest.raises(OtherReplay, match=says):
        _check_same(record, Past(**{**vars(PAST), **changed}))


def room(limit: int, unread: int, sizes: Sizes, behind: int = 0) -> Room:
    made = object.__new__(Room)
    made._experiment = "new"
    made._limits = {"processor": limit, "learner": limit}
    made._unread = {"processor": {0: unread}, "learner": {0: behind}}
    made._sizes, made._since = sizes, {}
    return made


def test_no_more_is_unread_than_half_of_what_is_held():
    sizes = Sizes(records=10, bytes=1_000, rows=0)  # 100 bytes each
    assert not room(1_000, 8, sizes).full(0, 200, 0, 1)
    assert room(1_000, 9, sizes).full(0, 200, 0, 1) == "the processors of new"
    assert room(1_000, 0, sizes, behind=9).full(0, 200, 0, 1) == "the learner of new"
    assert not room(1_000, 9, sizes).full(1, 200, 0, 1), "another partition"
    # What processors have not read is still to come to the learner.
    made = room(1_000, 5, sizes, behind=5)
    made._limits["processor"] = None
    assert made.full(0, 200, 0, 1) == "the learner of new"
    made = room(1_000, 0, sizes)
    made.sent(0, 900, 0)
    assert made.full(0, 200, 0, 1) == "the processors of new"
    # Processors hold back the last record of each open stream: no reason to wait.
    assert not room(1_000, 9, sizes).full(0, 200, 0, 4)
    assert not room(100, 0, Sizes()).full(0, 200, 0, 0), "one at a time"


def test_the_last_that_is_wanted_ends_its_stream():
    """Else processors would hold it, and with it all that its partition has."""
    selection = Selection.parse(versions="..0")
    source = make_source(3)
    last = {}
    for each in chosen_of(source, selection):
        if isinstance(each.record, Unroll):
            last[each.record.worker, each.record.incarnation] = each.record
    assert last and all(each.end_of_stream for each in last.values())


def test_what_cannot_be_opened_is_passed_over():
    source = make_source(1)
    broken = replace(
        source.partitions[0][1], valid=replace(pack(np.ones(1)), encoding="ZSTD")
    )
    source.partitions[0][1] = broken
    for selection in (Selection(), Selection.parse(versions="-1..")):
        sent = chosen_of(source, selection)
        (gone,) = [e for e in sent if (e.address.partition, e.address.offset) == (0, 1)]
        assert (gone.record, gone.env_steps) == (None, 0)
        assert any(each.record is not None for each in sent)
