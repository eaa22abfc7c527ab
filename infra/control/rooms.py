"""What each agent has left to give, and what of it a role would take; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.control.plans import MAX_ROLES, Trouble

# In a large cluster a search to its end would take long, and what fits is found early.
_SEATS_TRIED = 500


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
    """What an agent has to give; ``cpu`` and ``gpu`` in thousandths.

    Attributes:
        troubles: what it cannot start, by experiment.
    """

    agent: str
    cpu: int
    gpu: int
    labels: Mapping[str, str] = field(default_factory=dict)
    max_roles: int = MAX_ROLES
    troubles: Mapping[str, Trouble] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Free:
    """What an agent has left: ``cpu`` and ``gpu`` in thousandths, and processes."""

    cpu: int
    gpu: int
    roles: int


class Room:
    """One agent's, as roles take it up."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self._cpu, self._gpu, self._roles = host.cpu, host.gpu, host.max_roles

    @property
    def free(self) -> Free:
        """What is left."""
        return Free(self._cpu, self._gpu, self._roles)

    def lacks(self, demand: Demand) -> str:
        """Return why the demand does not fit; empty when it does."""
        for label, value in sorted(demand.selector.items()):
            found = self.host.labels.get(label)
            if found != value:
                return f"label {label}={value} (has {found or 'none'})"
        if demand.gpu > self._gpu:
            return f"gpu {_amount(demand.gpu)} (free {_amount(self._gpu)})"
        if demand.cpu > self._cpu:
            return f"cpu {_amount(demand.cpu)} (free {_amount(self._cpu)})"
        return "room for another role" if self._roles < 1 else ""

    def trouble(self, demand: Demand) -> Trouble | None:
        """Return why it is better placed elsewhere; None: it is not."""
        return self.host.troubles.get(demand.key.experiment)

    def take(self, demand: Demand) -> None:
        """Let it in."""
        self._cpu -= demand.cpu
        self._gpu -= demand.gpu
        self._roles -= 1

    def give_back(self, demand: Demand) -> None:
        """Let it out again."""
        self._cpu += demand.cpu
        self._gpu += demand.gpu
        self._roles += 1

    def rank(self, demand: Demand) -> tuple[bool, int, int, int, str]:
        """The smallest is the best place: most is free, fewest roles, then by name."""
        # Devices are scarce: who needs none leaves them to others.
        gpu = 0 if demand.gpu else self.host.gpu
        in_trouble = self.trouble(demand) is not None
        return (in_trouble, gpu, -self._cpu, -self._roles, self.host.agent)


def fitting(demand: Demand, rooms: Iterable[Room]) -> list[Room]:
    """Return where it fits, the best place first."""
    found = [room for room in rooms if not room.lacks(demand)]
    return sorted(found, key=lambda room: room.rank(demand))


def seat_all(demands: Sequence[Demand], rooms: Sequence[Room]) -> list[Room] | None:
    """Let all of them in, one after the other; None: they do not fit together.

    The best place of each is tried first, then whatever else there is: where few
    agents are, what fits is found.
    """
    if any(
        sum(need(each) for each in demands) > sum(has(room.free) for room in rooms)
        for need, has in _AMOUNTS
    ):
        return None
    tries = iter(range(_SEATS_TRIED))

    def seat(left: Sequence[Demand]) -> list[Room] | None:
        if not left:
            return []
        seen = set()
        for room in fitting(left[0], rooms):
            # Who is like one where it led to nothing leads to nothing.
            like = (room.free, frozenset(room.host.labels.items()))
            if like in seen or next(tries, None) is None:
                continue
            seen.add(like)
            room.take(left[0])
            rest = seat(left[1:])
            if rest is not None:
                return [room, *rest]
            room.give_back(left[0])
        return None

    return seat(demands)


_AMOUNTS: tuple[tuple[Callable[[Demand], int], Callable[[Free], int]], ...] = (
    (lambda demand: demand.cpu, lambda free: free.cpu),
    (lambda demand: demand.gpu, lambda free: free.gpu),
    (lambda demand: 1, lambda free: free.roles),
)


def why_not(demand: Demand, rooms: Iterable[Room], beside: str = "") -> str:
    """Return why it fits nowhere; ``beside`` says beside whom."""
    lacks = [
        f"{room.host.agent} lacks {room.lacks(demand)}"
        for room in sorted(rooms, key=lambda room: room.host.agent)
        if room.lacks(demand)
    ]
    if not lacks:
        return "no agent lives"
    more = f" and {len(lacks) - 3} more" if len(lacks) > 3 else ""
    return f"no agent fits{beside}: " + "; ".join(lacks[:3]) + more


def _amount(thousandths: int) -> str:
    return f"{thousandths / 1000:g}"
