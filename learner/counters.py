"""What a run has done so far: counted across restarts."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Counters:
    """Counters of a run; steps are valid rows unless said otherwise.

    Attributes:
        env_steps: new rows that came.
        samples: rows sampled for updates.
        stale_steps: rows that could have been learnt from, and were not any more: the
            policy that acted was too many versions behind.
        duplicate_steps: rows dropped because they had come before.
        unrestorable_rows: rows of the buffer that a restart could not read again.
        dead_letters: records that could not be read.
        foreign_batches: batches of another run, dropped.
        expired_records: records that the log deleted unread.
        corrupt_records: batches of the log damaged on the broker's disk; none is used.
        nonfinite_losses: updates that were not made.
        given_up_rows: rows sampled for those that do not come again.
        batches: batches inserted.
        blank_batches: batches without a valid row, which are not.
    """

    env_steps: int = 0
    samples: int = 0
    stale_steps: int = 0
    duplicate_steps: int = 0
    unrestorable_rows: int = 0
    dead_letters: int = 0
    foreign_batches: int = 0
    expired_records: int = 0
    corrupt_records: int = 0
    nonfinite_losses: int = 0
    given_up_rows: int = 0
    batches: int = 0
    blank_batches: int = 0

    def state(self) -> dict[str, int]:
        """Return the counters, for a checkpoint or metrics."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Counters:
        """Return the counters of a checkpoint; those it does not know are 0."""
        known = cls().state()
        return cls(**{name: int(state.get(name, 0)) for name in known})
