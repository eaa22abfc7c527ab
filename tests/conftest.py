"""One real Kafka and ZooKeeper for the whole test session."""

from __future__ import annotations

import gc
import os
import uuid
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import hypothesis
import psutil
import pytest

from infra.cluster.local import Endpoints, LocalCluster
from infra.kafka.topic_admin import TopicConfig, delete_topics, ensure_topics
from infra.settings import Settings

# How long an example takes, and to make it, says how busy the machine is.
hypothesis.settings.register_profile(
    "any-machine",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any-machine")

MakeTopic = Callable[..., str]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported, and the tests, stay: nobody need look for garbage there."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


# What a developer has set must not leak into the tests, except the cache of jars.
_KEPT_VARIABLES = {"ROLLSTREAM_CACHE_DIR"}


def _clear_variables(patch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        ours = name.startswith("ROLLSTREAM_") or name == "KAFKA_BOOTSTRAP_SERVERS"
        if ours and name not in _KEPT_VARIABLES:
            patch.delenv(name)


@pytest.fixture(scope="session", autouse=True)
def _clean_environment() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        _clear_variables(patch)
        yield


@pytest.fixture(autouse=True)
def _cluster_only_where_asked_for(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    # `settings` lasts for the session, but a test without it sees a bare machine.
    if "settings" not in request.fixturenames:
        _clear_variables(monkeypatch)


@pytest.fixture(scope="session")
def local_cluster(
    tmp_path_factory: pytest.TempPathFactory, _clean_environment: None
) -> Iterator[LocalCluster]:
    """The running cluster, for tests that kill and restart its broker."""
    data_dir = tmp_path_factory.mktemp("rollstream")
    cluster = LocalCluster(Settings(data_dir=data_dir))
    cluster.start()
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def cluster(local_cluster: LocalCluster) -> Endpoints:
    """Where the session's cluster answers."""
    return local_cluster.start()


@pytest.fixture(scope="session")
def settings(cluster: Endpoints) -> Iterator[Settings]:
    """Settings that point at the cluster; child processes find it as well."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cluster.environment().items():
            patch.setenv(name, value)
        yield Settings()


@pytest.fixture
def make_topic(settings: Settings) -> Iterator[MakeTopic]:
    """Makes topics of unique names, `make_topic(partitions=1, **{"key": "value"})`."""
    names: list[str] = []

    def make(partitions: int = 1, **config: str) -> str:
        name = f"rollstream.test-{uuid.uuid4().hex[:12]}"
        values = {key.replace("_", "."): value for key, value in config.items()}
        names.append(name)
        ensure_topics(settings, [TopicConfig(name, partitions, values)])
        return name

    yield make
    delete_topics(settings, names)


@pytest.fixture
def topic(make_topic: MakeTopic) -> str:
    """A topic of one partition."""
    return make_topic()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory of the test's own, with no cluster in it."""
    return tmp_path / "data"


@pytest.fixture
def left_running(data_dir: Path) -> Callable[[], list[int]]:
    """Says which processes still work in the test's own data directory."""

    def find() -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if str(data_dir) in " ".join(process.info["cmdline"] or [])
        ]

    return find


@pytest.fixture
def own(
    data_dir: Path,
    left_running: Callable[[], list[int]],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Settings]:
    """Settings of a machine of the test's own; nothing may run on it afterwards."""
    monkeypatch.delenv("KAFKA_BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.delenv("ROLLSTREAM_ZOOKEEPER", raising=False)
    monkeypatch.setenv("ROLLSTREAM_DATA_DIR", str(data_dir))
    settings = Settings()
    yield settings
    LocalCluster(settings).stop()
    assert left_running() == []
