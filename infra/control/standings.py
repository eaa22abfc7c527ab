"""What is known of an experiment -> its state in one word, and why; pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.control.desired import Entry, Refusal, one_line
from infra.control.placement import RoleKey
from schemas.records import RoleStatus

# Reasons, and roles that share one.
_SHOWN = 2
# Characters of what is told beside a refusal.
_SHORT = 240


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of an experiment.

    Attributes:
        state: pending, running, paused, degraded, stopped or refused.
        reason: in one line.
    """

    state: str
    reason: str


@dataclass(frozen=True)
class Facts:
    """What the leader knows of an experiment that agents are to run.

    Attributes:
        entry: what the topic says.
        waits_for: why none of its roles is placed yet; empty: nothing is in the way.
        placed: which agent each of its roles is given.
        pending: why others are nowhere, or cannot be started where they are; what is
            to be told first goes first.
        roles: what agents say of its processes, by ``role/index``.
        live: how many of its roles are registered.
        finishing: why it is over, while its roles still end.
    """

    entry: Entry
    waits_for: str = ""
    placed: Mapping[RoleKey, str] | None = None
    pending: Mapping[RoleKey, str] | None = None
    roles: Mapping[str, RoleStatus] | None = None
    live: int = 0
    finishing: str = ""


def standing(facts: Facts) -> Standing:
    """Return the state; the first rule that holds.

    1. Nothing was ever accepted: refused.
    2. It is to be stopped: stopped.
    3. It has reached its end, and its roles still do: what is wanted.
    4. Nothing of it can be placed yet: pending.
    5. A role was given up: degraded.
    6. A role has no place, or cannot be started where it is: pending.
    7. What is wanted: running or paused.
    """
    refusal = facts.entry.last_refused
    accepted = facts.entry.accepted
    if accepted is None:
        found = Standing("refused", _refused(refusal) if refusal else "no spec")
    else:
        found = _of_accepted(facts, accepted.experiment.spec.state)
        if refusal is not None:
            both = f"{found.reason[:_SHORT]}; {_refused(refusal)}"
            found = Standing(found.state, both)
    # As it is published: else it would always differ from what was told before.
    return Standing(found.state, one_line(found.reason))


def _of_accepted(facts: Facts, wanted: str) -> Standing:
    if wanted == "stopped":
        still = f"{facts.live} roles are still ending" if facts.live else "no role runs"
        return Standing("stopped", still)
    if facts.finishing:
        return Standing(wanted, f"finishing: {facts.finishing}")
    if facts.waits_for:
        return Standing("pending", facts.waits_for)
    placed, pending = facts.placed or {}, facts.pending or {}
    told = {f"{key.role}/{key.index}": key for key in placed}
    given_up = {
        told[key]: each.reason
        for key, each in sorted((facts.roles or {}).items())
        if each.state == "failed" and key in told
    }
    if given_up:
        return Standing("degraded", _grouped(given_up))
    if pending:
        return Standing("pending", _grouped(pending))
    agents = len(set(placed.values()))
    return Standing(
        wanted,
        f"{_count(len(placed), 'role')} on {_count(agents, 'agent')}",
    )


def _refused(refusal: Refusal) -> str:
    return f"the spec at offset {refusal.offset} is refused: {refusal.reason}"


def _grouped(reasons: Mapping[RoleKey, str]) -> str:
    """Return the first reasons, each with the roles that it is about."""
    about: dict[str, list[RoleKey]] = {}
    for key, reason in reasons.items():
        about.setdefault(reason, []).append(key)
    groups = [f"{_few(keys)}: {reason}" for reason, keys in about.items()]
    left = sum(map(len, list(about.values())[_SHOWN:]))
    more = f" (and {_count(left, 'role')} more)" if left else ""
    return "; ".join(groups[:_SHOWN]) + more


def _few(keys: list[RoleKey]) -> str:
    names = [str(key) for key in sorted(keys)]
    if len(names) > _SHOWN + 1:
        names[_SHOWN:] = [f"{len(names) - _SHOWN} more"]
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
