"""The experiment's state and the disk -> whether a worker may step at all."""

from __future__ import annotations

from dataclasses import dataclass

from infra.monitoring.event_kinds import Severity
from infra.settings import Settings
from producers.disk import FLOOR_BYTES, is_disk_low
from producers.follow import Followed


@dataclass(frozen=True, slots=True)
class Pause:
    """Why a worker does not step.

    Attributes:
        reason: in short.
        mend: what a person has to do about it; "": nothing is wrong.
    """

    reason: str
    mend: str = ""

    @property
    def severity(self) -> Severity:
        """How bad it is."""
        return "warning" if self.mend else "info"

    def __str__(self) -> str:
        return f"{self.reason}: {self.mend}" if self.mend else self.reason


class Pauses:
    """What keeps a worker from stepping, whatever its credit."""

    def __init__(self, settings: Settings, followed: Followed) -> None:
        self._settings = settings
        self._followed = followed
        self._is_disk_low = False

    def look(self) -> None:
        """See how much room the disk has; takes longer than to remember it."""
        self._is_disk_low = is_disk_low(self._settings)

    def current(self) -> Pause | None:
        """Return why nothing may be stepped now; None: it may."""
        if self._is_disk_low:
            return Pause(
                "the disk of the local cluster is nearly full",
                f"expected {FLOOR_BYTES >> 30} GiB free for {self._settings.data_dir}, "
                "found less; make room, or lower spec.topics.diskBudget",
            )
        if self._followed.state != "running":
            return Pause(f"the experiment is {self._followed.state}")
        return None
