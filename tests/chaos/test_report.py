"""Times of recovery, and the file they are written to, by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.chaos.evidence import Injected
from tests.chaos.memory import growth_of
from tests.chaos.planted import clean_run
from tests.chaos.recovery import Rate, recoveries_s
from tests.chaos.report import report_of, write


def test_recovery_is_from_the_fault_to_new_output_of_what_it_hit() -> None:
    """Records are a tenth of a second apart; w0's incarnation 9 begins at 100.4."""
    evidence = clean_run()
    evidence.injected = [
        Injected(100.15, "kill", "worker", 0),
        # Both partitions have batches at 101.0, 101.1, ...
        Injected(101.05, "kill", "processor", 0),
        # This one lived on: it made two updates at 104.5.
        Injected(104.4, "slow", "learner", 0, 77),
        Injected(104.4, "note", "learner", 0, 77),
    ]
    found = {fault.role: seconds for fault, seconds in recoveries_s(evidence)}
    assert found == {
        "worker": pytest.approx(0.25),
        # The batch at 101.1 may have been under way.
        "processor": pytest.approx(0.15),
        "learner": pytest.approx(0.1),
    }


def test_a_frozen_worker_has_recovered_once_the_same_one_goes_on() -> None:
    evidence = clean_run()
    evidence.injected = [Injected(100.45, "freeze", "worker", 0, 4)]
    (found,) = recoveries_s(evidence)
    assert found[1] == pytest.approx(0.15)


def test_a_learner_that_died_recovers_with_its_successor_s_first_update() -> None:
    evidence = clean_run()
    evidence.lives[2].take({"kind": "update", "at_s": 107.5, "updates": 3})
    evidence.injected = [Injected(104.4, "kill", "learner", 0, 2)]
    assert recoveries_s(evidence)[0][1] == pytest.approx(3.1)


def test_brokers_are_back_when_records_of_every_partition_are() -> None:
    """Offsets 3 and 4 of partition 1, of 100.3 and 100.4, are acknowledged late."""
    evidence = clean_run()
    for line in evidence.lives[0].lines:
        if (line["partition"], line["offset"]) in {(1, 3), (1, 4)}:
            line["at_s"] += 0.6
        elif line["partition"] == 1:
            line["at_s"] = 100.3  # of a record that was there before the fault
    evidence.injected = [
        Injected(100.1, "note", "broker"),
        Injected(100.25, "kill", "broker"),
        # Nobody harmed the learner itself; it takes everything in at 104.0.
        Injected(101.25, "kill", "learner"),
    ]
    found = {fault.role: seconds for fault, seconds in recoveries_s(evidence)}
    assert found == {"broker": pytest.approx(0.65), "learner": pytest.approx(2.75)}


def test_the_rate_is_back_when_two_seconds_bring_nine_tenths_of_it() -> None:
    """100 steps/s; none from 105 to 107, half of it to 109, then all of it.

    A window that begins at 108.6 has 0.4 s of 50/s and 1.6 s of 100/s: 180.
    """
    tenths = [*range(1000, 1051), *range(1070, 1090, 2), *range(1090, 1121)]
    acks = [{"at_s": at / 10, "num_steps": 5, "num_envs": 2} for at in tenths]
    faults = [Injected(105.05, "note", "broker"), Injected(106.0, "kill", "broker")]
    rate = Rate(acks, faults)
    assert rate.before == pytest.approx(100.0, rel=0.02)
    assert rate.back_s() == pytest.approx(2.6, abs=0.15)
    assert Rate(acks[:-25], faults).back_s() is None
    assert Rate(acks, faults[:1]).before == 0.0, "nothing harmful happened"
    assert Rate(acks, [Injected(99.0, "kill", "worker")]).back_s() is None


def test_a_fault_s_new_row_replaces_its_old_one(tmp_path: Path) -> None:
    evidence = clean_run()
    for number, fault in enumerate(["F02", "F01", "F02"]):
        write([report_of(fault, evidence, injected=number)], tmp_path)
    rows = json.loads((tmp_path / "chaos.json").read_text())["faults"]
    assert [(row["fault"], row["injected"]) for row in rows] == [("F01", 1), ("F02", 2)]
    assert {row["lost"] for row in rows} == {row["findings"] for row in rows} == {0}


def test_growth_is_the_slope_after_the_warm_up() -> None:
    """500 MB at once, then 1 MB in 6 s: 600 MB/h."""
    steep = [(0.0, 10.0), (30.0, 510.0)]
    steady = [(float(s), 510.0 + (s - 60) / 6) for s in range(60, 181, 10)]
    growth = growth_of("learner/0", steep + steady)
    assert growth is not None
    assert growth.megabytes_per_hour == pytest.approx(600.0)
    assert growth.minutes == pytest.approx(3.0)
    assert growth_of("learner/0", steep) is None
