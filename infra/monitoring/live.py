"""What ZooKeeper says of the role processes that live, for who only looks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from infra.control.coordination import Coordination
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
    except RollstreamError:
        return None
    finally:
        coordination.close()


def read_live(settings: Settings, name: str) -> Live | None:
    """Return the processes of an experiment; None: ZooKeeper does not answer."""
    live = ask_zookeeper(settings, lambda zookeeper: zookeeper.live_roles(name))
    if live is None:
        return None
    # Names of nodes hold no slash.
    return {"/".join(key.rsplit("-", 1)): live[key] for key in live}


def agents_of(live: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return who runs these processes."""
    return tuple(sorted({str(facts.get("agent", "")) for facts in live.values()}))
