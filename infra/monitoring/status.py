"""What is known of an experiment, from its topics alone: no process of it need live."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import KafkaException

from infra.clock import now_ms
from infra.control.experiments import read_experiment
from infra.control.statuses import WHOLE
from infra.errors import TopicError
from infra.kafka.clients import Traffic, make_admin, make_consumer
from infra.kafka.dead_letters import read_letters
from infra.kafka.open_transactions import held_back
from infra.kafka.reading import (
    committed_offsets,
    partitions_of,
    watermarks,
)
from infra.monitoring.follow import READS, MetricsFollower, lag_of, total_lag
from infra.monitoring.live import agents_of, read_live
from infra.monitoring.progress import Progress
from infra.monitoring.role_views import (
    RoleView,
    Told,
    pending_of,
    read_roles,
    read_statuses,
    read_told,
)
from infra.monitoring.summary import Summary, summarise
from infra.settings import Settings
from schemas.topics import group_name, topic_name

NOTHING_SAID = "nothing was published of its state"


@dataclass(frozen=True)
class PartitionStatus:
    """Where a group stands in a partition; None: nothing is known.

    Attributes:
        position: the next offset that it handles, by its newest metrics.
        committed: what it would read again from, by the broker.
        held: records handled and not acknowledged yet, by its newest metrics.
        end: of what readers are given.
        held_back: records beyond it, of transactions that are still open and behind
            those.
        lag: offsets from the position to the end; None also where the position is
            beyond it, in a topic that was made anew.
        committed_lag: offsets from the committed one to the end.
    """

    partition: int
    position: int | None
    committed: int | None
    held: int
    end: int
    lag: int | None
    committed_lag: int | None
    held_back: int = 0


@dataclass(frozen=True)
class GroupStatus:
    """A consumer group and its topic; ``problem`` says why nothing is known."""

    role: str
    group: str
    topic: str
    partitions: tuple[PartitionStatus, ...]
    problem: str = ""

    @property
    def lag(self) -> int | None:
        """Of all partitions; None where that of one is not known."""
        return total_lag([partition.lag for partition in self.partitions])

    @property
    def committed_lag(self) -> int | None:
        """Likewise, of what is committed."""
        return total_lag([partition.committed_lag for partition in self.partitions])

    @property
    def held(self) -> int:
        """Records handled and not acknowledged yet."""
        return sum(partition.held for partition in self.partitions)


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
    state = whole.status.state if whole else _not_said(published.managed_by)
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
        groups=tuple(
            _group(settings, name, role, topic_name(topic, name), progress)
            for role, topic in READS.items()
        ),
        alerts=tuple(each for each in told if each.severity == "alert"),
        letters=len(letters),
        letters_put_back=sum(bool(letter.reinjected) for letter in letters),
    )


def _group(
    settings: Settings, name: str, role: str, topic: str, progress: Progress
) -> GroupStatus:
    group = group_name(name, role)
    positions = {each.partition: each for each in progress.positions(role)}
    consumer = make_consumer(
        settings, group=group, client_id=f"{name}-status", traffic=Traffic.CONTROL
    )
    with closing(consumer):
        try:
            numbers = partitions_of(consumer, topic, unknown_s=0.0)
            committed = committed_offsets(consumer, topic, numbers)
            ends = {n: watermarks(consumer, topic, n)[1] for n in numbers}
            waiting = held_back(make_admin(settings), topic, numbers)
        except TopicError as exc:
            return GroupStatus(role, group, topic, (), exc.problem)
        except KafkaException as exc:
            return GroupStatus(role, group, topic, (), exc.args[0].str())
        except TimeoutError:
            return GroupStatus(role, group, topic, (), "the brokers do not answer")
    found = []
    for number in numbers:
        place, offset, end = positions.get(number), committed[number], ends[number]
        found.append(
            PartitionStatus(
                partition=number,
                position=place.position if place else None,
                committed=offset if offset >= 0 else None,
                held=place.held if place else 0,
                end=end,
                lag=lag_of(place.position, end) if place else None,
                committed_lag=lag_of(max(offset, 0), end),
                held_back=waiting[number][1] - end if number in waiting else 0,
            )
        )
    return GroupStatus(role, group, topic, tuple(found))


def _not_said(managed_by: str) -> str:
    return "pending" if managed_by == "agents" else "unknown"
