"""The cache of jars, with a registry that the tests play."""

import hashlib
import shutil

import pytest

from infra.cluster import jars
from infra.cluster.jars import Jar, ensure_jars, format_lock, read_lock
from infra.errors import JarError

CONTENTS = {f"artifact{number}": b"jar %d" % number for number in range(12)}


@pytest.fixture
def lock_file(tmp_path):
    path = tmp_path / "jars.lock"
    path.write_text(
        format_lock(
            Jar("group", name, "1.0", hashlib.sha256(content).hexdigest())
            for name, content in CONTENTS.items()
        )
    )
    return path


@pytest.fixture
def registry(monkeypatch):
    """Serves CONTENTS; counts what is asked for."""
    asked = []

    def fetch(jar, repository):
        asked.append(jar.artifact)
        repository.mkdir(exist_ok=True)
        path = repository / jar.filename
        path.write_bytes(CONTENTS[jar.artifact])
        return path

    monkeypatch.setattr(jars, "fetch", fetch)
    return asked


@pytest.fixture
def no_network(monkeypatch):
    def fetch(jar, repository):
        raise ConnectionError("no route to host")

    monkeypatch.setattr(jars, "fetch", fetch)


def test_first_use_downloads_and_later_ones_do_not(tmp_path, lock_file, registry):
    reports = []
    paths = ensure_jars(tmp_path / "cache", reports.append, lock_file)
    assert [path.read_bytes() for path in paths] == list(CONTENTS.values())
    assert reports[-1] == "downloaded 12 of 12 jars"
    assert ensure_jars(tmp_path / "cache", reports.append, lock_file) == paths
    assert len(registry) == 12
    assert sorted(path.suffix for path in paths[0].parent.iterdir()) == [""] + (
        [".jar"] * 12
    )


def test_damaged_jar_is_fetched_again(tmp_path, lock_file, registry):
    paths = ensure_jars(tmp_path / "cache", print, lock_file)
    paths[3].write_bytes(b"truncated")
    ensure_jars(tmp_path / "cache", print, lock_file)
    assert paths[3].read_bytes() == b"jar 3"
    assert registry[12:] == ["artifact3"]


def test_damaged_jar_without_network_is_an_error(
    tmp_path, lock_file, registry, monkeypatch, request
):
    paths = ensure_jars(tmp_path / "cache", print, lock_file)
    paths[3].write_bytes(b"truncated")
    request.getfixturevalue("no_network")
    with pytest.raises(JarError, match=r"group:artifact3:1\.0 cannot be downloaded"):
        ensure_jars(tmp_path / "cache", print, lock_file)


def test_wrong_hash_is_never_used(tmp_path, lock_file, registry, monkeypatch):
    monkeypatch.setitem(CONTENTS, "artifact3", b"something else")
    with pytest.raises(JarError, match=r"artifact3.* not the one in jars\.lock"):
        ensure_jars(tmp_path / "cache", print, lock_file)
    folder = jars.jars_dir(tmp_path / "cache")
    assert not (folder / "group.artifact3-1.0.jar").exists()


def test_no_network_says_what_to_do(tmp_path, lock_file, no_network):
    with pytest.raises(JarError, match="no route to host.*To mend.*copy the folder"):
        ensure_jars(tmp_path / "cache", print, lock_file)


def test_copied_folder_needs_no_network(tmp_path, lock_file, registry, request):
    ensure_jars(tmp_path / "cache", print, lock_file)
    shutil.copytree(tmp_path / "cache", tmp_path / "other")
    request.getfixturevalue("no_network")
    assert len(ensure_jars(tmp_path / "other", print, lock_file)) == 12


def test_malformed_lock_names_the_line(tmp_path):
    path = tmp_path / "jars.lock"
    path.write_text("a:b:1 " + "0" * 64 + "\na:b\n")
    with pytest.raises(JarError, match="line 2: expected"):
        read_lock(path)


def test_shipped_lock_has_the_versions_we_promise():
    versions = {(jar.group, jar.artifact): jar.version for jar in read_lock()}
    assert versions["org.apache.kafka", "kafka_2.13"] == "4.4.0"
    assert versions["org.apache.zookeeper", "zookeeper"] == "3.9.5"
    assert versions["io.dropwizard.metrics", "metrics-core"] == "4.1.12.1"
