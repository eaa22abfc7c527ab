"""What holds of the lag's figures and verdicts for all windows there can be."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from infra.monitoring.lag.figures import assess
from infra.monitoring.lag.judge import Rules, judge
from infra.monitoring.lag.model import SEVERITY, Place, Sample, Standing
from infra.monitoring.lag.window import Window

OFFSETS = st.integers(0, 60) | st.integers(0, 2**62)
PLACE = Place("g", "t", 0)


@st.composite
def samples(draw: st.DrawFn) -> list[Sample]:
    """Whatever brokers and roles may tell, sense or none."""
    at_s, found = 1_000.0, []
    for _ in range(draw(st.integers(1, 12))):
        at_s += draw(st.sampled_from([0.0, 0.1, 1.0, 1.0, 1.0, 7.0, 45.0, 400.0]))
        told_s = at_s - draw(st.sampled_from([0.0, 1.0, 11.0, 90.0, -5.0]))
        standing = Standing(draw(OFFSETS), 0, told_s, draw(st.booleans()))
        found.append(
            Sample(
                at_s=at_s,
                committed=draw(st.none() | OFFSETS),
                begin=draw(OFFSETS),
                end=draw(OFFSETS),
                stable_end=draw(OFFSETS),
                topic_id=draw(st.sampled_from(["", "a", "a", "b"])),
                members=draw(st.sampled_from([None, 0, 1])),
                standing=draw(st.none() | st.just(standing)),
                markers=draw(st.none() | st.integers(0, 9)),
                next_at_s=draw(st.none() | st.floats(0, 3_000)),
            )
        )
    return found


@given(samples())
def test_whatever_is_told_has_figures_that_can_be(looks: list[Sample]) -> None:
    window = Window(*looks)
    found = assess(PLACE, window, rows_per_record=2.5)

    figures = (
        found.lag,
        found.lag_env_steps,
        found.lag_s,
        found.unsaved,
        found.produced_per_s,
        found.consumed_per_s,
        found.catch_up_s,
        found.retention_used,
        found.open_records,
    )
    for figure in figures:
        assert figure is None or (figure >= 0 and math.isfinite(figure))
    assert found.retention_used is None or found.retention_used <= 1
    assert 1 <= found.verdict.rule <= 13
    assert found.verdict.state in SEVERITY
    assert found.verdict.reason
    assert window.newest is not None
    is_of_it = found.current is not None and found.current <= window.newest.end
    assert (found.lag is not None) == is_of_it


@given(samples())
def test_a_window_added_up_and_one_made_at_once_are_the_same(
    looks: list[Sample],
) -> None:
    one, other = Window(), Window(*looks)
    for each in looks:
        one.add(each)
        judge(one, Rules())  # to look changes nothing

    assert one.samples == other.samples
    assert judge(one, Rules()) == judge(other, Rules())


@given(samples(), st.floats(1, 300))
def test_longer_limits_make_nothing_worse(looks: list[Sample], more_s: float) -> None:
    strict = Rules()
    mild = Rules(
        stalled_after_s=strict.stalled_after_s + more_s,
        uncommitted_after_s=strict.uncommitted_after_s + more_s,
        late_after_s=strict.late_after_s + more_s,
        silent_after_s=strict.silent_after_s + more_s,
    )

    assert severity(looks, mild) <= severity(looks, strict)


@given(st.integers(1, 10**9), st.integers(1, 90), st.integers(1, 200))
def test_waiting_longer_makes_nothing_better(lag: int, seconds: int, more: int) -> None:
    def waits(for_s: int) -> list[Sample]:
        return [Sample(float(t), 0, 0, lag, lag, members=1) for t in range(for_s)]

    assert severity(waits(seconds)) <= severity(waits(seconds + more))


@given(samples())
def test_members_make_nothing_worse_than_stopped(looks: list[Sample]) -> None:
    nobody = [replace(each, members=0, standing=None) for each in looks]
    somebody = [replace(each, members=1) for each in nobody]

    assert severity(somebody) <= severity(nobody)


def severity(looks: list[Sample], rules: Rules | None = None) -> int:
    return SEVERITY[judge(Window(*looks), rules or Rules()).state]
