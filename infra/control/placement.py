"""Which role runs on which agent; pure.

Sticky: a role stays where it is while that agent lives and the role fits on it. What
has no place goes where most is free; what fits nowhere waits, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from infra.control.plans import MAX_ROLES

# Who has no learner needs no worker.
_FIRST = {"learner": 0, "processor": 1, "evaluator": 2, "worker": 3}


@dataclass(frozen=True, slots=True, order=True)
class RoleKey:
    """A role process of an experiment."""

    experiment: str
    role: str
    index: int

    def __str__(self) -> str:
        return f"{self.role}/{self.index}"


@dataclass(frozen=True, slots=True)
class Demand:
    """What a role asks for; ``cpu`` and ``gpu`` in thousandths."""

    key: RoleKey
    cpu: int = 0
    gpu: int = 0
    selector: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Host:
    """What an agent has to give; ``cpu`` and ``gpu`` in thousandths."""

    agent: str
    cpu: int
    gpu: int
    labels: Mapping[str, str] = field(default_factory=dict)
    max_roles: int = MAX_ROLES


@dataclass(frozen=True)
class Placement:
    """Where every role is, and why the others are nowhere yet."""

    where: Mapping[RoleKey, str]
    pending: Mapping[RoleKey, str]


@dataclass
class _Room:
    host: Host
    cpu: int
    gpu: int
    roles: int

    def lacks(self, demand: Demand) -> str:
        """Return why the demand does not fit; empty when it does."""
        for label, value in sorted(demand.selector.items()):
            found = self.host.labels.get(label)
            if found != value:
                return f"label {label}={value} (has {found or 'none'})"
        if demand.gpu > self.gpu:
            return f"gpu {_amount(demand.gpu)} (free {_amount(self.gpu)})"
        if demand.cpu > self.cpu:
            return f"cpu {_amount(demand.cpu)} (free {_amount(self.cpu)})"
        return "room for another role" if self.roles < 1 else ""

    def take(self, demand: Demand) -> None:
        self.cpu -= demand.cpu
        self.gpu -= demand.gpu
        self.roles -= 1

    def rank(self, demand: Demand) -> tuple[int, int, int, str]:
        """The smallest is the best place: most is free, fewest roles, then by name."""
        # Devices are scarce: who needs none leaves them to others.
        gpu = 0 if demand.gpu else self.host.gpu
        return (gpu, -self.cpu, -self.roles, self.host.agent)


def place(
    demands: Iterable[Demand],
    hosts: Iterable[Host],
    current: Mapping[RoleKey, str],
) -> Placement:
    """Return where each demanded role runs from now on.

    Args:
        demands: what has to run; a key that is there twice counts once.
        hosts: the agents that live.
        current: which agent each role was given last, gone ones included.
    """
    rooms = {h.agent: _Room(h, h.cpu, h.gpu, h.max_roles) for h in hosts}
    wanted = sorted({d.key: d for d in demands}.values(), key=_order)
    where: dict[RoleKey, str] = {}
    pending: dict[RoleKey, str] = {}
    for demand in wanted:
        room = rooms.get(current.get(demand.key, ""))
        if room is not None and not room.lacks(demand):
            room.take(demand)
            where[demand.key] = room.host.agent
    for demand in wanted:
        if demand.key in where:
            continue
        fitting = [room for room in rooms.values() if not room.lacks(demand)]
        if not fitting:
            pending[demand.key] = _reason(demand, rooms)
            continue
        best = min(fitting, key=lambda room: room.rank(demand))
        best.take(demand)
        where[demand.key] = best.host.agent
    return Placement(where, pending)


def _order(demand: Demand) -> tuple[int, str, int, str]:
    # The first of every role of one experiment, then of the next, then what they have
    # more of: where there is too little room some run whole, not all in part for ever.
    key = demand.key
    return key.index, key.experiment, _FIRST.get(key.role, len(_FIRST)), key.role


def _reason(demand: Demand, rooms: Mapping[str, _Room]) -> str:
    if not rooms:
        return "no agent lives"
    lacks = [f"{name} lacks {rooms[name].lacks(demand)}" for name in sorted(rooms)]
    more = f" and {len(lacks) - 3} more" if len(lacks) > 3 else ""
    return "no agent fits: " + "; ".join(lacks[:3]) + more


def _amount(thousandths: int) -> str:
    return f"{thousandths / 1000:g}"
