"""Figures of `ps`: of two sources, which may be old, and never going back."""

from __future__ import annotations

import pytest

from infra.control.desired import Entry, PublishedExperiment
from infra.control.statuses import make_status
from infra.monitoring import overview
from infra.monitoring.metric_tails import Figures
from infra.monitoring.summary import Summary, summarise
from infra.settings import Settings
from schemas.experiment import from_values
from schemas.records import RoleStatus
from tests.unit.test_experiment import values
from tests.unit.test_progress import evaluation, point, progress

ENTRY = Entry(PublishedExperiment(from_values(values()), "run", 7, "agents"), 7)


def told(steps: int, mean: float | None, state: str = "running", run_id: str = "run"):
    of = progress(point("learner", env_steps=steps, updates=steps // 10))
    if mean is not None:
        of.add(evaluation(mean))
    summary: Summary = summarise(
        "e", of, None, state=state, reason="", wall_s=1.0, env_steps_before=0
    )
    return make_status(
        "e", run_id, "experiment", 0, state, "", summary=summary.to_json()
    )


@pytest.fixture
def figures(monkeypatch):
    """What is made of a status and of metrics; None: those are not even read."""

    def of(status: RoleStatus | None, newest: Figures | None) -> Figures:
        def read(settings, run_ids, records):
            assert newest is not None or not run_ids
            return dict.fromkeys(run_ids, newest)

        monkeypatch.setattr(overview, "read_figures", read)
        states = {} if status is None else {"e": status}
        return overview._read_figures(Settings(), {"e": ENTRY}, states)["e"]

    return of


def test_steps_do_not_go_back_when_the_source_changes(figures):
    seen = []
    # In turn: metrics alone; a summary without a return; one that is seconds old and
    # has one; metrics whose tail has nothing of the learner.
    for status, newest in (
        (None, Figures(9_000, 900)),
        (told(5_000, None), Figures(9_500, 950)),
        (told(8_000, 60.0), Figures(9_900, 990)),
        (told(9_950, 70.0), Figures(None, None, 30.0)),
    ):
        found = figures(status, newest)
        seen.append((found.env_steps, found.updates, found.mean_return))
    assert seen == [
        (9_000, 900, None), (9_500, 950, None), (9_900, 990, 60.0), (9_950, 995, 70.0),
    ]  # fmt: skip


def test_a_newer_evaluation_counts_more_than_that_of_a_summary(figures):
    found = figures(told(8_000, 60.0), Figures(8_500, 1, 90.0, True))
    assert (found.mean_return, found.is_greedy) == (90.0, True)
    found = figures(told(8_000, 60.0), Figures(8_500, 1, 20.0, False))
    assert (found.mean_return, found.is_greedy) == (60.0, True)


def test_another_runs_summary_says_nothing(figures):
    found = figures(told(8_000, 60.0, run_id="before"), Figures(5, 1))
    assert (found.env_steps, found.mean_return) == (5, None)


def test_of_what_is_finished_only_the_summary_is_read(figures):
    found = figures(told(8_000, 480.0, "finished"), None)
    assert (found.env_steps, found.mean_return, found.is_greedy) == (8_000, 480.0, True)
    assert figures(None, Figures()) == Figures()
