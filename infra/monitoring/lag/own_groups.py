"""The groups of our roles, by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping

from schemas.topics import EXPERIMENT_NAME, REPLAY, TRAJECTORIES, Topic, topic_name

READS: Mapping[str, Topic] = {
    "processor": TRAJECTORIES,
    "archiver": TRAJECTORIES,
    "learner": REPLAY,
}
"""What a role reads as a group."""

_OURS = re.compile(rf"rollstream\.({EXPERIMENT_NAME.pattern})\.({'|'.join(READS)})")


def experiment_of(group: str) -> str | None:
    """Return whose group it is; None: it is not ours."""
    found = _OURS.fullmatch(group)
    return found[1] if found else None


def topic_of(group: str) -> str | None:
    """Return what a group of ours reads; None: it is not ours."""
    found = _OURS.fullmatch(group)
    return topic_name(READS[found[3]], found[1]) if found else None
