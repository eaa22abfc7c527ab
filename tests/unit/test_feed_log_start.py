"""Where the log is read from: rules on offsets."""

import pytest

from learner.log_start import (
    LogMismatch,
    RecordsExpired,
    Start,
    begin_at,
    check_identity,
    resume_at,
)


@pytest.mark.parametrize(
    ("position", "log", "expected"),
    [
        (50, (0, 90), Start(50)),
        (90, (0, 90), Start(90)),  # all was read
        (50, (50, 90), Start(50)),  # just not expired
        (50, (62, 90), Start(62, expired=12)),
        (50, (90, 90), Start(90, expired=40)),  # all was deleted
    ],
)
def test_resuming_counts_what_expired_exactly(position, log, expected):
    assert resume_at(3, position, *log, "earliest") == expected


def test_resuming_fails_on_expiry_where_the_spec_says_so():
    with pytest.raises(RecordsExpired, match="partition 3: 12 records from offset 50"):
        resume_at(3, 50, 62, 90, "fail")
    assert resume_at(3, 50, 50, 90, "fail") == Start(50)


def test_a_position_beyond_the_end_is_another_log():
    with pytest.raises(LogMismatch, match="reaches offset 91, found its end at 90"):
        resume_at(3, 91, 0, 90, "earliest")


@pytest.mark.parametrize(
    ("read_from", "born_at", "log_start", "expected"),
    [
        # A new topic: all of it is the run's, and every stream begins at its start.
        (0, 0, 0, Start(0)),
        # Older runs' records before it: the run's own beginning is there.
        (300, 400, 100, Start(300)),
        # Its beginning was deleted: streams may have begun before.
        (100, 100, 100, Start(100, was_cut=True)),
        # Read from before its birth by the clocks' margin, as far as that is there.
        (0, 400, 100, Start(100)),
    ],
)
def test_a_run_begins_where_its_first_record_can_be(
    read_from, born_at, log_start, expected
):
    assert begin_at(read_from, born_at, log_start) == expected


def test_another_cluster_or_topic_is_refused():
    mine = {"cluster_id": "A", "topic_id": "B"}
    check_identity("t", mine, mine)
    for other in ({"cluster_id": "X", "topic_id": "B"}, {**mine, "topic_id": "X"}):
        with pytest.raises(LogMismatch, match="found X"):
            check_identity("t", mine, other)
