"""A snapshot -> text that Prometheus reads: by its own parsers, name by name."""

import time
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from infra.monitoring import lag_series, metric_series
from infra.monitoring.exporter import FRESH_S, OLD_S, Exporter
from infra.monitoring.lag.model import ORDER, LagReport, Verdict
from infra.monitoring.metric_series import MAX_LABEL, label
from infra.monitoring.role_views import Told
from infra.monitoring.run_series import MAX_WORKERS
from tests.unit.snapshots import AT_S, SNAPSHOT, VIEW, group, partition, process


class Seen:
    """A source whose snapshot the test sets."""

    def __init__(self, snapshot):
        self.snapshot = snapshot


@pytest.fixture
def source(monkeypatch):
    monkeypatch.setattr(time, "time", lambda: AT_S + 1)
    return Seen(SNAPSHOT)


@pytest.fixture
def scrape(source):
    registry = CollectorRegistry()
    registry.register(Exporter(source, "here"))

    def samples(snapshot=None):
        if snapshot is not None:
            source.snapshot = snapshot
        text = generate_latest(registry).decode()
        found = {}
        for family in parse(text):
            for sample in family.samples:
                key = sample.name, tuple(sorted(sample.labels.items()))
                assert key not in found, "no series twice"
                found[key] = sample.value
        return found

    samples.registry = registry
    return samples


def of(found, name, **labels):
    """The only sample of a name whose labels are so, among others."""
    (value,) = [
        value
        for (each, pairs), value in found.items()
        if each == name and labels.items() <= dict(pairs).items()
    ]
    return value


def names(found):
    return {name for name, _ in found}


def test_lag_by_the_names_of_public_dashboards(scrape):
    found = scrape()
    member = {
        "cluster_name": "here", "group": "rollstream.e.processor", "topic": "t",
        "partition": "0", "member_host": "/127.0.0.1", "consumer_id": "",
        "client_id": "faust-1",
    }  # fmt: skip
    key = tuple(sorted((k, v) for k, v in member.items()))
    assert found["kafka_consumergroup_group_lag", key] == 10
    assert found["kafka_consumergroup_group_lag_seconds", key] == 2.5
    assert found["kafka_consumergroup_group_offset", key] == 80
    who = {"cluster_name": "here", "group": "rollstream.e.processor"}
    assert of(found, "kafka_consumergroup_group_max_lag", **who) == 10
    assert of(found, "kafka_consumergroup_group_max_lag_seconds", **who) == 2.5
    assert of(found, "kafka_consumergroup_group_sum_lag", **who) == 10
    assert of(found, "kafka_consumergroup_group_topic_sum_lag", **who, topic="t") == 10
    where = {"cluster_name": "here", "topic": "t", "partition": "0"}
    assert of(found, "kafka_partition_latest_offset", **where) == 103
    assert of(found, "kafka_partition_earliest_offset", **where) == 10
    assert of(found, "kafka_consumergroup_poll_time_ms", cluster_name="here") == 250
    short = {"consumergroup": "rollstream.e.processor", "topic": "t"}
    assert of(found, "kafka_consumergroup_lag", **short, partition="0") == 10
    assert of(found, "kafka_consumergroup_lag_sum", **short) == 10
    assert of(found, "kafka_consumergroup_current_offset", **short) == 80
    assert of(found, "kafka_consumergroup_members") == 2
    assert of(found, "kafka_topic_partition_current_offset", topic="t") == 103
    assert of(found, "kafka_topic_partition_oldest_offset", topic="t") == 10


def test_figures_and_verdicts_of_ours(scrape):
    found = scrape()
    ours = {
        "severity": 1, "lag_env_steps": 640, "held_records": 4, "unsaved_records": 10,
        "open_records": 3, "produced_per_second": 5, "consumed_per_second": 6,
        "catch_up_seconds": 10, "retention_used_ratio": 0.9,
    }  # fmt: skip
    for name, value in ours.items():
        assert of(found, f"rollstream_consumergroup_{name}", partition="0") == value
    for state in ORDER:
        value = of(found, "rollstream_consumergroup_state", state=state)
        assert value == (state == "WARN")


def test_an_experiment(scrape):
    found = scrape()
    for name, value in {
        "env_steps_total": 5_000, "env_steps_per_second": 250, "updates_total": 300,
        "updates_per_second": 30, "episodes_total": 40, "policy_version": 12,
        "return": 33.5, "loss": 0.25, "dead_letters_total": 2, "lost_steps": 1,
        "duplicate_steps_total": 6, "samples_per_insert": 8, "learner_wait_ratio": 0.1,
        "policy_adoption_seconds": 0.7, "worker_silent_seconds": 1, "alerts": 1,
    }.items():  # fmt: skip
        assert of(found, f"rollstream_{name}", experiment="e") == value
    assert of(found, "rollstream_return", kind="greedy") == 33.5
    assert of(found, "rollstream_policy_lag_versions", stat="p95") == 3
    assert of(found, "rollstream_policy_lag_seconds", stat="mean") == 0.5
    assert of(found, "rollstream_data_age_seconds", stat="p50") == 4
    assert of(found, "rollstream_experiment_state", state="running") == 1
    assert of(found, "rollstream_experiment_state", state="paused") == 0
    assert of(found, "rollstream_alert", alert="late", role="processor") == 1
    assert of(found, "rollstream_experiment_info", managed_by="agents") == 1


def test_processes_that_live_and_that_do_not(scrape):
    found = scrape()
    assert of(found, "rollstream_process_up", role="worker", index="0") == 1
    assert of(found, "rollstream_process_up", role="worker", index="1") == 0
    worker = {"role": "worker", "index": "1"}
    assert of(found, "rollstream_process_env_steps_total", **worker) == 2_600
    waited = of(found, "rollstream_process_waited_credit_seconds_total", **worker)
    assert waited == 1.5
    assert not any("buffer_rows" in name for name in names(found)), "not a counter"


def test_types_are_told_and_openmetrics_is_well_formed(scrape):
    text = generate_latest(scrape.registry).decode()
    types = {family.name: family.type for family in parse(text)}
    assert types["rollstream_env_steps"] == "counter"
    assert types["rollstream_env_steps_per_second"] == "gauge"
    strict = openmetrics.generate_latest(scrape.registry).decode()
    assert {f.name for f in parse_openmetrics(strict)} == types.keys()
    for name, kind in types.items():
        assert (kind == "counter") == (f"{name}_total" in text), name


@pytest.mark.parametrize("state", ["finished", "stopped", "failed"])
def test_series_of_what_is_over_or_deleted_vanish(scrape, state):
    assert any(dict(pairs).get("experiment") == "e" for _, pairs in scrape())
    over = replace(SNAPSHOT, experiments=(replace(VIEW, state=state),))
    for gone in (over, replace(SNAPSHOT, experiments=())):
        found = scrape(gone)
        assert not any("experiment" in dict(pairs) for _, pairs in found)
        assert "kafka_consumergroup_group_lag" in names(found)


def test_a_learner_that_goes_back_to_a_checkpoint_counts_on_from_where_it_was(scrape):
    learner = {"role": "learner", "index": "0"}
    told = []
    for steps in (5_000, 4_000, 5_500):
        of_it = process("learner", env_steps=float(steps))
        view = replace(VIEW, env_steps=steps, processes=(of_it,))
        found = scrape(replace(SNAPSHOT, experiments=(view,)))
        told.append(
            (
                of(found, "rollstream_env_steps_total", experiment="e"),
                of(found, "rollstream_process_env_steps_total", **learner),
            )
        )
    assert told == [(5_000, 5_000), (5_000, 5_000), (5_500, 5_500)]
    afresh = replace(VIEW, run_id="another", env_steps=3, processes=())
    found = scrape(replace(SNAPSHOT, experiments=(afresh,)))
    assert of(found, "rollstream_env_steps_total", experiment="e") == 3


def test_counters_of_a_process_that_begins_anew_begin_at_0_and_what_falls_falls(scrape):
    learner = {"role": "learner", "index": "0"}
    told = []
    for waited_s, published, lost in ((3_000.0, 40.0, 64), (0.5, 0.0, 0)):
        of_it = process("learner", waited_data_s=waited_s, published=published)
        experience = replace(VIEW.experience, lost_steps=lost)
        view = replace(VIEW, experience=experience, processes=(of_it,))
        found = scrape(replace(SNAPSHOT, experiments=(view,)))
        told.append(
            (
                of(found, "rollstream_process_waited_data_seconds_total", **learner),
                of(found, "rollstream_process_published_total", **learner),
                of(found, "rollstream_lost_steps", experiment="e"),
            )
        )
    assert told == [(3_000, 40, 64), (0.5, 0, 0)]


def test_what_is_not_known_has_no_series(scrape):
    unknown = partition(
        committed=None, lag=None, lag_s=None, lag_env_steps=None, catch_up_s=None,
        verdict=Verdict("NO_COMMIT", 3, ""), owner="", unsaved=None,
    )  # fmt: skip
    view = replace(VIEW, loss=None, mean_return=None, env_steps_per_s=None)
    lag = LagReport(AT_S, (group(unknown, members=None),))
    found = scrape(replace(SNAPSHOT, lag=lag, experiments=(view,)))
    assert not names(found) & {
        "kafka_consumergroup_group_lag", "kafka_consumergroup_group_offset",
        "kafka_consumergroup_group_sum_lag", "kafka_consumergroup_members",
        "rollstream_loss", "rollstream_return", "rollstream_env_steps_per_second",
    }  # fmt: skip
    assert of(found, "rollstream_consumergroup_state", state="NO_COMMIT") == 1


def test_what_is_old_is_not_shown(scrape, monkeypatch):
    assert of(scrape(), "rollstream_exporter_up") == 1
    troubled = replace(SNAPSHOT, problem="the brokers do not answer")
    found = scrape(troubled)
    assert of(found, "rollstream_exporter_up") == 0
    assert "kafka_consumergroup_group_lag" in names(found), "for a while"
    old_s = AT_S - OLD_S - 1
    old = replace(troubled, lag=replace(SNAPSHOT.lag, at_s=old_s))
    found = scrape(old)
    assert not any(name.startswith("kafka_") for name in names(found))
    assert "rollstream_env_steps_total" in names(found)
    found = scrape(replace(troubled, experiments_at_s=old_s))
    assert not any("experiment" in dict(pairs) for _, pairs in found)
    assert "kafka_consumergroup_group_lag" in names(found)
    monkeypatch.setattr(time, "time", lambda: AT_S + FRESH_S + 1)
    found = scrape(SNAPSHOT)
    assert all(name.startswith("rollstream_exporter_") for name in names(found))
    assert of(found, "rollstream_exporter_up") == 0
    assert of(found, "rollstream_exporter_snapshot_timestamp_seconds") == AT_S


HOSTILE = [
    'quote"back\\slash\nline',
    "\x1b[31mred",
    "x" * 5_000,
    "\ud800 half a pair",
    '"} 1\nrollstream_lie{x="',
    "\u202eright to left",
    "",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_labels_are_escaped_and_bounded(scrape, text):
    told = Told("alert-on", text, 0, f"{text}: x", 0, "alert")
    view = replace(VIEW, run_id=text, managed_by=text, alerts=(told, told))
    lag = LagReport(AT_S, (group(partition(text, text)),))
    found = scrape(replace(SNAPSHOT, lag=lag, experiments=(view,)))
    assert "rollstream_lie" not in names(found)
    for _, pairs in found:
        for _, value in pairs:
            assert len(value) <= MAX_LABEL and value.isprintable() or not value
    assert of(found, "kafka_consumergroup_group_sum_lag", group=label(text)) == 10


def test_names_that_are_cut_are_not_taken_for_each_other(scrape):
    long = [f"{'x' * 300}{n}" for n in range(2)] + ["x\x00", "x\x01", "x\ufffd"]
    assert len({label(each) for each in long}) == len(long)
    lag = LagReport(AT_S, tuple(group(partition(each, "t")) for each in long))
    found = scrape(replace(SNAPSHOT, lag=lag))
    sums = [key for key in found if key[0] == "kafka_consumergroup_group_sum_lag"]
    assert len(sums) == len(long)


def test_of_too_many_partitions_the_worst_are_shown(scrape, monkeypatch):
    monkeypatch.setattr(lag_series, "MAX_PARTITIONS", 2)
    lost = Verdict("LOST", 1, "")
    many = [partition(number=n, lag=n) for n in range(5)]
    many[1] = replace(many[1], verdict=lost)
    found = scrape(replace(SNAPSHOT, lag=LagReport(AT_S, (group(*many),))))
    shown = {
        dict(pairs)["partition"]
        for name, pairs in found
        if name == "kafka_consumergroup_group_lag"
    }
    assert shown == {"1", "4"}
    assert of(found, "rollstream_exporter_left_out_partitions") == 3
    assert of(found, "rollstream_exporter_left_out_partitions") == 3
    assert of(found, "kafka_consumergroup_group_sum_lag") == sum(range(5))


def test_of_too_many_groups_the_worst_are_shown(scrape, monkeypatch):
    monkeypatch.setattr(lag_series, "MAX_GROUPS", 2)
    groups = [group(partition(f"g{n}", lag=n)) for n in range(4)] + [group()]
    found = scrape(replace(SNAPSHOT, lag=LagReport(AT_S, tuple(groups))))
    name = "kafka_consumergroup_group_sum_lag"
    shown = {dict(pairs)["group"] for each, pairs in found if each == name}
    assert shown == {"g3", "g2"}
    assert of(found, "rollstream_exporter_left_out_groups") == 3


def test_of_too_many_workers_so_many_are_shown(scrape):
    workers = tuple(process(index=n, env_steps=1.0) for n in range(MAX_WORKERS + 9))
    view = replace(VIEW, processes=(*workers, process("learner")))
    found = scrape(replace(SNAPSHOT, experiments=(view,)))
    up = [dict(pairs) for name, pairs in found if name == "rollstream_process_up"]
    assert len(up) == MAX_WORKERS + 1


def test_a_large_cluster_is_scraped_soon(scrape):
    groups = tuple(
        group(*(partition(f"group-{g}", "topic", n) for n in range(12)))
        for g in range(200)
    )
    snapshot = replace(SNAPSHOT, lag=LagReport(AT_S, groups))
    began_s = time.perf_counter()
    found = scrape(snapshot)
    took_s = time.perf_counter() - began_s
    assert len(found) > 200 * 12 * 10
    print(f"{len(found)} samples, parsed as well: {took_s:.2f} s")
    assert metric_series.label.cache_info().hits > 0
