"""The brokers of a fault test: one, or three of which one may be away."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from typing import Protocol

import psutil

from infra.cluster.local import LocalCluster
from infra.settings import Settings
from tests.chaos.harness import Harness
from tests.chaos.three_brokers import ThreeBrokers

_STOP_S = 30.0


class Brokers(Protocol):
    """What can be done to them; each harms the next one in turn."""

    @property
    def settings(self) -> Settings:
        """Where they are reached."""

    def kill(self) -> None:
        """SIGKILL."""

    def stop(self) -> None:
        """SIGTERM, and wait until it has left."""

    def restart(self) -> None:
        """Start what is down; returns when it answers."""

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """SIGSTOP until the end of the block."""


class OneBroker:
    """The local cluster's only one."""

    def __init__(self, cluster: LocalCluster, settings: Settings) -> None:
        self._cluster = cluster
        self.settings = settings

    @property
    def pid(self) -> int:
        return self._cluster.pids()["kafka"]

    def kill(self) -> None:
        self._cluster.kill_broker()

    def stop(self) -> None:
        process = psutil.Process(self.pid)
        process.terminate()
        with contextlib.suppress(psutil.NoSuchProcess):
            process.wait(_STOP_S)

    def restart(self) -> None:
        self._cluster.restart_broker()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with stopped(self.pid):
            yield


class OneOfThree:
    """Each time another of three."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self._brokers = brokers
        self._victim = -1

    @property
    def settings(self) -> Settings:
        return self._brokers.settings

    def kill(self) -> None:
        self._brokers.kill(self._next())

    def stop(self) -> None:
        assert self._brokers.stop(self._next()), "SIGTERM was not enough"

    def restart(self) -> None:
        self._brokers.launch(self._victim)
        # The next victim may be the last that holds a record.
        self._brokers.wait_until_whole()

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        pid = self._brokers.nodes[self._next()].pid
        assert pid is not None
        with stopped(pid):
            yield
        self._brokers.wait_until_whole()

    def _next(self) -> int:
        self._victim = (self._victim + 1) % 3
        return self._victim


@contextlib.contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process is stopped as a debugger would stop it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


class Memory:
    """What the workers hold, beyond what they held at first."""

    def __init__(self, harness: Harness) -> None:
        self._harness = harness
        self._before = self._bytes()
        self.growth_bytes = 0

    def look(self) -> None:
        found = self._bytes()
        grown = (found[pid] - before for pid, before in self._before.items())
        self.growth_bytes = max(self.growth_bytes, *grown)

    def _bytes(self) -> dict[int, int]:
        pids = self._harness.pids("worker").values()
        return {pid: psutil.Process(pid).memory_info().rss for pid in pids}


def note_back(harness: Harness, what: str) -> None:
    """From now on: an acknowledged record, a batch of each partition, an update."""
    for role in ("broker", "processor", "learner"):
        harness.injected(what, role)
