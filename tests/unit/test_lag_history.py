"""The lag of groups as values of metrics, and who must not take them for a process."""

from __future__ import annotations

import math

from infra.monitoring.alerts_on import AlertsOn
from infra.monitoring.event_log import LoggedEvent
from infra.monitoring.experiment_events import make_event
from infra.monitoring.lag_history import ROLE, history_values
from infra.monitoring.progress import Progress
from infra.monitoring.told_events import told_of
from schemas.records import MetricsPoint
from tests.unit.lag_samples import group, partition


def test_each_figure_of_each_role_has_a_name() -> None:
    found = {
        "processor": group(
            partition(0, lag=3, lag_s=0.5, lag_env_steps=96),
            partition(1, lag=4, lag_s=1.5, lag_env_steps=128),
        ),
        "learner": group(partition(0, lag=0, lag_s=None, lag_env_steps=None)),
    }
    assert history_values(found) == {
        "lag_records/processor": 7.0,
        "lag_s/processor": 1.5,
        "lag_env_steps/processor": 224.0,
        "lag_records/learner": 0.0,
    }


def test_what_is_not_known_is_absent() -> None:
    unknown = group(partition(0, lag=None, lag_s=math.inf, lag_env_steps=None))
    assert history_values({"processor": unknown, "learner": group()}) == {}


def test_progress_counts_no_process_of_that_role() -> None:
    progress = Progress("r")
    point = MetricsPoint("e", "r", ROLE, 0, 3, 1, {"lag_records/processor": 7.0})
    progress.add(point)
    assert progress.points == {}, "nor is it shown as one"
    assert progress.total(ROLE, "lag_records/processor") == 0


def test_an_alert_that_is_over_is_not_shown() -> None:
    events = [
        make_event("e", run, role, 0, kind, severity, reason)
        for run, role, kind, severity, reason in (
            ("r", "processor", "alert-on", "alert", "stalled: it hangs"),
            ("r", "learner", "alert-on", "alert", "stalled: it hangs, too"),
            ("r", "processor", "alert-on", "alert", "late: by 70 s"),
            ("r", "learner", "lost-steps", "alert", "3 steps"),
            ("q", "learner", "alert-off", "info", "stalled: of another run"),
            ("r", "processor", "alert-off", "info", "stalled: it does well"),
            ("r", "worker", "alert-off", "info", "stalled: never went on"),
            ("r", "learner", "alert-on", "info", "late: of an odd severity"),
            ("r", "learner", "alert-on", "alert", "stalled: once more"),
        )
    ]
    logged = [LoggedEvent(n, 1000 + n, event) for n, event in enumerate(events)]
    found = told_of(logged, "r", 5000)
    assert [(told.role, told.kind, told.reason) for told in found] == [
        ("learner", "alert-on", "stalled: once more"),
        ("learner", "lost-steps", "3 steps"),
        ("processor", "alert-on", "late: by 70 s"),
    ]
    assert [told.age_ms for told in found] == [3992, 3997, 3998]
    fold = AlertsOn("r")
    for each in logged:
        fold.add(each.event, each.at_ms)
    alerts = tuple(told for told in found if told.kind == "alert-on")
    assert fold.on(5.0) == alerts, "who watches sees the same"
