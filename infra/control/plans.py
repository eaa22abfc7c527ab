"""What znodes say of agents and their work: written by us, believed only when checked.

Whatever may write to ZooKeeper may write here: values are bounded before they are
parsed, and a bad one is an error with a reason, never a crash.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from infra.clock import now_ms
from infra.control.desired import RUN_ID
from infra.control.scheduler import Assignment
from infra.errors import RollstreamError
from schemas.topics import check_name

# ZooKeeper refuses values of 1 MiB. Each role is a process: more are a mistake.
MAX_PLAN_BYTES = 900_000
MAX_ROLES = 512
MAX_AGENT_BYTES = 65_536
MAX_LABELS = 64
MAX_TROUBLES = 64
MAX_TROUBLE_REASON = 200

Text = Annotated[str, Field(max_length=255)]
Value = TypeVar("Value", bound=BaseModel)


class BadNode(RollstreamError):
    """A znode holds something that is not what it has to be."""


class _Node(BaseModel):
    # Of a newer version there may be more in it than we know.
    model_config = ConfigDict(
        frozen=True, strict=True, extra="ignore", allow_inf_nan=False
    )


class RoleAssignment(_Node):
    """One role process that an agent has to run.

    Attributes:
        spec_offset: of the spec that it starts with, in the topic of experiments.
        digest: of what it reads of the spec: with another one it has to be restarted.
    """

    experiment: str
    run_id: str = Field(pattern=f"^{RUN_ID.pattern}$")
    role: Literal["worker", "processor", "learner", "evaluator", "replayer", "archiver"]
    index: int = Field(ge=0, lt=1_000_000)
    spec_offset: int = Field(ge=0, lt=2**63)
    digest: str = Field(pattern=r"^[0-9a-f]{1,64}$")

    @field_validator("experiment")
    @classmethod
    def _is_a_name(cls, value: str) -> str:
        return check_name(value)

    @property
    def assignment(self) -> Assignment:
        """Its role and index."""
        return Assignment(self.role, self.index)


class Plan(_Node):
    """All that one agent has to run; ``epoch`` is that of the leader who wrote it."""

    epoch: int = Field(ge=0, lt=2**63)
    # A list in JSON, and nothing that changes in here.
    roles: Annotated[
        tuple[RoleAssignment, ...], Field(strict=False, max_length=MAX_ROLES)
    ] = ()

    def to_json(self) -> bytes:
        """Return what is written to the agent's znode."""
        return self.model_dump_json().encode()


class Capacity(_Node):
    """What an agent has to give, or a role asks for; in cores and devices."""

    cpu: float = Field(0.0, ge=0, le=1e6)
    gpu: float = Field(0.0, ge=0, le=1e6)


class Trouble(_Node):
    """What an agent cannot start of an experiment, and why.

    Attributes:
        reason: in words.
        roles: what it was given and cannot start, by ``role/index``. None: it has
            nothing of it any more, and is not to be given anything for a while.
    """

    reason: str = Field("", max_length=MAX_TROUBLE_REASON)
    roles: Annotated[tuple[Text, ...], Field(strict=False, max_length=MAX_ROLES)] = ()


class AgentFacts(_Node):
    """What an agent says of itself; ``troubles`` by experiment."""

    host: Text
    pid: int = Field(ge=0)
    cores: int | None = Field(None, ge=0)
    capacity: Capacity
    labels: dict[Text, Text] = Field({}, max_length=MAX_LABELS)
    troubles: dict[Text, Trouble] = Field({}, max_length=MAX_TROUBLES)
    started_at_ms: int = 0

    def to_json(self) -> bytes:
        """Return what is written to the agent's ephemeral znode."""
        return self.model_dump_json().encode()

    def with_troubles(self, troubles: Mapping[str, Trouble]) -> AgentFacts:
        """Return the facts with these, or as many of them as one node holds."""
        names = sorted(troubles)[:MAX_TROUBLES]
        while True:
            told = {name: troubles[name] for name in names}
            facts = self.model_copy(update={"troubles": told})
            # Who says too much would be taken for gone.
            if not names or len(facts.to_json()) <= MAX_AGENT_BYTES:
                return facts
            names = names[: len(names) // 2]


def facts_of_this_process(capacity: Capacity, labels: Mapping[str, str]) -> AgentFacts:
    """Return the facts of an agent that starts now, here."""
    return AgentFacts(
        host=platform.node(),
        pid=os.getpid(),
        cores=os.cpu_count(),
        capacity=capacity,
        labels=dict(labels),
        started_at_ms=now_ms(),
    )


def parse_plan(value: bytes) -> Plan:
    """Return the plan in a znode; each role is in it once.

    Raises:
        BadNode: it is too large, or not a plan.
    """
    plan = _parse(value, Plan, MAX_PLAN_BYTES)
    keys = [(role.experiment, role.role, role.index) for role in plan.roles]
    if len(set(keys)) != len(keys):
        raise BadNode("plan: expected each role once, found one twice")
    return plan


def parse_agent(value: bytes) -> AgentFacts:
    """Return the facts in an agent's znode.

    Raises:
        BadNode: it is too large, or does not describe an agent.
    """
    return _parse(value, AgentFacts, MAX_AGENT_BYTES)


def chunks(
    plans: Mapping[str, bytes | None], limit_bytes: int = MAX_PLAN_BYTES
) -> Iterable[dict[str, bytes | None]]:
    """Cut plans into groups that one transaction each can carry."""
    group: dict[str, bytes | None] = {}
    size = 0
    for name in sorted(plans):
        value = plans[name]
        more = len(value or b"") + len(name) + 100
        if group and size + more > limit_bytes:
            yield group
            group, size = {}, 0
        group[name] = value
        size += more
    if group:
        yield group


def thousandths(amount: float) -> int:
    """Return an amount as an integer: sums of floats are not what they seem."""
    return math.ceil(round(amount * 1000, 3))


def _parse(value: bytes, kind: type[Value], limit_bytes: int) -> Value:
    what = kind.__name__.lower()
    if len(value) > limit_bytes:
        raise BadNode(
            f"{what}: expected at most {limit_bytes} bytes, found {len(value)}"
        )
    try:
        return kind.model_validate_json(value)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        path = ".".join(map(str, error["loc"]))[:80]
        raise BadNode(f"{what} {path}: {error['msg'][:200]}") from None
