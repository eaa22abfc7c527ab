"""What an agent's node says of what it cannot start; the server is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import NoNodeError

from infra.control.plan_watch import PlanWatch
from infra.control.plans import AgentFacts, Capacity, Trouble, parse_agent
from infra.control.znodes import AGENTS

FACTS = AgentFacts(host="h", pid=1, capacity=Capacity(cpu=2.0))
NODE = f"{AGENTS}/h-1"
FULL = {"exp": Trouble(reason="full", roles=("worker/0",))}


class PlayedClient:
    """Holds nodes; counts what is written, and never removes one."""

    def __init__(self) -> None:
        self.nodes = {NODE: FACTS.to_json()}
        self.writes = 0

    def get_async(self, path: str, **_: object) -> Any:
        return SimpleNamespace(get=lambda timeout: (self._at(path), None))

    def set_async(self, path: str, value: bytes) -> Any:
        def write(timeout: float) -> None:
            self._at(path)
            self.writes += 1
            self.nodes[path] = value

        return SimpleNamespace(get=write)

    def _at(self, path: str) -> bytes:
        if path not in self.nodes:
            raise NoNodeError
        return self.nodes[path]


def test_troubles_are_in_the_agents_node_while_they_last() -> None:
    client = PlayedClient()
    coordination: Any = SimpleNamespace(
        name="h-1",
        client=client,
        sure_until_s=lambda: 0.0,
        heal_roles=lambda experiment: None,
    )
    watch = PlanWatch(coordination, FACTS)

    def told(troubles: dict[str, Trouble]) -> AgentFacts:
        watch.report({}, troubles)
        for _ in range(3):
            watch._pass()
        return parse_agent(client.nodes[NODE])

    assert told({}) == FACTS and client.writes == 0
    assert told(FULL).troubles == FULL and client.writes == 1
    # After a lost session it is put back as it was at first.
    client.nodes[NODE] = FACTS.to_json()
    assert told(FULL).troubles == FULL
    # Between the two there is none, and nobody but who puts it back makes one.
    gone = client.nodes.pop(NODE)
    watch._pass()
    assert NODE not in client.nodes
    client.nodes[NODE] = gone
    assert told({}) == FACTS
    writes = client.writes
    assert told({}) == FACTS and client.writes == writes
