"""A run's lag, as displays, scaling and the end of a past take it."""

from __future__ import annotations

import pytest

from infra.monitoring.follow import total_lag
from tests.unit.lag_reports import group, partition, report

FINE = group("g", partition(0, lag=2), partition(1, lag=0), partition(2, lag=5))


@pytest.mark.parametrize(
    ("seen", "lag", "reason"),
    [
        (report(FINE), 7, "the sum"),
        (report(group("g", partition(0, lag=0))), 0, "all is read"),
        (report(group("other", partition(0, lag=9)), FINE), 7, "of that group"),
        (report(group("other", partition(0, lag=9))), None, "it is not there yet"),
        (report(), None, "before the first look"),
        (report(group("g")), None, "no partition is known"),
        (report(FINE, problem="away"), None, "what was is no more known"),
        (report(group("g", partition(), problem="?")), None, "something is not known"),
        (
            report(
                group("g", partition(0, lag=3), partition(1, "NO_COMMIT", lag=None))
            ),
            None,
            "one has not begun: the sum would be too low",
        ),
        (
            report(group("g", partition(0, lag=3), partition(1, "EMPTY", lag=None))),
            3,
            "where there is nothing, nothing waits",
        ),
        (
            report(group("g", partition(0, lag=3), partition(1, "LOST", lag=0))),
            None,
            "it stands in another log: not at this one's end",
        ),
    ],
)
def test_a_lag_is_that_of_all_partitions_or_not_known(seen, lag, reason):
    assert total_lag(seen, "g") == lag, reason
