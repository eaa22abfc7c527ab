"""Where what is in ZooKeeper, and how it is asked: briefly, and with distrust."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError, OperationTimeoutError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.interfaces import IAsyncResult

ROOT = "/rollstream"
AGENTS = f"{ROOT}/agents"
ROLES = f"{ROOT}/roles"
RUNS = f"{ROOT}/runs"
LEADER = f"{ROOT}/leader"
EPOCH = f"{ROOT}/epoch"
ASSIGNMENTS = f"{ROOT}/assignments"

MAX_NODE_BYTES = 65_536
# A frozen server gives no answer, and a call would wait for it for ever.
_ANSWER_S = 5.0

Answer = TypeVar("Answer")


def answer(result: IAsyncResult) -> Any:
    """Return what ZooKeeper answers; a server that is frozen is one that is away.

    Raises:
        KazooException: it refuses, or does not answer.
    """
    try:
        return result.get(timeout=_ANSWER_S)
    except KazooTimeoutError as exc:
        raise OperationTimeoutError from exc


def there(ask: Callable[[], Answer], absent: Answer) -> Answer:
    """Ask; what is gone meanwhile is absent."""
    try:
        return ask()
    except NoNodeError:
        return absent


def facts_of(value: bytes) -> dict[str, Any]:
    """Return the JSON object in a node; an empty one when it is not ours."""
    if len(value) > MAX_NODE_BYTES:
        return {}
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def role_path(experiment: str, key: str) -> str:
    """Return the node of a role process; ``key`` is ``role/index``."""
    return f"{ROLES}/{experiment}/{key.replace('/', '-')}"


def role_key(node: str) -> str:
    """Return ``role/index``, as people see it, of the last part of a role's node."""
    return "/".join(node.rsplit("-", 1))


def roles_of_all(client: KazooClient) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the role processes registered, by experiment; asks for all at once."""
    asked = {
        name: client.get_children_async(f"{ROLES}/{name}")
        for name in there(partial(client.get_children, ROLES), list[str]())
    }
    nodes = [
        (name, role, client.get_async(f"{ROLES}/{name}/{role}"))
        for name, result in asked.items()
        for role in there(partial(answer, result), list[str]())
    ]
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for name, role, result in nodes:
        value, _ = there(partial(answer, result), (None, None))
        if value is not None:
            found.setdefault(name, {})[role] = facts_of(value)
    return found
