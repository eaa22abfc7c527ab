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

    def bounce(self, harness: Harness, how: str) -> None:
        """End one with SIGKILL or SIGTERM and start it again; work goes on after it.

        Recovery is timed from when work could go on.
        """

    def frozen(self) -> contextlib.AbstractContextManager[None]:
        """SIGSTOP until the end of the block."""


class OneBroker:
    """The local cluster's only one: work can go on when it answers again."""

    def __init__(self, cluster: LocalCluster, settings: Settings) -> None:
        self._cluster = cluster
        self.settings = settings

    @property
    def pid(self) -> int:
        return self._cluster.pids()["kafka"]

    def bounce(self, harness: Harness, how: str) -> None:
        harness.injected("note", "broker")
        if how == "kill":
            self._cluster.kill_broker()
        else:
            self._stop()
        self._cluster.restart_broker()
        note_back(harness, how)
        wait_for_work(harness)

    def _stop(self) -> None:
        process = psutil.Process(self.pid)
        process.terminate()
        with contextlib.suppress(psutil.NoSuchProcess):
            process.wait(_STOP_S)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        with stopped(self.pid):
            yield


class OneOfThree:
    """Each time another of three: work has to go on while it is away."""

    def __init__(self, brokers: ThreeBrokers) -> None:
        self._brokers = brokers
        self._victim = -1

    @property
    def settings(self) -> Settings:
        return self._brokers.settings

    def bounce(self, harness: Harness, how: str) -> None:
        self._victim = (self._victim + 1) % 3
        note_back(harness, how)
        if how == "kill":
            self._brokers.kill(self._victim)
        else:
            assert self._brokers.stop(self._victim), "SIGTERM was not enough"
        wait_for_work(harness)
        self._brokers.launch(self._victim)
        # The next victim may be the last that holds a record.
        self._brokers.wait_until_whole(self._victim)
        wait_for_work(harness)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        self._victim = (self._victim + 1) % 3
        pid = self._brokers.nodes[self._victim].pid
        assert pid is not None
        with stopped(pid):
            yield
        self._brokers.wait_until_whole(self._victim)


def wait_for_work(harness: Harness) -> None:
    """Wait until a second's load is acknowledged, and learnt from."""
    harness.wait_for_progress(acked=1_000, trained=1_000, timeout_s=90.0)


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
