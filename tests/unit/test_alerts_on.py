"""Events -> alerts that are on."""

from dataclasses import replace

from infra.monitoring.alerts_on import MAX_ALERTS, MAX_REASON, MAX_ROLE, AlertsOn
from infra.monitoring.experiment_events import make_event


def event(kind="alert-on", reason="late: 90 s", role="processor", run_id="run"):
    return make_event("e", run_id, role, 0, kind, "alert", reason)


def on(*events, now_s=100.0):
    alerts = AlertsOn("run")
    for at_s, each in enumerate(events):
        alerts.add(each, at_s * 1000)
    return alerts.on(now_s)


def test_an_alert_is_on_from_its_beginning_to_its_end():
    assert [t.reason for t in on(event())] == ["late: 90 s"]
    assert on(event(), event("alert-off", "late: 3 s")) == ()
    again = on(event(), event("alert-off", "late: 3 s"), event())
    assert [(told.kind, told.age_ms) for told in again] == [("alert-on", 98_000)]


def test_one_that_is_told_again_is_one():
    assert [t.reason for t in on(event(), event(reason="late: 95 s"))] == ["late: 95 s"]


def test_of_those_of_one_time_the_last_is_the_newest():
    alerts = AlertsOn("run")
    for reason in ("late: 1", "stalled: 2", "late: 3"):
        alerts.add(event(reason=reason), 1_000)
    assert [told.reason for told in alerts.on(1.0)] == ["late: 3", "stalled: 2"]


def test_others_end_their_own():
    first, second = event(), event(reason="stalled: 9 s")
    other_role = event("alert-off", role="learner")
    other_run = event("alert-off", run_id="before")
    found = on(first, second, other_role, other_run)
    assert [told.reason for told in found] == ["stalled: 9 s", "late: 90 s"]


def test_other_kinds_are_no_alerts_that_are_on():
    assert on(event("worker-failed"), event("alert-on", run_id="before")) == ()
    mild = replace(event(), severity="info")
    assert on(mild) == () == on(event(), mild), "nothing that anybody is to see"


def test_endless_texts_are_cut_and_their_end_is_still_told():
    long = replace(
        event(reason="late: " + "x" * 900_000, role="r" * 900_000),
        severity="s" * 900_000,
    )
    (told,) = on(long)
    assert (len(told.reason), len(told.role)) == (MAX_REASON, MAX_ROLE)
    assert len(told.severity) == MAX_ROLE
    endless = replace(long, reason="y" * 900_000)
    for each in (long, endless):
        assert on(each, replace(each, kind="alert-off")) == ()


def test_no_more_are_kept_than_there_can_be():
    many = [event(reason=f"rule-{n}: x") for n in range(MAX_ALERTS + 5)]
    assert len(on(*many)) == MAX_ALERTS
    ended = [replace(each, kind="alert-off") for each in many]
    assert on(*many, *ended) == ()
