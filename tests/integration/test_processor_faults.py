"""Processors that are killed, frozen, joined, stopped; a broker that dies.

After each: no row lost, none wrong, and the committed offsets never fell.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from infra.cluster.local import LocalCluster
from infra.control.role import EXIT_OK, EXIT_UNDELIVERED
from infra.settings import Settings
from tests.integration.processor_rig import Rig, loaded, terminate, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.chaos]


@pytest.fixture
def rig(settings: Settings, tmp_path: Path) -> Iterator[Rig]:
    with Rig(settings, tmp_path) as rig:
        yield rig


def assert_leaves(rig: Rig, child: subprocess.Popen[bytes]) -> None:
    """It does what it has to before the deadline, unless the broker lets it wait."""
    code = terminate(child)
    late = "stop: not done within" in rig.log()
    assert code == EXIT_OK or (late and code == EXIT_UNDELIVERED)


def test_a_killed_processor_loses_nothing(rig: Rig) -> None:
    children = [rig.start(0), rig.start(1)]
    with loaded(rig):
        rig.wait_until_some_committed(40)
        for victim in (0, 1):
            children[victim].kill()
            children[victim].wait()
            children[victim] = rig.start(victim)
            # Blocked for the session timeout of 6 s, then on again.
            rig.wait_until_some_committed(60)
    rig.wait_until_all_committed()
    print("repeated rows:", rig.check())


def test_processors_join_and_leave_and_there_may_be_more_than_partitions(
    settings: Settings, tmp_path: Path
) -> None:
    with Rig(settings, tmp_path, partitions=2) as rig:
        children = [rig.start(0)]
        with loaded(rig):
            rig.wait_until_some_committed(40)
            children += [rig.start(1), rig.start(2)]
            rig.wait_until_up(*children)
            rig.wait_until_some_committed(120)
            assert all(child.poll() is None for child in children)
            for leaving in (0, 1):
                assert_leaves(rig, children[leaving])
                rig.wait_until_some_committed(60)
        rig.wait_until_all_committed()
        print("repeated rows:", rig.check())
        assert rig.litter() == []


def test_a_processor_that_is_told_to_stop_leaves_a_clean_place(rig: Rig) -> None:
    with loaded(rig) as load:
        for _ in range(2):
            child = rig.start()
            rig.wait_until_some_committed(40)
            assert_leaves(rig, child)
        wait_until(lambda: load.count > 100, 60.0, "some load")
    child = rig.start()
    rig.wait_until_all_committed()
    assert_leaves(rig, child)
    assert "Traceback" not in rig.log()
    print("repeated rows:", rig.check())


def test_a_frozen_processor_that_comes_back_changes_nothing(rig: Rig) -> None:
    zombie, other = rig.start(0), rig.start(1)
    with loaded(rig):
        rig.wait_until_up(zombie, other)
        rig.wait_until_some_committed(80)
        zombie.send_signal(signal.SIGSTOP)
        # Past its session: the other one has taken its partitions over.
        rig.wait_until_each_committed(40)
        zombie.send_signal(signal.SIGCONT)
        rig.wait_until_some_committed(150)
    rig.wait_until_all_committed()
    assert other.poll() is None
    assert zombie.poll() in (None, 70)
    print("repeated rows:", rig.check())


def is_alone(child: subprocess.Popen[bytes], port: int) -> bool:
    """Whether a process has seen that all its connections to the broker are gone."""
    connections = psutil.Process(child.pid).net_connections("tcp")
    return not any(
        each.raddr and each.raddr.port == port
        for each in connections
        if each.status in (psutil.CONN_ESTABLISHED, psutil.CONN_CLOSE_WAIT)
    )


def test_a_broker_that_dies_and_comes_back_loses_nothing(
    rig: Rig, local_cluster: LocalCluster
) -> None:
    port = int(str(rig.settings.bootstrap_servers).rpartition(":")[2])
    child, asked = both = rig.start(0), rig.start(1)
    rig.wait_until_up(*both)
    with loaded(rig):
        rig.wait_until_some_committed(60)
        try:
            local_cluster.kill_broker()
            wait_until(
                lambda: all(is_alone(each, port) for each in both), 60.0, "both notice"
            )
            # Faust's own shutdown would wait for the broker for a minute.
            assert terminate(asked) in (EXIT_OK, EXIT_UNDELIVERED)
        finally:
            local_cluster.restart_broker()
        rig.wait_until_some_committed(100, timeout_s=120.0)
    rig.wait_until_all_committed()
    assert child.poll() is None
    print("repeated rows:", rig.check())
