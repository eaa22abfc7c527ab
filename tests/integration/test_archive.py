"""``rollstream archive`` and its role on the real broker: kills, stops, expiry."""

import json
import signal
import time

import numpy as np
import pytest

from archive.archive_source import ArchiveSource
from infra.control.members import ensure_experiment_topics
from infra.kafka.clients import make_admin, make_consumer
from infra.kafka.offsets import delete_before
from infra.kafka.reading import committed_offsets, read_to_end
from infra.kafka.topic_admin import delete_topics
from schemas.codec import decode_or_none, encode
from schemas.records import Member, MetricsPoint
from schemas.topics import MEMBERS, METRICS, TRAJECTORIES, group_name
from tests.integration.archive_rig import (
    archiver,
    assert_is_archived,
    num_parts,
    run_archive,
    wait_for_parts,
    wait_for_records,
)
from tests.integration.processor_rig import Load, Rig, loaded, wait_until
from tests.unit.memory_source import ENV

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


@pytest.fixture
def rig(settings, tmp_path):
    with Rig(settings, tmp_path, archive=True) as rig:
        yield rig


def put(rig, count):
    """Some unrolls of workers, on the log when this returns."""
    load = Load(rig, workers=4)
    for _ in range(count):
        load.put(f"w{int(load._rng.integers(4))}")
    rig.flush()
    return load


@pytest.mark.timeout(900)
def test_killed_at_any_moment_every_record_is_there_once(rig, tmp_path):
    folder = tmp_path / "kept"
    words = ("archive", rig.name, "--follow", "--every", "0.1", "--out", str(folder))
    rng = np.random.default_rng(0)
    kills = 0
    with loaded(rig) as load:
        for _ in range(8):
            before = num_parts(folder)
            with archiver(rig, tmp_path, *words) as child:
                # Not before it works: a kill of an import shows nothing.
                wait_for_parts(folder, before + 1)
                time.sleep(float(rng.uniform(0.0, 0.8)))
                assert child.poll() is None
                child.kill()
                kills += 1
        assert load.count > 100
    code, found, said = run_archive(rig, tmp_path, "--out", str(folder))
    assert code == 0, said
    assert found["behind_records"] == found["gap_records"] == found["repeats"] == 0
    assert kills == 8 < num_parts(folder)
    assert assert_is_archived(rig, folder) > load.count
    code, found, _ = run_archive(rig, tmp_path, "--out", str(folder), "--verify")
    assert (code, found[0]["problems"]) == (0, [])


def test_a_second_run_adds_only_what_is_new(rig, tmp_path):
    load = put(rig, 30)
    code, first, said = run_archive(rig, tmp_path)
    assert (code, first["records"]) == (0, 30), said
    assert first["archive"] == str(tmp_path / rig.name / "run1")
    _, second, _ = run_archive(rig, tmp_path)
    assert second["records"] == second["parts"] == 0
    load.put("w1")
    rig.flush()
    _, third, _ = run_archive(rig, tmp_path)
    assert third["records"] == third["parts"] == 1
    assert assert_is_archived(rig, tmp_path / rig.name / "run1") == 31


def test_ctrl_c_ends_with_what_is_committed(rig, tmp_path):
    put(rig, 30)
    words = ("archive", rig.name, "--follow", "--every", "0.1", "--json")
    folder = tmp_path / rig.name / "run1"
    with archiver(rig, tmp_path, *words) as child:
        wait_for_records(folder, 30)
        code, _, said = run_archive(rig, tmp_path)
        assert code == 1
        assert f"expected nobody else to write it, found process {child.pid}" in said
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=90)
        assert child.returncode == 130
        assert json.loads(out)["records"] == 30
    assert assert_is_archived(rig, folder) == 30


def test_the_role_archives_until_it_is_told_to_stop(rig, tmp_path):
    member = Member(rig.name, "run1", "worker", 0, "h", 1, 1, ENV)
    rig.sender.send(rig.topic(MEMBERS), encode(member), "worker/0")
    load = put(rig, 20)
    folder = tmp_path / rig.name / "run1"
    with archiver(rig, tmp_path) as child:
        wait_for_parts(folder, 1)
        # Too few and too young to be a part of their own; told to stop, it takes them.
        for _ in range(20):
            load.put("w0")
        rig.flush()
        child.terminate()
        _, said = child.communicate(timeout=90)
        assert child.returncode == 0, said
    assert assert_is_archived(rig, folder) == 40
    assert ArchiveSource(folder).info.env == ENV
    check_what_the_role_said(rig, folder)


def check_what_the_role_said(rig, folder):
    points = [
        point
        for message in read_to_end(rig.settings, rig.topic(METRICS))
        if (point := decode_or_none(message.value, MetricsPoint)) and point.values
    ]
    last = points[-1]
    assert (last.role, last.values["records"], last.values["repeats"]) == (
        "archiver", 40, 0,
    )  # fmt: skip
    assert last.values["bytes"] == sum(
        part.bytes for part in ArchiveSource(folder).manifest.parts
    )
    ends = {p: end for p, (_, end) in ArchiveSource(folder).bounds().items()}
    assert {p.partition: p.position for p in last.positions} == ends
    consumer = make_consumer(
        rig.settings, group=group_name(rig.name, "archiver"), client_id="test"
    )
    try:
        wait_until(
            lambda: committed_offsets(consumer, rig.topic(TRAJECTORIES), ends) == ends,
            60.0,
            "committed offsets",
        )
    finally:
        consumer.close()


def test_what_has_expired_is_told_and_written_down(rig, tmp_path):
    load = put(rig, 30)
    run_archive(rig, tmp_path)
    for _ in range(30):
        load.put("w0")
    rig.flush()
    admin = make_admin(rig.settings)
    topic = rig.topic(TRAJECTORIES)
    folder = tmp_path / rig.name / "run1"
    archived = ArchiveSource(folder).bounds()[0][1]
    where = {(topic, 0): archived + 12}
    for future in delete_before(admin, where, 60.0).values():
        future.result(60.0)
    code, found, said = run_archive(rig, tmp_path)
    assert (code, found["gap_records"], found["records"]) == (0, 12, 18)
    assert f"offsets {archived} to {archived + 11} had expired" in said
    (gap,) = ArchiveSource(folder).gaps()
    assert (gap.partition, gap.first_offset, gap.next_offset) == (
        0, archived, archived + 12,
    )  # fmt: skip


def test_a_topic_that_was_made_anew_is_another_past(rig, tmp_path):
    put(rig, 10)
    run_archive(rig, tmp_path)
    delete_topics(rig.settings, [rig.topic(TRAJECTORIES)])
    ensure_experiment_topics(rig.settings, rig.publish())
    put(rig, 10)
    code, _, said = run_archive(rig, tmp_path)
    assert code == 1
    assert "expected the archive of" in said
    assert "name another folder with --out" in said
