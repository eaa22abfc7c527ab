"""Environments that crash, and what is no number -> events, not one for each time."""

from __future__ import annotations

import time
from collections.abc import Callable

from infra.monitoring.event_kinds import EventKind, Severity
from infra.monitoring.repeats import Repeats
from producers.tally import Tally

AGAIN_S = 10.0
AGAIN_AT_MOST_S = 600.0


class EnvTroubles:
    """What one process has to say of its environments, and of who acts in them."""

    def __init__(self, event: Callable[[EventKind, Severity, str], None]) -> None:
        """Take what publishes an event."""
        self._event = event
        self._crashes = Repeats(AGAIN_S, AGAIN_AT_MOST_S)
        self._odd_numbers = Repeats(AGAIN_S, AGAIN_AT_MOST_S)
        self._odd_answers = Repeats(AGAIN_S, AGAIN_AT_MOST_S)

    def tell(self, found: Tally) -> None:
        """Publish what went wrong since the last time, where it is time to."""
        now_s = time.monotonic()
        if found.crashes:
            is_told = self._crashes.happens(now_s)
            self._crashes.held_back += found.crashes - 1
            if is_told:
                reason = found.crash + self._crashes.others()
                self._event("worker-env-crashed", "warning", reason)
        if found.odd and self._odd_numbers.happens(now_s):
            judged = found.usable + found.unusable
            much = f"{found.unusable:,} of {judged:,} steps so far"
            reason = f"{found.odd}; {much} cannot be learnt from"
            self._event("env-nonfinite", "warning", reason)
        if found.odd_answer and self._odd_answers.happens(now_s):
            reason = f"{found.odd_answer}; {found.odd_answers:,} so far"
            self._event("policy-nonfinite", "warning", reason)
