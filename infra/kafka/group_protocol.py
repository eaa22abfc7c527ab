"""What is asked of the coordinators of groups, and what they answer.

aiokafka has most of the protocol: not the description of a group of the new protocol
(KIP-848), and its newest request for the others expects the wrong answer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.protocol.admin import (
    DescribeGroupsRequest_v0,
    DescribeGroupsRequest_v1,
    DescribeGroupsRequest_v2,
)
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    Bytes,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

Partition = tuple[str, int]
"""A topic, and a partition's number."""

Protocol = Literal["classic", "consumer"]
"""How the members of a group agree: by themselves, or by the broker (KIP-848)."""

_Held = tuple[str, list[Partition] | None]
"""A member, and what it holds; None: nobody can read that."""

_TEXT = CompactString("utf-8")
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")


class _Uuid(Bytes):  # type: ignore[misc]
    @classmethod
    def decode(cls, data: Any) -> bytes:
        return bytes(data.read(16))


_ASSIGNMENT = Schema(
    (
        "topic_partitions",
        CompactArray(
            ("topic_id", _Uuid),
            ("topic", _TEXT),
            ("partitions", CompactArray(Int32)),
            ("tags", TaggedFields),
        ),
    ),
    ("tags", TaggedFields),
)


class _ConsumerGroupDescribeResponse(Response):  # type: ignore[misc]
    API_KEY = 69
    API_VERSION = 0
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "groups",
            CompactArray(
                ("error_code", Int16),
                ("error_message", _TEXT),
                ("group", _TEXT),
                ("state", _TEXT),
                ("group_epoch", Int32),
                ("assignment_epoch", Int32),
                ("assignor", _TEXT),
                (
                    "members",
                    CompactArray(
                        ("member_id", _TEXT),
                        ("instance_id", _TEXT),
                        ("rack_id", _TEXT),
                        ("member_epoch", Int32),
                        ("client_id", _TEXT),
                        ("client_host", _TEXT),
                        ("topics", CompactArray(_TEXT)),
                        ("topic_regex", _TEXT),
                        ("assignment", _ASSIGNMENT),
                        ("target_assignment", _ASSIGNMENT),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class _ConsumerGroupDescribeRequest(RequestStruct):  # type: ignore[misc]
    FLEXIBLE_VERSION = True
    API_KEY = 69
    API_VERSION = 0
    RESPONSE_TYPE = _ConsumerGroupDescribeResponse
    SCHEMA = Schema(
        ("groups", CompactArray(_TEXT)),
        ("include_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class DescribeConsumers(Request[_ConsumerGroupDescribeRequest]):  # type: ignore[misc]
    """Asks for groups of the new protocol."""

    API_KEY = 69

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        """Return what goes over the wire."""
        return request_struct_class(self._groups, False, {})


class DescribeClassics(
    Request[  # type: ignore[misc]
        DescribeGroupsRequest_v0 | DescribeGroupsRequest_v1 | DescribeGroupsRequest_v2
    ]
):
    """Asks for groups of the old protocol."""

    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        """Return what goes over the wire."""
        return request_struct_class(self._groups)


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """Who is in a group.

    Attributes:
        state: as the broker names it.
        members: how many.
        owners: ``client@host`` of the member that holds each partition.
        problem: why the owners of some partitions are not known; "" when all are.
    """

    state: str
    members: int
    owners: Mapping[Partition, str]
    problem: str = ""


def description_of(protocol: Protocol, answer: Any) -> GroupDescription:
    """Return what one group of an answer says.

    What is assigned to a member of a classic group is whatever its clients made of it:
    that of one group must not keep those of others from being told.
    """
    if protocol == "consumer":
        _, _, _, state, *_, members, _, _ = answer
        return _described(
            state,
            [
                (_owner(client, host), _partitions(assignment[0]))
                for *_, client, host, _, _, assignment, _, _ in members
            ],
        )
    _, _, state, protocol_type, _, members = answer
    held: list[_Held] = []
    for _, client, host, _, assignment in members:
        # Of other protocol types (Connect's workers) it has another form; while a
        # group comes together there is none.
        is_ours = protocol_type == "consumer" and assignment
        partitions = _decoded(assignment) if is_ours else []
        held.append((_owner(client, host), partitions))
    return _described(state, held)


def _described(state: str, held: Sequence[_Held]) -> GroupDescription:
    owners, odd = {}, []
    for owner, partitions in held:
        for topic, number in partitions or ():
            if _exists(topic, number):
                owners[topic, number] = owner
        if partitions is None or not all(_exists(*each) for each in partitions):
            odd.append(owner)
    problem = f"what is assigned to {odd[0]} makes no sense" if odd else ""
    return GroupDescription(state, len(held), owners, problem)


def _decoded(assignment: bytes) -> list[Partition] | None:
    """Return the partitions of an assignment; None: it is none."""
    try:
        decoded = ConsumerProtocolMemberAssignment.decode(assignment)
    except ValueError:
        return None
    return [
        (topic, number)
        for topic, numbers in decoded.assignment or ()
        for number in numbers or ()
    ]


def _partitions(assigned: Any) -> list[Partition]:
    return [
        (topic, number)
        for _, topic, numbers, _ in assigned or ()
        for number in numbers or ()
    ]


def _exists(topic: str | None, number: int) -> bool:
    """Whether there can be such a partition: who asks brokers for others is refused."""
    return topic is not None and bool(_TOPIC.fullmatch(topic)) and number >= 0


def _owner(client: str | None, host: str | None) -> str:
    return f"{client or ''}@{(host or '').removeprefix('/')}"
