"""How far an experiment under faults is, by its journals and by what it says itself."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import psutil

from infra.control.scheduler import wanted_roles
from infra.errors import RollstreamError
from infra.monitoring.summary import summarise
from infra.settings import Settings
from schemas.experiment import Experiment
from tests.chaos.evidence import follow_training
from tests.chaos.harm import Harm
from tests.chaos.journal import Journals
from tests.chaos.recovery import BACK_WITHIN_S, Rate
from tests.chaos.supervision import HarmedSupervisor
from tests.chaos.watching import READS, Watch, ends_of
from tests.role_processes import words_of


class Looking(Harm):
    """Looks and waits.

    Attributes:
        journals: what workers and learners have written.
        watch: committed offsets and metrics.
    """

    settings: Settings
    name: str
    experiment: Experiment

    def __init__(
        self, supervisor: HarmedSupervisor, journals: Path, watch: Watch, seed: int
    ) -> None:
        super().__init__(supervisor, journals, seed)
        self.journals = Journals(journals)
        self.watch = watch
        self._began_s = time.monotonic()

    @property
    def partitions(self) -> int:
        """How many partitions the big topics have."""
        return self.experiment.spec.topics.partitions

    def all_work(self) -> bool:
        """Whether every process of every role has done something."""
        workers = {life.role for life in self.journals.lives("worker") if life.acked}
        follower = self.watch.follower
        points = follower.progress.points if follower else {}
        processors = [index for role, index in points if role == "processor"]
        spec = self.experiment.spec
        return (
            len(workers) == spec.workers.replicas
            and len(processors) == spec.processor.replicas
            and self.updates > 0
        )

    def logs(self) -> dict[str, str]:
        """Return what all roles have said, by ``role/index``."""
        wanted = wanted_roles(self.experiment.spec)
        return {a.key: self.log(a.role, a.index) for a in wanted}

    @property
    def acked(self) -> int:
        """Steps that brokers have acknowledged."""
        return sum(life.acked for life in self.journals.lives("worker"))

    @property
    def rate(self) -> Rate:
        """The rate at which brokers acknowledge steps, before faults and after."""
        lives = self.journals.lives("worker")
        acks = (line for life in lives for line in life.of("ack") if not line["error"])
        return Rate(acks, self.faults)

    def wait_for_rate(self) -> None:
        """Wait until it is as before the faults, or for too long to be called back."""
        if self.rate.before:
            with contextlib.suppress(AssertionError):
                self.wait_until(
                    lambda: self.rate.back_s() is not None, BACK_WITHIN_S, "the rate"
                )

    @property
    def trained(self) -> int:
        """Steps that count as taken in by the learner, whatever was undone."""
        return follow_training(self.journals.lives("learner")).steps

    @property
    def updates(self) -> int:
        """Optimizer steps in all, those undone included."""
        return sum(life.updates for life in self.journals.lives("learner"))

    def wait_for_progress(
        self,
        acked: int = 0,
        trained: int = 0,
        updates: int = 0,
        timeout_s: float = 180.0,
    ) -> None:
        """Wait until so many more steps are acknowledged, and learnt from."""
        more = {"acked": acked, "trained": trained, "updates": updates}
        began = {name: getattr(self, name) for name in more}
        self.wait_until(
            lambda: all(
                getattr(self, name) >= began[name] + count
                for name, count in more.items()
                if count
            ),
            timeout_s,
            f"{more} more than {began}",
        )

    def wait_for_load(self, acked: int = 20_000, timeout_s: float = 240.0) -> None:
        """Wait until so many steps are acknowledged in all: enough to judge by."""
        self.wait_until(lambda: self.acked >= acked, timeout_s, f"{acked} steps")

    def left_running(self) -> list[str]:
        """Return what still runs for this experiment."""
        found = []
        for process in psutil.process_iter(["pid", "cmdline"]):
            words = words_of(process.info["cmdline"])
            if self.name in words and process.info["pid"] != os.getpid():
                found.append(f"{process.info['pid']}: {' '.join(words)}")
        return found

    def workers_are_back(self) -> bool:
        """Whether every worker's process that runs has an acknowledged record."""
        pids = set(self.pids("worker").values())
        back = {life.pid for life in self.journals.lives("worker") if life.acked}
        return len(pids & back) == self.experiment.spec.workers.replicas

    def is_all_trained(self) -> bool:
        """By the journals alone: whatever the roles say of themselves."""
        return self.trained >= self.acked

    def ends(self, role: str) -> list[int]:
        """Return the ends of what a role reads, by partition."""
        return ends_of(self.settings, self.name, role, self.partitions)

    def committed(self, role: str) -> list[int]:
        """Return what a role has committed, by partition, by the newest sample."""
        return [self.watch.committed.get((role, p), 0) for p in range(self.partitions)]

    def lag(self) -> dict[str, int | None]:
        """Return the lag that each role reports, by position."""
        follower = self.watch.follower
        return dict(follower.lag) if follower else dict.fromkeys(READS)

    def summary(self) -> dict[str, Any]:
        """Return the run's summary, as ``rollstream run`` makes it."""
        follower = self.watch.follower
        if follower is None:
            return {}
        with contextlib.suppress(RollstreamError):
            summary = summarise(
                self.name,
                follower.progress,
                None,
                state="stopped",
                reason="the test is over",
                wall_s=time.monotonic() - self._began_s,
                env_steps_before=0,
            )
            return vars(summary)
        return {}
