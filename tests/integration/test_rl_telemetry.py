"""Policy lag, age of data, reuse, waiting and adoption: what real processes publish."""

import contextlib
import time

import numpy as np
import pytest

from infra.control.role import EXIT_OK
from schemas.records import MetricsPoint, PolicyRef
from schemas.topics import MEMBERS, METRICS
from tests.integration.learner_rig import (  # noqa: F401
    Rig,
    cached_export,
    experiment,
)
from tests.unit.envs.graphs import graph_record, linear_q, version_record
from tests.unit.envs.trial import Trial, until

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(600)]

ROWS = 8 * 8 - 1  # of a batch; one of its 64 is not valid
AGE_S = 3600.0


def now_ms():
    return time.time_ns() // 1_000_000


@pytest.fixture
def rig(settings, cached_export):  # noqa: F811
    with contextlib.closing(Rig(settings, experiment())) as made:
        yield made


def is_done(rig):
    values = rig.metrics()
    rows = values.get("env_steps") == rig.unique_rows
    return rows and values["samples_owed"] < 32


def is_noted(rig):
    """What was drawn last is noted a moment later."""
    values = rig.metrics()
    return is_done(rig) and values.get("trained_rows/w0") == values["samples"]


def test_a_learner_says_how_old_what_it_learns_from_is(rig):
    incarnation, began_s = rig.start_worker(), time.monotonic()
    old = {"policy": PolicyRef(0, 0), "produced_at_ms": now_ms() - int(AGE_S * 1000)}
    rig.send("w0", incarnation, *range(40), **old)
    rig.run_until(lambda: is_noted(rig))
    values, took_s = rig.metrics(), time.monotonic() - began_s
    newest = values["policy_version"]
    assert newest >= 0
    for name in ("versions", "s"):
        mean, p95, most = (
            values[f"policy_lag_{name}_{figure}"] for figure in ("mean", "p95", "max")
        )
        # A mean may be rounded.
        assert 0 <= mean <= most + 1e-6 and p95 <= most
    assert values["policy_lag_versions_max"] <= newest
    for name in ("data_age_s_p50", "data_age_s_p95", "policy_lag_s_mean"):
        assert AGE_S - 1 <= values[name] <= AGE_S + took_s + 1
    assert values["trained_rows/w0"] == values["samples"] == 32 * values["updates"]
    # Fewer than it may sample: rows that wait for others are sampled later.
    assert 0 < values["samples_per_insert_run"] <= 1.1
    points = rig.points()
    assert all(0 <= p.values["wait_ratio"] <= 1 for p in points)
    assert values["lost_steps"] == values["duplicate_steps"] == 0


def test_a_resumed_learner_knows_how_old_its_buffer_is(rig):
    incarnation = rig.start_worker()
    old = {"policy": PolicyRef(0, 0), "produced_at_ms": now_ms() - int(AGE_S * 1000)}
    rig.send("w0", incarnation, *range(40), **old)
    rig.run_until(lambda: is_done(rig))
    # A tenth is new, and nearly all that is drawn was restored.
    rig.send("w0", incarnation, *range(40, 44))
    rig.run_until(
        lambda: (
            rig.metrics()["resumed"]
            and is_done(rig)
            and rig.metrics().get("trained_rows/w0")
        )
    )
    resumed = [p.values for p in rig.points() if p.values["resumed"]]
    first = next(values for values in resumed if "data_age_s_p50" in values)
    assert first["data_age_s_p50"] >= AGE_S - 1
    assert first["policy_lag_s_max"] >= AGE_S - 1
    assert 0 <= first["policy_lag_versions_max"] <= first["policy_version"]


def test_a_learner_that_starves_says_so(rig):
    incarnation = rig.start_worker()
    rig.send("w0", incarnation, *range(10))
    rig.run_until(lambda: is_done(rig) and rig.metrics().get("wait_ratio", 0.0) >= 0.5)
    assert rig.metrics()["waited_data_s"] > 0


@pytest.fixture
def trial(settings):
    workers = {"replicas": 1, "envsPerWorker": 8, "unrollLength": 16}
    made = Trial(settings, workers=workers, flow={"mode": "free"})
    yield made
    made.close()


def test_a_worker_says_how_soon_it_acts_with_what_is_published(trial):
    child = trial.start()

    def points():
        found = [r for r in trial.records(METRICS) if isinstance(r, MetricsPoint)]
        return [point.values for point in found if point.values]

    def newest():
        return points()[-1] if points() else {}

    until(lambda: newest().get("env_steps"))
    assert newest()["policies_adopted"] == 0 and "policy_adoption_s" not in newest()
    graph = graph_record(
        linear_q(4, 2), trial.records(MEMBERS)[0].env, experiment=trial.name
    )
    arrays = {"w": np.ones((4, 2), np.float32), "b": np.zeros(2, np.float32)}
    trial.send_policy(graph)
    began_s = time.monotonic()
    for version in range(3):
        record = version_record(graph, version, arrays, created_at_ms=now_ms())
        trial.send_policy(record)
        until(lambda version=version: newest().get("policy_version") == version)
    until(lambda: newest()["policies_adopted"] == 3)
    took_s = time.monotonic() - began_s
    adopted = [values for values in points() if values["policies_adopted"]]
    for values in adopted:
        assert 0 <= values["policy_adoption_s"] <= values["policy_adoption_s_max"]
        assert values["policy_adoption_s_max"] <= took_s + 1
    # One that was published an hour before it was seen: since then the worker was
    # there no longer than the test takes.
    hour_ms = 3_600_000
    record = version_record(graph, 3, arrays, created_at_ms=now_ms() - hour_ms)
    trial.send_policy(record)
    until(lambda: newest()["policies_adopted"] == 4)
    assert newest()["policy_adoption_s"] < 600
    child.terminate()
    assert child.wait(60) == EXIT_OK
