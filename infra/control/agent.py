"""One host's share of all experiments: plan -> role processes, as long as it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from infra.control.agent_reports import AgentReports, Happening, Run
from infra.control.checkups import Checkups, Process
from infra.control.coordination import Coordination
from infra.control.elastic_scaler import ElasticScaler
from infra.control.election import Candidate
from infra.control.experiments import run_directory
from infra.control.leader import Leader
from infra.control.members import ensure_shared_topics
from infra.control.notices import Notices
from infra.control.placement import RoleKey
from infra.control.plan_watch import Orders, PlanWatch
from infra.control.plans import Capacity, Plan, facts_of_this_process
from infra.control.reconcile import Launch
from infra.control.role_environment import role_environment
from infra.control.scheduler import FORKED, Assignment
from infra.control.spawning import ForkServerSpawner
from infra.control.supervisor import Supervisor
from infra.control.term import Scaler
from infra.control.threads import Threads
from infra.control.troubles import SURE_AFTER, Troubles
from infra.settings import Settings

SESSION_S = 6.0
# In order, and in all: what is left of ten seconds is for saying good-bye.
STOP_S = 8.0
_TICK_S = 0.1
_HEARTBEAT_S = 2.0
_FAREWELL_S = 0.5
_DOWN = ("backing-off", "failed")
_log = logging.getLogger("rollstream.agent")

Wanted = dict[Run, dict[Assignment, Launch]]
"""What a plan asks for, by run."""


class Agent:
    """Registers, follows its plan, and stands for election as the leader."""

    def __init__(
        self,
        settings: Settings,
        capacity: Capacity,
        labels: Mapping[str, str],
        report: Callable[[Happening], None] = lambda happening: None,
        scaler: Scaler | None = None,
    ) -> None:
        """Start nothing yet.

        Args:
            settings: a cluster that runs.
            capacity: what it has to give.
            labels: what specs may select it by.
            report: is told what it does.
            scaler: decides how many processes there are, while this agent leads; None:
                by the load, where the spec says so.
        """
        self._settings = settings
        self._coordination = Coordination(settings, SESSION_S)
        self._notices = Notices(settings, self._coordination.name)
        self._reports = AgentReports(self._notices, report)
        self._threads = Threads()
        self._watch = PlanWatch(
            self._coordination, facts_of_this_process(capacity, labels)
        )
        self._leader = Leader(
            settings, self._notices, self._threads, scaler or ElasticScaler()
        )
        self._checkups = Checkups(settings, self._notices.are_taken)
        self._candidate = Candidate(self._coordination, self._leader.lead)
        # The plan is followed and heartbeats are sent while modules are imported.
        self._spawner = ForkServerSpawner(
            FORKED, settings.env_modules, is_patient=False
        )
        self._supervisors: dict[Run, Supervisor] = {}
        self._troubles = Troubles()
        self._seen: dict[tuple[Run, Assignment], int] = {}
        self._heartbeat_at_s = 0.0
        self._closed = threading.Event()

    @property
    def name(self) -> str:
        """What it is called in ZooKeeper."""
        return self._coordination.name

    def start(self) -> None:
        """Register and stand for election.

        Raises:
            RollstreamError: the cluster does not answer.
        """
        # Meanwhile: who is forked first would wait for it.
        self._spawner.warm(role_environment(self._settings))
        ensure_shared_topics(self._settings)
        self._coordination.start()
        self._threads.start("plan", self._watch.run)
        self._threads.start("candidate", self._candidate.run)
        self._threads.start("health", self._checkups.run)

    def run(self) -> None:
        """Do what the plan says until interrupted; raises what ended a thread."""
        while True:
            self._threads.check()
            self._tick()
            time.sleep(_TICK_S)

    def close(self) -> None:
        """Stop all roles in order, let another lead, and be gone."""
        self._leader.close()
        self._checkups.close()
        self._candidate.close()
        if self._supervisors:
            # Together: each has as long as it would have alone.
            with ThreadPoolExecutor(len(self._supervisors)) as pool:
                list(pool.map(lambda each: each.stop(STOP_S), self._all()))
        for run, assignment in self._seen:
            self._reports.stopped(run, assignment, "its agent was stopped")
        self._supervisors.clear()
        self._spawner.close()
        self._watch.close()
        # The node last: from then on others take the roles over.
        self._coordination.close()
        self._notices.flush(_FAREWELL_S)

    def _all(self) -> list[Supervisor]:
        return list(self._supervisors.values())

    def _tick(self) -> None:
        orders = self._watch.orders
        self._kill_who_do_not_work()
        wanted = _by_run(orders.plan)
        self._poll(orders, wanted)
        if orders.plan is not None:
            self._reconcile(orders, wanted)
        self._see_pids(orders)
        if time.monotonic() - self._heartbeat_at_s >= _HEARTBEAT_S:
            self._heartbeat_at_s = time.monotonic()
            self._heartbeat(orders)

    def _kill_who_do_not_work(self) -> None:
        for finding in self._checkups.findings():
            process, condition = finding.process, finding.condition
            supervisor = self._supervisors.get(process.run)
            if supervisor is not None:
                supervisor.kill(process.assignment, process.pid, condition)
        for (name, _), supervisor in self._supervisors.items():
            if (spec := self._checkups.spec(name)) is not None:
                supervisor.max_failures = spec.health.max_failures

    def _poll(self, orders: Orders, wanted: Wanted) -> None:
        """Note who has ended; start again who is due and still ours."""
        for run, supervisor in self._supervisors.items():
            mine = wanted.get(run, {})

            def may_start(
                assignment: Assignment, mine: Mapping[Assignment, Launch] = mine
            ) -> bool:
                return orders.may_start and assignment in mine

            for gone in supervisor.poll(may_start):
                self._reports.failed(run, gone)
                if gone.unstarted:
                    self._troubles.not_started(
                        run[0], gone.unstarted, gone.last_line, time.monotonic()
                    )

    def _reconcile(self, orders: Orders, wanted: Wanted) -> None:
        for run in wanted.keys() - self._supervisors.keys():
            # One run of an experiment has ended before another begins.
            others = [other for other in self._supervisors if other[0] == run[0]]
            if orders.may_start and not others:
                logs = run_directory(self._settings, *run) / "logs"
                supervisor = Supervisor(self._settings, run[0], logs, self._spawner)
                # What this host cannot start, the leader gives to another.
                supervisor.keeps_trying = True
                self._supervisors[run] = supervisor
        for run, supervisor in list(self._supervisors.items()):
            mine = wanted.get(run, {})

            def may_start(assignment: Assignment, name: str = run[0]) -> bool:
                key = RoleKey(name, assignment.role, assignment.index)
                return orders.may_start and key not in orders.elsewhere

            before = supervisor.views()
            changes = supervisor.reconcile(mine, may_start)
            for assignment in changes.stopping:
                pid, again = before[assignment].pid, mine.get(assignment)
                self._reports.stopping(run, assignment, pid, again, wanted)
            for assignment, code in changes.ended.items():
                self._seen.pop((run, assignment), None)
                reason = f"ended with code {code}, as asked"
                self._reports.stopped(run, assignment, reason)
            for assignment in changes.forgotten:
                self._seen.pop((run, assignment), None)
                if assignment not in mine:
                    reason = "not in the plan any more"
                    self._reports.status(run, assignment, "stopped", reason)
            if not mine and not supervisor.views():
                supervisor.stop()
                del self._supervisors[run]

    def _see_pids(self, orders: Orders) -> None:
        """Tell of every process that is new, and have all of them registered.

        Likewise of those that cannot be started.
        """
        running: dict[RoleKey, int] = {}
        processes = set()
        failing: dict[str, set[str]] = {}
        new = set()
        for run, supervisor in self._supervisors.items():
            for assignment, view in supervisor.views().items():
                if view.unstarted >= SURE_AFTER:
                    failing.setdefault(run[0], set()).add(assignment.key)
                if view.state not in ("running", "stopping") or view.pid < 0:
                    continue
                key = RoleKey(run[0], assignment.role, assignment.index)
                running[key] = view.pid
                processes.add(Process(run, assignment, view.pid))
                seen = self._seen.get((run, assignment))
                if seen != view.pid:
                    self._seen[run, assignment] = view.pid
                    new.add(run[0])
                    again = seen is not None
                    self._reports.started(run, assignment, view, again, orders.plan)
        for experiment in new - failing.keys():
            self._troubles.started(experiment)
        self._watch.report(running, self._troubles.told(failing, time.monotonic()))
        self._checkups.watch(frozenset(processes))

    def _heartbeat(self, orders: Orders) -> None:
        for run, supervisor in self._supervisors.items():
            for assignment, view in supervisor.views().items():
                if view.state in _DOWN and not orders.may_start:
                    continue  # it may run elsewhere by now
                self._reports.status(
                    run,
                    assignment,
                    view.state,
                    view.last_line,
                    view.pid,
                    view.restarts,
                )


def _by_run(plan: Plan | None) -> Wanted:
    found: Wanted = {}
    for role in plan.roles if plan else ():
        launch = Launch(role.spec_offset, role.digest)
        found.setdefault((role.experiment, role.run_id), {})[role.assignment] = launch
    return found
