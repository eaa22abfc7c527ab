"""The thread that follows: what it keeps, forgets, and outlives."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from infra.errors import KafkaUnavailable
from infra.monitoring.lag import monitor as module
from infra.monitoring.lag.groups import Group
from infra.monitoring.lag.model import NO_REPORT, Place, Sample
from infra.monitoring.lag.monitor import LagMonitor
from infra.monitoring.lag.reports import Look

T0, T1 = Place("g", "t", 0), Place("g", "t", 1)
PATIENCE_S = 60.0


class Script:
    """What each look finds: a Look, or an error; the last one again and again."""

    def __init__(self):
        self.looks = []
        self.made = self.closed = 0

    def collector(self, settings, wanted, client_id):
        self.made += 1
        return self

    def look(self, standings):
        standings()
        found = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(found, Exception):
            raise found
        return found

    def complete(self, samples, windows):
        return dict(samples)

    def close(self):
        self.closed += 1


def seen(at_s, *places, committed=5, silent=False):
    samples = {p: Sample(at_s, committed, 0, 9, 9, "id") for p in places}
    group = Group("Stable", 1, committed=None if silent else {("t", 0): committed})
    return Look(at_s, 0.1, {"g": group}, samples)


@pytest.fixture
def script(monkeypatch):
    found = Script()
    monkeypatch.setattr(module, "Collector", found.collector)
    monkeypatch.setattr(module, "Unread", lambda *_: found)
    return found


@pytest.fixture
def monitor():
    found = LagMonitor(None, wanted=["g"], every_s=0.01)
    with closing(found):
        yield found


def reported(monitor, at_s):
    report = monitor.wait_for_newer(at_s - 0.5, PATIENCE_S)
    while report.at_s < at_s:
        report = monitor.wait_for_newer(report.at_s, PATIENCE_S)
    return report


def test_nothing_is_known_before_the_first_look(monitor):
    assert monitor.report is NO_REPORT
    assert monitor.window(T0) is None


def test_samples_add_up(script, monitor):
    script.looks = [seen(1.0, T0), seen(2.0, T0, committed=7)]
    monitor.start()
    report = reported(monitor, 2.0)
    assert [each.lag for each in report.groups[0].partitions] == [2]
    assert [sample.at_s for sample in monitor.window(T0).samples] == [1.0, 2.0]


def test_what_is_gone_is_forgotten(script, monitor):
    script.looks = [seen(1.0, T0, T1), seen(2.0, T0)]
    monitor.start()
    reported(monitor, 2.0)
    assert monitor.window(T0) and monitor.window(T1) is None


def test_a_silent_group_keeps_its_samples(script, monitor):
    script.looks = [seen(1.0, T0), seen(2.0, silent=True), seen(3.0, T0)]
    monitor.start()
    reported(monitor, 3.0)
    assert [sample.at_s for sample in monitor.window(T0).samples] == [1.0, 3.0]


def test_an_outage_is_told_and_outlived(script, monitor):
    away = KafkaUnavailable("nobody answers")
    script.looks = [seen(1.0, T0), away, away, seen(2.0, T0)]
    problems = []
    publish = monitor._publish
    monitor._publish = lambda report: (problems.append(report), publish(report))
    monitor.start()
    assert reported(monitor, 2.0).problem == ""
    during = [report for report in problems if report.problem]
    assert [report.problem for report in during] == ["nobody answers"] * 2
    assert {report.at_s for report in during} == {1.0}
    assert {report.groups[0].lag for report in during} == {4}, "what was known stays"
    assert script.made >= 3, "with new clients"
    assert [sample.at_s for sample in monitor.window(T0).samples] == [1.0, 2.0]


def test_a_fault_of_ours_ends_nothing(script, monitor, caplog):
    fault = ZeroDivisionError("oh")
    script.looks = [fault, fault, seen(1.0, T0)]
    monitor.start()
    assert reported(monitor, 1.0).problem == ""
    told = [r for r in caplog.records if r.name == "rollstream.lag"]
    assert len(told) == 1, "once, not each second"


class Faulty(module.Window):
    """Of partition 1 the first sample is more than it can take."""

    is_ill = True

    def add(self, sample):
        if sample.end == 13 and Faulty.is_ill:
            Faulty.is_ill = False
            raise OverflowError("too large")
        super().add(sample)


def test_a_partition_that_makes_no_sense_spoils_no_other(script, monitor, monkeypatch):
    monkeypatch.setattr(module, "Window", Faulty)
    looks = [seen(at_s, T0, T1) for at_s in (1.0, 2.0)]
    script.looks = [
        replace(each, samples=dict(each.samples) | {T1: Sample(at_s, 5, 0, 13, 13)})
        for at_s, each in zip((1.0, 2.0), looks, strict=True)
    ]
    reports = []
    publish = monitor._publish
    monitor._publish = lambda report: (reports.append(report), publish(report))
    monitor.start()
    (well,) = reported(monitor, 2.0).groups
    (ill,) = next(report for report in reports if report.at_s == 1.0).groups
    assert [each.place for each in ill.partitions] == [T0]
    assert ill.problem == "t[1]: it makes no sense to us: OverflowError: too large"
    assert [each.place for each in well.partitions] == [T0, T1], "it begins anew"
    assert well.problem == ""
    assert script.made == 1, "with the same clients"


def test_standings_are_asked_for_each_time(script):
    asked = []
    script.looks = [seen(1.0, T0), seen(2.0, T0)]
    monitor = LagMonitor(
        None, wanted=["g"], every_s=0.01, standings=lambda: asked.append(1) or {},
        rows_per_record=lambda: {"g": 10.0},
    )  # fmt: skip
    with closing(monitor):
        monitor.start()
        assert reported(monitor, 2.0).groups[0].lag_env_steps == 40
    assert len(asked) >= 2


def test_closing_leaves_the_brokers(script, monitor):
    script.looks = [seen(1.0, T0)]
    monitor.start()
    reported(monitor, 1.0)
    monitor.close()
    assert script.closed == 2, "the collector and what reads records"
    monitor.close()
