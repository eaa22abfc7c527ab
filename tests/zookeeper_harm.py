"""ZooKeeper taken away; what each returns brings it back."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from infra.cluster.local import LocalCluster


def zookeeper_killed(cluster: LocalCluster) -> Callable[[], None]:
    cluster.kill_zookeeper()
    return cluster.restart_zookeeper


def zookeeper_frozen(cluster: LocalCluster) -> Callable[[], None]:
    pid = cluster.pids()["zookeeper"]
    os.kill(pid, signal.SIGSTOP)
    return lambda: os.kill(pid, signal.SIGCONT)
