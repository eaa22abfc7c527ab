"""Alerts go on and off once, however rules swing and whoever watches."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infra.monitoring.alert_rules import AlertKey, Standing
from infra.monitoring.alert_states import CLEAR_S, Alert, Alerts, Edge, alerts_of
from infra.monitoring.alerts_on import AlertsOn
from infra.monitoring.experiment_events import make_event

KEY = AlertKey("stalled", "processor")
OTHER = AlertKey("late", "learner")
WELL = Standing(False, True, "it is well")
BETWEEN = Standing(False, False, "in between")


def broken(for_s: float = 0.0, reason: str = "it hangs") -> Standing:
    return Standing(True, False, reason, for_s)


def run(alerts: Alerts, *steps: tuple[float, Standing | None]) -> list[tuple]:
    """Step, and tell at once; return what went on and off, and when."""
    found = []
    for now_s, standing in steps:
        for edge in alerts.step({KEY: standing} if standing else {}, now_s):
            alerts.told(edge, int(now_s * 1000))
            found.append((now_s, edge.is_on, edge.reason))
    return found


def test_it_goes_on_when_it_was_broken_for_long_enough() -> None:
    steps = [(t, broken(3.0)) for t in (0.0, 1.0, 2.9, 3.0, 4.0, 9.0)]
    assert run(Alerts(), *steps) == [(3.0, True, "it hangs")]


def test_what_is_broken_for_a_moment_is_not_told_of() -> None:
    swings = [(0.0, broken(3.0)), (2.0, BETWEEN), (3.5, broken(3.0)), (6.0, WELL)]
    assert run(Alerts(), *swings) == []


def test_it_goes_off_when_all_was_well_for_a_while() -> None:
    alerts = Alerts()
    assert run(alerts, (0.0, broken())) == [(0.0, True, "it hangs")]
    assert run(alerts, (1.0, WELL), (2.0, BETWEEN), (3.0, WELL), (4.9, WELL)) == []
    assert run(alerts, (3.0 + CLEAR_S, WELL)) == [(5.0, False, "it is well")]
    assert alerts.on == ()


def test_of_what_is_not_known_nothing_is_told_and_no_time_passes() -> None:
    alerts = Alerts()
    assert run(alerts, (0.0, broken(5.0)), (4.0, None), (6.0, broken(5.0))) == []
    assert run(alerts, (11.0, broken(5.0))) == [(11.0, True, "it hangs")]
    assert run(alerts, (12.0, WELL), (13.0, None), (14.5, WELL)) == []
    assert alerts.on == (Alert(KEY, 11_000, "it hangs"),)


def test_what_could_not_be_told_is_told_again() -> None:
    alerts = Alerts()
    first = alerts.step({KEY: broken()}, 0.0)
    assert first == [Edge(KEY, True, "it hangs")]
    assert alerts.step({KEY: broken(reason="now")}, 1.0) == [Edge(KEY, True, "now")]
    alerts.told(first[0], 7)
    assert alerts.step({KEY: broken()}, 2.0) == []


def test_an_end_turns_all_off_and_says_since_when_it_was_on() -> None:
    alerts = Alerts([Alert(OTHER, 5, "late"), Alert(KEY, 3, "stalled")])
    assert [alert.key for alert in alerts.on] == [OTHER, KEY]
    assert alerts.end("over") == [
        Edge(OTHER, False, "over", 5),
        Edge(KEY, False, "over", 3),
    ]


def event_of(edge: Edge, role: str = "processor", run_id: str = "r"):
    kind = "alert-on" if edge.is_on else "alert-off"
    return make_event("e", run_id, role, 0, kind, "alert", edge.text)


def read_back(*events) -> list[Alert]:
    fold = AlertsOn("r")
    for at_ms, event in events:
        fold.add(event, at_ms)
    return alerts_of(fold.on(1e6), 10**9)


def test_whoever_comes_next_goes_on_from_the_events() -> None:
    on = Edge(KEY, True, "STALLED: t[3]: it hangs")
    found = read_back((400, event_of(on)))
    assert found == [Alert(KEY, 400, "STALLED: t[3]: it hangs")]
    again = Alerts(found)
    assert run(again, (0.0, broken()), (1.0, broken())) == []
    assert run(again, (2.0, WELL), (4.0, WELL)) == [(4.0, False, "it is well")]
    off = Edge(KEY, False, "it is well")
    assert read_back((400, event_of(on)), (500, event_of(off))) == []


def test_what_others_write_there_is_no_alert() -> None:
    made_up = Edge(KEY, True, "x")
    assert read_back((1, event_of(made_up, role="worker"))) == []
    assert read_back((1, event_of(made_up, run_id="another"))) == []
    text = make_event("e", "r", "processor", 0, "alert-on", "alert", "flooding: x")
    assert read_back((1, text)) == []


@given(
    st.lists(
        st.tuples(
            st.sampled_from([broken(), broken(3.0), WELL, BETWEEN, None]),
            st.floats(0.1, 5.0),
            st.booleans(),
        ),
        max_size=60,
    )
)
def test_on_and_off_take_turns_whatever_happens(steps) -> None:
    alerts, now_s, events = Alerts(), 0.0, []
    for standing, seconds, is_new_leader in steps:
        now_s += seconds
        for edge in alerts.step({KEY: standing} if standing else {}, now_s):
            alerts.told(edge, int(now_s * 1000))
            events.append((int(now_s * 1000), event_of(edge)))
        if is_new_leader:
            assert read_back(*events) == list(alerts.on)
            alerts = Alerts(alerts.on)
    kinds = [event.kind for _, event in events]
    assert kinds == ["alert-on", "alert-off"] * (len(kinds) // 2) + ["alert-on"] * (
        len(kinds) % 2
    )
