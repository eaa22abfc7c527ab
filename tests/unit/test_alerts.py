"""What was told of trouble is shown once."""

from __future__ import annotations

from dataclasses import replace

from infra.monitoring.role_views import RoleView, Told
from rollstream.alerts import Alert, each_once, troubles

BOOM = "given up after 6 failures: ended with code 1: boom (see /log)"
ALERT = Told("failed", "worker", 0, BOOM, 5_000, "alert")
ROLE = RoleView("worker", 0, 1, "h", -1, "failed", "boom", 6, "", 1, 1, 1, ALERT)


def test_the_same_again_is_counted_and_the_newest_age_is_told():
    other = replace(ALERT, index=1, age_ms=61_000)
    old, older = replace(ALERT, age_ms=200_000), replace(ALERT, age_ms=400_000)
    found = each_once([ALERT, other, old, older])
    assert found == [Alert(ALERT, 3), Alert(other, 1)]
    assert str(found[0]) == f"alert 5 s ago, 3 times  worker/0  failed: {BOOM}"
    assert str(found[1]) == f"alert 61 s ago  worker/1  failed: {BOOM}"


def test_a_role_does_not_repeat_what_an_alert_of_it_says():
    assert troubles(ROLE, each_once([ALERT])) == []
    # Of those that are not shown, and those of another, it does.
    said = [f"worker/0: alert 5 s ago, failed: {BOOM}"]
    assert troubles(ROLE, []) == said
    assert troubles(ROLE, [Alert(replace(ALERT, index=1))]) == said


def test_what_an_alert_does_not_say_is_told():
    warning = Told("worker-env-crashed", "worker", 0, "it hung", 9_000, "warning")
    role = replace(ROLE, told=warning)
    assert troubles(role, [Alert(ALERT)]) == [
        "worker/0: warning 9 s ago, worker-env-crashed: it hung"
    ]
    assert troubles(role, []) == [
        "worker/0: failed: boom",
        "worker/0: warning 9 s ago, worker-env-crashed: it hung",
    ]
    well = replace(ROLE, state="running", restarts=0, told=None)
    assert troubles(well, []) == []
