"""What ZooKeeper says of the role processes that live, for who only looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kazoo.exceptions import KazooException

from infra.control.coordination import Coordination
from infra.control.znodes import role_key
from infra.errors import RollstreamError
from infra.settings import Settings

_ANSWER_S = 3.0

Answer = TypeVar("Answer")
Live = dict[str, dict[str, Any]]
"""What ZooKeeper says of each process that lives, by ``role/index``."""


def ask_zookeeper(
    settings: Settings, question: Callable[[Coordination], Answer]
) -> Answer | None:
    """Return what is answered; None: ZooKeeper does not answer, or there is none."""
    try:
        coordination = Coordination(settings)
    except RollstreamError:
        return None
    try:
        coordination.start(_ANSWER_S)
        return question(coordination)
    except (RollstreamError, KazooException):
        return None
    finally:
        coordination.close()


def read_live(
    settings: Settings, name: str
) -> tuple[Live | None, tuple[str, ...] | None]:
    """Return the processes of an experiment, and all agents that take on work.

    None: ZooKeeper does not answer.
    """
    found = ask_zookeeper(
        settings,
        lambda zookeeper: (zookeeper.live_roles(name), live_agents(zookeeper)),
    )
    if found is None:
        return None, None
    roles, agents = found
    return {role_key(node): facts for node, facts in roles.items()}, agents


def live_agents(coordination: Coordination) -> tuple[str, ...]:
    """Return the agents that take on work: a foreground run is none."""
    return tuple(
        sorted(name for name, facts in coordination.agents().items() if _works(facts))
    )


def _works(facts: Mapping[str, Any]) -> bool:
    return "capacity" in facts


def is_claimed(coordination: Coordination, name: str) -> bool | None:
    """Whether a foreground run has claimed an experiment; None: not known now."""
    if coordination.connected_at_s is None:
        return None
    try:
        return coordination.claimed_by(name) is not None
    except KazooException:
        return None


def agents_of(live: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return who runs these processes."""
    return tuple(sorted({str(facts.get("agent", "")) for facts in live.values()}))
