"""Which role runs on which agent; pure.

Sticky: a role stays where it is while that agent lives and the role fits on it. What
has no place goes where most is free; what fits nowhere waits, with the reason.

All or none: an experiment of which nothing runs is begun only where the first of each
of its roles has a place, for in part it would only be in others' way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from infra.control.rooms import (
    Demand,
    Free,
    Host,
    RoleKey,
    Room,
    fitting,
    seat_all,
    why_not,
)

__all__ = ["Demand", "Free", "Host", "Placement", "RoleKey", "place"]

# Who has no learner needs no worker.
_FIRST = {"learner": 0, "processor": 1, "evaluator": 2, "worker": 3}


@dataclass(frozen=True)
class Placement:
    """Where every role is, and why the others are nowhere yet.

    Attributes:
        where: the agent of each that has a place.
        pending: why others have none; what an experiment lacks goes before what waits
            for that.
        stuck: why some cannot be started where they are, and have no other place.
        free: what each agent has left.
    """

    where: Mapping[RoleKey, str]
    pending: Mapping[RoleKey, str]
    stuck: Mapping[RoleKey, str] = field(default_factory=dict)
    free: Mapping[str, Free] = field(default_factory=dict)


def place(
    demands: Iterable[Demand],
    hosts: Iterable[Host],
    current: Mapping[RoleKey, str],
) -> Placement:
    """Return where each demanded role runs from now on.

    1. Who has a place keeps it, if it fits there.
    2. Who cannot be started there goes to another agent that it fits on; without one
       it stays.
    3. Of experiments that run in part, which take up room already, the first of each
       role that has no place.
    4. New experiments one after the other, by name: the first of each role, or none.
    5. More of the roles of all that run by now.

    Args:
        demands: what has to run; a key that is there twice counts once.
        hosts: the agents that live.
        current: which agent each role was given last, gone ones included.
    """
    wanted = sorted({d.key: d for d in demands}.values(), key=_order)
    floor = _Floor({h.agent: Room(h) for h in sorted(hosts, key=lambda h: h.agent)})
    for demand in wanted:
        floor.keep(demand, current.get(demand.key, ""))
    for demand in wanted:
        floor.leave_trouble(demand)
    runs = {key.experiment for key in floor.where}
    first = [d for d in wanted if d.key.index == 0 and d.key not in floor.where]
    for demand in first:
        if demand.key.experiment in runs:
            floor.let_in(demand)
    lacking: dict[str, str] = {}
    for name in dict.fromkeys(d.key.experiment for d in first):
        if name not in runs:
            gang = [d for d in first if d.key.experiment == name]
            lacking[name] = floor.let_in_all(gang)
    for demand in wanted:
        waits_for = lacking.get(demand.key.experiment)
        if demand.key in floor.where or demand.key in floor.pending:
            continue
        if waits_for:
            floor.pending[demand.key] = waits_for
        else:
            floor.let_in(demand)
    free = {name: room.free for name, room in floor.rooms.items()}
    return Placement(floor.where, floor.pending, floor.stuck, free)


class _Floor:
    def __init__(self, rooms: Mapping[str, Room]) -> None:
        self.rooms = rooms
        self.where: dict[RoleKey, str] = {}
        self.pending: dict[RoleKey, str] = {}
        self.stuck: dict[RoleKey, str] = {}

    def keep(self, demand: Demand, agent: str) -> None:
        room = self.rooms.get(agent)
        if room is not None and not room.lacks(demand):
            self._enter(demand, room)

    def leave_trouble(self, demand: Demand) -> None:
        room = self.rooms.get(self.where.get(demand.key, ""))
        trouble = room.trouble(demand) if room is not None else None
        if room is None or trouble is None or str(demand.key) not in trouble.roles:
            return
        others = [each for each in self.rooms.values() if each is not room]
        untroubled = [each for each in others if not each.trouble(demand)]
        if found := fitting(demand, untroubled):
            room.give_back(demand)
            self._enter(demand, found[0])
            return
        why = f"{room.host.agent} cannot start it: {trouble.reason}"
        if len(untroubled) < len(others):
            why += "; nor can others"
        if untroubled:
            why += f"; {why_not(demand, untroubled, ' instead')}"
        self.stuck[demand.key] = why

    def let_in(self, demand: Demand) -> None:
        if found := fitting(demand, self.rooms.values()):
            self._enter(demand, found[0])
        else:
            self.pending[demand.key] = why_not(demand, self.rooms.values())

    def let_in_all(self, gang: Sequence[Demand]) -> str:
        """Let in all or none; return what the others wait for then."""
        rooms = list(self.rooms.values())
        alone = {d.key: why_not(d, rooms) for d in gang if not fitting(d, rooms)}
        places = None if alone else seat_all(gang, rooms)
        if places is not None:
            for demand, room in zip(gang, places, strict=True):
                self.where[demand.key] = room.host.agent
            return ""
        lacking = alone or self._too_many(gang)
        names = ", ".join(map(str, lacking))
        waits_for = f"waits for a place for {names}"
        self.pending |= lacking
        self.pending |= {d.key: waits_for for d in gang if d.key not in lacking}
        return waits_for

    def _too_many(self, gang: Sequence[Demand]) -> dict[RoleKey, str]:
        """Who is left over, where each would fit without the others."""
        rooms, lacking = list(self.rooms.values()), dict[RoleKey, str]()
        seated = []
        for demand in gang:
            if found := fitting(demand, rooms):
                found[0].take(demand)
                seated.append((found[0], demand))
            else:
                lacking[demand.key] = why_not(demand, rooms, " beside the others")
        for room, demand in seated:
            room.give_back(demand)
        return lacking

    def _enter(self, demand: Demand, room: Room) -> None:
        room.take(demand)
        self.where[demand.key] = room.host.agent


def _order(demand: Demand) -> tuple[int, str, int, str]:
    # The first of every role of one experiment, then of the next, then what they have
    # more of.
    key = demand.key
    return key.index, key.experiment, _FIRST.get(key.role, len(_FIRST)), key.role
