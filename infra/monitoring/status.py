"""What is known of an experiment, from its topics alone: no process of it need live."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from infra.clock import now_ms
from infra.control.desired import PublishedExperiment
from infra.control.experiments import read_experiment
from infra.control.statuses import WHOLE
from infra.kafka.dead_letters import read_letters
from infra.monitoring.at_rest import excused, why_at_rest
from infra.monitoring.follow import READS, MetricsFollower
from infra.monitoring.lag.collector import read_lag
from infra.monitoring.lag.model import GroupLag
from infra.monitoring.live import agents_of, read_live
from infra.monitoring.nothing_said import NOTHING_SAID, state_unsaid
from infra.monitoring.role_views import (
    RoleView,
    Told,
    pending_of,
    read_roles,
    read_statuses,
)
from infra.monitoring.summary import Summary, summarise
from infra.monitoring.told_events import read_told
from infra.settings import Settings
from schemas.records import RoleStatus
from schemas.topics import group_name, topic_name


@dataclass(frozen=True)
class GroupStatus:
    """A role that reads, its topic, and how far behind it is."""

    role: str
    topic: str
    seen: GroupLag

    @property
    def lag(self) -> int | None:
        """Of all partitions that it is known of."""
        return self.seen.lag


@dataclass(frozen=True)
class ExperimentStatus:
    """All of it.

    Attributes:
        wanted: the desired state.
        summary: the counts, as at the end of a run; its state, and the reason.
        roles: each process of this run, by name.
        managed_by: ``run``, a foreground command; or ``agents``.
        agents: those that run its processes; None: ZooKeeper does not answer.
        live_agents: all that take on work; None: likewise.
        pending: processes that are wanted and do not run; None: likewise.
        groups: of processors and learner.
        alerts: of this run, newest first.
        letters: dead letters, those put back included.
        letters_put_back: how many of them were.
    """

    experiment: str
    run_id: str
    wanted: str
    managed_by: str
    summary: Summary
    roles: tuple[RoleView, ...]
    agents: tuple[str, ...] | None
    live_agents: tuple[str, ...] | None
    pending: tuple[str, ...] | None
    groups: tuple[GroupStatus, ...]
    alerts: tuple[Told, ...]
    letters: int
    letters_put_back: int

    @property
    def lacks_agents(self) -> bool:
        """Whether nobody lives who would do what is wanted."""
        is_over = self.wanted == "stopped" or self.summary.state == "finished"
        return self.managed_by == "agents" and self.live_agents == () and not is_over


def read_status(settings: Settings, name: str) -> ExperimentStatus:
    """Read what the topics say of an experiment's newest run.

    Raises:
        UnknownExperiment: there is none of that name.
        RollstreamError: it cannot be read.
    """
    published = read_experiment(settings, name)
    run_id, now = published.run_id, now_ms()
    with closing(MetricsFollower(settings, name, run_id)) as follower:
        follower.read_to_end()
    progress = follower.progress
    statuses = read_statuses(settings, name, run_id)
    whole = statuses.pop(WHOLE, None)
    state = whole.status.state if whole else state_unsaid(published.managed_by)
    live, live_agents = read_live(settings, name)
    told = read_told(settings, name, run_id, now)
    letters = read_letters(settings, name)
    return ExperimentStatus(
        experiment=name,
        run_id=run_id,
        wanted=published.experiment.spec.state,
        managed_by=published.managed_by,
        summary=summarise(
            name,
            progress,
            None,
            state=state,
            reason=whole.status.reason if whole else NOTHING_SAID,
            wall_s=0.0,
            env_steps_before=progress.env_steps,
        ),
        roles=read_roles(
            settings, published, statuses, follower.heard_at_ms, told, live, now
        ),
        agents=None if live is None else agents_of(live),
        live_agents=live_agents,
        pending=pending_of(published.experiment.spec, state, live),
        groups=_groups(settings, published, whole.status if whole else None, follower),
        alerts=tuple(each for each in told if each.severity == "alert"),
        letters=len(letters),
        letters_put_back=sum(bool(letter.reinjected) for letter in letters),
    )


def _groups(
    settings: Settings,
    published: PublishedExperiment,
    status: RoleStatus | None,
    told: MetricsFollower,
) -> tuple[GroupStatus, ...]:
    name = published.experiment.name
    topics = {group_name(name, role): (role, topic) for role, topic in READS.items()}
    report = read_lag(
        settings,
        wanted=list(topics),
        standings=told.standings,
        rows_per_record=told.rows_per_record,
    )
    found = []
    for group, (role, topic) in topics.items():
        seen = report.group(group) or GroupLag(group, "", None, (), report.problem)
        seen = excused(seen, why_at_rest(group, published, status))
        found.append(GroupStatus(role, topic_name(topic, name), seen))
    return tuple(found)
