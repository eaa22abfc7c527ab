"""An agent's znodes: its plan is read, what it runs is registered.

In a thread of its own: ZooKeeper that is away holds this up, and no process.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from kazoo.exceptions import KazooException, NoNodeError
from kazoo.protocol.states import WatchedEvent

from infra.control.coordination import Coordination
from infra.control.placement import RoleKey
from infra.control.plans import AgentFacts, BadNode, Plan, Trouble, parse_plan
from infra.control.wants import key_of
from infra.control.znodes import (
    AGENTS,
    ASSIGNMENTS,
    answer,
    facts_of,
    role_path,
    there,
)

_PERIOD_S = 0.5
_HEAL_S = 2.0
# Who has a role lets go of it; who is frozen loses it with its session.
_HANDOVER_S = 15.0
_log = logging.getLogger("rollstream.agent")


@dataclass(frozen=True)
class Orders:
    """What an agent is to do.

    Attributes:
        plan: the newest; None: there is none, and what runs goes on.
        sure_until_s: until then, in monotonic time, nobody takes the agent for gone,
            and it may start what is in the plan.
        elsewhere: roles of the plan that another agent still has.
    """

    plan: Plan | None = None
    sure_until_s: float = 0.0
    elsewhere: frozenset[RoleKey] = frozenset()

    @property
    def may_start(self) -> bool:
        """Whether anything may be started now."""
        return self.plan is not None and time.monotonic() < self.sure_until_s


class PlanWatch:
    """Keeps ``orders`` up to date, and ZooKeeper about what runs."""

    def __init__(self, coordination: Coordination, facts: AgentFacts) -> None:
        """Only prepare; ``run`` does the work."""
        self.orders = Orders()
        self._coordination = coordination
        self._facts = facts
        self._path = f"{ASSIGNMENTS}/{coordination.name}"
        self._running: Mapping[RoleKey, int] = {}
        self._troubles: Mapping[str, Trouble] = {}
        self._told_troubles = False
        self._registered: dict[RoleKey, int] = {}
        self._plan: Plan | None = None
        self._highest_epoch = -1
        self._waits_since_s: dict[RoleKey, float] = {}
        self._healed_at_s = 0.0
        self._told = ""
        self._told_of_plan = ""
        self._wake = threading.Event()
        self._closed = threading.Event()

    def report(
        self, running: Mapping[RoleKey, int], troubles: Mapping[str, Trouble]
    ) -> None:
        """Have these processes registered, by pid, and no others of ours.

        ``troubles``: what cannot be started here, by experiment.
        """
        if (running, troubles) != (self._running, self._troubles):
            self._running, self._troubles = dict(running), dict(troubles)
            self._wake.set()

    def close(self) -> None:
        """End ``run``."""
        self._closed.set()
        self._wake.set()

    def run(self) -> None:
        """Work until closed; ZooKeeper may come and go."""
        self._coordination.register_agent(self._facts.to_json())
        while not self._closed.is_set():
            try:
                self._pass()
                self._say("")
            except KazooException as exc:
                self._say(f"ZooKeeper is away, what runs goes on: {exc!r}")
            self._wake.wait(_PERIOD_S)
            self._wake.clear()

    def _pass(self) -> None:
        # In this order: a plan that is older than our certainty may be another's.
        sure_until_s = self._coordination.sure_until_s()
        self._read_plan()
        elsewhere = self._elsewhere()
        self.orders = Orders(self._plan, sure_until_s, elsewhere)
        self._register()
        self._tell_troubles()

    def _read_plan(self) -> None:
        client = self._coordination.client
        try:
            value, _ = answer(client.get_async(self._path, watch=self._on_change))
        except NoNodeError:
            self._plan = None
            return
        try:
            plan = parse_plan(value)
        except BadNode as exc:
            self._pass_over(str(exc))
            return
        if plan.epoch < self._highest_epoch:
            known = self._highest_epoch
            self._pass_over(f"it is of epoch {plan.epoch}, known is one of {known}")
            return
        self._highest_epoch, self._told_of_plan = plan.epoch, ""
        self._plan = plan

    def _pass_over(self, reason: str) -> None:
        if reason != self._told_of_plan:
            _log.warning("the plan is passed over: %s", reason)
        self._told_of_plan = reason

    def _on_change(self, event: WatchedEvent) -> None:
        # A watch that calls ZooKeeper deadlocks: only wake up who may.
        self._wake.set()

    def _elsewhere(self) -> frozenset[RoleKey]:
        """Which roles that we are to start another agent has not let go of."""
        client, now_s = self._coordination.client, time.monotonic()
        missing = [
            key
            for key in map(key_of, self._plan.roles if self._plan else ())
            if key not in self._running
        ]
        asked = {
            key: client.get_async(role_path(key.experiment, str(key)))
            for key in missing
        }
        found = set()
        for key, result in asked.items():
            value, _ = there(partial(answer, result), (b"", None))
            holder = facts_of(value).get("agent", self._coordination.name)
            since_s = self._waits_since_s.setdefault(key, now_s)
            if holder != self._coordination.name and now_s - since_s < _HANDOVER_S:
                found.add(key)
        self._waits_since_s = {
            key: since_s for key, since_s in self._waits_since_s.items() if key in asked
        }
        return frozenset(found)

    def _register(self) -> None:
        running = self._running
        for key in self._registered.keys() - running.keys():
            self._coordination.forget_role(key.experiment, str(key))
            del self._registered[key]
        for key, pid in running.items():
            if self._registered.get(key) != pid:
                self._coordination.register_role(key.experiment, str(key), pid)
                self._registered[key] = pid
        if time.monotonic() - self._healed_at_s > _HEAL_S:
            self._healed_at_s = time.monotonic()
            for experiment in {key.experiment for key in running}:
                self._coordination.heal_roles(experiment)

    def _tell_troubles(self) -> None:
        """Say in our node what cannot be started here, again after it was put back."""
        troubles = self._troubles
        if not troubles and not self._told_troubles:
            return
        path = f"{AGENTS}/{self._coordination.name}"
        value = self._facts.with_troubles(troubles).to_json()
        client = self._coordination.client
        # Not made anew: who is gone for a moment has its roles moved.
        found, _ = there(partial(answer, client.get_async(path)), (None, None))
        if found is not None and found != value:
            there(partial(answer, client.set_async(path, value)), None)
        self._told_troubles = bool(troubles)

    def _say(self, problem: str) -> None:
        """Log a problem once, and its end."""
        if problem and problem != self._told:
            _log.warning("%s", problem)
        elif self._told and not problem:
            _log.info("ZooKeeper answers")
        self._told = problem
