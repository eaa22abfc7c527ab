"""Records -> rows -> tables of a few runs, whatever is written and however much."""

import math

import numpy as np
import pytest

from infra.kafka.reading import Message
from infra.monitoring.dashboard import tables as tables_module
from infra.monitoring.dashboard.rows import TRACKS, Row, row_of
from infra.monitoring.dashboard.tables import KEPT_S, MAX_RUNS, Tables
from schemas.codec import encode
from schemas.records import EpisodesFinished, Evaluation, MetricsPoint, PolicyRef
from schemas.tensors import pack

T0_MS = 1_790_000_000_123


def message(key, record):
    value = record if isinstance(record, bytes) else encode(record)
    return Message("t", 0, 7, T0_MS, key, value)


def point(role="learner", **values):
    named = {name.replace("__", "/"): value for name, value in values.items()}
    return MetricsPoint("e", "run", role, 0, 5, 0, named)


def episodes(returns):
    n = len(returns)
    return EpisodesFinished(
        "e", "run", "w0", 5, 0,
        pack(np.zeros(n, "<i4")), pack(np.zeros(n, "<i8")),
        pack(np.array(returns, "<f8")), pack(np.ones(n, "<i4")),
        pack(np.zeros(n, "|i1")), pack(np.zeros(n, "<i8")),
    )  # fmt: skip


def evaluation(returns):
    return Evaluation(
        "e", "run", PolicyRef(0, 1), 3, pack(np.array(returns, "<f8")),
        pack(np.ones(len(returns), "<i4")), False, 0,
    )  # fmt: skip


def row(key, record):
    found = row_of(message(key, record))
    if found is None:
        return None
    at_s, *values = found.values
    assert found.run_id == "run" and at_s == T0_MS / 1000
    names = TRACKS[found.track]
    return found.track, {
        name: value
        for name, value in zip(names, values, strict=True)
        if not math.isnan(value)
    }


@pytest.mark.parametrize(
    ("why", "key", "record", "expected"),
    [
        (
            "a learner's report",
            "learner/0",
            point(
                env_steps=10.0, updates=2.0, loss=0.5, policy_lag_versions_mean=1.5,
                data_age_s_p50=2.5, other=9.0,
            ),
            ("learner", {
                "env_steps": 10.0, "updates": 2.0, "loss": 0.5,
                "policy_lag_versions": 1.5, "data_age_s": 2.5,
            }),
        ),
        ("what is not said", "learner/0", point(env_steps=10.0),
         ("learner", {"env_steps": 10.0})),
        ("what is no number", "learner/0", point(loss=math.inf, env_steps=math.nan),
         ("learner", {})),
        ("a beat", "learner/0", point(), None),
        (
            "the lag",
            "monitor/0",
            point("monitor", lag_records__processor=1.0, lag_records__learner=2.0,
                  lag_s__processor=3.0, lag_s__learner=4.0),
            ("monitor", {
                "lag_trajectories": 1.0, "lag_replay": 2.0,
                "lag_s_trajectories": 3.0, "lag_s_replay": 4.0,
            }),
        ),
        ("episodes", "worker/3", episodes([1.0, 2.0, 6.0]),
         ("episodes", {"episodes": 3.0, "return_sum": 9.0})),
        ("a return that is no number", "worker/3", episodes([1.0, math.nan, math.inf]),
         ("episodes", {"episodes": 1.0, "return_sum": 1.0})),
        ("none that is one", "worker/3", episodes([math.nan]), None),
        ("no episode", "worker/3", episodes([]), None),
        ("a worker's report", "worker/3", point("worker", env_steps=1.0), None),
        ("an evaluation", "evaluator/0", evaluation([1.0, 3.0]),
         ("evaluations", {"eval_return": 2.0})),
        ("one that is no number", "evaluator/0", evaluation([math.nan]),
         ("evaluations", {})),
        ("one of nothing", "evaluator/0", evaluation([]), None),
        ("a processor's", "processor/0", point("processor", env_steps=1.0), None),
        ("another learner's", "learner/1", point(env_steps=1.0), None),
        ("garbage", "learner/0", b"garbage", None),
        ("nothing", "worker/0", b"", None),
        ("another record", "learner/0", episodes([1.0]), None),
        ("a name of others", "<img onerror=x>", point(env_steps=1.0), None),
    ],
)  # fmt: skip
def test_what_a_record_adds(why, key, record, expected):
    assert row(key, record) == expected, why


def learner_rows(times, run_id="run"):
    return [Row(run_id, "learner", (t, t, 0.0, 0.0, 0.0, 0.0)) for t in times]


def times_of(tables, run_id="run"):
    return tables.run(run_id).columns()["learner"]["t"].tolist()


def test_rows_come_from_both_ends():
    tables = Tables()
    tables.put(learner_rows([10.0, 11.0]), before=False)
    tables.put(learner_rows([8.0, 9.0]), before=True)
    tables.put(learner_rows([12.0]), before=False)
    tables.put([], before=True)
    assert times_of(tables) == [8.0, 9.0, 10.0, 11.0, 12.0]
    columns = tables.run("run").columns()
    assert columns["learner"]["env_steps"].tolist() == [8.0, 9.0, 10.0, 11.0, 12.0]
    assert set(columns) == set(TRACKS) and len(columns["monitor"]["t"]) == 0


def test_a_clock_that_was_put_back_does_not_turn_time_round():
    tables = Tables()
    tables.put(learner_rows([10.0, 7.0, 11.0]), before=False)
    assert times_of(tables) == [10.0, 10.0, 11.0]


def test_a_day_is_kept_and_no_more(monkeypatch):
    tables = Tables()
    tables.put(learner_rows([0.0, 1.0, 2.0]), before=False)
    tables.put(learner_rows([KEPT_S + 1.0]), before=False)
    assert times_of(tables) == [1.0, 2.0, KEPT_S + 1.0]
    monkeypatch.setattr(tables_module, "MAX_ROWS", 2)
    tables.put(learner_rows([KEPT_S + 2.0]), before=False)
    assert times_of(tables) == [KEPT_S + 1.0, KEPT_S + 2.0]


def test_the_newest_runs_are_kept():
    tables = Tables()
    for k in range(MAX_RUNS + 3):
        tables.put(learner_rows([float(k)], f"run-{k}"), before=False)
    assert tables.runs() == [f"run-{k}" for k in range(MAX_RUNS + 2, 2, -1)]
    # Of one that is older than all there is nothing to be kept.
    tables.put(learner_rows([0.5], "older"), before=True)
    assert tables.run("older") is None
