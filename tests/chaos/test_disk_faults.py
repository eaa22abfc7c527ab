"""The broker's disk is full, and then it is not."""

from __future__ import annotations

import contextlib
import resource
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from infra.cluster import broker
from infra.cluster.local import LocalCluster, cluster_dir
from infra.errors import ClusterError
from infra.settings import Settings
from tests.chaos.brokers import Memory, note_back
from tests.chaos.checks import assert_clean
from tests.chaos.harness import Harness

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.chaos,
    pytest.mark.heavy,
    pytest.mark.timeout(900),
]

SURFACES_WITHIN_S = 120.0
FULL_S = 20.0
MAX_GROWTH_BYTES = 200 * 2**20
_DISK = "size=400m"

Fill = Callable[[LocalCluster], Callable[[], None]]


@pytest.fixture
def own(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", bootstrap_servers=None, zookeeper=None)


@pytest.fixture
def small_disk(own: Settings) -> Iterator[Path]:
    """The broker's log directory is a disk of its own."""
    folder = broker.log_dir(broker.broker_service(cluster_dir(own)))
    folder.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", _DISK, "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        pytest.skip(f"a small disk needs leave to mount: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def full_disk(small_disk: Path) -> Fill:
    """Fills it to the last byte."""

    def fill(cluster: LocalCluster) -> Callable[[], None]:
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file:
            for piece in (bytes(2**20), bytes(2**12)):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(piece)
        return ballast.unlink

    return fill


@pytest.fixture
def limited_files() -> Fill:
    """The broker may not let a file grow beyond 64 kB: it fails as on a full disk."""

    def fill(cluster: LocalCluster) -> Callable[[], None]:
        pid = cluster.pids()["kafka"]
        limits = (65_536, 65_536)
        psutil.Process(pid).rlimit(resource.RLIMIT_FSIZE, limits)
        return lambda: None  # it ends with the process

    return fill


@pytest.mark.parametrize("how", ["full_disk", "limited_files"])
def test_a_full_disk_ends_the_broker_and_loses_nothing(
    how: str,
    own: Settings,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_fault,
) -> None:
    fill: Fill = request.getfixturevalue(how)
    cluster = LocalCluster(own)
    try:
        found = cluster.start()
        settings = own.at(found.bootstrap_servers, found.zookeeper)
        with Harness(settings, tmp_path) as harness:
            harness.start()
            memory = Memory(harness)
            harness.injected("note", "broker")
            free = fill(cluster)
            began_s = time.monotonic()
            harness.wait_until(
                lambda: "kafka" not in cluster.pids(),
                SURFACES_WITHIN_S,
                "a broker that cannot write ends",
            )
            surfaced_s = time.monotonic() - began_s
            if how == "full_disk":
                with pytest.raises(ClusterError, match="free some disk space"):
                    cluster.restart_broker()
            time.sleep(FULL_S)  # the fault itself
            memory.look()
            free()
            cluster.restart_broker()
            note_back(harness, "full disk")
            harness.wait_for_progress(acked=1_000, trained=1_000, timeout_s=120.0)
            evidence = harness.finish()
    finally:
        cluster.stop()
    growth = memory.growth_bytes / 2**20
    note = f"surfaced after {surfaced_s:.1f} s; +{growth:.0f} MiB a worker"
    record_fault(f"F21 ({how})", evidence, injected=1, note=note)
    print(note)
    assert_clean(evidence)
    assert memory.growth_bytes < MAX_GROWTH_BYTES
