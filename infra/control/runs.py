"""One experiment on one machine: publish, run its roles, follow, judge, stop.

What ``rollstream run`` does, without saying how it is shown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from infra.control.coordination import SESSION_S, AlreadyRuns, Coordination
from infra.control.desired import Entry, PublishedExperiment
from infra.control.experiments import run_directory
from infra.control.launching import SpecWriter, Wanted, next_spec
from infra.control.members import ensure_experiment_topics, ensure_shared_topics
from infra.control.scheduler import wanted_roles
from infra.control.statuses import publish_status, read_summary
from infra.control.supervisor import Exit, RoleFailed, Supervisor
from infra.control.threads import Threads
from infra.control.znodes import role_key
from infra.errors import RollstreamError
from infra.kafka.clients import Traffic, make_producer
from infra.kafka.delivery import Sender
from infra.monitoring.alerting import Alerting
from infra.monitoring.follow import MetricsFollower
from infra.monitoring.past_end import PastEnd
from infra.monitoring.progress import Finish, Progress, judge
from infra.monitoring.summary import Summary, summarise
from infra.settings import Settings
from schemas.experiment import Experiment

_POLL_S = 0.1
_LAST_WORDS_S = 1.0
# Without a tick for so long we were frozen, and our claim may be another's.
_FROZEN_S = SESSION_S / 2  # before it is lost for sure


@dataclass(frozen=True)
class Tick:
    """A moment of a run, for whoever shows it."""

    progress: Progress
    lag: dict[str, int | None]
    wall_s: float
    exits: list[Exit]


class Run:
    """A run of one experiment, from its claim to its summary."""

    def __init__(self, settings: Settings, experiment: Experiment) -> None:
        self._settings = settings
        self._experiment = experiment
        self._coordination = Coordination(settings)
        self._sender = Sender(
            make_producer(
                settings,
                client_id=f"{experiment.name}-run",
                traffic=Traffic.CONTROL,
            )
        )
        self.published: PublishedExperiment | None = None
        self._supervisor: Supervisor | None = None
        self._follower: MetricsFollower | None = None
        self._alerting = Alerting(settings, may_act=self._is_ours)
        self._threads = Threads()
        self._past_end = PastEnd(experiment.spec)
        self._steps_before = 0
        self._started_at_s = 0.0
        self._last_words_s = _LAST_WORDS_S

    @property
    def has_started(self) -> bool:
        """Whether there are role processes to stop, and metrics of them."""
        return self._supervisor is not None and self._follower is not None

    @property
    def directory(self) -> Path:
        """Where checkpoints, logs and the learning curve of the run lie."""
        if self.published is None:
            raise RuntimeError("the experiment is not published yet")
        return run_directory(
            self._settings, self._experiment.name, self.published.run_id
        )

    @property
    def progress(self) -> Progress:
        """What the metrics have said so far."""
        if self._follower is None:
            raise RuntimeError("the run has not started yet")
        return self._follower.progress

    def publish(self, fresh: bool = False) -> Summary | None:
        """Claim the experiment and publish its spec, unless it is there already.

        Returns:
            the summary, when the run is finished already; then nothing is started.

        Raises:
            AlreadyRuns: another process runs it, or the agents do.
            SpecError: a spec that the run so far does not fit.
            UnreadableExperiment: all specs were refused, unless ``fresh``.
        """
        name = self._experiment.name
        self._coordination.start()
        ensure_shared_topics(self._settings)
        with closing(SpecWriter(self._settings, name)) as writer:
            # Before the claim: agents stop what somebody claims.
            self._refuse_launched(writer.read())
            self._coordination.claim_experiment(name)
            self._refuse_live()
            known = writer.read().accepted
            if not fresh and known and known.experiment == self._experiment:
                done = read_summary(self._settings, name, known.run_id)
                if done is not None:
                    self.published = known
                    return done
            self._wanted(writer.read(), fresh)  # before topics are made for it
            ensure_experiment_topics(self._settings, self._experiment)
            launched = writer.write(lambda entry: self._wanted(entry, fresh))
        self.published = launched.published
        return None

    def _wanted(self, entry: Entry, fresh: bool) -> Wanted:
        """Return what is to be in force, given what is; raises as ``publish`` does."""
        self._refuse_launched(entry)
        return next_spec(entry, self._experiment, "run", fresh)

    def _refuse_launched(self, entry: Entry) -> None:
        known, name = entry.accepted, self._experiment.name
        if known is None or known.managed_by != "agents":
            return
        if known.experiment.spec.state == "stopped":
            return
        if read_summary(self._settings, name, known.run_id) is None:
            raise AlreadyRuns(
                f"experiment {name}: expected nobody to run it, found that it was "
                "launched: the agents do",
                f"`rollstream stop {name}` first, or give this one another name",
            )

    def _refuse_live(self) -> None:
        name = self._experiment.name
        if live := self._coordination.live_roles(name):
            raise AlreadyRuns(
                f"experiment {name}: expected none of its roles to live, found "
                f"{', '.join(sorted(map(role_key, live)))}",
                "wait until the agents have stopped them",
            )

    def start(self) -> None:
        """Start the role processes and follow what they say."""
        if self.published is None:
            raise RuntimeError("publish first")
        published, name = self.published, self._experiment.name
        self.directory.mkdir(parents=True, exist_ok=True)
        self._follower = MetricsFollower(
            self._settings, name, published.run_id, lambda: self._alerting.report
        )
        self._supervisor = Supervisor(self._settings, name, self.directory / "logs")
        self._started_at_s = time.monotonic()
        self._supervisor.start(wanted_roles(self._experiment.spec))
        publish_status(self._sender, published, "running", "launched")
        self._coordination.register_agent()
        self._follower.read_to_end()
        self._steps_before = self.progress.env_steps
        self._threads.start("alerts", self._alerting.run)

    def ticks(self) -> Iterator[Tick]:
        """Yield several times a second while the run goes on.

        Raises:
            RoleFailed: a role failed again and again.
        """
        supervisor, follower = self._parts()
        ticked_at_s = time.monotonic()
        while True:
            follower.poll(_POLL_S)
            if self.published is not None:
                self._alerting.observe(self.published, follower)
            if time.monotonic() - ticked_at_s > _FROZEN_S:
                self._coordination.doubt_claims()
            ticked_at_s = time.monotonic()
            # In this order: who is certain again has told of a lost claim before.
            certain = self._coordination.certain.is_set()
            if self._coordination.lost_claim.is_set():
                raise AlreadyRuns(
                    f"experiment {self._experiment.name}: another process has claimed "
                    "it while ZooKeeper was out of reach",
                    "stop one of the two",
                )
            # A role started without the claim would fence those of who has it.
            exits = supervisor.poll() if certain else []
            self._register(supervisor, exits)
            yield Tick(follower.progress, follower.lag, self._wall_s(), exits)
            for gone in exits:
                if gone.gave_up:
                    raise RoleFailed(
                        f"{gone.assignment.key}: expected it to run, found exit code "
                        f"{gone.code} after {gone.restarts} restarts: {gone.last_line}",
                        f"its log is {gone.log}",
                    )

    def _register(self, supervisor: Supervisor, exits: list[Exit]) -> None:
        name = self._experiment.name
        for gone in exits:
            self._coordination.forget_role(name, gone.assignment.key)
        for assignment, pid in supervisor.pids().items():
            self._coordination.register_role(name, assignment.key, pid)

    def finish(self) -> Finish | None:
        """Return why the run is over, or None while it is not."""
        _, follower = self._parts()
        progress = follower.progress
        found = judge(self._experiment.spec.stop, progress, self._wall_s())
        return found or self._past_end.judge(progress, follower.lag)

    def stop(self, finish: Finish | None, state: str, reason: str) -> Summary:
        """Stop the roles, hear their last words, publish how it ended."""
        supervisor, follower = self._parts()
        wall_s = self._wall_s()
        # Its roles end, and nobody is to be told that they do nothing.
        if self.published is not None:
            self._alerting.over(self.published, "the run has ended")
        self._alerting.close()
        supervisor.stop()
        # With the brokers away there are no last words; what is known is said.
        try:
            follower.read_to_end(_LAST_WORDS_S)
        except RollstreamError:
            self._last_words_s = 0.0
        summary = summarise(
            self._experiment.name,
            follower.progress,
            finish,
            state=state,
            reason=reason,
            wall_s=wall_s,
            env_steps_before=self._steps_before,
        )
        if self.published is not None:
            with suppress(RollstreamError):
                publish_status(
                    self._sender,
                    self.published,
                    state,
                    reason,
                    summary,
                    timeout_s=self._last_words_s,
                )
        return summary

    def close(self) -> None:
        """Let go of everything; kills what still runs."""
        if self._supervisor is not None:
            self._supervisor.stop(0.2)
        self._alerting.close()
        if self._follower is not None:
            self._alerting.wait(self._last_words_s)
            self._follower.close()
        with suppress(RollstreamError):
            self._sender.flush(self._last_words_s)
        self._coordination.close()

    def _wall_s(self) -> float:
        return time.monotonic() - self._started_at_s

    def _is_ours(self) -> bool:
        # In this order: who is certain again has told of a lost claim before.
        certain = self._coordination.certain.is_set()
        return certain and not self._coordination.lost_claim.is_set()

    def _parts(self) -> tuple[Supervisor, MetricsFollower]:
        if self._supervisor is None or self._follower is None:
            raise RuntimeError("the run has not started yet")
        return self._supervisor, self._follower
