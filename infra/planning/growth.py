"""One experiment with more and more environments -> a row for each, and what ends it.

Weak scaling: workers as large as the spec's, and more of them. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from infra.planning.constants import Constants
from infra.planning.demand import Demand, carried_rate, demand, grown
from infra.planning.limits import (
    Host,
    Limit,
    brokers_needed,
    hosts_needed,
    is_passed,
    limits,
    offered_rate,
    sustained,
)
from infra.planning.workload import Workload

MOST_ENVS = 100_000
FARTHEST_ENVS = 100_000_000
"""What saturates beyond is not looked for."""


@dataclass(frozen=True)
class Row:
    """An experiment with so many environments.

    Attributes:
        num_envs: of all workers.
        offered: env steps/s that its workers would make, or that are asked for.
        needed: what the rate needs that all limits let through.
        held_by: the limit that lets no more through; None: all that is offered.
        limits: all limits, at that rate.
        brokers: that are needed.
        hosts: that are needed, those of brokers included.
    """

    num_envs: int
    offered: float
    needed: Demand
    held_by: Limit | None
    limits: tuple[Limit, ...]
    brokers: int
    hosts: int


@dataclass(frozen=True)
class Saturation:
    """When a resource is used up.

    Attributes:
        limit: as it is there.
        num_envs: the fewest environments at which it is passed.
    """

    limit: Limit
    num_envs: int


@dataclass(frozen=True)
class Plan:
    """A spec on paper.

    Attributes:
        work: of a step.
        host: what each machine is.
        costs: what things cost.
        own: the spec as it is.
        rows: with more environments; the spec's own first.
        here: env steps/s where all roles share one host's cores.
        saturations: what saturates when, at the rate that is offered, first first.
    """

    work: Workload
    host: Host
    costs: Constants
    own: Row
    rows: tuple[Row, ...]
    here: float
    saturations: tuple[Saturation, ...]


def make_plan(
    work: Workload,
    host: Host,
    costs: Constants,
    *,
    rate: float | None = None,
    envs: Sequence[int] = (),
) -> Plan:
    """Return the plan of a workload.

    Args:
        work: the spec's own.
        host: what each machine is.
        costs: what things cost.
        rate: env steps/s of the spec's own environments; None: as fast as workers go.
        envs: of the rows; none: times ten, up to MOST_ENVS.
    """
    rate_per_env = None if rate is None else rate / work.num_envs
    numbers = [work.num_envs, *(envs or _tens(work.num_envs))]
    rows = [
        row_of(grown(work, number), rate_per_env, host, costs)
        for number in dict.fromkeys(numbers)
    ]
    return Plan(
        work=work,
        host=host,
        costs=costs,
        own=rows[0],
        rows=tuple(rows),
        here=min(
            carried_rate(work, host.cores, costs),
            rows[0].needed.rate,
        ),
        saturations=saturations(work, rate_per_env, host, costs),
    )


def row_of(
    work: Workload, rate_per_env: float | None, host: Host, costs: Constants
) -> Row:
    """Return what an experiment comes to."""
    offered = offered_rate(work, rate_per_env, costs)
    rate, held_by = sustained(work, offered, host, costs)
    needed = demand(work, rate, costs)
    brokers = brokers_needed(needed, work.partitions, host)
    return Row(
        num_envs=work.num_envs,
        offered=offered,
        needed=needed,
        held_by=held_by,
        limits=limits(work, rate, host, costs),
        brokers=brokers,
        hosts=max(hosts_needed(needed, host), brokers if brokers > 1 else 1),
    )


def saturations(
    work: Workload, rate_per_env: float | None, host: Host, costs: Constants
) -> tuple[Saturation, ...]:
    """Return when each limit is passed as environments become more, the first first.

    Each alone, as if the others were not there. One worker at a time; what is too much
    for the first already, one environment at a time within it.
    """

    def at(num_envs: int, number: int) -> Limit:
        more = grown(work, num_envs)
        offered = offered_rate(more, rate_per_env, costs)
        return limits(more, offered, host, costs)[number]

    count = len(limits(work, 0.0, host, costs))
    found = (
        _passed(partial(at, number=number), work.envs_per_worker)
        for number in range(count)
    )
    return tuple(sorted(filter(None, found), key=lambda passed: passed.num_envs))


def _passed(at: Callable[[int], Limit], worker_envs: int) -> Saturation | None:
    """Return the fewest environments at which a limit is passed; None: it never is."""
    step = 1 if is_passed(at(worker_envs)) else worker_envs
    low, high = 0, step
    while not is_passed(at(high)):
        if high > FARTHEST_ENVS:
            return None
        low, high = high, 2 * high
    while high - low > step:
        middle = (low + high) // (2 * step) * step
        low, high = (low, middle) if is_passed(at(middle)) else (middle, high)
    return Saturation(at(high), high)


def _tens(num_envs: int) -> list[int]:
    """Return ten times as many, and so on, and MOST_ENVS at last."""
    found = []
    number = 10 * num_envs
    while number < MOST_ENVS:
        found.append(number)
        number *= 10
    return [*found, MOST_ENVS] if num_envs < MOST_ENVS else []
