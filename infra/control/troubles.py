"""Starts that failed on this host -> what its agent says that it cannot start; pure.

A host whose disk is full or cannot be written to starts nothing, and another may. So
its agent says for a while that an experiment is better placed elsewhere: twice as long
each time, and no longer as soon as something of it could be started here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from infra.control.plans import MAX_TROUBLE_REASON, Trouble

FIRST_S = 60.0
LONGEST_S = 900.0
# Within two seconds: what is over by then is no reason to leave checkpoints behind.
SURE_AFTER = 4
# As supervisors say it: whoever shows a trouble says so in other words.
_PREFIX = "it cannot be started: "


@dataclass
class _Case:
    times: int = 0
    until_s: float = 0.0
    reason: str = ""


class Troubles:
    """An agent's; times are seconds of one clock."""

    def __init__(self) -> None:
        self._cases: dict[str, _Case] = {}

    def not_started(
        self, experiment: str, in_a_row: int, reason: str, now_s: float
    ) -> None:
        """Note that a role could not be started, for the ``in_a_row``-th time."""
        if in_a_row < SURE_AFTER:
            return
        case = self._cases.setdefault(experiment, _Case())
        case.reason = reason.removeprefix(_PREFIX)[:MAX_TROUBLE_REASON]
        if now_s >= case.until_s:
            case.until_s = now_s + min(FIRST_S * 2.0 ** min(case.times, 9), LONGEST_S)
            case.times += 1

    def started(self, experiment: str) -> None:
        """Note that one was started, and that none of it fails to."""
        self._cases.pop(experiment, None)

    def told(
        self, failing: Mapping[str, Iterable[str]], now_s: float
    ) -> dict[str, Trouble]:
        """Return what is to be said now.

        Args:
            failing: of each experiment, the roles that are here and cannot be
                started, by ``role/index``.
            now_s: of the same clock as always.
        """
        found = {}
        for experiment, case in list(self._cases.items()):
            roles = tuple(sorted(failing.get(experiment, ())))
            if roles or now_s < case.until_s:
                found[experiment] = Trouble(reason=case.reason, roles=roles)
            elif now_s > case.until_s + LONGEST_S:
                del self._cases[experiment]  # long ago
        return found
