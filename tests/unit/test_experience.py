"""What learner and workers tell -> the experience that is learnt from."""

from __future__ import annotations

import math

from infra.monitoring.experience import experience_of
from infra.monitoring.progress import Progress
from infra.monitoring.snapshot import Experience
from schemas.records import MetricsPoint


def told(*points: tuple[str, int, dict[str, float]]) -> Progress:
    progress = Progress("r1")
    for role, index, values in points:
        progress.add(MetricsPoint("exp", "r1", role, index, 7, 1_000, values))
    return progress


def test_what_the_learner_tells_is_sorted_by_figure() -> None:
    values = {
        "policy_lag_versions_mean": 1.5,
        "policy_lag_versions_p95": 3.0,
        "policy_lag_versions_max": 4.0,
        "policy_lag_s_mean": 0.5,
        "policy_lag_s_p95": 0.9,
        "policy_lag_s_max": 2.0,
        "data_age_s_p50": 6.0,
        "data_age_s_p95": 30.0,
        "samples_per_insert": 7.9,
        "samples_per_insert_run": 8.0,
        "wait_ratio": 0.25,
        "lost_steps": 12.0,
        "duplicate_steps": 3.0,
    }

    assert experience_of(told(("learner", 0, values)), {}, 0.0) == Experience(
        policy_lag_versions={"mean": 1.5, "p95": 3.0, "max": 4.0},
        policy_lag_s={"mean": 0.5, "p95": 0.9, "max": 2.0},
        data_age_s={"p50": 6.0, "p95": 30.0},
        samples_per_insert=7.9,
        wait_ratio=0.25,
        lost_steps=12,
        duplicate_steps=3,
    )


def test_what_was_not_told_is_not_known() -> None:
    assert experience_of(Progress("r1"), {}, 0.0) == Experience()


def test_where_nothing_came_lately_the_whole_run_counts() -> None:
    progress = told(("learner", 0, {"samples_per_insert_run": 8.0}))

    assert experience_of(progress, {}, 0.0).samples_per_insert == 8.0


def test_what_is_no_number_is_not_known() -> None:
    values = {
        "lost_steps": math.nan,
        "wait_ratio": math.inf,
        "policy_lag_s_mean": math.nan,
        "policy_lag_s_max": 1.0,
    }
    found = experience_of(told(("learner", 0, values)), {}, 0.0)

    assert (found.lost_steps, found.wait_ratio) == (0, None)
    assert found.policy_lag_s == {"max": 1.0}


def test_adoption_is_by_worker() -> None:
    progress = told(
        ("worker", 10, {"policy_adoption_s": 0.4}),
        ("worker", 2, {"policy_adoption_s": 0.1, "policy_adoption_s_max": 3.0}),
        ("worker", 3, {"env_steps": 5.0}),
        ("evaluator", 0, {"policy_adoption_s": 9.0}),
    )

    found = experience_of(progress, {}, 0.0).adoption_s
    assert list(found.items()) == [("w2", 0.1), ("w10", 0.4)]


def test_silence_is_by_worker_and_who_is_gone_is_forgotten() -> None:
    heard_at_s = {
        ("worker", 0): 990.0,
        ("worker", 1): 900.0,
        ("worker", 2): 900.0,
        ("worker", 3): 1_001.0,
        ("learner", 0): 1_000.0,
    }

    found = experience_of(told(), heard_at_s, 1_000.0, wanted={("worker", 2)})
    assert found.silent_s == {"w0": 10.0, "w2": 100.0, "w3": 0.0}
