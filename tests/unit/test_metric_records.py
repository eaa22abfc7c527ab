"""What anybody may write into a topic of metrics, and everyone who reads it."""

from dataclasses import replace

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from infra.control.desired import PublishedExperiment
from infra.control.statuses import make_status, summary_of
from infra.kafka.reading import Message
from infra.monitoring.dashboard.as_json import encode as to_json
from infra.monitoring.dashboard.rows import row_of
from infra.monitoring.exporter import Exporter
from infra.monitoring.metric_records import (
    COUNT_LIMIT,
    MAX_NAME,
    MAX_VALUES,
    RETURN_LIMIT,
    metric_or_none,
    read_metric,
    returns_of,
)
from infra.monitoring.metric_tails import Figures, figures_of
from infra.monitoring.progress import Progress
from infra.monitoring.run_fold import RunFold
from infra.monitoring.run_metrics import MAX_PROCESSES, RunMetrics
from infra.monitoring.snapshot import Snapshot
from infra.monitoring.summary import summarise
from infra.monitoring.value_kinds import COUNTERS, COUNTS, IN_CHECKPOINT
from learner.counters import Counters
from schemas.codec import encode
from schemas.errors import SchemaError
from schemas.experiment import from_values
from schemas.tensors import Tensor, pack
from tests.unit.test_experiment import values
from tests.unit.test_progress import RUN, episodes, evaluation, point

NOW_S = 1_000.0
SPEC = from_values(values(metadata__name="e"))
GARBAGE = Tensor("<f8", (4,), "ZSTD", b"garbage!!!")
KEYS = {"MetricsPoint": "learner/0", "EpisodesFinished": "worker/0"}


def message(record, key=None):
    key = key or KEYS.get(type(record).__name__, "evaluator/0")
    return Message("t", 0, 0, int(NOW_S * 1000), key, encode(record))


def of_shape(shape, dtype="<f8"):
    """An evaluation whose returns are no list of real numbers."""
    array = np.ones(shape, dtype)
    lengths = pack(np.ones(shape, np.int32))
    return replace(evaluation(1.0), returns=pack(array), lengths=lengths)


def greatest(**counts):
    return point("learner", **dict.fromkeys(counts or ("env_steps",), 1.7e308))


HOSTILE = {
    "an evaluation that does not open": replace(evaluation(1.0), returns=GARBAGE),
    "episodes that do not open": replace(
        episodes([1.0] * 4), returns=GARBAGE, lengths=pack(np.ones(4, np.int32))
    ),
    "returns without a list": of_shape(()),
    "returns in rows": of_shape((2, 2)),
    "complex returns": of_shape((2,), "<c16"),
    "no returns": of_shape((0,)),
    "no episodes": episodes([]),
    "too many values": point("learner", **{f"v{n}": 1.0 for n in range(999)}),
    **{
        f"counts that are {number}": point(
            "learner", **dict.fromkeys(COUNTS["learner"], number)
        )
        for number in (float("nan"), float("inf"), -float("inf"), 1.7e308, 2.0**63)
    },
}  # fmt: skip
each_hostile = pytest.mark.parametrize("record", HOSTILE.values(), ids=HOSTILE)


def view_of(*messages):
    run = RunFold("e", RUN)
    for each in messages:
        run.hear(each)
    return run.view(PublishedExperiment(SPEC, RUN, 7, "agents"), None, NOW_S)


def scraped(view):
    class Seen:
        snapshot = Snapshot(at_s=2e9, experiments=(view,), experiments_at_s=2e9)

    registry = CollectorRegistry()
    registry.register(Exporter(Seen(), "here"))
    return generate_latest(registry).decode()


@each_hostile
def test_who_watches_passes_it_over_and_goes_on(record, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 2e9)
    good = message(point("learner", env_steps=70.0)), message(episodes([5.0, 7.0]))
    view = view_of(message(record), *good)
    assert (view.env_steps, view.mean_return, view.episodes) == (70, 6.0, 2)
    assert (view.policy_version, view.dead_letters) == (-1, 0)
    assert view.experience.lost_steps == 0
    assert to_json(Snapshot(experiments=(view,)))
    assert 'rollstream_env_steps_total{experiment="e"} 70.0' in scraped(view)


@each_hostile
def test_who_follows_a_run_passes_it_over_and_goes_on(record):
    metrics = RunMetrics("e", Progress(RUN))
    for each in (record, point("learner", env_steps=70.0), episodes([5.0, 7.0])):
        metrics.hear(message(each))
    found = summarise(
        "e", metrics.progress, None,
        state="running", reason="", wall_s=1.0, env_steps_before=0,
    )  # fmt: skip
    assert (found.env_steps, found.eval_return_mean, found.dead_letters) == (
        70,
        None,
        0,
    )
    assert metrics.progress.mean_return == 6.0


@each_hostile
def test_it_adds_nothing_to_curves_and_to_the_figures_of_all(record):
    row = row_of(message(record))
    assert row is None or all(np.isnan(row.values[1:3]))
    tail = [message(point("learner", env_steps=70.0)), message(record)]
    found = figures_of([message(record)], RUN)
    assert found == Figures()
    assert figures_of(tail[::-1], RUN) == Figures(env_steps=70)


def test_counts_that_are_large_add_up():
    most = np.nextafter(COUNT_LIMIT, 0)
    many = [message(point("worker", n, dead_letters=most)) for n in range(50)]
    assert view_of(*many).dead_letters == pytest.approx(50 * 2.0**63)


def test_measures_are_kept_as_they_are_and_counts_that_are_none_are_not():
    told = point("learner", loss=float("inf"), updates=float("inf"), env_steps=3.0)
    assert read_metric(encode(told)).values == {"loss": float("inf"), "env_steps": 3.0}
    fine = point("worker", **{f"v{n}": 1.0 for n in range(MAX_VALUES)})
    assert read_metric(encode(fine)) == fine


def test_names_that_are_endless_are_not_kept():
    longest = "trained_rows/" + "w" * (MAX_NAME - len("trained_rows/"))
    told = point("learner", **{longest: 1.0, longest + "w": 2.0, "x" * 900_000: 3.0})
    assert read_metric(encode(told)).values == {longest: 1.0}
    run = RunMetrics("e", Progress(RUN))
    run.hear(message(told))
    assert run.progress.points["learner", 0].values.keys() == {longest}


def test_what_is_no_metric_or_of_another_kind_is_none():
    assert metric_or_none(b"\x00garbage") is None
    assert metric_or_none(encode(episodes([1.0])), type(evaluation(1.0))) is None
    whole = metric_or_none(encode(episodes([1.0, 2.0])))
    assert returns_of(whole).tolist() == [1.0, 2.0]
    with pytest.raises(SchemaError, match="returns: expected a list of real numbers"):
        returns_of(episodes([]))


def test_returns_whose_sum_is_no_number_are_no_point_of_a_curve():
    assert row_of(message(episodes([1.7e308, 1.7e308]))) is None
    assert row_of(message(episodes([float("nan")]))) is None


@pytest.mark.parametrize("strange", [1e18, -1e18, 1.7e308, np.inf, -np.inf, np.nan])
def test_returns_that_cannot_be_are_in_no_curve(strange):
    row = row_of(message(episodes([5.0, strange, 7.0])))
    assert row is not None and row.values[1:] == (2.0, 12.0)
    assert row_of(message(episodes([strange]))) is None
    # 1e15 each: they are returns, and their sum is none.
    assert row_of(message(episodes([RETURN_LIMIT] * 2))) is None
    row = row_of(message(evaluation(strange)))
    assert row is not None and np.isnan(row.values[1])


@pytest.mark.parametrize("pair", [(1.7e308, 1.7e308), (np.inf, -np.inf)])
def test_who_looks_is_not_told_of_means_that_are_none(pair):
    """Warnings are errors here; elsewhere they would be on somebody's terminal."""
    both = replace(
        evaluation(1.0), returns=pack(np.array(pair)), lengths=pack(np.ones(2, int))
    )
    metrics = RunMetrics("e", Progress(RUN))
    for each in (both, episodes(list(pair))):
        metrics.hear(message(each))
        figures_of([message(each)], RUN)
        row_of(message(each))
    assert not np.isfinite(metrics.progress.mean_return)


@pytest.mark.parametrize(
    "strange",
    [
        point("worker", run_id="another", env_steps=9.0),
        replace(point("worker", env_steps=9.0), experiment="f"),
        point("admin", env_steps=9.0),
        point("monitor", x=9.0),
        replace(episodes([5.0]), experiment="f"),
    ],
    ids=["another run", "another's", "no role", "no process", "another's episodes"],
)
def test_what_is_of_no_process_of_the_run_is_not_heard(strange):
    metrics = RunMetrics("e", Progress(RUN))
    assert metrics.hear(message(strange)) is None
    assert metrics.heard_at_ms == {} == metrics.progress.points
    assert metrics.progress.episodes == 0 and not metrics.standings.by_place


def test_of_more_processes_than_there_can_be_so_many_are_kept():
    metrics = RunMetrics("e", Progress(RUN), most=2)
    for index in (0, 1, 2, 1):
        metrics.hear(message(point("worker", index, env_steps=1.0)))
    assert metrics.heard_at_ms.keys() == {("worker", 0), ("worker", 1)}
    assert metrics.progress.points.keys() == metrics.heard_at_ms.keys()
    assert MAX_PROCESSES >= 1_000


def test_records_that_cannot_be_used_are_told_of_once(caplog):
    metrics = RunMetrics("e", Progress(RUN))
    for _ in range(3):
        metrics.hear(message(HOSTILE["returns in rows"]))
    (told,) = caplog.records
    assert "t: offset 0 is passed over" in told.message


def test_a_summary_with_endless_counts_is_none():
    found = summarise(
        "e", Progress(RUN), None,
        state="finished", reason="", wall_s=1.0, env_steps_before=0,
    )  # fmt: skip
    for steps, is_there in ((2**63 - 1, True), (2**63, False), (10**400, False)):
        text = replace(found, env_steps=steps).to_json()
        status = make_status("e", RUN, "experiment", 0, "finished", "", summary=text)
        assert (summary_of(status) is not None) == is_there


def test_what_a_checkpoint_has_is_told():
    of_ledgers = {"recovered_steps", "dropped_rows"}
    assert Counters().state().keys() | of_ledgers | {"updates"} == IN_CHECKPOINT
    assert COUNTERS["learner"] > IN_CHECKPOINT
    assert not COUNTERS["learner"] & {"lost_steps"}, "it falls when steps come late"
