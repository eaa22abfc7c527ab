"""Real agents in processes of their own, and what can be seen of them from outside."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.retry import KazooRetry

from infra.control.coordination import Coordination
from infra.control.desired import PublishedExperiment
from infra.control.experiments import forget_experiment
from infra.control.launching import launch
from infra.control.plans import Plan, parse_plan
from infra.control.statuses import read_states
from infra.control.znodes import AGENTS, ASSIGNMENTS, EPOCH, there
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.kafka.reading import read_to_end
from infra.settings import Settings
from rollstream.overrides import apply_overrides
from schemas.codec import decode
from schemas.errors import SchemaError
from schemas.experiment import Experiment, from_values, load_values
from schemas.records import Event, Member, RoleStatus
from schemas.topics import EVENTS, MEMBERS, topic_name
from tests.integration.control_rig import SESSION_S
from tests.unit.test_experiment import SAMPLE

# Busy machines: what takes seconds alone takes several times as long.
PATIENCE_S = 90.0
SMALL = (
    "spec.workers.envsPerWorker=2",
    "spec.workers.unrollLength=8",
    "spec.workers.maxEnvStepsPerS=100",
    "spec.learner.replay.minSize=200",
    "spec.learner.batchSize=32",
    "spec.evaluator.replicas=0",
    "spec.topics.partitions=2",
    "spec.topics.diskBudget=1GB",
    "spec.stop={}",
    "spec.workers.replicas=1",
)


def small(name: str, *changes: str) -> Experiment:
    """CartPole, with as little work as there can be: 3 processes."""
    values = load_values(SAMPLE)
    return from_values(
        apply_overrides(values, [f"metadata.name={name}", *SMALL, *changes])
    )


def until(
    condition: Callable[[], Any], what: str, timeout_s: float = PATIENCE_S
) -> Any:
    """Wait for a condition; return what it returned."""
    deadline_s = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline_s, f"not within {timeout_s:g} s: {what}"
        time.sleep(0.05)
    return found


class AgentProcess:
    """`rollstream agent --json`, and what it says."""

    module = "rollstream.cli"

    def __init__(self, log: Path, *arguments: str, **environment: str) -> None:
        self._out = log.with_suffix(".out")
        self._log = log
        with self._out.open("w") as out, log.open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", self.module, "agent", "--json", *arguments],
                stdout=out,
                stderr=err,
                env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def said(self) -> list[dict[str, Any]]:
        text = self._out.read_text()
        return [json.loads(line) for line in text.splitlines(True) if line[-1] == "\n"]

    @property
    def name(self) -> str:
        first = until(lambda: self.said or self.process.poll(), self.text)
        assert isinstance(first, list), self.text
        return str(first[0]["name"])

    @property
    def text(self) -> str:
        return self._log.read_text()[-4000:]

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self, timeout_s: float = PATIENCE_S) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout_s)

    def end(self) -> None:
        """Whatever a failed test has left."""
        if self.process.poll() is None:
            with contextlib.suppress(psutil.NoSuchProcess):
                children = psutil.Process(self.pid).children(recursive=True)
                for each in children:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        each.resume()
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
        self.process.wait()


class Fleet:
    """Agents on the session's cluster, and a look at what there is."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self._folder = folder
        self.agents: list[AgentProcess] = []
        self._coordination = Coordination(settings, SESSION_S)
        self._coordination.start(PATIENCE_S)
        self._ask = KazooRetry(max_tries=-1, max_delay=1.0, deadline=PATIENCE_S)
        self.zk: KazooClient = self._coordination.client
        self.experiments: list[str] = []
        self._suffix = secrets.token_hex(3)

    def named(self, word: str) -> str:
        """The name of an experiment: of no other test, and no earlier run of this."""
        return f"{word}-{self._suffix}"

    def start(self, *arguments: str, **environment: str) -> AgentProcess:
        log = self._folder / f"agent-{len(self.agents)}.log"
        self.agents.append(AgentProcess(log, *arguments, **environment))
        return self.agents[-1]

    def launch(self, experiment: Experiment) -> PublishedExperiment:
        if experiment.name not in self.experiments:
            self.experiments.append(experiment.name)
        return launch(self.settings, self._coordination, experiment).published

    def close(self) -> None:
        with contextlib.closing(self._coordination):
            for agent in self.agents:
                agent.end()
            # The next agents on this cluster must not take them on.
            sender = Sender(
                make_producer(self.settings, client_id="fleet", traffic=Traffic.CONTROL)
            )
            for name in self.experiments:
                forget_experiment(sender, name)
            until(
                lambda: not any(self.processes(name) for name in self.experiments),
                "the children of killed agents end",
            )

    def processes(self, experiment: str) -> dict[str, list[int]]:
        """Its processes by ``role/index``; more than one of a role is a fault."""
        modules = {"stream_processors.app": "processor", "learner.train": "learner"}
        found: dict[str, list[int]] = {}
        for process in psutil.process_iter(["pid", "cmdline", "status"]):
            words = " ".join(process.info["cmdline"] or []).split()
            if experiment not in words or process.info["status"] == "zombie":
                continue
            if words[0] == "rollstream":
                key = words[1]
            elif "-m" in words and words[words.index("-m") + 1] in modules:
                role = modules[words[words.index("-m") + 1]]
                key = f"{role}/{words[words.index('--index') + 1]}"
            else:
                continue
            found.setdefault(key, []).append(process.info["pid"])
        return found

    def _children(self, path: str) -> set[str]:
        return set(there(lambda: self._ask(self.zk.get_children, path), []))

    def plans(self) -> dict[str, Plan]:
        found = {}
        for name in self._children(ASSIGNMENTS):
            with contextlib.suppress(NoNodeError):  # gone in this moment
                value, _ = self._ask(self.zk.get, f"{ASSIGNMENTS}/{name}")
                found[name] = parse_plan(value)
        return found

    def placed(self, experiment: str) -> dict[str, str]:
        """Which agent each role is given."""
        return {
            f"{role.role}/{role.index}": agent
            for agent, plan in self.plans().items()
            for role in plan.roles
            if role.experiment == experiment
        }

    def registered(self, experiment: str) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]]
        found = self._ask(self._coordination.live_roles, experiment)
        return found

    def leader(self) -> str:
        value, _ = there(lambda: self._ask(self.zk.get, EPOCH), (b"", None))
        return str(value.decode())

    def epoch(self) -> int:
        found = self._ask(self.zk.exists, EPOCH)
        return int(found.version) if found else -1

    def alive(self) -> set[str]:
        return self._children(AGENTS)

    def state(self, experiment: str) -> RoleStatus | None:
        return read_states(self.settings, experiment).get(experiment)

    def is_in(self, experiment: str, state: str) -> bool:
        found = self.state(experiment)
        return found is not None and found.state == state

    def members(self, experiment: str) -> list[Member]:
        topic = topic_name(MEMBERS, experiment)
        return [decode(m.value, Member) for m in read_to_end(self.settings, topic)]

    def events(self, experiment: str, kind: str) -> list[Event]:
        found = []
        for message in read_to_end(self.settings, topic_name(EVENTS, experiment)):
            with contextlib.suppress(SchemaError):
                event = decode(message.value, Event)
                if event.kind == kind:
                    found.append(event)
        return found

    def runs_as_planned(self, experiment: str, count: int) -> bool:
        """Each of so many roles has one process, which is registered."""
        processes = self.processes(experiment)
        return (
            len(processes) == count == len(self.placed(experiment))
            and all(len(pids) == 1 for pids in processes.values())
            and len(self.registered(experiment)) == count
        )
