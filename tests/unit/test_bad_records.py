"""When bad records mean that something is wrong: one rule for all who read."""

import pytest

from infra.kafka.bad_records import BadRecords


@pytest.mark.parametrize(
    ("good_first", "bad", "good_after", "expected", "reason"),
    [
        (0, 6, 0, False, "a few at the start say nothing of a rate"),
        (13, 6, 0, False, "19 records are too few"),
        (14, 6, 0, True, "6 of 20"),
        (15, 5, 0, False, "5 of 20 are allowed"),
        (94, 6, 0, True, "6 of 100"),
        (95, 5, 0, False, "5 of 100 are allowed"),
        (0, 20, 0, True, "nothing but garbage"),
        (14, 5, 95, False, "long ago: none of the last 95"),
    ],
)
def test_more_than_5_of_the_last_100_are_too_many(
    good_first: int, bad: int, good_after: int, expected: bool, reason: str
) -> None:
    records = BadRecords()
    found = False
    for is_bad in [False] * good_first + [True] * bad + [False] * good_after:
        if is_bad:
            found = records.bad() or found
        else:
            records.good()
    assert found is expected, reason


def test_what_lies_further_back_than_100_records_is_forgotten() -> None:
    records = BadRecords()
    for _ in range(5):
        records.bad()
    for _ in range(99):
        records.good()
    assert not records.bad()
    assert str(records) == "1 of the last 100 records"
