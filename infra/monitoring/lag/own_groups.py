"""The groups of our roles, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemas.topics import EXPERIMENT_NAME, REPLAY, TRAJECTORIES, Topic, topic_name

READS: Mapping[str, Topic] = {
    "processor": TRAJECTORIES,
    "learner": REPLAY,
    "archiver": TRAJECTORIES,
}
"""What a role reads as a group."""

LEARNS: Mapping[str, Topic] = {role: READS[role] for role in ("processor", "learner")}
"""Of those the roles without which nothing is learnt: whose lag makes others wait."""

_OURS = re.compile(rf"rollstream\.({EXPERIMENT_NAME.pattern})\.({'|'.join(READS)})")


def experiment_of(group: str) -> str | None:
    """Return whose group it is; None: it is not ours."""
    found = _OURS.fullmatch(group)
    return found[1] if found else None


def topic_of(group: str) -> str | None:
    """Return what a group of ours reads; None: it is not ours."""
    found = _OURS.fullmatch(group)
    return topic_name(READS[found[3]], found[1]) if found else None
