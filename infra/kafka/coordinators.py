"""Groups -> what they have committed and who is in them, of all at once.

Over connections of its own: librdkafka ends the whole process where a coordinator
answers that it is none any more (its #5040), or comes back after a request has run out
of time (#4605). Both are daily life for who watches brokers that are restarted.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError, for_code
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.coordination import FindCoordinatorRequest

from infra.kafka.clients import faust_broker_settings
from infra.kafka.group_protocol import (
    DescribeClassics,
    DescribeConsumers,
    GroupDescription,
    Partition,
    Protocol,
    description_of,
)
from infra.settings import Settings

SILENT = "its coordinator does not answer"

_PAUSE_S = 0.05
_REQUEST_MS = 30_000  # nobody waits that long: who asks says how long
_GROUP = 0
_LOADING, _NONE_YET, _NOT_COORDINATOR = 14, 15, 16
_PASSING = (_LOADING, _NONE_YET, _NOT_COORDINATOR)
_BROKEN = (KafkaError, OSError, EOFError, asyncio.TimeoutError, ValueError)

_Address = tuple[str, int]


@dataclass(slots=True)
class GroupAnswer:
    """What is known of a group.

    Attributes:
        committed: the offset of each partition it has committed one in; None: not
            known.
        description: None: not known, or not asked for.
        problem: why something is not known; "" when nothing is missing.
    """

    committed: Mapping[Partition, int] | None = None
    description: GroupDescription | None = None
    problem: str = ""


@dataclass
class _Round:
    """Questions under way: what to describe, what was answered, what is left."""

    describe: Mapping[str, Protocol]
    answers: dict[str, GroupAnswer] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)


class Coordinators:
    """Finds the coordinators of groups, and remembers them. Not safe for threads."""

    def __init__(self, settings: Settings, client_id: str) -> None:
        """Make one; nothing is connected before the first question."""
        config = faust_broker_settings(settings)
        self._bootstrap = config.pop("bootstrap_servers")
        self._config = config | {
            "client_id": client_id,
            "request_timeout_ms": _REQUEST_MS,
        }
        self._loop = asyncio.new_event_loop()
        self._connections: dict[_Address, Any] = {}
        self._of: dict[str, _Address] = {}

    def ask(
        self,
        groups: Collection[str],
        describe: Mapping[str, Protocol],
        timeout_s: float,
    ) -> dict[str, GroupAnswer]:
        """Return an answer of each group, after ``timeout_s`` at the latest.

        Args:
            groups: whose committed offsets are asked for.
            describe: those of them that are described as well, by their protocol.
            timeout_s: how long coordinators may take.
        """
        asked = _Round(
            describe, {group: GroupAnswer(problem=SILENT) for group in groups}
        )
        self._loop.run_until_complete(self._within(asked, timeout_s))
        for group in self._of.keys() - asked.answers.keys():
            del self._of[group]
        return asked.answers

    def close(self) -> None:
        """Leave the brokers."""
        if self._loop.is_closed():
            return
        # Those that Ctrl-C has interrupted.
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(self._close_all())
        self._loop.close()

    async def _within(self, asked: _Round, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                asked.left = set(asked.answers)
                while asked.left:
                    await self._ask(asked)
                    if asked.left:
                        await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            # What is under way on them would be answered to nobody.
            await self._close_all()

    async def _ask(self, asked: _Round) -> None:
        await self._find(asked)
        of: dict[_Address, list[str]] = defaultdict(list)
        for group in asked.left:
            if group in self._of:
                of[self._of[group]].append(group)
        await asyncio.gather(
            *(self._ask_one(address, groups, asked) for address, groups in of.items())
        )

    async def _find(self, asked: _Round) -> None:
        unknown = [group for group in asked.left if group not in self._of]
        if not unknown:
            return
        try:
            connection = await self._any()
        except _BROKEN as exc:
            self._say(asked, unknown, exc)
            return
        found = await _all(
            connection.send(FindCoordinatorRequest(group, _GROUP)) for group in unknown
        )
        for group, answer in zip(unknown, found, strict=True):
            if isinstance(answer, Exception):
                self._say(asked, [group], answer)
            elif not answer.error_code:
                self._of[group] = answer.host, answer.port
            else:
                self._refused(asked, group, answer.error_code)

    async def _ask_one(
        self, address: _Address, groups: list[str], asked: _Round
    ) -> None:
        try:
            connection = await self._connected(address)
            # Described before the offsets are read: who has come since is new to all.
            await self._describe(connection, groups, asked)
            offsets = await _all(
                connection.send(OffsetFetchRequest(group, None)) for group in groups
            )
        except _BROKEN as exc:
            self._say(asked, groups, exc)
            self._forget(address)
            return
        for group, answer in zip(groups, offsets, strict=True):
            if isinstance(answer, Exception):
                self._say(asked, [group], answer)
                self._forget(address)
            elif answer.error_code:
                self._refused(asked, group, answer.error_code)
            else:
                asked.left.discard(group)
                _take_offsets(asked.answers[group], answer.topics)

    async def _describe(
        self, connection: Any, groups: list[str], asked: _Round
    ) -> None:
        kinds: tuple[tuple[Protocol, Any], ...] = (
            ("classic", DescribeClassics),
            ("consumer", DescribeConsumers),
        )
        for protocol, request in kinds:
            names = [g for g in groups if asked.describe.get(g) == protocol]
            if not names:
                continue
            answer = await connection.send(request(names))
            # In the order of the names, whatever the broker calls them.
            for name, each in zip(names, answer.groups, strict=True):
                # A group that is there no more, or changes its protocol, is none that
                # anybody is in.
                if not each[0]:
                    asked.answers[name].description = description_of(protocol, each)

    async def _any(self) -> Any:
        """Return a connection to any broker.

        Raises:
            KafkaError: or OSError; no broker can be reached.
        """
        for connection in self._connections.values():
            if connection.connected():
                return connection
        error: BaseException = OSError("no broker is named")
        for host, port, _ in collect_hosts(self._bootstrap):
            try:
                return await self._connected((host, port))
            except _BROKEN as exc:
                error = exc
        raise error

    async def _connected(self, address: _Address) -> Any:
        known = self._connections.get(address)
        if known is not None and known.connected():
            return known
        made = await create_conn(*address, **self._config)
        self._connections[address] = made
        return made

    def _refused(self, asked: _Round, group: str, code: int) -> None:
        asked.answers[group].problem = f"its coordinator answers {_name(code)}"
        if code == _NOT_COORDINATOR:
            self._of.pop(group, None)
        if code not in _PASSING:
            asked.left.discard(group)

    def _say(
        self, asked: _Round, groups: Collection[str], error: BaseException
    ) -> None:
        # It stays among those that are left: the connection is made again.
        for group in groups:
            asked.answers[group].problem = f"{SILENT}: {error}" if error else SILENT

    def _forget(self, address: _Address) -> None:
        self._of = {group: at for group, at in self._of.items() if at != address}
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    async def _close_all(self) -> None:
        connections, self._connections = self._connections, {}
        self._of = {}
        closed = [connection.close() for connection in connections.values()]
        await _all(each for each in closed if each is not None)


async def _all(awaitables: Any) -> list[Any]:
    """Wait for all; what one of them raised is in its place."""
    found = await asyncio.gather(*awaitables, return_exceptions=True)
    return list(found)


def _take_offsets(answer: GroupAnswer, topics: Any) -> None:
    problem, committed = "", {}
    for topic, partitions in topics or ():
        for number, offset, _, code in partitions:
            if code:
                problem = f"{topic}[{number}]: the coordinator answers {_name(code)}"
            elif offset >= 0:
                committed[topic, number] = offset
    answer.committed, answer.problem = committed, problem


def _name(code: int) -> str:
    return str(for_code(code).message)
