"""Specs in force -> the role processes that agents have to run; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.control.desired import PublishedExperiment
from infra.control.placement import Demand, Host, RoleKey
from infra.control.plans import AgentFacts, Plan, RoleAssignment, thousandths
from infra.control.scheduler import Assignment, wanted_roles
from schemas.experiment import Spec
from schemas.role_parts import role_digest
from schemas.role_specs import ElasticSpec, RoleSpec


@dataclass(frozen=True, slots=True)
class Counts:
    """How many processes there are of the roles whose number may change."""

    workers: int
    processors: int


def key_of(role: RoleAssignment) -> RoleKey:
    """Return who an assignment is about."""
    return RoleKey(role.experiment, role.role, role.index)


def counts_of(
    published: PublishedExperiment, planned: Iterable[RoleAssignment]
) -> Counts:
    """Return how many there are to be, going on from how many are planned.

    A role whose number does not follow the load has as many as its spec says.
    """
    spec = published.experiment.spec
    now = {"worker": 0, "processor": 0}
    for role in planned:
        if role.role in now and role.run_id == published.run_id:
            now[role.role] += 1
    return Counts(
        _within(spec.workers, now["worker"]), _within(spec.processor, now["processor"])
    )


def placed_of(
    name: str, where: Mapping[RoleKey, str], before: Counts, asked: Counts
) -> Counts:
    """Return how many there are when as many are asked for as found no place."""
    placed = {"worker": 0, "processor": 0}
    for key in where:
        if key.experiment == name and key.role in placed:
            placed[key.role] += 1
    return Counts(
        min(asked.workers, max(before.workers, placed["worker"])),
        min(asked.processors, max(before.processors, placed["processor"])),
    )


def least_roles(spec: Spec) -> list[Assignment]:
    """Return the processes that are missed when they do not run; [] if stopped.

    Of a role whose number follows the load: as many as there are at least.
    """
    return wanted_roles(spec, _fewest(spec.workers), _fewest(spec.processor))


def assignments(published: PublishedExperiment, counts: Counts) -> list[RoleAssignment]:
    """Return all processes of an experiment; none when it is stopped."""
    experiment, run_id = published.experiment, published.run_id
    digests: dict[str, str] = {}
    found = []
    for wanted in wanted_roles(experiment.spec, counts.workers, counts.processors):
        role = wanted.role
        if role not in digests:
            digests[role] = role_digest(experiment, run_id, role)
        found.append(
            RoleAssignment.model_validate(
                {
                    "experiment": experiment.name,
                    "run_id": run_id,
                    "role": role,
                    "index": wanted.index,
                    "spec_offset": published.offset,
                    "digest": digests[role],
                }
            )
        )
    return found


def demand_of(role: RoleAssignment, spec: Spec) -> Demand:
    """Return what a role asks of its host."""
    part = {
        "worker": spec.workers,
        "processor": spec.processor,
        "learner": spec.learner,
        "evaluator": spec.evaluator,
        "replayer": spec.past,
        "archiver": RoleSpec(),
    }[role.role]
    return Demand(
        key_of(role),
        thousandths(part.resources.cpu),
        thousandths(part.resources.gpu),
        dict(part.node_selector),
    )


def hosts_of(agents: Mapping[str, AgentFacts]) -> list[Host]:
    """Return what the agents that live have to give."""
    return [
        Host(
            name,
            thousandths(facts.capacity.cpu),
            thousandths(facts.capacity.gpu),
            facts.labels,
            troubles=facts.troubles,
        )
        for name, facts in agents.items()
    ]


def current_places(plans: Mapping[str, Plan | None]) -> dict[RoleKey, str]:
    """Return which agent each role was given last, gone ones included."""
    return {
        key_of(role): agent
        for agent, plan in sorted(plans.items())
        if plan is not None
        for role in plan.roles
    }


def new_plans(
    epoch: int,
    agents: Iterable[str],
    roles: Mapping[RoleKey, RoleAssignment],
    where: Mapping[RoleKey, str],
) -> dict[str, Plan]:
    """Return each agent's plan; also the empty one, which says that all is to stop."""
    shares: dict[str, list[RoleAssignment]] = {agent: [] for agent in agents}
    for key in sorted(where):
        shares.setdefault(where[key], []).append(roles[key])
    return {
        agent: Plan(epoch=epoch, roles=tuple(share)) for agent, share in shares.items()
    }


def changes(
    before: Mapping[str, Plan | None], now: Mapping[str, Plan]
) -> dict[str, Plan | None]:
    """Return what has to be written; None: there is no such agent any more."""
    different: dict[str, Plan | None] = {
        agent: plan for agent, plan in now.items() if before.get(agent) != plan
    }
    return different | dict.fromkeys(before.keys() - now.keys())


def _fewest(part: ElasticSpec) -> int:
    return part.replicas if part.min is None else part.min


def _within(part: ElasticSpec, planned: int) -> int:
    if part.min is None or part.max is None:
        return part.replicas
    return min(max(planned or part.replicas, part.min), part.max)
