"""All experiments in one table: each topic is read once, however many there are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infra.clock import now_ms
from infra.control.desired import Desired, Entry, PublishedExperiment, one_line
from infra.control.experiments import run_started_ms
from infra.control.statuses import read_states, summary_of
from infra.control.wants import least_roles
from infra.control.znodes import roles_of_all
from infra.kafka.clients import make_admin
from infra.kafka.reading import read_to_end
from infra.kafka.topic_description import topic_exists
from infra.monitoring.live import agents_of, ask_zookeeper, live_agents
from infra.monitoring.metric_tails import Figures, read_figures
from infra.monitoring.nothing_said import state_unsaid
from infra.settings import Settings
from schemas.records import RoleStatus
from schemas.topics import EXPERIMENT_NAME, EXPERIMENTS, STATUS, topic_name

# Of each process, and then some: the learner's newest is among them.
_RECORDS_A_ROLE = 8
_MIN_RECORDS, _MAX_RECORDS = 64, 4_096

Live = dict[str, dict[str, dict[str, Any]]]


@dataclass(frozen=True)
class ExperimentRow:
    """An experiment in one line; None: not known.

    Attributes:
        managed_by: ``run`` or ``agents``.
        wanted: ``running``, ``paused`` or ``stopped``; "" when no spec is in force.
        state: what was published of it; ``refused`` when no spec is in force.
        reason: of that, or why its newest spec was refused.
        roles_running: processes that live; None: ZooKeeper does not answer.
        roles_wanted: processes that its spec asks for; at least, if elastic.
        mean_return: of the newest evaluation when ``is_greedy``, else of episodes.
        age_ms: since its run began.
        agents: that run its roles.
    """

    experiment: str
    run_id: str
    managed_by: str
    wanted: str
    state: str
    reason: str
    roles_running: int | None
    roles_wanted: int
    env_steps: int | None
    mean_return: float | None
    is_greedy: bool
    age_ms: int | None
    agents: tuple[str, ...]


@dataclass(frozen=True)
class Overview:
    """All experiments by name, and the agents that live; None: not known."""

    experiments: tuple[ExperimentRow, ...]
    agents: tuple[str, ...] | None


def read_overview(settings: Settings) -> Overview:
    """Read what there is; needs ZooKeeper only for what runs.

    Raises:
        RollstreamError: the brokers do not answer.
    """
    live, agents = _read_live(settings)
    desired = read_desired(settings)
    entries = {
        name: entry
        for name, entry in sorted(desired.entries.items())
        if EXPERIMENT_NAME.fullmatch(name) and not _is_gone(entry)
    }
    states = read_states(settings) if entries else {}
    figures = _read_figures(settings, entries, states)
    rows = [
        _row(name, entry, states.get(name), figures.get(name, Figures()), live)
        for name, entry in entries.items()
    ]
    return Overview(tuple(rows), agents)


def read_desired(settings: Settings) -> Desired:
    """Return the fold of the whole topic of experiments; empty before there is one."""
    desired = Desired()
    admin = make_admin(settings)
    if all(topic_exists(admin, topic_name(topic)) for topic in (EXPERIMENTS, STATUS)):
        for message in read_to_end(settings, topic_name(EXPERIMENTS)):
            desired.apply(message)
    return desired


def _is_gone(entry: Entry) -> bool:
    return entry.accepted is None and entry.deleted


def _read_live(settings: Settings) -> tuple[Live | None, tuple[str, ...] | None]:
    found = ask_zookeeper(
        settings,
        lambda zookeeper: (roles_of_all(zookeeper.client), live_agents(zookeeper)),
    )
    return found or (None, None)


def _read_figures(
    settings: Settings, entries: dict[str, Entry], states: dict[str, RoleStatus]
) -> dict[str, Figures]:
    run_ids, records, told = {}, {}, {}
    for name, entry in entries.items():
        known, status = entry.accepted, states.get(name)
        if known is None:
            continue
        told[name] = _told(known, status)
        if told[name].is_greedy and status and status.state == "finished":
            continue  # the last word
        spec = known.experiment.spec
        roles = 3 + spec.workers.most_replicas + spec.processor.most_replicas
        run_ids[name] = known.run_id
        records[name] = min(max(_RECORDS_A_ROLE * roles, _MIN_RECORDS), _MAX_RECORDS)
    newest = read_figures(settings, run_ids, records)
    return {name: newest.get(name, Figures()).after(told[name]) for name in told}


def _told(known: PublishedExperiment, status: RoleStatus | None) -> Figures:
    """Return what the newest status says of a run."""
    is_of_it = status is not None and status.run_id == known.run_id
    return Figures.of(summary_of(status) if status and is_of_it else None)


def _row(
    name: str,
    entry: Entry,
    status: RoleStatus | None,
    figures: Figures,
    live: Live | None,
) -> ExperimentRow:
    known = entry.accepted
    roles = (live or {}).get(name, {})
    reason = f"newest spec: {entry.refused.reason}" if entry.refused else ""
    state = "refused"
    if known is not None:
        state = state_unsaid(known.managed_by)
    if known is not None and status is not None and status.run_id == known.run_id:
        state, reason = status.state, reason or one_line(status.reason)
    wanted = least_roles(known.experiment.spec) if known else []
    began_ms = run_started_ms(known.run_id) if known else None
    return ExperimentRow(
        experiment=name,
        run_id=known.run_id if known else "",
        managed_by=known.managed_by if known else "",
        wanted=known.experiment.spec.state if known else "",
        state=one_line(state),
        reason=reason,
        roles_running=None if live is None else len(roles),
        roles_wanted=len(wanted) if state != "finished" else 0,
        env_steps=figures.env_steps,
        mean_return=figures.mean_return,
        is_greedy=figures.is_greedy,
        age_ms=max(0, now_ms() - began_ms) if began_ms is not None else None,
        agents=agents_of(roles),
    )
