"""Versions that begin to act -> how long each took from its publication; pure."""

from __future__ import annotations

from schemas.records import NO_POLICY, PolicyRef, PolicyVersion


class Adoption:
    """How soon one worker acts with what its learner publishes.

    A version that a newer one replaces before it could act was never adopted.
    """

    def __init__(self, began_ms: int) -> None:
        """Begin at none; ``began_ms``: what was published before could not act before.

        Times are in milliseconds since the epoch, by two clocks: the learner's, and
        that of the worker.
        """
        self._began_ms = began_ms
        self._acting = NO_POLICY
        self._adopted = 0
        self._last_s: float | None = None
        self._longest_s = 0.0

    def acts(self, version: PolicyVersion, now_ms: int) -> None:
        """Note what acts in the step to come; the same as before is no news."""
        ref = PolicyRef(version.epoch, version.version)
        if ref == self._acting:
            return
        self._acting = ref
        self._adopted += 1
        waited_ms = now_ms - max(version.created_at_ms, self._began_ms)
        self._last_s = max(waited_ms, 0) / 1000
        self._longest_s = max(self._longest_s, self._last_s)

    def begin(self) -> None:
        """Count anew, for another incarnation."""
        self._adopted = 0

    def take(self) -> dict[str, float]:
        """Return how many were adopted, how long the last took, and the longest.

        The longest of those since the last call; where there were none, the last. There
        are no times before the first.
        """
        values: dict[str, float] = {"policies_adopted": self._adopted}
        if self._last_s is not None:
            values["policy_adoption_s"] = self._last_s
            values["policy_adoption_s_max"] = max(self._longest_s, self._last_s)
        self._longest_s = 0.0
        return values
