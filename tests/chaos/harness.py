"""Real roles under load on a real broker, faults, and the evidence of what came of it.

A fault test is::

    with Harness(settings, tmp_path) as harness:   # 4 workers x 4 environments
        harness.start()                            # waits until all of it works
        harness.kill("worker", 2)                  # SIGKILL; started again at once
        harness.wait_for_progress(trained=2_000)   # more steps than now
        evidence = harness.finish()                # the load ends, all catch up, stop
    record_fault("F01", evidence)                  # the fixture: a row of the report
    assert_clean(evidence)                         # C1 to C10

- ``Harness(settings, tmp_path, spec={"workers": {"replicas": 2}}, variables={...})``:
  the spec is merged into `load.SPEC`; variables go to the roles' environment.
  ``settings`` may point at a cluster of the test's own, or at a proxy.
- Roles, see `harm.Harm`: `kill`, `freeze`, `thaw`, `terminate`, `hold` and
  `start_again`, `order`; `pid`, `pids`, `log`, `wait_for_end`.
- Other faults (a broker's, a proxy's): do them, and call ``injected("what", role)``, so
  that times of recovery are told; "broker" measures acknowledged records. Where that
  comes after an outage, ``injected("note", role)`` says when it began.
- Waiting: `wait_for_progress`, ``wait_until(ready, timeout_s, what)``; looking:
  `acked`, `trained`, `updates`, ``journals.lives(role)``, ``watch.committed``,
  ``watch.follower.progress``.
- The end: `drain` (workers are told to stop, so that their streams end; processors and
  the learner catch up) and `finish` (that, then all stop and the logs are read).

The processes are those of production, with its supervisor and variables; the journals
are made by modules that workers and learners import by the machine's settings.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from infra.control.coordination import Coordination
from infra.control.experiments import new_run_id, publish_experiment, run_directory
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.control.scheduler import wanted_roles
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.settings import Settings
from tests.chaos.collecting import collect
from tests.chaos.evidence import HEALED_WITHIN_S, Evidence, Healed
from tests.chaos.following import Following
from tests.chaos.journal import DIRECTORY
from tests.chaos.load import make_experiment
from tests.chaos.looking import Looking
from tests.chaos.supervision import HarmedSupervisor
from tests.chaos.watching import Watch

ROOT = Path(__file__).parents[2]
# A machine that has other work for all its cores stalls for many seconds.
STOP_S = 90.0
START_S = 300.0
SHARED_S = 300.0
"""For tests that share their machine: how long may all of it take, once healed?"""

_TEND_S = 0.05
_REPORTED_S = 60.0
_ZOOKEEPER_S = 60.0


class Harness(Looking):
    """One experiment: its roles, the harm done to them, and what came of it."""

    def __init__(
        self,
        settings: Settings,
        tmp_path: Path,
        *,
        spec: Mapping[str, Any] | None = None,
        variables: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> None:
        self.settings = settings.model_copy(
            update={
                "env_modules": ("tests.chaos.counting_env",),
                "learner_modules": ("tests.chaos.learner_hooks",),
            }
        )
        self.name = f"chaos-{uuid.uuid4().hex[:10]}"
        self.experiment = make_experiment(self.name, spec)
        self.run_id = new_run_id()
        directory = tmp_path / self.name
        journals = directory / "journals"
        journals.mkdir(parents=True)
        for_roles = {
            DIRECTORY: str(journals),
            "PYTHONPATH": str(ROOT),
            # Compiled modules are kept, as where nobody tests: starts are timed.
            "PYTHONDONTWRITEBYTECODE": "",
            **(variables or {}),
        }
        supervisor = HarmedSupervisor(
            self.settings, self.name, directory / "logs", for_roles
        )
        watch = Watch(self.settings, self.name, self.run_id, self.partitions)
        super().__init__(supervisor, journals, watch, seed)
        self.coordination = Coordination(self.settings)
        self.following = Following(
            self.settings, self.name, self.run_id, self.partitions
        )
        self._over = threading.Event()
        self._tender = threading.Thread(target=self._tend, name="tend", daemon=True)
        self._tender_failed: Exception | None = None
        self._healed: Healed | None = None

    @property
    def directory(self) -> Path:
        """The run's directory, with its checkpoints."""
        return run_directory(self.settings, self.name, self.run_id)

    # ---- beginning and end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.ExitStack() as left:
            left.callback(self.coordination.close)
            left.callback(self._let_go)
            left.callback(self.supervisor.kill_all)
            # First: it would start again what waits for its turn.
            left.callback(self._stop_tending)
        if kind is not None and issubclass(kind, Exception):
            for who, text in self.logs().items():
                print(f"---- {who}\n{text[-1500:]}")

    def _stop_tending(self) -> None:
        self._over.set()
        if self._tender.is_alive():
            self._tender.join(_REPORTED_S)

    def _let_go(self) -> None:
        self._stop_tending()
        for thread in (self.watch, self.following):
            if thread.is_alive():
                thread.finish()

    def start(self, ready: bool = True) -> None:
        """Publish the experiment, start its roles, and wait until all of it works."""
        producer = make_producer(
            self.settings, client_id="chaos", traffic=Traffic.CONTROL
        )
        ensure_shared_topics(self.settings)
        ensure_experiment_topics(self.settings, self.experiment)
        publish_experiment(Sender(producer), self.experiment, self.run_id, -1)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.coordination.start(_ZOOKEEPER_S)
        self.coordination.register_agent()
        self.supervisor.start(wanted_roles(self.experiment.spec))
        self._tender.start()
        self.watch.start()
        self.following.start()
        if ready:
            # Processors too: one that joins late would look like a fault's work.
            self.wait_until(self.all_work, START_S, "everything works")
            self.wait_for_progress(acked=500, trained=500, updates=10)

    def drain(
        self, timeout_s: float = 90.0, within_s: float = HEALED_WITHIN_S
    ) -> Healed:
        """End the load, and wait until all of it was learnt from.

        Workers that were harmed must have said something first: their next record is
        what closes the stream before. The load goes on until its rate is that of before
        the faults, or for 30 s. The checker finds fault with more than ``within_s``.
        """
        self.thaw_all()
        self.wait_for_rate()
        began_s = time.monotonic()
        with contextlib.suppress(AssertionError):
            self.wait_until(self.workers_are_back, timeout_s, "all workers are back")
        self.supervisor.end_all("worker", STOP_S)
        left_s = max(timeout_s - (time.monotonic() - began_s), 10.0)
        try:
            ends = self.ends("processor")
            self.wait_until(
                lambda: self.committed("processor") == ends,
                left_s,
                "the processors have handled all",
            )
            self.wait_until(self.is_all_trained, left_s, "all is learnt from")
            is_drained = True
        except AssertionError:
            is_drained = False
        took_s = time.monotonic() - began_s
        with contextlib.suppress(AssertionError):
            self.wait_until(
                lambda: set(self.lag().values()) == {0}, _REPORTED_S, "the lag is 0"
            )
        self._healed = Healed(took_s, is_drained, self.lag(), within_s)
        return self._healed

    def finish(
        self, timeout_s: float = 90.0, within_s: float = HEALED_WITHIN_S
    ) -> Evidence:
        """Drain, stop everything, and return what there is to judge."""
        self.thaw_all()
        if self._healed is None:
            self.drain(timeout_s, within_s)
        for role in ("evaluator", "processor", "learner"):
            self.supervisor.end_all(role, STOP_S)
        self._let_go()
        if self._tender_failed is not None:
            raise self._tender_failed
        evidence = collect(self.settings, self.experiment, self.run_id)
        self.following.add_to(evidence)
        evidence.lives = self.journals.lives()
        evidence.committed = list(self.watch.samples)
        evidence.injected = list(self.faults)
        evidence.ended = list(self.supervisor.ended)
        evidence.logs = self.logs()
        evidence.left_running = self.left_running()
        evidence.healed = self._healed
        evidence.summary = self.summary()
        return evidence

    def wait_until(
        self, ready: Callable[[], object], timeout_s: float, what: str
    ) -> None:
        """Wait; fails at once when the supervision has."""
        if self._tender_failed is not None:
            raise self._tender_failed
        super().wait_until(ready, timeout_s, what)

    # ---- within

    def _tend(self) -> None:
        """What ``rollstream run`` does many times a second."""
        try:
            while not self._over.wait(_TEND_S):
                for gone in self.supervisor.poll():
                    self.coordination.forget_role(self.name, gone.assignment.key)
                for assignment, pid in self.supervisor.pids().items():
                    self.coordination.register_role(self.name, assignment.key, pid)
        except Exception as exc:
            self._tender_failed = exc
